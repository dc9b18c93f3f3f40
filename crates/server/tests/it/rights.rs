//! Who may do what.

use serde_json::{Value, json};

use crate::harness::{MAPS, TestServer, config_map};

const USER: (&str, &str) = ("authorization", "Bearer usertoken");
const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");

#[tokio::test]
async fn strangers_and_users_without_rights_are_refused_in_upstreams_words() {
    let server = TestServer::start().await;
    let refused = server.send("GET", MAPS, &[USER], Value::Null).await.expect(403);
    assert_eq!(
        refused.message(),
        "configmaps is forbidden: User \"user\" cannot list resource \"configmaps\" in API group \"\" in the namespace \
         \"default\""
    );
    server.send("GET", MAPS, &[("authorization", "Bearer wrong")], Value::Null).await.expect(401);
    let anonymous = server.send("GET", MAPS, &[], Value::Null).await.expect(403);
    assert!(anonymous.message().contains("User \"system:anonymous\" cannot list"), "{}", anonymous.message());
    server.send("GET", "/metrics", &[], Value::Null).await.expect(403);
    server.send("GET", "/api", &[], Value::Null).await.expect(403);
    for open in ["/version", "/healthz", "/livez", "/readyz"] {
        server.send("GET", open, &[], Value::Null).await.expect(200);
    }
    server.send("GET", "/api", &[USER], Value::Null).await.expect(200);
}

#[tokio::test]
async fn a_binding_gives_rights_at_once() {
    let server = TestServer::start().await;
    let binding = json!({
        "metadata": {"name": "b"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "user", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    server.post(path, binding).await.expect(201);
    let mut code = 403;
    for _ in 0..200 {
        code = server.send("GET", MAPS, &[USER], Value::Null).await.code;
        if code == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(code, 200);
}

#[tokio::test]
async fn nobody_grants_what_they_do_not_have() {
    let server = TestServer::start().await;
    let group = "rbac.authorization.k8s.io";
    let rule = json!({"apiGroups": [group], "resources": ["roles", "rolebindings"], "verbs": ["*"]});
    let role = json!({"metadata": {"name": "rbac-writer"}, "rules": [rule]});
    let roles = format!("/apis/{group}/v1/namespaces/default/roles");
    server.post(&roles, role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "rbac-writer"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "rbac-writer"},
        "subjects": [{"kind": "User", "name": "user", "apiGroup": group}],
    });
    server.post(&format!("/apis/{group}/v1/namespaces/default/rolebindings"), binding).await.expect(201);
    let greedy = json!({"metadata": {"name": "g"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]});
    // `*` on roles includes the verb escalate, as upstream; a narrower right does not.
    let narrow =
        json!([{"op": "replace", "path": "/rules/0/verbs", "value": ["create", "get", "update", "patch"]}]);
    server.patch(&format!("{roles}/rbac-writer"), "json", narrow).await.expect(200);
    let mut refused = None;
    for _ in 0..200 {
        let answered = server.send("POST", &roles, &[USER], greedy.clone()).await;
        if answered.code == 403 && answered.message().contains("attempting to grant") {
            refused = Some(answered);
            break;
        }
        server.ask("DELETE", &format!("{roles}/g"), Value::Null).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(refused.is_some());
}

#[tokio::test]
async fn impersonation_needs_the_right_to_it() {
    let server = TestServer::start().await;
    let as_alice = ("impersonate-user", "alice");
    let refused = server.send("GET", MAPS, &[ADMIN, as_alice], Value::Null).await.expect(403);
    assert!(refused.message().contains("User \"alice\" cannot list"), "{}", refused.message());
    let refused = server.send("GET", MAPS, &[USER, as_alice], Value::Null).await.expect(403);
    assert!(refused.message().contains("cannot impersonate"), "{}", refused.message());
    let masters = [ADMIN, as_alice, ("impersonate-group", "system:masters")];
    server.send("GET", MAPS, &masters, Value::Null).await.expect(200);
    server.send("GET", MAPS, &[ADMIN, ("impersonate-group", "g")], Value::Null).await.expect(400);
}

#[tokio::test]
async fn service_account_tokens_work_as_long_as_the_account_is_there() {
    let server = TestServer::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    server.post(accounts, json!({"metadata": {"name": "robot"}})).await.expect(201);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answered = server.post(&format!("{accounts}/robot/token"), request).await.expect(201).json();
    let token = answered["status"]["token"].as_str().unwrap();
    let header = format!("Bearer {token}");
    let refused =
        server.send("GET", MAPS, &[("authorization", header.as_str())], Value::Null).await.expect(403);
    assert!(refused.message().contains("system:serviceaccount:default:robot"), "{}", refused.message());
    let review =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let reviewed =
        server.post("/apis/authentication.k8s.io/v1/tokenreviews", review).await.expect(201).json();
    assert_eq!(reviewed["status"]["user"]["username"], "system:serviceaccount:default:robot");
    server.ask("DELETE", &format!("{accounts}/robot"), Value::Null).await.expect(200);
    for _ in 0..200 {
        let code = server.send("GET", MAPS, &[("authorization", header.as_str())], Value::Null).await.code;
        if code == 401 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("a token outlived its account");
}

#[tokio::test]
async fn access_reviews_tell_what_would_happen() {
    let server = TestServer::start().await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let body =
        json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}}});
    let answered = server.send("POST", path, &[USER], body.clone()).await.expect(201).json();
    assert_eq!(answered["status"]["allowed"], false);
    let answered = server.send("POST", path, &[ADMIN], body).await.expect(201).json();
    assert_eq!(answered["status"]["allowed"], true);
    let who = server
        .send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", &[USER], json!({}))
        .await
        .expect(201)
        .json();
    assert_eq!(who["status"]["userInfo"]["username"], "user");
    server.post(MAPS, config_map("unrelated")).await.expect(201);
}

