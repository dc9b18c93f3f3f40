//! WATCH: from where, what, and how it ends.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Wake, Waker},
    time::Duration,
};

use http_body::Body as _;
use http_body_util::BodyExt;
use meta::Release;
use serde_json::{Value, json};
use server::body::Body;
use store::Store;

use crate::harness::{MAPS, TestServer, config_map};

/// A watch that is read line by line.
pub struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Lines {
    pub async fn open(server: &TestServer, path: &str) -> Self {
        Self::open_as(server, "Bearer admintoken", path).await
    }

    pub async fn open_as(server: &TestServer, authorization: &str, path: &str) -> Self {
        let response = server.open("GET", path, &[("authorization", authorization)], String::new()).await;
        assert_eq!(response.status(), 200);
        Self { body: response.into_body(), rest: Vec::new() }
    }

    /// The next event, or nothing if the stream ended.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(at) = self.rest.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=at).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame =
                tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await.expect("an event");
            self.rest.extend_from_slice(&frame?.unwrap().into_data().unwrap());
        }
    }

    /// `ADDED a`
    async fn short(&mut self) -> String {
        let event = self.next().await.expect("an event");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}

#[tokio::test]
async fn a_watch_shows_what_is_there_and_then_what_happens() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("a")).await.expect(201);
    let mut watch = Lines::open(&server, &format!("{MAPS}?watch=true")).await;
    assert_eq!(watch.short().await, "ADDED a");
    server.post(MAPS, config_map("b")).await.expect(201);
    let patched = server.patch(&format!("{MAPS}/a"), "merge", json!({"data": {"x": "y"}})).await.expect(200);
    let revision =
        |object: &Value| -> u64 { object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap() };
    server.ask("DELETE", &format!("{MAPS}/a"), Value::Null).await.expect(200);
    assert_eq!(watch.short().await, "ADDED b");
    assert_eq!(watch.short().await, "MODIFIED a");
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["data"]["x"], "y");
    let current = server.store.current().await.unwrap().get();
    let deleted = revision(&deleted["object"]);
    assert!(revision(&patched.json()) < deleted && deleted <= current, "{deleted} of {current}");
}

#[tokio::test]
async fn a_watch_from_a_resource_version_shows_only_what_came_after() {
    let server = TestServer::start().await;
    let first = server.post(MAPS, config_map("a")).await.expect(201).json();
    let then = first["metadata"]["resourceVersion"].as_str().unwrap();
    server.post(MAPS, config_map("b")).await.expect(201);
    let mut watch = Lines::open(&server, &format!("{MAPS}?watch=1&resourceVersion={then}")).await;
    assert_eq!(watch.short().await, "ADDED b");
}

#[tokio::test]
async fn objects_come_into_view_and_go_out_of_it_with_their_labels() {
    let server = TestServer::start().await;
    let mut watch = Lines::open(&server, &format!("{MAPS}?watch=1&labelSelector=x%3D1")).await;
    server.post(MAPS, config_map("a")).await.expect(201);
    let path = format!("{MAPS}/a");
    for value in ["1", "1", "2", "1"] {
        let n = rand::random::<u32>().to_string();
        let patch = json!({"metadata": {"labels": {"x": value}}, "data": {"n": n}});
        server.patch(&path, "merge", patch).await.expect(200);
    }
    server.ask("DELETE", &path, Value::Null).await.expect(200);
    for expected in ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"] {
        assert_eq!(watch.short().await, expected);
    }
}

#[tokio::test]
async fn a_watch_list_says_when_the_first_part_is_through() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("a")).await.expect(201);
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Lines::open(&server, &format!("{MAPS}?{query}")).await;
    assert_eq!(watch.short().await, "ADDED a");
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    server.post(MAPS, config_map("b")).await.expect(201);
    assert_eq!(watch.short().await, "ADDED b");
    server.get(&format!("{MAPS}?watch=1&sendInitialEvents=true")).await.expect(422);
}

