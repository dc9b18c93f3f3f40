//! New objects need a namespace that is there and stays.

use meta::{Cause, GroupResource, Reason, Status, object};

use crate::{Registry, Target, serve};

impl Registry {
    /// 404 if the namespace is not there, 403 if it is being deleted.
    pub(crate) async fn check_namespace(&self, target: &Target) -> Result<(), Status> {
        if !target.kind.is_namespaced() || !self.config.namespace_lifecycle {
            return Ok(());
        }
        let Some(kind) = self.kinds.get(&GroupResource::new("", "namespaces")) else { return Ok(()) };
        let namespace = Target {
            kind,
            group_version: meta::GroupVersion::new("", "v1"),
            namespace: String::new(),
            name: target.namespace.clone(),
            subresource: String::new(),
        };
        let cached = self.collection(&namespace)?.get(namespace.key().as_str());
        let found = match cached {
            Some(item) if !item.is_deleting() => return Ok(()),
            // It may have been made, or deleted and made again, a moment ago.
            _ => self.fresh(&namespace).await?,
        };
        let Some(item) = found else {
            return Err(Status::not_found(&namespace.kind.resource, &namespace.name));
        };
        let is_deleting = object::is_deleting(&serve::tree(&namespace, &item));
        if is_deleting { Err(terminating(target)) } else { Ok(()) }
    }
}

fn terminating(target: &Target) -> Status {
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