/// Updating and applying can make an object; that takes the right to make one.
#[tokio::test]
async fn what_may_be_updated_may_not_be_made_for_that_reason() {
    let server = TestServer::start().await;
    let group = "rbac.authorization.k8s.io";
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let rule = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update", "patch", "get"]});
    let role = json!({"metadata": {"name": "updater"}, "rules": [rule]});
    server.post(&format!("/apis/{group}/v1/namespaces/default/roles"), role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "updater"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "updater"},
        "subjects": [{"kind": "User", "name": "user", "apiGroup": group}],
    });
    server.post(&format!("/apis/{group}/v1/namespaces/default/rolebindings"), binding).await.expect(201);
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let path = format!("{leases}/l");
    // The binding takes effect when the server has seen it.
    while server.send("GET", &path, &[USER], Value::Null).await.code == 403 {
        tokio::task::yield_now().await;
    }
    let want = "leases.coordination.k8s.io \"l\" is forbidden: User \"user\" cannot create resource \"leases\" in API group \
                \"coordination.k8s.io\" in the namespace \"default\"";
    let put = server.send("PUT", &path, &[USER], lease.clone()).await.expect(403);
    assert_eq!(put.message(), want);
    let apply = [USER, ("content-type", "application/apply-patch+yaml")];
    let applied = format!("{path}?fieldManager=m");
    let refused = server.send("PATCH", &applied, &apply, lease.clone()).await.expect(403);
    assert_eq!(refused.message(), want);
    server.get(&path).await.expect(404);
    server.post(leases, lease.clone()).await.expect(201);
    server.send("PATCH", &applied, &apply, lease.clone()).await.expect(200);
    server.send("PUT", &path, &[USER], lease).await.expect(422);
}

