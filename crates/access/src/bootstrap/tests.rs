//! The default policy as a whole, single facts of it, and reconciliation.

use serde_json::json;

use super::*;
use crate::attributes::{Attributes, Target};
use crate::{Rbac, RbacKind, User};

fn loaded(release: Release) -> Rbac {
    let rbac = Rbac::new();
    let policy = bootstrap(release);
    let lists = [
        (RbacKind::ClusterRole, &policy.cluster_roles),
        (RbacKind::ClusterRoleBinding, &policy.cluster_role_bindings),
        (RbacKind::Role, &policy.roles),
        (RbacKind::RoleBinding, &policy.role_bindings),
    ];
    for (kind, objects) in lists {
        for object in objects {
            rbac.upsert(kind, object::namespace(object), object::name(object), object);
        }
    }
    rbac
}

fn named<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    objects.iter().find(|it| object::name(it) == name).unwrap_or_else(|| panic!("{name} must be there"))
}

#[test]
fn the_policy_is_complete_for_every_release() {
    for (minor, n_roles) in [(30, 65), (31, 65), (32, 65), (33, 67), (34, 69), (35, 69), (36, 70)] {
        let policy = bootstrap(Release::v1(minor));
        assert_eq!(policy.cluster_roles.len(), n_roles, "1.{minor}");
        assert_eq!((policy.roles.len(), policy.role_bindings.len()), (7, 7));
        let all =
            [&policy.cluster_roles, &policy.cluster_role_bindings, &policy.roles, &policy.role_bindings];
        for object in all.into_iter().flatten() {
            assert_eq!(object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
            assert_eq!(object["metadata"]["annotations"][reconcile::AUTO_UPDATE], "true");
            assert_eq!(object["apiVersion"], API_VERSION);
        }
        for role in policy.cluster_roles.iter().chain(&policy.roles) {
            let rules = PolicyRule::all_from_json(role);
            assert!(!rules.is_empty(), "{} must have rules", object::name(role));
            assert!(rules.iter().all(|it| !it.verbs.is_empty()));
        }
        for binding in &policy.cluster_role_bindings {
            named(&policy.cluster_roles, binding["roleRef"]["name"].as_str().unwrap());
        }
    }
}

#[test]
fn names_are_unique() {
    let policy = bootstrap(Release::v1(36));
    for objects in
        [&policy.cluster_roles, &policy.cluster_role_bindings, &policy.roles, &policy.role_bindings]
    {
        let mut keys: Vec<_> = objects.iter().map(|it| (object::namespace(it), object::name(it))).collect();
        keys.sort_unstable();
        let n_keys = keys.len();
        keys.dedup();
        assert_eq!(keys.len(), n_keys);
    }
}

#[test]
fn single_roles_read_as_upstreams() {
    let policy = bootstrap(Release::v1(36));
    assert_eq!(
        *named(&policy.cluster_roles, "system:controller:pod-garbage-collector"),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {
                "name": "system:controller:pod-garbage-collector",
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
            },
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["delete", "list", "watch"]},
                {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
            ],
        })
    );
    let binding = named(&policy.cluster_role_bindings, "system:controller:pod-garbage-collector");
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "ServiceAccount", "namespace": "kube-system", "name": "pod-garbage-collector"}])
    );
    let reader = named(&policy.role_bindings, "system::extension-apiserver-authentication-reader");
    assert_eq!(reader["roleRef"]["name"], "extension-apiserver-authentication-reader");
    assert_eq!(reader["roleRef"]["kind"], "Role");
    let admin = named(&policy.cluster_roles, "admin");
    assert_eq!(
        admin["aggregationRule"]["clusterRoleSelectors"][0]["matchLabels"],
        json!({"rbac.authorization.k8s.io/aggregate-to-admin": "true"})
    );
}

