//! Nobody grants what they do not have: writes of roles and bindings are checked against the writer's own rights.
//!
//! The rights are those that this server knows, which may be behind the store. So a write that they justify requires in
//! its transaction that the bindings and roles which justify it are still as they were read, and it is judged again if
//! they are not. A refusal is final only after the server has caught up with the store.

use std::sync::Arc;

use access::{
    Attributes, Authorizer, RbacKind, User,
    rbac::{
        GROUP,
        evidence::{self, Evidence},
        write::RbacWrite,
    },
};
use meta::{GroupResource, Status, Value, grounds::Place};
use parking_lot::Mutex;
use registry::{Basis, Registry, Written};
use store::Revision;

use crate::{api::Call, rbac_feed};

/// How many objects a write may rest on: a store bounds the requirements of a transaction.
const MAX_EVIDENCE: usize = 48;

/// How often a write is judged again because rights change all the time.
const MAX_TRIES: usize = 8;

/// The check of one write.
pub(crate) struct Guard {
    kind: RbacKind,
    user: Arc<User>,
    authorizer: Authorizer,
    registry: Arc<Registry>,
    namespace: String,
    name: String,
    /// What the last verdict rests on.
    basis: Mutex<Vec<Basis>>,
}

impl Guard {
    /// The guard of what this call writes; `None` if that gives nobody rights.
    pub(crate) fn of(call: &Call<'_>) -> Option<Self> {
        Some(Self {
            kind: kind(call)?,
            user: Arc::clone(&call.caller.user),
            authorizer: call.dispatch.authorizer.clone(),
            registry: Arc::clone(call.registry),
            namespace: call.target.namespace.clone(),
            name: call.path.name.clone(),
            basis: Mutex::default(),
        })
    }

    /// Refuses a new object, or the new state (first) of an old one (second).
    pub(crate) async fn check(&self, object: &Value, existing: Option<&Value>) -> Result<(), Status> {
        let basis = match self.judge(object, existing) {
            Ok(basis) => basis,
            Err(_) => {
                rbac_feed::catch_up(&self.registry, self.authorizer.rbac()).await?;
                self.judge(object, existing)?
            }
        };
        *self.basis.lock() = basis;
        Ok(())
    }

    /// What the last verdict rests on.
    pub(crate) fn basis(&self) -> Vec<Basis> {
        self.basis.lock().clone()
    }

    fn judge(&self, object: &Value, existing: Option<&Value>) -> Result<Vec<Basis>, Status> {
        let Self { kind, user, namespace, name, authorizer, .. } = self;
        let write = RbacWrite { user, kind: *kind, namespace, name, object, existing };
        let is_allowed = |attributes: &Attributes<'_>| authorizer.authorize(attributes).is_allowed();
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                access::check_role_write(authorizer.rbac(), &write, &is_allowed)?;
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                access::check_binding_write(authorizer.rbac(), &write, &is_allowed)?;
            }
        }
        if !authorizer.rests_on_policy() {
            return Ok(Vec::new());
        }
        let refuse = |why: &str| {
            let resource = GroupResource::new(GROUP, kind.resource());
            Status::forbidden(&resource, meta::object::name(object), why)
        };
        let found = evidence::of_write(authorizer.rbac(), &write)
            .ok_or_else(|| refuse("the rights of the user have changed meanwhile"))?;
        if found.len() > MAX_EVIDENCE {
            return Err(refuse("the rights that this grants are held by too many roles together"));
        }
        Ok(found.into_iter().map(basis).collect())
    }
}

fn basis(it: Evidence) -> Basis {
    let Evidence { kind, namespace, name, revision } = it;
    let place = Place { group: GROUP.to_owned(), resource: kind.resource().to_owned(), namespace, name };
    Basis { place, revision: Revision::new(revision) }
}

fn kind(call: &Call<'_>) -> Option<RbacKind> {
    let definition = &call.served.definition;
    if &*definition.group == GROUP { RbacKind::from_resource(&definition.resource) } else { None }
}

/// A write that may be tried again.
pub(crate) struct Attempts {
    is_guarded: bool,
    n: usize,
}

impl Attempts {
    pub(crate) fn of(call: &Call<'_>) -> Self {
        Self { is_guarded: kind(call).is_some(), n: 0 }
    }

    /// What is written in the next attempt: the object itself where there is no other.
    pub(crate) fn next<T: Clone>(&self, object: &mut Option<T>) -> Option<T> {
        if self.is_guarded { object.clone() } else { object.take() }
    }

    /// Whether to try again, because rights that justified the write have changed before it was committed.
    pub(crate) async fn again(
        &mut self,
        call: &Call<'_>,
        result: &Result<Written, Status>,
    ) -> Result<bool, Status> {
        self.n += 1;
        let is_outdated = result.as_ref().is_err_and(registry::is_outdated);
        if !self.is_guarded || !is_outdated || self.n >= MAX_TRIES {
            return Ok(false);
        }
        rbac_feed::catch_up(call.registry, call.dispatch.authorizer.rbac()).await?;
        Ok(true)
    }
}