/// Gives `user` rules in a namespace, and waits until the server has seen it.
async fn grant(server: &TestServer, namespace: &str, rules: Value) {
    let group = "rbac.authorization.k8s.io";
    let base = format!("/apis/{group}/v1/namespaces/{namespace}");
    let probe = json!({"apiGroups": ["probe"], "resources": ["probes"], "verbs": ["get"]});
    let mut rules = rules;
    rules.as_array_mut().unwrap().push(probe);
    server
        .post(&format!("{base}/roles"), json!({"metadata": {"name": "r"}, "rules": rules}))
        .await
        .expect(201);
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "user", "apiGroup": group}],
    });
    server.post(&format!("{base}/rolebindings"), binding).await.expect(201);
    let review = json!({"spec": {"resourceAttributes":
        {"group": "probe", "resource": "probes", "verb": "get", "namespace": namespace}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    while server.send("POST", path, &[USER], review.clone()).await.json()["status"]["allowed"] != true {
        tokio::task::yield_now().await;
    }
}

/// The path was authorized in the one namespace and carried out on the other.
#[tokio::test]
async fn there_are_no_namespaces_in_a_namespace() {
    let server = TestServer::start().await;
    for name in ["own", "other"] {
        let labels = json!({"is": name});
        server
            .post("/api/v1/namespaces", json!({"metadata": {"name": name, "labels": labels}}))
            .await
            .expect(201);
    }
    grant(&server, "own", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])).await;
    let inside = "/api/v1/namespaces/own/namespaces";
    let one = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other", "labels": {"is": "mine"}}});
    let merge = [USER, ("content-type", "application/merge-patch+json")];
    for who in [USER, ADMIN] {
        for path in
            ["", "/other", "/own", "/other/status", "/other/finalize", "?watch=true", "/other?watch=1"]
        {
            let path = format!("{inside}{path}");
            let refused = server.send("GET", &path, &[who], Value::Null).await;
            assert_eq!(refused.code, 404, "GET {path}: {}", refused.text);
            server.send("PUT", &path, &[who], one.clone()).await.expect(404);
            server.send("DELETE", &path, &[who], Value::Null).await.expect(404);
        }
        server
            .send("GET", "/api/v1/watch/namespaces/own/namespaces/other", &[who], Value::Null)
            .await
            .expect(404);
        server.send("POST", inside, &[who], json!({"metadata": {"name": "made"}})).await.expect(404);
    }
    server.send("PATCH", &format!("{inside}/other"), &merge, one.clone()).await.expect(404);
    server.get("/api/v1/namespaces/made").await.expect(404);
    let other = server.get("/api/v1/namespaces/other").await.expect(200).json();
    assert_eq!(
        (&other["metadata"]["labels"]["is"], &other["status"]["phase"]),
        (&json!("other"), &json!("Active"))
    );
    // Its own namespace is the tenant's, as upstream.
    server.send("GET", "/api/v1/namespaces/own", &[USER], Value::Null).await.expect(200);
    server.send("GET", "/api/v1/namespaces/other", &[USER], Value::Null).await.expect(403);
}

/// A right to one object, and a selector that picks the others.
#[tokio::test]
async fn a_name_in_the_path_is_always_part_of_what_is_read() {
    let server = TestServer::start().await;
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["allowed", "hidden"] {
        server.post(secrets, json!({"metadata": {"name": name}, "type": "Opaque"})).await.expect(201);
    }
    let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "watch", "deletecollection"],
        "resourceNames": ["allowed"]});
    grant(&server, "default", json!([rule])).await;
    let once =
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1";
    for selector in ["type%3DOpaque", "metadata.name!%3Dallowed", "metadata.name%3Dhidden", ""] {
        // Of one object, a plain get.
        let path = format!("{secrets}/allowed?watch=true&fieldSelector={selector}&{once}");
        let got = server.send("GET", &path, &[USER], Value::Null).await.expect(200).json();
        assert_eq!(
            (got["kind"].as_str(), got["metadata"]["name"].as_str()),
            (Some("Secret"), Some("allowed"))
        );
        let path =
            format!("/api/v1/watch/namespaces/default/secrets/allowed?fieldSelector={selector}&{once}");
        let watched = server.send("GET", &path, &[USER], Value::Null).await;
        assert!(!watched.text.contains("hidden"), "{selector}: {}", watched.text);
        if selector.is_empty() {
            assert!(watched.code == 200 && watched.text.contains("\"allowed\""), "{}", watched.text);
        } else {
            assert_eq!(
                watched.expect(400).message(),
                "fieldSelector metadata.name doesn't match requested name"
            );
        }
    }
    let both = "metadata.name%3Dallowed,type%3DOpaque";
    let path = format!("/api/v1/watch/namespaces/default/secrets/allowed?fieldSelector={both}&{once}");
    assert!(server.send("GET", &path, &[USER], Value::Null).await.expect(200).text.contains("\"allowed\""));
    let path = format!("{secrets}?watch=1&fieldSelector={both}&{once}");
    assert!(server.send("GET", &path, &[USER], Value::Null).await.expect(200).text.contains("\"allowed\""));
    // The old prefix knows no names from selectors, and a collection is not deleted by name.
    let path = format!("/api/v1/watch/namespaces/default/secrets?fieldSelector={both}");
    server.send("GET", &path, &[USER], Value::Null).await.expect(403);
    let path = format!("{secrets}?fieldSelector={both}");
    server.send("DELETE", &path, &[USER], Value::Null).await.expect(403);
    // All namespaces at once have no object of a name, and what is below the old prefix is only read.
    server.get("/api/v1/watch/secrets/allowed").await.expect(404);
    server
        .post("/api/v1/watch/namespaces/default/secrets", json!({"metadata": {"name": "x"}}))
        .await
        .expect(405);
}
