//! What must hold before a role or a binding is written, so that nobody grants what they do not have; and how
//! aggregated ClusterRoles are put together.
//!
//! Deliberately not here: the checks of the objects' form. Those belong to validation.

use meta::{GroupResource, Status, Value, object};
use serde_json::json;

use super::{GROUP, Rbac, RbacKind};
use crate::attributes::{Attributes, Target};
use crate::user::MASTERS;
use crate::{PolicyRule, User};

/// A write of a role or a binding that is about to happen.
#[derive(Clone, Copy, Debug)]
pub struct RbacWrite<'a> {
    pub user: &'a User,
    pub kind: RbacKind,
    /// The namespace of the request; empty for cluster-wide kinds.
    pub namespace: &'a str,
    /// The name in the request's path; empty when creating.
    pub name: &'a str,
    pub object: &'a Value,
    /// The stored object, when updating.
    pub existing: Option<&'a Value>,
}

/// Whether this Role or ClusterRole may be written: the writer is in `system:masters`, or may `escalate` the role,
/// or holds all of its rules already. `is_allowed` asks the authorizer.
pub fn check_role_write(
    rbac: &Rbac,
    write: &RbacWrite<'_>,
    is_allowed: &dyn Fn(&Attributes<'_>) -> bool,
) -> Result<(), Status> {
    let RbacWrite { user, kind, namespace, object, .. } = *write;
    if user.is_in(MASTERS) || is_allowed(&escalating(write)) || is_housekeeping(write) {
        return Ok(());
    }
    let forbid = |why: &str| Status::forbidden(&resource(kind), object::name(object), why);
    rbac.check_escalation(user, namespace, &PolicyRule::all_from_json(object)).map_err(|it| forbid(&it))?;
    if is_aggregated(write) {
        rbac.check_escalation(user, namespace, &everything())
            .map_err(|_| forbid("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

/// Whether this binding may be written: the writer is in `system:masters`, or may `bind` the role, or holds all of
/// the role's rules already. `is_allowed` asks the authorizer.
pub fn check_binding_write(
    rbac: &Rbac,
    write: &RbacWrite<'_>,
    is_allowed: &dyn Fn(&Attributes<'_>) -> bool,
) -> Result<(), Status> {
    let RbacWrite { user, kind, namespace, object, .. } = *write;
    if user.is_in(MASTERS) || is_housekeeping(write) {
        return Ok(());
    }
    let role = RoleReference::of(object);
    if role.is_known() && is_allowed(&role.binding(write)) {
        return Ok(());
    }
    rbac.check_role(user, role.kind, namespace, role.name)
        .ok_or_else(|| Status::not_found(&GroupResource::new(GROUP, role.resource()), role.name))?
        .map_err(|why| Status::forbidden(&resource(kind), object::name(object), &why))
}

/// The right to write a role with rules that the writer does not have.
pub(super) fn escalating<'a>(write: &RbacWrite<'a>) -> Attributes<'a> {
    let RbacWrite { user, kind, namespace, name, .. } = *write;
    let resource = kind.resource();
    let target = Target::Resource { group: GROUP, version: "v1", resource, subresource: "", namespace, name };
    Attributes { user, verb: "escalate", target }
}

/// The role that a binding names.
pub(super) struct RoleReference<'a> {
    group: &'a str,
    pub(super) kind: &'a str,
    pub(super) name: &'a str,
}

impl<'a> RoleReference<'a> {
    pub(super) fn of(binding: &'a Value) -> Self {
        let text =
            |field| binding.get("roleRef").and_then(|it| it.get(field)).and_then(Value::as_str).unwrap_or("");
        let group = if text("apiGroup").is_empty() { GROUP } else { text("apiGroup") };
        Self { group, kind: text("kind"), name: text("name") }
    }

    pub(super) fn is_known(&self) -> bool {
        matches!(self.kind, "ClusterRole" | "Role")
    }

    fn resource(&self) -> &'static str {
        match self.kind {
            "ClusterRole" => RbacKind::ClusterRole.resource(),
            _ => RbacKind::Role.resource(),
        }
    }

    /// The right to bind it whatever its rules are.
    pub(super) fn binding(&self, write: &RbacWrite<'a>) -> Attributes<'a> {
        let (group, resource, name) = (self.group, self.resource(), self.name);
        let namespace = write.namespace;
        let target = Target::Resource { group, version: "v1", resource, subresource: "", namespace, name };
        Attributes { user: write.user, verb: "bind", target }
    }
}

/// Whether nothing changes that gives rights.
pub(super) fn is_housekeeping(write: &RbacWrite<'_>) -> bool {
    write.existing.is_some_and(|it| changes_only_housekeeping(it, write.object))
}

/// Whether the role is, or was, put together from others.
pub(super) fn is_aggregated(write: &RbacWrite<'_>) -> bool {
    write.kind == RbacKind::ClusterRole
        && (has_aggregation_rule(write.object) || write.existing.is_some_and(has_aggregation_rule))
}

/// All that there is.
pub(super) fn everything() -> [PolicyRule; 2] {
    [PolicyRule::resources(&["*"], &["*"], &["*"]), PolicyRule::urls(&["*"], &["*"])]
}

/// The rules of an aggregated ClusterRole: those of all roles that a selector of `rule` picks, by name, each once.
/// `rule` is the object's `aggregationRule`; the aggregated role itself is left out by its `own_name`.
pub fn aggregate(rule: &Value, own_name: &str, all_cluster_roles: &[&Value]) -> Vec<PolicyRule> {
    let empty = Vec::new();
    let selectors = rule.get("clusterRoleSelectors").and_then(Value::as_array).unwrap_or(&empty);
    let mut roles: Vec<&Value> = all_cluster_roles.to_vec();
    roles.sort_by(|a, b| object::name(a).cmp(object::name(b)));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors {
        for role in roles.iter().filter(|it| object::name(it) != own_name && selects(selector, it)) {
            for rule in PolicyRule::all_from_json(role) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
    }
    rules
}

/// Whether the labels of the object fit a `LabelSelector` in JSON. An empty selector picks everything.
fn selects(selector: &Value, role: &Value) -> bool {
    let labels = role.get("metadata").and_then(|it| it.get("labels")).unwrap_or(&Value::Null);
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let matches_labels = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .is_none_or(|it| it.iter().all(|(key, value)| label(key) == value.as_str()));
    let empty = Vec::new();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).unwrap_or(&empty);
    matches_labels && expressions.iter().all(|it| expression_fits(it, &label))
}

fn expression_fits<'a>(expression: &Value, label: &dyn Fn(&str) -> Option<&'a str>) -> bool {
    let text = |field| expression.get(field).and_then(Value::as_str).unwrap_or("");
    let found = label(text("key"));
    let is_listed = || {
        let values = expression.get("values").and_then(Value::as_array);
        values.is_some_and(|it| it.iter().any(|value| value.as_str() == found))
    };
    match text("operator") {
        "In" => found.is_some() && is_listed(),
        "NotIn" => found.is_none() || !is_listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        _ => false,
    }
}

fn resource(kind: RbacKind) -> GroupResource {
    GroupResource::new(GROUP, kind.resource())
}

fn has_aggregation_rule(role: &Value) -> bool {
    let selectors = role.get("aggregationRule").and_then(|it| it.get("clusterRoleSelectors"));
    selectors.and_then(Value::as_array).is_some_and(|it| !it.is_empty())
}

/// Only what the garbage collector changes: owners, finalizers, and who manages which field.
pub fn changes_only_housekeeping(existing: &Value, wanted: &Value) -> bool {
    let stripped = |value: &Value| {
        let mut value = value.clone();
        let metadata = object::metadata_mut(&mut value);
        for field in ["ownerReferences", "finalizers", "managedFields"] {
            metadata.remove(field);
        }
        for field in ["labels", "annotations"] {
            if metadata.get(field) == Some(&json!({})) {
                metadata.remove(field);
            }
        }
        value
    };
    stripped(existing) == stripped(wanted)
}
