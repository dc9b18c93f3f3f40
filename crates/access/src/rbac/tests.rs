//! Tables for decisions, escalation and aggregation; properties for coverage.
#![allow(clippy::needless_pass_by_value, reason = "literals read better without references")]

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::write::{RbacWrite, aggregate, check_binding_write, check_role_write};
use super::*;
use crate::attributes::{Target, Verdict};

fn role(rbac: &Rbac, namespace: &str, name: &str, rules: Value) {
    let kind = if namespace.is_empty() { RbacKind::ClusterRole } else { RbacKind::Role };
    rbac.upsert(kind, namespace, name, &json!({"metadata": {"name": name}, "rules": rules}));
}

fn bind(rbac: &Rbac, namespace: &str, name: &str, role: (&str, &str), subjects: Value) {
    let kind = if namespace.is_empty() { RbacKind::ClusterRoleBinding } else { RbacKind::RoleBinding };
    let role_ref = json!({"apiGroup": GROUP, "kind": role.0, "name": role.1});
    rbac.upsert(kind, namespace, name, &json!({"roleRef": role_ref, "subjects": subjects}));
}

fn pods<'a>(namespace: &'a str, verb: &'a str, user: &'a User) -> Attributes<'a> {
    let target =
        Target::Resource { group: "", version: "v1", resource: "pods", subresource: "", namespace, name: "" };
    Attributes { user, verb, target }
}

fn in_groups(name: &str, groups: &[&str]) -> User {
    User { groups: groups.iter().map(|it| (*it).to_owned()).collect(), ..User::named(name) }
}

fn reader() -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}])
}

fn sample() -> Rbac {
    let rbac = Rbac::new();
    role(&rbac, "", "reader", reader());
    role(&rbac, "ns", "local", reader());
    bind(&rbac, "", "all", ("ClusterRole", "reader"), json!([{"kind": "User", "name": "alice"}]));
    bind(&rbac, "ns", "here", ("ClusterRole", "reader"), json!([{"kind": "Group", "name": "devs"}]));
    let accounts = json!([
        {"kind": "ServiceAccount", "name": "robot"},
        {"kind": "ServiceAccount", "name": "far", "namespace": "other"},
    ]);
    bind(&rbac, "ns", "robots", ("Role", "local"), accounts);
    rbac
}

