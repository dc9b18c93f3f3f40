//! What one user can take from others: by acting as somebody else, by sending slowly, by having many rules.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use meta::Release;
use serde_json::{Value, json};
use server::{
    body::{BoxError, RequestBody},
    listen::Peer,
};
use tokio::sync::oneshot;

use crate::harness::{MAPS, TestServer, config_map};

const USER: (&str, &str) = ("authorization", "Bearer usertoken");
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Gives these rules to `subjects` in `default`, and waits until that has an effect on `path`.
async fn grant(server: &TestServer, rules: Value, subjects: Value, path: &str, headers: &[(&str, &str)]) {
    let role = json!({"metadata": {"name": "given"}, "rules": rules});
    server.post(&format!("{RBAC}/roles"), role).await.expect(201);
    let binding = json!({"metadata": {"name": "given"}, "subjects": subjects,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "given"}});
    server.post(&format!("{RBAC}/rolebindings"), binding).await.expect(201);
    while server.send("GET", path, headers, Value::Null).await.code == 403 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn to_user() -> Value {
    json!([{"kind": "User", "name": "user"}])
}

/// Accounts that somebody may act as need not exist. With four made-up names a user had four shares, which is everything.
#[tokio::test]
async fn who_acts_as_others_has_one_share() {
    let server = TestServer::start_as(Release::v1(36), |it| it.max_requests_inflight = 8).await;
    let rules = json!([
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
    ]);
    let subjects = json!([{"kind": "User", "name": "user"}, {"kind": "Group", "name": "system:serviceaccounts:default"}]);
    let names: Vec<String> = (0..4).map(|n| format!("system:serviceaccount:default:x{n}")).collect();
    grant(&server, rules, subjects, MAPS, &[USER, ("impersonate-user", &names[0])]).await;
    let mut held = Vec::new();
    for name in &names[..2] {
        // The slot is kept until the answer was read.
        let answer = server.open("GET", MAPS, &[USER, ("impersonate-user", name)], String::new()).await;
        assert_eq!(answer.status(), 200);
        held.push(answer);
    }
    for name in &names {
        let headers = [USER, ("impersonate-user", name.as_str())];
        let refused = server.send("GET", MAPS, &headers, Value::Null).await.expect(429);
        assert_eq!(refused.headers["retry-after"], "1");
    }
    server.send("GET", MAPS, &[USER], Value::Null).await.expect(429);
    drop(held);
    server.send("GET", MAPS, &[USER], Value::Null).await.expect(200);
}

/// A body that is asked for before it is sent.
fn slow() -> (RequestBody, oneshot::Receiver<()>, oneshot::Sender<Bytes>) {
    let (asked, is_asked) = oneshot::channel();
    let (send, sent) = oneshot::channel::<Bytes>();
    let piece = async move {
        asked.send(()).unwrap();
        sent.await.map(Frame::data).map_err(BoxError::from)
    };
    (StreamBody::new(futures_util::stream::once(piece).boxed()).boxed_unsync(), is_asked, send)
}

fn create(body: RequestBody) -> Request<RequestBody> {
    let request = Request::post(MAPS).header(USER.0, USER.1).header("content-type", "application/json");
    request.body(body).unwrap()
}

/// One byte a second kept a slot for a minute.
#[tokio::test]
async fn who_sends_slowly_has_no_slot_meanwhile() {
    let server = TestServer::start_as(Release::v1(36), |it| it.max_mutating_requests_inflight = 4).await;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "list"]}]);
    grant(&server, rules, to_user(), MAPS, &[USER]).await;
    let (body, is_asked, send) = slow();
    let (chain, peer) =
        (server.server.chain(), Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into())));
    let slowly = tokio::spawn(async move { chain.serve(create(body), peer, None).await });
    is_asked.await.unwrap();
    for name in ["a", "b"] {
        server.send("POST", MAPS, &[USER], config_map(name)).await.expect(201);
    }
    send.send(Bytes::from(config_map("slow").to_string())).unwrap();
    assert_eq!(slowly.await.unwrap().status(), 201);
    // Its user's only slot is taken when the body is there: nothing is done then, and the client may try again.
    let (body, is_asked, send) = slow();
    let (chain, peer) =
        (server.server.chain(), Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into())));
    let slowly = tokio::spawn(async move { chain.serve(create(body), peer, None).await });
    is_asked.await.unwrap();
    let held = server.open("POST", MAPS, &[USER], config_map("c").to_string()).await;
    send.send(Bytes::from(config_map("late").to_string())).unwrap();
    let late = slowly.await.unwrap();
    assert_eq!((held.status().as_u16(), late.status().as_u16()), (201, 429));
    server.get(&format!("{MAPS}/late")).await.expect(404);
}

/// What is refused is not read.
#[tokio::test]
async fn a_refusal_does_not_wait_for_the_body() {
    let server = TestServer::start().await;
    let (body, _is_asked, _send) = slow();
    let peer = Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into()));
    assert_eq!(server.server.chain().serve(create(body), peer, None).await.status(), 403);
}

/// Whoever has so many rules that decisions about them take long gets the same answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_about_somebody_with_many_rules_are_the_same() {
    let server = TestServer::start().await;
    let mut rules: Vec<Value> = (0..3_000)
        .map(|n| json!({"apiGroups": ["x"], "resources": [n.to_string()], "verbs": ["get"]}))
        .collect();
    rules.push(json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}));
    rules.push(
        json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["create"]}),
    );
    grant(&server, json!(rules), to_user(), MAPS, &[USER]).await;
    server.send("GET", MAPS, &[USER], Value::Null).await.expect(200);
    server.send("POST", MAPS, &[USER], config_map("a")).await.expect(403);
    let reviews = "/apis/authorization.k8s.io/v1";
    let review = json!({"spec": {"namespace": "default"}});
    let listed = server.send("POST", &format!("{reviews}/selfsubjectrulesreviews"), &[USER], review).await;
    let status = &listed.expect(201).json()["status"];
    assert!(status["resourceRules"].as_array().unwrap().len() > 3_000);
    assert_eq!(status["incomplete"], json!(false));
    let asked = json!({"spec": {"resourceAttributes": {"verb": "get", "group": "x", "resource": "2999", "namespace": "default"}}});
    let answered = server.send("POST", &format!("{reviews}/selfsubjectaccessreviews"), &[USER], asked).await;
    assert_eq!(answered.expect(201).json()["status"]["allowed"], json!(true));
    for (name, group, code) in [("held", "x", 201), ("more", "y", 403)] {
        let role = json!({"metadata": {"name": name},
            "rules": [{"apiGroups": [group], "resources": ["2999"], "verbs": ["get"]}]});
        server.send("POST", &format!("{RBAC}/roles"), &[USER], role).await.expect(code);
    }
}
