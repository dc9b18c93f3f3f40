//! Which roles need other rules. Pure; what a role's rules are is `access`'s knowledge.

use access::PolicyRule;
use meta::{Value, object};

/// The roles to write, with the rules they should have.
pub(crate) fn plan(roles: Vec<Value>) -> Vec<Value> {
    let all: Vec<&Value> = roles.iter().collect();
    let wanted: Vec<Option<Value>> = roles.iter().map(|it| wanted_rules(it, &all)).collect();
    let changed = roles.into_iter().zip(wanted).filter_map(|(mut role, rules)| {
        object::as_map_mut(&mut role).insert("rules".to_owned(), rules?);
        Some(role)
    });
    changed.collect()
}

/// `None` where the role collects nothing, is on its way out, or has what it should.
fn wanted_rules(role: &Value, all: &[&Value]) -> Option<Value> {
    let rule = role.get("aggregationRule").filter(|it| it.is_object())?;
    if object::is_deleting(role) {
        return None;
    }
    let rules = access::aggregate(rule, object::name(role), all);
    (rules != PolicyRule::all_from_json(role)).then(|| rules.iter().map(PolicyRule::to_json).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn role(name: &str, label: &str, collects: &str, resources: &[&str]) -> Value {
        let rules: Vec<Value> = resources
            .iter()
            .map(|it| json!({"apiGroups": [""], "resources": [it], "verbs": ["get"]}))
            .collect();
        let mut role = json!({"metadata": {"name": name, "resourceVersion": "7"}, "rules": rules});
        if !label.is_empty() {
            role["metadata"]["labels"] = json!({"to": label});
        }
        if !collects.is_empty() {
            role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"to": collects}}]});
        }
        role
    }

    /// The roles to write, each with the resources of its rules.
    fn check(roles: Vec<Value>, expect: &[(&str, &[&str])]) {
        let written: Vec<(String, Vec<String>)> = plan(roles)
            .iter()
            .map(|it| {
                assert_eq!(object::resource_version(it), "7", "a write must be conditional");
                let rules = PolicyRule::all_from_json(it).into_iter().flat_map(|it| it.resources).collect();
                (object::name(it).to_owned(), rules)
            })
            .collect();
        let written: Vec<(&str, Vec<&str>)> = written
            .iter()
            .map(|(name, it)| (name.as_str(), it.iter().map(String::as_str).collect()))
            .collect();
        let expect: Vec<(&str, Vec<&str>)> = expect.iter().map(|(name, it)| (*name, it.to_vec())).collect();
        assert_eq!(written, expect);
    }

    #[test]
    fn roles_collect_what_is_labelled_for_them() {
        let parts = || vec![role("b", "view", "", &["pods"]), role("a", "view", "", &["secrets"])];
        let with = |role: Value| parts().into_iter().chain([role]).collect::<Vec<_>>();
        check(with(role("view", "", "view", &[])), &[("view", &["secrets", "pods"])]);
        check(with(role("view", "", "view", &["secrets", "pods"])), &[]);
        check(with(role("view", "", "view", &["pods", "secrets"])), &[("view", &["secrets", "pods"])]);
        check(with(role("edit", "", "edit", &["pods"])), &[("edit", &[])]);
        check(with(role("plain", "", "", &["nodes"])), &[]);
    }

    #[test]
    fn chains_settle_from_pass_to_pass() {
        let first = vec![
            role("a", "view", "", &["pods"]),
            role("view", "edit", "view", &[]),
            role("edit", "", "edit", &[]),
        ];
        check(first, &[("view", &["pods"])]);
        let second = vec![
            role("view", "edit", "view", &["pods"]),
            role("a", "view", "", &["pods"]),
            role("edit", "", "edit", &[]),
        ];
        check(second, &[("edit", &["pods"])]);
    }

    #[test]
    fn roles_without_a_say_are_left_alone() {
        let mut deleted = role("view", "", "view", &["pods"]);
        deleted["metadata"]["deletionTimestamp"] = json!("2026-11-15T00:00:00Z");
        check(vec![deleted], &[]);
        let mut odd = role("odd", "", "", &["pods"]);
        odd["aggregationRule"] = Value::Null;
        check(vec![odd], &[]);
    }
}
