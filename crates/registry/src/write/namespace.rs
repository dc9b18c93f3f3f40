//! New objects need a namespace that is there and stays, until they are stored.

use cache::Item;
use meta::{Cause, GroupResource, Reason, Status, object};
use store::Revision;

use super::admit::Admit;
use crate::{Registry, Target, grounds::Settled, serve};

impl Registry {
    /// 404 if the namespace is not there, 403 if it is being deleted. What is returned makes the create require the same
    /// when it is committed: the namespace may be deleted, or made anew by somebody else, before that.
    pub(crate) async fn check_namespace(
        &self,
        target: &Target,
        admit: &dyn Admit,
    ) -> Result<Settled, Status> {
        if !target.kind.is_namespaced() || !self.config.namespace_lifecycle {
            return Ok(Settled::default());
        }
        let Some(namespace) = self.namespace_of(target) else { return Ok(Settled::default()) };
        let is_meant = |it: &Item| admit.namespace_made().is_none_or(|made| it.created() == made);
        let found = match self.known(&namespace).await? {
            (Some(item), _) if !item.is_deleting() && is_meant(&item) => {
                return Ok(self.namespace_stays(target, &item));
            }
            (found, true) => found,
            // It may have been made, or deleted and made again, a moment ago.
            (_, false) => self.fresh(&namespace).await?,
        };
        let Some(item) = found else { return Err(missing(target)) };
        if object::is_deleting(&serve::tree(&namespace, &item)) {
            return Err(terminating(target));
        }
        if !is_meant(&item) {
            return Err(replaced(target));
        }
        Ok(self.namespace_stays(target, &item))
    }

    /// The revision that made a namespace, as far as this server knows.
    pub fn namespace_made(&self, name: &str) -> Option<Revision> {
        let kind = self.kinds.get(&namespaces())?;
        let found = kind.collection()?.get(kind.key("", name).as_str()).ok()??;
        Some(found.created())
    }

    /// The namespace that an object is in, where namespaces are served.
    pub(super) fn namespace_of(&self, target: &Target) -> Option<Target> {
        Some(Target {
            kind: self.kinds.get(&namespaces())?,
            group_version: meta::GroupVersion::new("", "v1"),
            namespace: String::new(),
            name: target.namespace.clone(),
            subresource: String::new(),
        })
    }
}

fn namespaces() -> GroupResource {
    GroupResource::new("", "namespaces")
}

/// 404: the namespace of a new object is not there.
pub(crate) fn missing(target: &Target) -> Status {
    Status::not_found(&namespaces(), &target.namespace)
}

/// 409: the namespace was deleted and made anew while an object was created in it. The new one may be somebody else's.
pub(crate) fn replaced(target: &Target) -> Status {
    let why = "the namespace was deleted and created again while the object was created in it";
    Status::conflict(&namespaces(), &target.namespace, why)
}

/// 403: the namespace of a new object is being deleted.
pub(crate) fn terminating(target: &Target) -> Status {
    let namespace = &target.namespace;
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&target.kind.resource, &target.name, &why);
    status.reason = Reason::Forbidden;
    status.details.get_or_insert_default().causes.push(Cause {
        reason: "NamespaceTerminating".to_owned(),
        message: format!("namespace {namespace} is being terminated"),
        field: "metadata.namespace".to_owned(),
    });
    status
}