#[test]
fn who_may_do_what_from_the_start() {
    let rbac = loaded(Release::v1(36));
    let user = |name: &str, groups: &[&str]| User {
        groups: groups.iter().map(|it| (*it).to_owned()).collect(),
        ..User::named(name)
    };
    let anybody = user("u", &["system:authenticated"]);
    let nobody = User::anonymous();
    let master = user("m", &["system:masters"]);
    let scheduler = user("system:kube-scheduler", &["system:authenticated"]);
    let aggregation = User::service_account("kube-system", "clusterrole-aggregation-controller", "1");
    let path = |user: &User, path: &str, want: bool| {
        let attributes = Attributes { user, verb: "get", target: Target::Path(path) };
        assert_eq!(rbac.authorize(&attributes).is_allowed(), want, "{} {path}", user.name);
    };
    path(&anybody, "/apis/apps/v1", true);
    path(&anybody, "/metrics", false);
    path(&nobody, "/healthz", true);
    path(&nobody, "/version", true);
    path(&nobody, "/api", false);
    path(&master, "/metrics", true);
    path(&aggregation, "/openid/v1/jwks", true);
    let resource = |user: &User, verb: &str, group: &str, resource: &str, namespace: &str, want: bool| {
        let target =
            Target::Resource { group, version: "v1", resource, subresource: "", namespace, name: "" };
        let attributes = Attributes { user, verb, target };
        assert_eq!(rbac.authorize(&attributes).is_allowed(), want, "{} {verb} {resource}", user.name);
    };
    resource(&anybody, "create", "authorization.k8s.io", "selfsubjectaccessreviews", "", true);
    resource(&anybody, "list", "", "pods", "default", false);
    resource(&scheduler, "list", "", "nodes", "", true);
    resource(&scheduler, "create", "", "secrets", "default", false);
    resource(&aggregation, "escalate", "rbac.authorization.k8s.io", "clusterroles", "", true);
}

#[test]
fn aggregated_roles_contain_each_other() {
    let policy = bootstrap(Release::v1(36));
    let rules = |name: &str| PolicyRule::all_from_json(named(&policy.cluster_roles, name));
    use crate::rbac::uncovered;
    assert!(uncovered(&rules("admin"), &rules("edit")).is_empty());
    assert!(uncovered(&rules("edit"), &rules("view")).is_empty());
    assert!(uncovered(&rules("edit"), &rules("system:aggregate-to-edit")).is_empty());
    assert!(!uncovered(&rules("view"), &rules("edit")).is_empty());
    assert!(!uncovered(&rules("edit"), &rules("admin")).is_empty());
}

#[test]
fn what_is_missing_is_added_and_nothing_removed() {
    let wanted = role("x", "", &[]);
    let mut wanted = wanted;
    wanted["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    assert_eq!(reconcile(&wanted, &wanted), None);
    let mut existing = wanted.clone();
    existing["rules"] = json!([{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}]);
    existing["metadata"]["labels"] = json!({"mine": "yes"});
    existing["metadata"]["resourceVersion"] = json!("7");
    let changed = reconcile(&existing, &wanted).unwrap();
    assert_eq!(
        changed["rules"],
        json!([
            {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        ])
    );
    assert_eq!(changed["metadata"]["labels"]["mine"], "yes");
    assert_eq!(changed["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults");
    assert_eq!(changed["metadata"]["resourceVersion"], "7");
    assert_eq!(reconcile(&changed, &wanted), None);
    existing["metadata"]["annotations"][reconcile::AUTO_UPDATE] = json!("false");
    assert_eq!(reconcile(&existing, &wanted), None);
}

#[test]
fn bindings_get_missing_subjects() {
    let wanted = binding("b", &["group:one", "user:two"]);
    let mut existing = binding("b", &["user:two", "user:mine"]);
    let changed = reconcile(&existing, &wanted).unwrap();
    let names: Vec<_> = changed["subjects"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!(names, ["two", "mine", "one"]);
    existing["roleRef"]["name"] = json!("other");
    let changed = reconcile(&existing, &wanted).unwrap();
    assert_eq!(changed["roleRef"], wanted["roleRef"]);
    assert_eq!(changed["subjects"], wanted["subjects"]);
    let mut without = wanted.clone();
    object::as_map_mut(&mut without).remove("subjects");
    assert_eq!(reconcile(&without, &wanted).unwrap(), wanted);
}

#[test]
fn aggregated_roles_keep_their_collected_rules() {
    let wanted = role("x", "", &["collects=view"]);
    let mut existing = wanted.clone();
    existing["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    assert_eq!(reconcile(&existing, &wanted), None);
    object::as_map_mut(&mut existing).remove("aggregationRule");
    let changed = reconcile(&existing, &wanted).unwrap();
    assert_eq!(changed["aggregationRule"], wanted["aggregationRule"]);
    assert_eq!(changed["rules"], existing["rules"]);
}
