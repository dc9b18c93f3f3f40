//! Which fields of which kinds can be selected by, beyond `metadata.name` and `metadata.namespace`.

use cache::{FieldSpec, Item};
use meta::{FieldSelector, RetryAfter, Status};

use crate::{Kind, Target};

/// The selectable fields of a kind: the name in a selector and, behind the arrow where it differs, the path in the object.
/// A value behind `=` stands for an absent field.
fn table(group: &str, resource: &str) -> &'static [&'static str] {
    match (group, resource) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork=false",
            "status.phase",
            "status.podIP",
            // Known, but empty, as upstream has it.
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("" | "events.k8s.io", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source->source.component",
            "type",
        ],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable=false"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas=0"],
        ("batch", "jobs") => &["status.successful->status.succeeded=0"],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => &["spec.signerName"],
        ("certificates.k8s.io", "podcertificaterequests") => {
            &["spec.signerName", "spec.podName", "spec.nodeName"]
        }
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// What the cache must index.
pub(crate) fn selectable(group: &str, resource: &str) -> Vec<FieldSpec> {
    table(group, resource)
        .iter()
        .map(|line| {
            let line = line.split('=').next().unwrap_or_default();
            match line.split_once("->") {
                Some((name, path)) => FieldSpec::at(name, &path.split('.').collect::<Vec<_>>()),
                None => FieldSpec::new(line),
            }
        })
        .collect()
}

/// What a field is called in the table: clients of some groups and versions call it otherwise.
fn listed(target: &Target, field: &str) -> Option<&'static str> {
    let definition = &target.kind.definition;
    let lines = table(&definition.group, &definition.resource);
    let find = |name: &str| lines.iter().copied().find(|it| name_of(it) == name);
    match (&*target.group_version.group, &*definition.resource, field) {
        ("events.k8s.io", "events", field) => match (field, field.strip_prefix("regarding.")) {
            (_, Some(part)) => find(&format!("involvedObject.{part}")),
            ("reportingController", None) => find("reportingComponent"),
            ("reason" | "type", None) => find(field),
            _ => None,
        },
        ("", "pods", "spec.host") => find("spec.nodeName"),
        _ => find(field),
    }
}

/// The value of a selectable field of an object.
pub(crate) fn value<'a>(target: &Target, item: &'a Item, field: &str) -> Option<&'a str> {
    let kind = &target.kind;
    if kind.custom.is_some() {
        let position = kind.collection()?.field_position(field)?;
        return Some(item.field(position));
    }
    let line = listed(target, field)?;
    let position = kind.collection()?.field_position(name_of(line))?;
    match item.field(position) {
        "" => Some(line.split_once('=').map_or("", |(_, absent)| absent)),
        value => Some(value),
    }
}

fn name_of(line: &'static str) -> &'static str {
    let line = line.split('=').next().unwrap_or_default();
    line.split("->").next().unwrap_or_default()
}

/// Refuses a selector on a field that cannot be selected by, in upstream's words.
pub(crate) fn check(target: &Target, selector: &FieldSelector) -> Result<(), Status> {
    let kind = &target.kind;
    let version = target.group_version.version.as_str();
    let custom = kind.custom.as_deref().and_then(|it| it.version(version));
    let is_custom = |field: &str| custom.is_some_and(|it| it.selectable.iter().any(|it| it == field));
    let fields = table(&kind.definition.group, &kind.definition.resource);
    for requirement in selector.requirements() {
        let field = requirement.field.as_str();
        let is_known = matches!(field, "metadata.name")
            || (field == "metadata.namespace" && kind.is_namespaced())
            || listed(target, field).is_some()
            || is_custom(field)
            || (field == "name" && &*kind.definition.resource == "namespaces");
        if is_custom(field) && kind.collection().is_some_and(|it| it.field_position(field).is_none()) {
            // The definition has it; the objects are still being read for it.
            let why = format!("the field {field} of {} is being indexed", kind.resource);
            return Err(Status::unavailable(why, RetryAfter::only_read(1)));
        }
        if !is_known {
            let is_plain = fields.is_empty() && kind.custom.is_none();
            return Err(Status::bad_request(refusal(field, kind, is_plain)));
        }
    }
    Ok(())
}

/// Kinds with fields of their own have their own words upstream.
fn refusal(field: &str, kind: &Kind, is_plain: bool) -> String {
    match (is_plain, kind.is_namespaced()) {
        (false, _) => format!("field label not supported: {field}"),
        (true, _) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
    }
}
