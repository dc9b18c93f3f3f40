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
