//! Which fields of which kinds can be selected by, beyond `metadata.name` and `metadata.namespace`.

use cache::{FieldSpec, Item};
use meta::{FieldSelector, Status};

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

/// The value of a selectable field of an object.
pub(crate) fn value<'a>(kind: &Kind, item: &'a Item, field: &str) -> Option<&'a str> {
    if kind.custom.is_some() {
        let position = kind.collection()?.field_position(field)?;
        return Some(item.field(position));
    }
    let fields = table(&kind.definition.group, &kind.definition.resource);
    let position = fields.iter().position(|it| name_of(it) == field)?;
    match item.field(position) {
        "" => Some(fields[position].split_once('=').map_or("", |(_, absent)| absent)),
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
            || fields.iter().any(|it| name_of(it) == field)
            || is_custom(field)
            || (field == "name" && &*kind.definition.resource == "namespaces");
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
