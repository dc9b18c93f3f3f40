//! Which pods a budget guards, and conditions of pods.

use serde_json::json;

use super::{eviction::selects, set_condition};

#[test]
fn budgets_guard_what_their_selector_selects() {
    let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
    let check = |selector, expect: bool| {
        assert_eq!(selects(&json!({"spec": {"selector": selector}}), &pod), expect, "{selector:?}");
    };
    check(json!({"matchLabels": {"app": "web"}}), true);
    check(json!({"matchLabels": {"app": "web", "tier": "back"}}), false);
    check(json!({}), false);
    check(json!(null), false);
    let one = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    check(one("app", "In", &["db", "web"]), true);
    check(one("app", "NotIn", &["db"]), true);
    check(one("zone", "NotIn", &["a"]), true);
    check(one("zone", "Exists", &[]), false);
    check(one("zone", "DoesNotExist", &[]), true);
    check(one("app", "Nonsense", &[]), false);
}

#[test]
fn the_time_of_a_condition_changes_with_its_status_only() {
    let at = |seconds| jiff::Timestamp::from_second(seconds).unwrap();
    let mut pod = json!({"metadata": {"generation": 1}});
    set_condition(&mut pod, json!({"type": "Ready", "status": "True"}), at(10));
    set_condition(&mut pod, json!({"type": "Ready", "status": "True", "reason": "x"}), at(20));
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1);
    assert_eq!(conditions[0]["lastTransitionTime"], "1970-01-01T00:00:10Z");
    assert_eq!(conditions[0]["reason"], "x");
    set_condition(&mut pod, json!({"type": "Ready", "status": "False"}), at(30));
    assert_eq!(pod["status"]["conditions"][0]["lastTransitionTime"], "1970-01-01T00:00:30Z");
}