#[tokio::test]
async fn a_past_that_is_gone_is_an_error_event() {
    let before = TestServer::start().await;
    before.post(MAPS, config_map("a")).await.expect(201);
    // A server that starts later does not know what happened before.
    let server = TestServer::start_on(before.store.clone(), Release::v1(36), |_| {}).await;
    let mut watch = Lines::open(&server, &format!("{MAPS}?watch=1&resourceVersion=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn a_watch_ends_after_its_time() {
    let server = TestServer::start().await;
    let mut watch = Lines::open(&server, &format!("{MAPS}?watch=1&timeoutSeconds=1")).await;
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn other_namespaces_are_not_seen() {
    let server = TestServer::start().await;
    let mut watch = Lines::open(&server, &format!("{MAPS}?watch=1")).await;
    server.post("/api/v1/namespaces/kube-system/configmaps", config_map("other")).await.expect(201);
    server.post(MAPS, config_map("mine")).await.expect(201);
    assert_eq!(watch.short().await, "ADDED mine");
}

/// A selector of thousands of terms over every object was judged before the watch began, all at once.
#[tokio::test]
async fn judging_a_long_selector_lets_others_have_their_turn() {
    let server = TestServer::start().await;
    for number in 0..50 {
        server.post(MAPS, config_map(&format!("m{number:02}"))).await.expect(201);
    }
    let terms: Vec<String> = (0..5_000).map(|it| format!("!k{it}")).collect();
    let path = format!("{MAPS}?watch=true&labelSelector={},nobody", terms.join(","));
    let mut watch = Lines::open(&server, &path).await;
    let n_turns = Arc::new(Turns::default());
    let waker = Waker::from(Arc::clone(&n_turns));
    for _ in 0..100 {
        let polled = Pin::new(&mut watch.body).poll_frame(&mut Context::from_waker(&waker));
        assert!(polled.is_pending(), "nothing is selected");
        tokio::task::yield_now().await;
    }
    // One for each object, or nearly.
    let n_turns = n_turns.0.load(Ordering::Relaxed);
    assert!(n_turns >= 45, "{n_turns}");
}

/// Counts how often somebody wants to go on.
#[derive(Default)]
struct Turns(AtomicUsize);

impl Wake for Turns {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Objects are taken from where they are when they are asked for, large ones without copying.
#[tokio::test]
async fn initial_events_are_whole_whatever_their_size() {
    let server = TestServer::start().await;
    for (number, length) in [10, 20_000, 100, 900_000, 16_384, 5].into_iter().enumerate() {
        let mut map = config_map(&format!("m{number}"));
        map["data"] = json!({"text": "x".repeat(length)});
        server.post(MAPS, map).await.expect(201);
    }
    let path = format!(
        "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut watch = Lines::open(&server, &path).await;
    for number in 0..6 {
        let event = watch.next().await.unwrap();
        let listed = server.get(&format!("{MAPS}/m{number}")).await.json();
        assert_eq!((&event["type"], &event["object"]), (&json!("ADDED"), &listed));
    }
    let end = watch.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
}

/// A watch has no deadline, so it must not wait for the end of a body that never ends.
#[tokio::test]
async fn a_watch_does_not_wait_for_a_body() {
    let server = TestServer::start().await;
    let body = http_body_util::StreamBody::new(futures_util::stream::pending()).boxed_unsync();
    let request =
        http::Request::get(format!("{MAPS}?watch=true")).header("authorization", "Bearer admintoken");
    let peer = Arc::new(server::listen::Peer::without_certificate(([127, 0, 0, 1], 0).into()));
    let chain = server.server.chain();
    let serving = chain.serve(request.body(body).unwrap(), peer, None);
    let answered = tokio::time::timeout(Duration::from_secs(20), serving).await.expect("it must be answered");
    assert_eq!(answered.status(), 200);
}