#[test]
fn bindings_allow_with_upstream_reasons() {
    let rbac = sample();
    let check = |user: &User, namespace: &str, want: &str| {
        let verdict = rbac.authorize(&pods(namespace, "list", user));
        let got = if verdict.is_allowed() { verdict.reason() } else { "no" };
        assert_eq!(got, want, "{} in {namespace:?}", user.name);
    };
    let alice = in_groups("alice", &["system:authenticated"]);
    check(&alice, "", r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to User "alice""#);
    check(
        &alice,
        "x",
        r#"RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to User "alice""#,
    );
    let dev = in_groups("bob", &["ops", "devs"]);
    check(&dev, "ns", r#"RBAC: allowed by RoleBinding "here/ns" of ClusterRole "reader" to Group "devs""#);
    check(&dev, "", "no");
    check(&dev, "other", "no");
    let robot = User::service_account("ns", "robot", "1");
    check(
        &robot,
        "ns",
        r#"RBAC: allowed by RoleBinding "robots/ns" of Role "local" to ServiceAccount "robot/ns""#,
    );
    let far = User::service_account("other", "far", "1");
    check(
        &far,
        "ns",
        r#"RBAC: allowed by RoleBinding "robots/ns" of Role "local" to ServiceAccount "far/other""#,
    );
    check(&far, "other", "no");
    check(&User::named("devs"), "ns", "no");
}

#[test]
fn removed_and_changed_objects_count_at_once() {
    let rbac = sample();
    let alice = User::named("alice");
    let may = || rbac.authorize(&pods("", "get", &alice)).is_allowed();
    assert!(may());
    rbac.remove(RbacKind::ClusterRole, "", "reader");
    assert_eq!(
        rbac.authorize(&pods("", "get", &alice)),
        Verdict::NoOpinion(r#"RBAC: clusterrole.rbac.authorization.k8s.io "reader" not found"#.to_owned())
    );
    role(&rbac, "", "reader", reader());
    assert!(may());
    bind(&rbac, "", "all", ("ClusterRole", "reader"), json!([{"kind": "User", "name": "carol"}]));
    assert!(!may());
    bind(&rbac, "", "all", ("ClusterRole", "reader"), json!([{"kind": "User", "name": "alice"}]));
    rbac.remove(RbacKind::ClusterRoleBinding, "", "all");
    rbac.remove(RbacKind::ClusterRoleBinding, "", "all");
    assert!(!may());
    assert!(
        rbac.state.load().by_user.keys().all(|it| &**it != "alice"),
        "the index must not keep old subjects"
    );
}

#[test]
fn malformed_objects_grant_nothing() {
    let rbac = Rbac::new();
    for object in
        [json!(null), json!([]), json!({"subjects": [1, {}], "roleRef": 3}), json!({"rules": [1, {}]})]
    {
        for kind in
            [RbacKind::Role, RbacKind::ClusterRole, RbacKind::RoleBinding, RbacKind::ClusterRoleBinding]
        {
            rbac.upsert(kind, "ns", "x", &object);
        }
    }
    assert!(!rbac.authorize(&pods("ns", "get", &in_groups("", &[""]))).is_allowed());
}

#[test]
fn a_cluster_binding_cannot_use_a_role() {
    let rbac = Rbac::new();
    role(&rbac, "ns", "r", reader());
    bind(
        &rbac,
        "",
        "b",
        ("Role", "r"),
        json!([{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "x"}]),
    );
    assert!(!rbac.authorize(&pods("ns", "get", &User::named("u"))).is_allowed());
}

#[test]
fn rules_are_listed_apart() {
    let rbac = sample();
    role(&rbac, "", "paths", json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    bind(&rbac, "", "paths", ("ClusterRole", "paths"), json!([{"kind": "Group", "name": "devs"}]));
    bind(&rbac, "", "broken", ("ClusterRole", "gone"), json!([{"kind": "Group", "name": "devs"}]));
    let rules = rbac.rules_for(&in_groups("bob", &["devs"]), "ns");
    assert_eq!(rules.resource_rules, [PolicyRule::resources(&[""], &["pods"], &["get", "list"])]);
    assert_eq!(rules.non_resource_rules, [PolicyRule::urls(&["/metrics"], &["get"])]);
    assert_eq!(rules.errors, [r#"clusterrole.rbac.authorization.k8s.io "gone" not found"#]);
}

#[test]
fn escalation_is_described_as_upstream() {
    let rbac = sample();
    let wanted = [PolicyRule::resources(&[""], &["pods", "secrets"], &["get", "watch"])];
    let dev = in_groups("bob", &["devs", "system:authenticated"]);
    let error = rbac.check_escalation(&dev, "ns", &wanted).unwrap_err();
    assert_eq!(
        error,
        "user \"bob\" (groups=[\"devs\" \"system:authenticated\"]) is attempting to grant RBAC permissions not \
         currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\"]}\n\
         {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"watch\"]}"
    );
    let held = [PolicyRule::resources(&[""], &["pods"], &["list"])];
    assert_eq!(rbac.check_escalation(&dev, "ns", &held), Ok(()));
}

#[test]
fn a_rule_that_stands_for_millions_is_refused_quickly() {
    let many: Vec<String> = (0..3000).map(|it| it.to_string()).collect();
    let rule = PolicyRule {
        api_groups: many.clone(),
        resources: many.clone(),
        verbs: many,
        ..PolicyRule::default()
    };
    let rbac = sample();
    assert!(rbac.check_escalation(&User::named("alice"), "ns", std::slice::from_ref(&rule)).is_err());
    role(&rbac, "", "reader", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
    assert_eq!(rbac.check_escalation(&User::named("alice"), "ns", &[rule]), Ok(()));
}

#[test]
fn roles_are_written_only_by_those_who_hold_them() {
    let rbac = sample();
    let dev = in_groups("bob", &["devs"]);
    let object = json!({"metadata": {"name": "new"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    let write = RbacWrite {
        user: &dev,
        kind: RbacKind::Role,
        namespace: "ns",
        name: "",
        object: &object,
        existing: None,
    };
    let status = check_role_write(&rbac, &write, &|_| false).unwrap_err();
    assert_eq!(status.code, 403);
    assert!(status.message.starts_with("roles.rbac.authorization.k8s.io \"new\" is forbidden: user \"bob\""));
    let asks_to_escalate = |it: &Attributes<'_>| it.verb == "escalate";
    assert_eq!(check_role_write(&rbac, &write, &asks_to_escalate), Ok(()));
    let master = in_groups("root", &[MASTERS_GROUP]);
    assert_eq!(check_role_write(&rbac, &RbacWrite { user: &master, ..write }, &|_| false), Ok(()));
    let mut finalized = object.clone();
    finalized["metadata"]["finalizers"] = json!(["x"]);
    let update = RbacWrite { object: &finalized, existing: Some(&object), name: "new", ..write };
    assert_eq!(check_role_write(&rbac, &update, &|_| false), Ok(()));
}

const MASTERS_GROUP: &str = crate::user::MASTERS;

#[test]
fn aggregation_needs_everything() {
    let rbac = sample();
    let alice = User::named("alice");
    let object = json!({"metadata": {"name": "agg"}, "aggregationRule": {"clusterRoleSelectors": [{}]}});
    let write = RbacWrite {
        user: &alice,
        kind: RbacKind::ClusterRole,
        namespace: "",
        name: "",
        object: &object,
        existing: None,
    };
    let status = check_role_write(&rbac, &write, &|_| false).unwrap_err();
    assert!(status.message.ends_with("must have cluster-admin privileges to use the aggregationRule"));
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]);
    role(&rbac, "", "reader", all);
    assert_eq!(check_role_write(&rbac, &write, &|_| false), Ok(()));
}

#[test]
fn bindings_are_written_only_by_those_who_hold_the_role() {
    let rbac = sample();
    role(&rbac, "", "powerful", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
    let dev = in_groups("bob", &["devs"]);
    let check = |role: &str, is_allowed: bool| {
        let object = json!({"metadata": {"name": "b"}, "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}});
        let write = RbacWrite {
            user: &dev,
            kind: RbacKind::RoleBinding,
            namespace: "ns",
            name: "",
            object: &object,
            existing: None,
        };
        let asks = |it: &Attributes<'_>| {
            assert_eq!(it.verb, "bind");
            is_allowed
        };
        check_binding_write(&rbac, &write, &asks).map_err(|it| (it.code, it.message))
    };
    assert_eq!(check("reader", false), Ok(()));
    assert_eq!(check("powerful", true), Ok(()));
    assert_eq!(check("powerful", false).unwrap_err().0, 403);
    assert_eq!(
        check("gone", false).unwrap_err(),
        (404, r#"clusterroles.rbac.authorization.k8s.io "gone" not found"#.to_owned())
    );
}

#[test]
fn aggregated_roles_collect_what_is_labelled() {
    let labelled = |name: &str, value: &str, resource: &str| {
        json!({"metadata": {"name": name, "labels": {"to": value}},
               "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]})
    };
    let roles = [
        labelled("b", "view", "pods"),
        labelled("a", "view", "secrets"),
        labelled("c", "edit", "nodes"),
        labelled("d", "view", "pods"),
        labelled("self", "view", "own"),
    ];
    let all: Vec<&Value> = roles.iter().collect();
    let collect = |selector: Value| {
        let rule = json!({"clusterRoleSelectors": [selector]});
        let rules = aggregate(&rule, "self", &all);
        rules.into_iter().flat_map(|it| it.resources).collect::<Vec<_>>()
    };
    assert_eq!(collect(json!({"matchLabels": {"to": "view"}})), ["secrets", "pods"]);
    let not_view = json!({"matchExpressions": [{"key": "to", "operator": "NotIn", "values": ["view"]}]});
    assert_eq!(collect(not_view), ["nodes"]);
    assert_eq!(
        collect(json!({"matchExpressions": [{"key": "x", "operator": "Exists"}]})),
        Vec::<String>::new()
    );
}

#[test]
fn coverage_follows_upstream() {
    let check = |held: PolicyRule, wanted: PolicyRule, n_missing: usize| {
        assert_eq!(
            uncovered(std::slice::from_ref(&held), std::slice::from_ref(&wanted)).len(),
            n_missing,
            "{held:?} {wanted:?}"
        );
    };
    let rule = PolicyRule::resources;
    check(rule(&["*"], &["*/scale"], &["*"]), rule(&["apps"], &["deployments/scale"], &["get"]), 0);
    check(rule(&["*"], &["*/scale"], &["*"]), rule(&["apps"], &["deployments"], &["get"]), 1);
    check(rule(&[""], &["pods"], &["get"]), rule(&[""], &["*"], &["get"]), 1);
    check(PolicyRule::urls(&["/api/*"], &["get"]), PolicyRule::urls(&["/api/v1", "/apis"], &["get"]), 1);
    check(PolicyRule::urls(&["*"], &["get"]), PolicyRule::urls(&["/x/*"], &["get"]), 0);
    let mut named = rule(&[""], &["pods"], &["get"]);
    named.resource_names = vec!["a".to_owned()];
    check(named.clone(), rule(&[""], &["pods"], &["get"]), 1);
    check(rule(&[""], &["pods"], &["get"]), named, 0);
}

fn any_rule() -> impl Strategy<Value = PolicyRule> {
    let words = |options: &'static [&'static str]| {
        proptest::collection::vec(proptest::sample::select(options).prop_map(str::to_owned), 0..4)
    };
    (
        words(&["", "apps", "batch", "*"]),
        words(&["pods", "pods/log", "*/scale", "deployments/scale", "*"]),
        words(&["get", "list", "escalate", "*"]),
        words(&["a", "b"]),
        words(&["/", "/api/*", "/healthz", "*"]),
    )
        .prop_map(|(api_groups, resources, verbs, resource_names, non_resource_urls)| PolicyRule {
            api_groups,
            non_resource_urls,
            resource_names,
            resources,
            verbs,
        })
}

proptest! {
    #[test]
    fn every_rule_covers_its_own_parts_without_names_for_paths(rule in any_rule()) {
        // Upstream's quirk: a rule with names and paths does not cover its own paths.
        let rule = if rule.non_resource_urls.is_empty() { rule } else { PolicyRule { resource_names: Vec::new(), ..rule } };
        prop_assert!(uncovered(std::slice::from_ref(&rule), std::slice::from_ref(&rule)).is_empty());
    }

    #[test]
    fn everything_covers_all(rules in proptest::collection::vec(any_rule(), 0..5)) {
        let everything = [PolicyRule::resources(&["*"], &["*"], &["*"]), PolicyRule::urls(&["*"], &["*"])];
        prop_assert!(uncovered(&everything, &rules).is_empty());
    }

    #[test]
    fn what_is_covered_is_also_allowed(held in any_rule(), wanted in any_rule()) {
        // Every request that a covered rule allows is allowed by the rule that covers it.
        if uncovered(std::slice::from_ref(&held), std::slice::from_ref(&wanted)).is_empty() {
            let user = User::named("u");
            for group in ["", "apps"] {
                for (resource, subresource) in [("pods", ""), ("pods", "log"), ("deployments", "scale")] {
                    for verb in ["get", "list", "escalate"] {
                        for name in ["", "a", "c"] {
                            let target = Target::Resource { group, version: "v1", resource, subresource, namespace: "n", name };
                            let attributes = Attributes { user: &user, verb, target };
                            prop_assert!(!HeldRule::of(&wanted).allows(&attributes) || HeldRule::of(&held).allows(&attributes));
                        }
                    }
                }
            }
        }
    }
}

/// A decision about somebody with the usual bindings, among thousands of others, takes microseconds.
/// The bound is generous: it is a debug build on a busy machine.
#[test]
fn a_decision_is_fast_among_many_bindings() {
    let rbac = sample();
    for n in 0..5000 {
        let subjects = json!([{"kind": "User", "name": format!("user{n}")}]);
        bind(&rbac, "ns", &format!("b{n}"), ("ClusterRole", "reader"), subjects);
    }
    let dev = in_groups("bob", &["devs", "system:authenticated"]);
    #[expect(clippy::disallowed_methods, reason = "this test measures")]
    let start = std::time::Instant::now();
    for _ in 0..10_000 {
        assert!(rbac.authorize(&pods("ns", "get", &dev)).is_allowed());
    }
    let each = start.elapsed() / 10_000;
    println!("one decision: {each:?}");
    assert!(each < Duration::from_micros(100), "{each:?}");
}

/// One role with as many names as an object can hold, and many bindings of it: every decision went through all names once
/// per binding, and every check of a new role copied them.
#[test]
fn a_role_is_looked_at_once_however_many_bindings_give_it() {
    let names: Vec<String> = (0..350_000).map(|it| it.to_string()).collect();
    let rbac = Rbac::new();
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "resourceNames": names, "verbs": ["get"]}]);
    role(&rbac, "ns", "long", rules);
    role(&rbac, "", "reader", reader());
    let subjects = json!([{"kind": "User", "name": "eve"}, {"kind": "Group", "name": "devs"}]);
    for n in 0..50 {
        bind(&rbac, "ns", &format!("b{n}"), ("Role", "long"), subjects.clone());
        bind(&rbac, "ns", &format!("c{n}"), ("ClusterRole", "reader"), subjects.clone());
        bind(&rbac, "", &format!("c{n}"), ("ClusterRole", "reader"), subjects.clone());
    }
    let eve = in_groups("eve", &["devs"]);
    let mut looked_at = Vec::new();
    let _: Option<()> = rbac.state.load().visit(&eve, "ns", |binding, _, role| {
        looked_at.push((binding.role_name.to_string(), role.ok().unwrap().rules.len()));
        None
    });
    assert_eq!(looked_at, [("reader".to_owned(), 1), ("long".to_owned(), 1)]);
    let rules = rbac.rules_for(&eve, "ns");
    assert_eq!((rules.resource_rules.len(), rules.is_incomplete), (2, false));
    // What takes a binding away leaves the others.
    for n in 0..49 {
        rbac.remove(RbacKind::RoleBinding, "ns", &format!("b{n}"));
    }
    assert_eq!(rbac.rules_for(&eve, "ns").resource_rules.len(), 2);
    rbac.remove(RbacKind::RoleBinding, "ns", "b49");
    assert_eq!(rbac.rules_for(&eve, "ns").resource_rules.len(), 1);
}

/// Decisions waited for whoever took in a change, and that one for long decisions.
#[test]
fn nobody_who_decides_waits_for_a_change() {
    let rbac = sample();
    let _a_change_is_under_way = rbac.change.lock();
    let alice = User::named("alice");
    assert!(rbac.authorize(&pods("", "get", &alice)).is_allowed());
    assert!(!rbac.is_long(&alice, "ns"));
    assert_eq!(rbac.rules_for(&alice, "ns").resource_rules.len(), 1);
    assert!(rbac.check_escalation(&alice, "ns", &[]).is_ok());
}

#[test]
fn who_has_many_rules_or_bindings_is_known_for_it() {
    let rbac = sample();
    let (eve, bob) = (User::named("eve"), in_groups("bob", &["devs"]));
    let to_eve = json!([{"kind": "User", "name": "eve"}]);
    let rules: Vec<Value> = (0..MANY)
        .map(|n| json!({"apiGroups": [""], "resources": [n.to_string()], "verbs": ["get"]}))
        .collect();
    role(&rbac, "ns", "many", json!(rules));
    bind(&rbac, "ns", "many", ("Role", "many"), to_eve.clone());
    assert!(rbac.is_long(&eve, "ns") && !rbac.is_long(&eve, "other") && !rbac.is_long(&bob, "ns"));
    for n in 0..=MANY {
        bind(&rbac, "gone", &format!("b{n}"), ("Role", &n.to_string()), to_eve.clone());
    }
    assert!(rbac.is_long(&eve, "gone"));
    let refusal = rbac.authorize(&pods("gone", "get", &eve));
    assert_eq!(refusal.reason().matches("not found").count(), MAX_ERRORS);
}

#[test]
fn a_list_of_rules_has_an_end_and_says_so() {
    let rbac = Rbac::new();
    let eve = User::named("eve");
    let names: Vec<String> = (0..100_000).map(|it| format!("{it:09}")).collect();
    for n in 0..4 {
        let name = format!("r{n}");
        let rules =
            json!([{"apiGroups": [name], "resources": ["x"], "resourceNames": names, "verbs": ["get"]}]);
        role(&rbac, "ns", &name, rules);
        bind(&rbac, "ns", &name, ("Role", &name), json!([{"kind": "User", "name": "eve"}]));
    }
    let rules = rbac.rules_for(&eve, "ns");
    assert_eq!((rules.resource_rules.len(), rules.is_incomplete), (3, true));
    let answer = crate::review::rules_review_answer(&json!({}), &rules);
    assert_eq!(answer["status"]["incomplete"], json!(true));
}
