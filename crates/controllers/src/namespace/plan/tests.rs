//! Tables for every step of a pass.

use serde_json::json;

use super::*;

fn resource(name: &str) -> Resource {
    let (resource, group) = name.split_once('.').unwrap_or((name, ""));
    Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        can_delete_collection: true,
    }
}

/// Reads what a pass knows: `pods` not looked at, `pods=0`, `pods=3` none of which is going, `pods=3/1` of which one
/// is not, `pods=?` unknown, and after a blank what came of a deletion: `ok` or `bad`.
fn seen(lines: &[&str]) -> Seen {
    let name = |line: &str| resource(line.split(['=', ' ']).next().unwrap());
    let mut seen = Seen::new("ns", Ok(lines.iter().map(|it| name(it)).collect()));
    for line in lines {
        let (what, deletion) = line.split_once(' ').unwrap_or((line, ""));
        if let Some((_, count)) = what.split_once('=') {
            let (n_objects, n_staying) = count.split_once('/').unwrap_or((count, count));
            let content = n_objects.parse().map_err(|_| format!("{} is unknown", name(line).resource)).map(
                |n_objects| Content {
                    n_objects,
                    n_staying: n_staying.parse().unwrap(),
                    ..Content::default()
                },
            );
            seen.content.insert(name(line), content);
        }
        match deletion {
            "ok" => drop(seen.deletions.insert(name(line), Ok(()))),
            "bad" => drop(seen.deletions.insert(name(line), Err("no".to_owned()))),
            _ => {}
        }
    }
    seen
}

fn check(lines: &[&str], expect: &Plan) {
    assert_eq!(plan(&seen(lines)), *expect, "{lines:?}");
}

fn resources(names: &[&str]) -> Vec<Resource> {
    names.iter().map(|it| resource(it)).collect()
}

fn unknown(why: &str) -> Plan {
    Plan::Wait(Waiting::ForKnowledge(why.to_owned()))
}

#[test]
fn pods_go_first_then_the_rest_then_the_namespace() {
    check(&["pods", "secrets"], &Plan::Look(resources(&["pods"])));
    check(&["pods=2", "secrets"], &Plan::Delete(resources(&["pods"])));
    check(&["pods ok", "secrets"], &Plan::Look(resources(&["pods"])));
    check(&["pods=2/0 ok", "secrets"], &Plan::Wait(Waiting::ForContent));
    check(
        &["pods=0 ok", "secrets", "widgets.example.org"],
        &Plan::Look(resources(&["secrets", "widgets.example.org"])),
    );
    check(&["pods=0", "secrets=1", "widgets.example.org=0"], &Plan::Delete(resources(&["secrets"])));
    check(&["pods=0", "secrets ok", "widgets.example.org=0"], &Plan::Look(resources(&["secrets"])));
    check(&["pods=0", "secrets=0 ok", "widgets.example.org=0"], &Plan::Finish);
    check(&["secrets=0"], &Plan::Finish);
    check(&[], &Plan::Finish);
}

#[test]
fn pods_of_other_groups_are_not_pods() {
    check(&["pods.metrics.k8s.io", "pods"], &Plan::Look(resources(&["pods"])));
}

#[test]
fn what_is_going_already_is_waited_for_and_not_deleted_again() {
    check(&["pods=1/0", "secrets"], &Plan::Wait(Waiting::ForContent));
    check(&["pods=0", "secrets=3/0"], &Plan::Wait(Waiting::ForContent));
    check(&["pods=0", "secrets=3/1"], &Plan::Delete(resources(&["secrets"])));
}

#[test]
fn the_unknown_keeps_a_namespace() {
    check(&["pods=?", "secrets"], &unknown("pods is unknown"));
    check(&["pods=0", "secrets=?", "services=0"], &unknown("secrets is unknown"));
    // What is known is deleted all the same.
    check(&["pods=0", "secrets=?", "services=1"], &Plan::Delete(resources(&["services"])));
    check(&["pods=0", "secrets=?", "services=0 ok"], &unknown("secrets is unknown"));
    check(&["pods=0", "secrets=0 bad"], &unknown("no"));
}

#[test]
fn a_deletion_without_effect_is_a_failure() {
    let why = "unexpected items still remain in namespace: ns for gvr: /v1, Resource=secrets";
    check(&["pods=0", "secrets=1 ok"], &unknown(why));
    check(&["pods=0", "secrets=1/0 ok"], &Plan::Wait(Waiting::ForContent));
}

#[test]
fn without_complete_discovery_nothing_is_deleted() {
    for undiscovered in [Undiscovered::Failed("503".to_owned()), Undiscovered::Unparsable("503".to_owned())] {
        assert_eq!(plan(&Seen::new("ns", Err(undiscovered))), unknown("503"));
    }
}

#[test]
fn only_deleted_namespaces_with_our_finalizer_are_due() {
    let check = |namespace: Value, expect: bool| assert_eq!(is_due(&namespace), expect, "{namespace}");
    let deleted = json!({"deletionTimestamp": "2026-11-15T00:00:00Z"});
    check(json!({"metadata": deleted, "spec": {"finalizers": ["kubernetes"]}}), true);
    check(json!({"metadata": deleted, "spec": {"finalizers": ["example.org/mine"]}}), false);
    check(json!({"metadata": deleted, "spec": {}}), false);
    check(json!({"metadata": {}, "spec": {"finalizers": ["kubernetes"]}}), false);
    check(json!({"spec": {"finalizers": "kubernetes"}}), false);
}

#[test]
fn only_our_finalizer_is_taken_off() {
    let namespace =
        json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["x/y", "kubernetes"], "more": 1}});
    assert!(is_held_by_others(&namespace));
    let expect = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["x/y"], "more": 1}});
    assert_eq!(finalized(namespace), Some(expect.clone()));
    assert_eq!(finalized(expect), None);
    assert_eq!(finalized(json!({})), None);
    assert!(!is_held_by_others(&json!({"spec": {"finalizers": ["kubernetes"]}})));
    assert!(is_held_by_others(
        &json!({"metadata": {"finalizers": ["a/b"]}, "spec": {"finalizers": ["kubernetes"]}})
    ));
}

#[test]
fn pauses_grow_with_the_age_of_the_deletion() {
    let check = |age: u64, expect: u128| assert_eq!(pause(Duration::from_secs(age)).as_millis(), expect);
    check(0, 250);
    check(1, 250);
    check(4, 1_000);
    check(3600, 10_000);
}
