//! The labels by which a Job finds its Pods, unless its author insists on choosing them.

use meta::{Map, Value, object};

const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const SELECTED: &str = "batch.kubernetes.io/controller-uid";

/// Labels the Pods of a new Job with its name and uid, and selects them by the latter.
/// What is there already stays: if it is wrong, validation says so.
pub(super) fn select_own_pods(job: &mut Value) {
    let name = object::name(job).to_owned();
    let uid = object::uid(job).to_owned();
    let spec = object::child_mut(object::as_map_mut(job), "spec");
    if spec.get("manualSelector").and_then(Value::as_bool) == Some(true) {
        return;
    }
    let template = object::child_mut(spec, "template");
    let labels = object::child_mut(object::child_mut(template, "metadata"), "labels");
    NAME_LABELS.iter().for_each(|it| add(labels, it, &name));
    UID_LABELS.iter().for_each(|it| add(labels, it, &uid));
    let own = labels.clone();
    let selector = object::child_mut(spec, "selector");
    add(object::child_mut(selector, "matchLabels"), SELECTED, &uid);
    // A Job without labels has those of its Pods, by default; the next write would add them.
    let metadata = object::metadata_mut(job);
    if metadata.get("labels").is_none_or(|it| it.as_object().is_none_or(Map::is_empty)) {
        metadata.insert("labels".to_owned(), Value::Object(own));
    }
}

fn add(labels: &mut Map, label: &str, value: &str) {
    labels.entry(label).or_insert_with(|| Value::from(value));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_selects_its_pods_by_its_uid() {
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": {"template": {"spec": {}}}});
        select_own_pods(&mut job);
        assert_eq!(job["spec"]["selector"], json!({"matchLabels": {SELECTED: "u"}}));
        let labels = json!({
            "job-name": "j", "batch.kubernetes.io/job-name": "j", "controller-uid": "u", SELECTED: "u",
        });
        assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
        assert_eq!(job["metadata"]["labels"], labels);
    }

    #[test]
    fn who_selects_by_hand_gets_no_labels() {
        let spec = json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": {}});
        let mut job = json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec.clone()});
        select_own_pods(&mut job);
        assert_eq!(job["spec"], spec);
    }
}
