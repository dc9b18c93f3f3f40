//! One value that cannot be decoded: every reader of a collection says so, and none shows less than there is.

use std::{collections::BTreeMap, fs, path::Path};

use bytes::Bytes;
use catalog::{Catalog, FeatureGates, RuntimeConfig};
use meta::{Release, Value};
use serde_json::json;
use store::{Key, Store, Txn};

use crate::{
    custom::establish,
    harness::{Answered, MAPS, TestServer, config_map},
    watches::Lines,
};

const BAD: &str = "/registry/configmaps/default/bad";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

async fn plant(server: &TestServer, key: &str, value: &str) {
    let value = Bytes::from(value.to_owned());
    let revision = server.store.commit(Txn::new().put(&Key::new(key), value)).await.unwrap();
    server.server.registry().cache().wait_for(revision, std::time::Duration::from_secs(10)).await.unwrap();
}

async fn with_gate(release: Release) -> TestServer {
    TestServer::start_as(release, |settings| {
        let gates = "APIServerIdentity=false,AllowUnsafeMalformedObjectDeletion=true";
        let gates = FeatureGates::parse(gates, release).unwrap();
        settings.catalog = Catalog::new(release, &RuntimeConfig::default(), &gates).unwrap();
    })
    .await
}

async fn shaped(server: &TestServer, path: &str, accept: &str) -> Answered {
    let headers = [("authorization", "Bearer admintoken"), ("accept", accept)];
    server.send("GET", path, &headers, Value::Null).await
}

/// Every way in which a client reads a collection, with one value planted in it: of a built-in kind and of a custom one,
/// broken and in a version that this release does not know.
#[tokio::test]
async fn every_reader_of_a_collection_says_what_it_cannot_decode() {
    let server = TestServer::start().await;
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.u.example"},
        "spec": {"group": "u.example", "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}});
    establish(&server, crd).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let gadgets = "/apis/u.example/v1/namespaces/default/gadgets";
    let object = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    let unknown = r#"{"apiVersion":"coordination.k8s.io/v9","kind":"Lease","metadata":{"name":"bad"}}"#;
    for (path, api_version, kind, prefix, bad) in [
        (MAPS, "v1", "ConfigMap", "/registry/configmaps/", "{\"half"),
        (leases, "coordination.k8s.io/v1", "Lease", "/registry/leases/", unknown),
        (gadgets, "u.example/v1", "Gadget", "/registry/u.example/gadgets/", "?"),
    ] {
        for name in ["a", "z"] {
            server.post(path, object(api_version, kind, name)).await.expect(201);
        }
        let before = server.get(path).await.expect(200).json();
        let at = before["metadata"]["resourceVersion"].as_str().unwrap();
        let first = server.get(&format!("{path}?limit=1")).await.expect(200).json();
        let token = first["metadata"]["continue"].as_str().unwrap();
        let mut watch = Lines::open(&server, &format!("{path}?watch=true&resourceVersion={at}")).await;
        let key = format!("{prefix}default/bad");
        plant(&server, &key, bad).await;
        let now = server.server.registry().cache().applied();

        let everywhere = path.replace("/namespaces/default", "");
        let lists = [
            path.to_owned(),
            everywhere.clone(),
            format!("{path}?resourceVersion=0"),
            format!("{path}?resourceVersion={now}&resourceVersionMatch=NotOlderThan"),
            format!("{path}?resourceVersion={now}&resourceVersionMatch=Exact"),
            format!("{path}?limit=2&resourceVersion={now}&resourceVersionMatch=Exact"),
            format!("{path}?limit=1"),
            format!("{path}?labelSelector=a%3Db"),
            format!("{path}?fieldSelector=metadata.name%3Da"),
            format!("{path}?watch=true"),
            format!("{path}?watch=true&resourceVersion=0"),
            format!(
                "{path}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
            ),
            format!("{path}/bad"),
        ];
        for list in &lists {
            check_told(&server.get(list).await, list, &key);
        }
        for accept in [TABLE, METADATA] {
            check_told(&shaped(&server, path, accept).await, accept, &key);
        }
        check_told(&server.ask("DELETE", path, Value::Null).await, "deletecollection", &key);
        let one = format!("{path}/bad");
        check_told(&server.ask("DELETE", &one, Value::Null).await, "delete", &key);
        check_told(&server.ask("PUT", &one, object(api_version, kind, "bad")).await, "update", &key);
        check_told(
            &server.patch(&one, "merge", json!({"metadata": {"labels": {"a": "b"}}})).await,
            "patch",
            &key,
        );
        // A watch that is under way ends in an error instead of leaving it out, or calling it deleted.
        let event = watch.next().await.expect("an event");
        assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(500)), "{event}");
        assert!(event["object"]["message"].as_str().unwrap().contains(&key), "{event}");

        // What it does not touch is shown: others by name, other namespaces, how it was before.
        for good in [
            format!("{path}/a"),
            path.replace("/default/", "/kube-system/"),
            format!("{path}?limit=1&continue={token}"),
            format!("{path}?resourceVersion={at}&resourceVersionMatch=Exact"),
        ] {
            server.get(&good).await.expect(200);
        }
        assert_eq!(
            names(&server.get(&format!("{path}?resourceVersion={at}&resourceVersionMatch=Exact")).await),
            2
        );
        server.store.commit(Txn::new().delete(&Key::new(key))).await.unwrap();
        assert_eq!(names(&server.get(path).await.expect(200)), 2);
    }
}

