//! The status of ResourceClaims: who says which devices a claim has, and who reports on them. Upstream's registry asks for
//! rights of their own since 1.36, on subresources that serve nothing: `resourceclaims/binding` for the whole cluster, and
//! `resourceclaims/driver` for each driver whose devices are reported on.

use std::collections::BTreeSet;

use access::Target;
use meta::{FieldError, FieldErrors, GroupKind, Release, Status, Value, object};

use crate::{Attributes, Operation, Rights};

const GROUP: &str = "resource.k8s.io";
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// 422 if the caller may write the status, but not these parts of it.
pub(crate) fn check(
    attributes: &Attributes<'_>,
    new: &Value,
    old: Option<&Value>,
    rights: &Rights<'_>,
) -> Result<(), Status> {
    let resource = &attributes.resource;
    let is_status = (&*resource.group, &*resource.resource, attributes.subresource)
        == (GROUP, "resourceclaims", "status");
    let (Some(old), Operation::Update, true) = (old, attributes.operation, is_status) else { return Ok(()) };
    if rights.release < Release::v1(36) {
        return Ok(());
    }
    let mut errors = check_binding(attributes, new, old, rights);
    errors.extend(check_drivers(attributes, new, old, rights));
    if errors.is_empty() {
        return Ok(());
    }
    Err(FieldErrors(errors).into_status(&GroupKind::new(GROUP, "ResourceClaim"), object::name(new)))
}

/// Which devices a claim has, and for whom, is the scheduler's word.
fn check_binding(
    attributes: &Attributes<'_>,
    new: &Value,
    old: &Value,
    rights: &Rights<'_>,
) -> Vec<FieldError> {
    if ["allocation", "reservedFor"].iter().all(|field| part(new, field) == part(old, field)) {
        return Vec::new();
    }
    match ask(attributes, rights, rights.verb, ("binding", "", "")) {
        Ok(()) => Vec::new(),
        Err(status) => {
            let detail = format!(
                "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
                 verb=\"{}\" permission: {}",
                rights.verb, status.message
            );
            vec![FieldError::forbidden("status.allocation", detail)]
        }
    }
}

/// What devices report is the word of their driver: on the node of the claim, or anywhere.
fn check_drivers(
    attributes: &Attributes<'_>,
    new: &Value,
    old: &Value,
    rights: &Rights<'_>,
) -> Vec<FieldError> {
    let everywhere = format!("arbitrary-node:{}", rights.verb);
    let mut verbs = vec![everywhere];
    if is_on_node_of_claim(attributes, new) {
        verbs.insert(0, format!("associated-node:{}", rights.verb));
    }
    let mut errors = Vec::new();
    for driver in changed_drivers(new, old) {
        let place = ("driver", attributes.namespace, driver);
        let mut asked = verbs.iter().map(|verb| ask(attributes, rights, verb, place));
        let Some(Err(first)) = asked.next() else { continue };
        if asked.any(|it| it.is_ok()) {
            continue;
        }
        let detail = format!(
            "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {}",
            verbs.join(" "),
            first.message
        );
        errors.push(FieldError::forbidden("status.devices", detail));
    }
    errors
}

fn ask(
    attributes: &Attributes<'_>,
    rights: &Rights<'_>,
    verb: &str,
    (subresource, namespace, name): (&str, &str, &str),
) -> Result<(), Status> {
    let version = attributes.resource.version.as_str();
    let target =
        Target::Resource { group: GROUP, version, resource: "resourceclaims", subresource, namespace, name };
    (rights.ask)(&access::Attributes { user: attributes.user, verb, target })
}

/// A part of the status; what is empty is the same as what is not there.
fn part<'a>(claim: &'a Value, field: &str) -> Option<&'a Value> {
    let found = claim.get("status").and_then(|it| it.get(field))?;
    let is_empty = found.is_null() || found.as_array().is_some_and(Vec::is_empty);
    (!is_empty).then_some(found)
}

