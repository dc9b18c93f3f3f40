//! Nobody grants what they do not have: writes of roles and bindings are checked against the writer's own rights.

use access::{Attributes, Authorizer, RbacKind, rbac::write::RbacWrite};
use meta::{Status, Value};

use crate::{api::Call, chain::Caller};

/// Refuses a new object, or the new state (first) of an old one (second).
pub(crate) type Review = dyn Fn(&Value, Option<&Value>) -> Result<(), Status> + Send + Sync;

/// The check for what this call writes.
pub(crate) fn review<'a>(
    call: &Call<'a>,
) -> impl Fn(&Value, Option<&Value>) -> Result<(), Status> + Send + Sync + 'static {
    let kind = match (&*call.served.definition.group, &*call.served.definition.resource) {
        ("rbac.authorization.k8s.io", "roles") => Some(RbacKind::Role),
        ("rbac.authorization.k8s.io", "clusterroles") => Some(RbacKind::ClusterRole),
        ("rbac.authorization.k8s.io", "rolebindings") => Some(RbacKind::RoleBinding),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => Some(RbacKind::ClusterRoleBinding),
        _ => None,
    };
    let caller = call.caller.clone();
    let authorizer = call.dispatch.authorizer.clone();
    let namespace = call.target.namespace.clone();
    let name = call.path.name.clone();
    move |object, existing| match kind {
        None => Ok(()),
        Some(kind) => check(&authorizer, &caller, kind, &namespace, &name, object, existing),
    }
}

fn check(
    authorizer: &Authorizer,
    caller: &Caller,
    kind: RbacKind,
    namespace: &str,
    name: &str,
    object: &Value,
    existing: Option<&Value>,
) -> Result<(), Status> {
    let write = RbacWrite { user: &caller.user, kind, namespace, name, object, existing };
    let is_allowed = |attributes: &Attributes<'_>| authorizer.authorize(attributes).is_allowed();
    match kind {
        RbacKind::Role | RbacKind::ClusterRole => {
            access::check_role_write(authorizer.rbac(), &write, &is_allowed)
        }
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
            access::check_binding_write(authorizer.rbac(), &write, &is_allowed)
        }
    }
}