fn names(list: &Answered) -> usize {
    list.json()["items"].as_array().unwrap().len()
}

#[track_caller]
fn check_told(answer: &Answered, what: &str, key: &str) {
    assert_eq!(answer.code, 500, "{what}: {}", answer.text);
    let status = answer.json();
    assert_eq!(status["reason"], "InternalError", "{what}");
    let is_named = answer.text.contains(key) || answer.text.contains("bad");
    assert!(is_named, "{what}: {}", answer.text);
}

/// Whoever passes over what cannot be decoded does so in one of these places, each with a reason that stands there.
#[test]
fn only_these_pass_over_what_cannot_be_decoded() {
    let expected = [
        ("cache/src/open.rs", 1),
        ("cache/src/snapshot.rs", 2),
        ("registry/src/custom/follow.rs", 2),
        ("registry/src/events.rs", 1),
        ("registry/src/rewrite.rs", 1),
        ("registry/src/unserved.rs", 2),
        ("server/src/admission_feed.rs", 2),
        ("server/src/events.rs", 1),
        ("server/src/identity_lease.rs", 1),
        ("server/src/rbac_feed.rs", 2),
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let mut found = BTreeMap::new();
    let mut folders: Vec<_> =
        fs::read_dir(&crates).unwrap().map(|it| it.unwrap().path().join("src")).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
                let n_uses = fs::read_to_string(&path).unwrap().matches(".readable(").count();
                if n_uses > 0 {
                    found.insert(path.strip_prefix(&crates).unwrap().display().to_string(), n_uses);
                }
            }
        }
    }
    let expected: BTreeMap<String, usize> =
        expected.into_iter().map(|(path, n)| (path.to_owned(), n)).collect();
    assert_eq!(found, expected);
}

/// Upstream's way to remove what cannot be decoded: a gate, an option and a right of its own.
#[tokio::test]
async fn what_cannot_be_decoded_is_removed_only_on_purpose() {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", OPTION: true});
    let path = format!("{MAPS}/bad");
    let off = TestServer::start().await;
    plant(&off, BAD, "?").await;
    off.ask("DELETE", &path, options.clone()).await.expect(500);

    let server = with_gate(Release::v1(36)).await;
    plant(&server, BAD, "?").await;
    server.post(MAPS, config_map("good")).await.expect(201);
    server.ask("DELETE", &path, Value::Null).await.expect(500);
    let refused = server.ask("DELETE", &format!("{MAPS}/good"), options.clone()).await.expect(422);
    assert!(
        refused.message().contains("is exclusively used to delete corrupt object(s)"),
        "{}",
        refused.text
    );
    server.ask("DELETE", &format!("{MAPS}/none"), options.clone()).await.expect(422);
    for (field, value) in [
        ("dryRun", json!(["All"])),
        ("propagationPolicy", json!("Orphan")),
        ("gracePeriodSeconds", json!(1)),
        ("preconditions", json!({"uid": "x"})),
    ] {
        let mut both = options.clone();
        both[field] = value;
        let refused = server.ask("DELETE", &path, both).await.expect(422);
        assert!(
            refused.message().contains(&format!("cannot be set together with .{field}")),
            "{}",
            refused.text
        );
    }
    server.ask("DELETE", MAPS, options.clone()).await.expect(422);

    // Who may delete may not do this.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["delete"]}]});
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    server.post(roles, role).await.expect(201);
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "b"}, "subjects": [{"kind": "User", "name": "user", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"}});
    server.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await.expect(201);
    let user = [("authorization", "Bearer usertoken")];
    let refused = loop {
        let answer = server.send("DELETE", &path, &user, options.clone()).await.expect(403);
        // The binding is in force a moment after it is stored.
        if answer.message().contains("unsafe-delete") {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert!(
        refused.message().contains("not permitted to do \"unsafe-delete-ignore-read-errors\""),
        "{}",
        refused.text
    );
    let verbs = json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["delete", "unsafe-delete-ignore-read-errors"]}]});
    server.patch(&format!("{roles}/r"), "merge", verbs).await.expect(200);
    while server.send("DELETE", &path, &user, options.clone()).await.code == 403 {
        tokio::task::yield_now().await;
    }
    assert!(server.store.get(&Key::new(BAD)).await.unwrap().is_none());
    server.get(&path).await.expect(404);
    assert_eq!(names(&server.get(MAPS).await.expect(200)), 1);
}

/// A webhook that cannot be read might have refused: nothing passes without it, but what mends it.
#[tokio::test]
async fn nothing_is_admitted_past_a_webhook_that_cannot_be_decoded() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("before")).await.expect(201);
    let key = "/registry/validatingwebhookconfigurations/bad";
    plant(&server, key, "?").await;
    let refused = loop {
        let answer = server.post(MAPS, config_map("after")).await;
        if answer.code != 201 {
            break answer.expect(500);
        }
        server.ask("DELETE", &format!("{MAPS}/after"), Value::Null).await;
    };
    assert!(refused.message().contains(key), "{}", refused.text);
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "other"}});
    server.post(hooks, hook).await.expect(201);
    server.store.commit(Txn::new().delete(&Key::new(key))).await.unwrap();
    while server.post(MAPS, config_map("after")).await.code != 201 {
        tokio::task::yield_now().await;
    }
}
