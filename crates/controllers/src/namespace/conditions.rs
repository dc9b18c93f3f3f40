//! What people read about a deletion that takes its time: `status.phase` and five conditions, in upstream's words. Pure.

use std::collections::BTreeMap;

use meta::{Value, object};
use serde_json::json;

use super::plan::Seen;
use crate::discovery::Undiscovered;

/// One condition as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    kind: &'static str,
    /// `True` means trouble.
    is_true: bool,
    reason: &'static str,
    message: String,
}

/// Type, and reason and message where all is well.
const DISCOVERY: Fine =
    Fine("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered");
const PARSING: Fine = Fine(
    "NamespaceDeletionGroupVersionParsingFailure",
    "ParsedGroupVersions",
    "All legacy kube types successfully parsed",
);
const CONTENT: Fine = Fine(
    "NamespaceDeletionContentFailure",
    "ContentDeleted",
    "All content successfully deleted, may be waiting on finalization",
);
const REMAINING: Fine =
    Fine("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed");
const FINALIZERS: Fine = Fine(
    "NamespaceFinalizersRemaining",
    "ContentHasNoFinalizers",
    "All content-preserving finalizers finished",
);

struct Fine(&'static str, &'static str, &'static str);

impl Fine {
    /// The condition: well if there is no trouble.
    fn or(self, trouble: Option<(&'static str, String)>) -> Condition {
        let Self(kind, reason, message) = self;
        match trouble {
            None => Condition { kind, is_true: false, reason, message: message.to_owned() },
            Some((reason, message)) => Condition { kind, is_true: true, reason, message },
        }
    }
}

/// The five conditions.
pub(crate) fn conditions(seen: &Seen) -> [Condition; 5] {
    let (undiscovered, unparsable) = match &seen.discovered {
        Ok(_) => (None, None),
        Err(Undiscovered::Failed(why)) => (Some(("DiscoveryFailed", why.clone())), None),
        Err(Undiscovered::Unparsable(why)) => (None, Some(("GroupVersionParsingFailed", why.clone()))),
    };
    [
        DISCOVERY.or(undiscovered),
        PARSING.or(unparsable),
        CONTENT.or(content_failure(seen)),
        REMAINING.or(content_remaining(seen)),
        FINALIZERS.or(finalizers_remaining(seen)),
    ]
}

/// The namespace with these conditions and the phase `Terminating`; `None` if that is what it has. Conditions of
/// other types stay as they are.
pub(crate) fn with_status(namespace: &Value, conditions: &[Condition], now: &str) -> Option<Value> {
    let mut changed = namespace.clone();
    let status = object::child_mut(object::as_map_mut(&mut changed), "status");
    status.insert("phase".to_owned(), json!("Terminating"));
    if !conditions.is_empty() {
        let existing = status.entry("conditions").or_insert_with(|| json!([]));
        if !existing.is_array() {
            *existing = json!([]);
        }
        let existing = existing.as_array_mut().expect("the conditions must be an array by now");
        for condition in conditions {
            put(existing, condition, now);
        }
    }
    (changed != *namespace).then_some(changed)
}

/// The time of transition moves only with the status, as upstream has it.
fn put(existing: &mut Vec<Value>, condition: &Condition, now: &str) {
    let Condition { kind, is_true, reason, message } = condition;
    let status = if *is_true { "True" } else { "False" };
    let mut wanted = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match existing.iter_mut().find(|it| it["type"] == *kind) {
        None => existing.push(wanted),
        Some(old) => {
            if old["status"] == wanted["status"] && old.get("lastTransitionTime").is_some() {
                wanted["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = wanted;
        }
    }
}

fn content_failure(seen: &Seen) -> Option<(&'static str, String)> {
    let failures: Vec<String> = seen.failures().into_iter().collect();
    let message =
        format!("Failed to delete all resource types, {} remaining: {}", failures.len(), failures.join(", "));
    (!failures.is_empty()).then_some(("ContentDeletionFailed", message))
}

fn content_remaining(seen: &Seen) -> Option<(&'static str, String)> {
    let known = seen.content.iter().filter_map(|(resource, it)| Some((resource, it.as_ref().ok()?)));
    let left = known.filter(|(_, it)| it.n_objects > 0);
    let mut left: Vec<String> = left
        .map(|(it, content)| {
            format!("{}.{} has {} resource instances", it.resource, it.group, content.n_objects)
        })
        .collect();
    left.sort();
    left.extend(seen.unserved.clone());
    let message = format!("Some resources are remaining: {}", left.join(", "));
    (!left.is_empty()).then_some(("SomeResourcesRemain", message))
}

fn finalizers_remaining(seen: &Seen) -> Option<(&'static str, String)> {
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for (finalizer, n_objects) in seen.content.values().flatten().flat_map(|it| &it.finalizers) {
        *totals.entry(finalizer).or_default() += n_objects;
    }
    let left: Vec<String> = totals.iter().map(|(it, n)| format!("{it} in {n} resource instances")).collect();
    let message = format!("Some content in the namespace has finalizers remaining: {}", left.join(", "));
    (!left.is_empty()).then_some(("SomeFinalizersRemain", message))
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Content, Resource};
    use super::*;

    fn resource(group: &str, resource: &str) -> Resource {
        let (group, resource) = (group.to_owned(), resource.to_owned());
        Resource { group, version: "v1".to_owned(), resource, can_delete_collection: true }
    }

    fn content(n_objects: usize, finalizers: &[(&str, usize)]) -> Result<Content, String> {
        let finalizers = finalizers.iter().map(|(it, n)| ((*it).to_owned(), *n)).collect();
        Ok(Content { n_objects, n_staying: 0, finalizers })
    }

    /// The conditions that say `True`.
    fn check(seen: &Seen, expect: &[(&str, &str, &str)]) {
        let conditions = conditions(seen);
        let troubles: Vec<_> = conditions
            .iter()
            .filter(|it| it.is_true)
            .map(|it| (it.kind, it.reason, it.message.as_str()))
            .collect();
        assert_eq!(troubles, expect);
    }

    #[test]
    fn trouble_is_told_in_upstreams_words() {
        let mut seen = Seen::new("ns", Ok(Vec::new()));
        check(&seen, &[]);
        seen.content.insert(resource("", "configmaps"), content(2, &[("x/y", 1), ("a/b", 2)]));
        seen.content.insert(resource("apps", "deployments"), content(1, &[("x/y", 1)]));
        seen.content.insert(resource("", "secrets"), content(0, &[]));
        let remaining = "Some resources are remaining: configmaps. has 2 resource instances, \
                         deployments.apps has 1 resource instances";
        let finalizers = "Some content in the namespace has finalizers remaining: a/b in 2 resource instances, \
                          x/y in 2 resource instances";
        let expect = [
            ("NamespaceContentRemaining", "SomeResourcesRemain", remaining),
            ("NamespaceFinalizersRemaining", "SomeFinalizersRemain", finalizers),
        ];
        check(&seen, &expect);
        seen.content.clear();
        seen.unserved = Some("2 keys nobody serves".to_owned());
        let remaining = "Some resources are remaining: 2 keys nobody serves";
        check(&seen, &[("NamespaceContentRemaining", "SomeResourcesRemain", remaining)]);
        seen.unserved = None;
        seen.content.insert(resource("", "pods"), Err("later".to_owned()));
        seen.deletions.insert(resource("", "secrets"), Err("forbidden".to_owned()));
        let failed = "Failed to delete all resource types, 2 remaining: forbidden, later";
        check(&seen, &[("NamespaceDeletionContentFailure", "ContentDeletionFailed", failed)]);
        let seen = Seen::new("ns", Err(Undiscovered::Failed("no answer".to_owned())));
        check(&seen, &[("NamespaceDeletionDiscoveryFailure", "DiscoveryFailed", "no answer")]);
        let seen = Seen::new("ns", Err(Undiscovered::Unparsable("odd".to_owned())));
        check(&seen, &[("NamespaceDeletionGroupVersionParsingFailure", "GroupVersionParsingFailed", "odd")]);
    }

    #[test]
    fn a_status_is_written_only_when_it_says_something_new() {
        let namespace = json!({"metadata": {"name": "ns"}, "status": {"conditions": [{"type": "Other", "status": "True"}]}});
        let mut seen = Seen::new("ns", Ok(Vec::new()));
        let first = with_status(&namespace, &conditions(&seen), "T1").unwrap();
        assert_eq!(first["status"]["phase"], "Terminating");
        assert_eq!(first["status"]["conditions"][0], json!({"type": "Other", "status": "True"}));
        assert_eq!(first["status"]["conditions"].as_array().unwrap().len(), 6);
        let expect = json!({
            "type": "NamespaceContentRemaining", "status": "False", "reason": "ContentRemoved",
            "message": "All content successfully removed", "lastTransitionTime": "T1",
        });
        assert_eq!(first["status"]["conditions"][4], expect);
        assert_eq!(with_status(&first, &conditions(&seen), "T2"), None);

        seen.content.insert(resource("", "pods"), content(1, &[]));
        let second = with_status(&first, &conditions(&seen), "T3").unwrap();
        assert_eq!(second["status"]["conditions"][4]["lastTransitionTime"], "T3");
        assert_eq!(second["status"]["conditions"][3], first["status"]["conditions"][3]);
        seen.content.insert(resource("", "pods"), content(2, &[]));
        let third = with_status(&second, &conditions(&seen), "T4").unwrap();
        assert_eq!(third["status"]["conditions"][4]["lastTransitionTime"], "T3");
    }

    #[test]
    fn the_phase_alone_can_be_announced() {
        let namespace = json!({"metadata": {"name": "ns"}, "status": {"phase": "Active"}});
        let announced = with_status(&namespace, &[], "T").unwrap();
        assert_eq!(announced, json!({"metadata": {"name": "ns"}, "status": {"phase": "Terminating"}}));
        assert_eq!(with_status(&announced, &[], "T"), None);
    }
}