fn devices(claim: &Value) -> &[Value] {
    part(claim, "devices").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The drivers of devices that are reported on anew, otherwise, or no longer. When a claim loses its devices, so do their
/// reports, which is nobody's word.
fn changed_drivers<'a>(new: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    let (now, then) = (devices(new), devices(old));
    let mut changed: BTreeSet<&str> =
        now.iter().filter(|it| differs(it, then)).map(|it| text(it, "driver")).collect();
    if part(new, "allocation").is_some() {
        changed.extend(then.iter().filter(|it| differs(it, now)).map(|it| text(it, "driver")));
    }
    changed
}

/// Whether the others do not have the same report on this device.
fn differs(report: &Value, others: &[Value]) -> bool {
    let same = |it: &&Value| {
        ["driver", "pool", "device", "shareID"].iter().all(|field| text(it, field) == text(report, field))
    };
    others.iter().find(same).is_none_or(|it| it != report)
}

fn text<'a>(report: &'a Value, field: &str) -> &'a str {
    report.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the caller is a ServiceAccount whose token is of the one node that the claim has its devices on.
fn is_on_node_of_claim(attributes: &Attributes<'_>, claim: &Value) -> bool {
    let user = attributes.user;
    let own = user.extra.get(NODE_NAME).map(Vec::as_slice);
    match (own, node_of(claim)) {
        (Some([own]), Some(node)) => {
            user.name.starts_with("system:serviceaccount:") && !own.is_empty() && own == node
        }
        _ => false,
    }
}

/// The node that an allocation names, if it names one by its name and by nothing else.
fn node_of(claim: &Value) -> Option<&str> {
    let only = |it: &'_ Value| it.as_array().filter(|it| it.len() == 1).is_some();
    let terms = claim.pointer("/status/allocation/nodeSelector/nodeSelectorTerms").filter(|it| only(it))?;
    let term = terms.get(0)?;
    let has_expressions =
        term.get("matchExpressions").and_then(Value::as_array).is_some_and(|it| !it.is_empty());
    let field = term.get("matchFields").filter(|it| only(it))?.get(0)?;
    let is_name = field.get("key").and_then(Value::as_str) == Some("metadata.name")
        && field.get("operator").and_then(Value::as_str) == Some("In");
    let values = field.get("values").filter(|it| only(it))?;
    if has_expressions || !is_name { None } else { values.get(0)?.as_str() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(devices: &Value) -> Value {
        json!({"status": {"allocation": {}, "devices": devices}})
    }

    #[test]
    fn drivers_answer_for_what_changes_of_their_devices() {
        let of =
            |driver: &str, state: &str| json!({"driver": driver, "pool": "p", "device": "d", "data": state});
        let before = claim(&json!([of("a", "1"), of("b", "1")]));
        let check = |now: &Value, want: &[&str]| {
            assert_eq!(changed_drivers(now, &before).into_iter().collect::<Vec<_>>(), want, "{now}");
        };
        check(&before, &[]);
        check(&claim(&json!([of("b", "1"), of("a", "1")])), &[]);
        check(&claim(&json!([of("a", "2"), of("b", "1")])), &["a"]);
        check(&claim(&json!([of("a", "1")])), &["b"]);
        check(&claim(&json!([of("a", "1"), of("b", "1"), of("c", "1")])), &["c"]);
        check(&json!({"status": {}}), &[]);
    }

    #[test]
    fn a_claim_is_on_a_node_that_its_selector_names_alone() {
        let selector =
            |terms: Value| json!({"status": {"allocation": {"nodeSelector": {"nodeSelectorTerms": terms}}}});
        let by_name = |names: Value| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]});
        assert_eq!(node_of(&selector(json!([by_name(json!(["n"]))]))), Some("n"));
        assert_eq!(node_of(&selector(json!([by_name(json!(["n", "m"]))]))), None);
        assert_eq!(node_of(&selector(json!([by_name(json!(["n"])), by_name(json!(["n"]))]))), None);
        assert_eq!(node_of(&json!({"status": {"allocation": {}}})), None);
    }
}
