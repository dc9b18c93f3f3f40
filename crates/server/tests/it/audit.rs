//! What the audit log says: about whom, about what, and that no request is missing in it.

use std::{panic::AssertUnwindSafe, path::Path, sync::Arc};

use access::Policy;
use bytes::Bytes;
use futures_util::FutureExt;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use meta::{Release, Value};
use serde_json::json;
use server::{
    audit::Auditor,
    audit_log::{AuditLog, Destination, Rotation},
    body::{BoxError, RequestBody},
    listen::Peer,
    metrics::Metrics,
};
use store::SystemClock;
use tempfile::TempDir;

use crate::harness::{MAPS, TestServer, config_map};

const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");
const USER: (&str, &str) = ("authorization", "Bearer usertoken");

/// A server that writes down everything on this level, and where.
async fn audited(level: &str) -> (TestServer, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{{level: {level}}}]\n");
    let rotation = Rotation {
        path: folder.path().join("audit.log"),
        max_bytes: 0,
        max_backups: 0,
        max_age: std::time::Duration::ZERO,
    };
    let clock = SystemClock::shared();
    let metrics = Arc::new(Metrics::new(&clock, "v1.36.0", Release::v1(36)));
    let log = AuditLog::open(Destination::File(rotation), clock, metrics).unwrap();
    let auditor = Auditor { policy: Policy::parse(&text).unwrap(), log: Some(log) };
    let server = TestServer::start_as(Release::v1(36), |it| it.auditor = auditor).await;
    (server, folder)
}

/// All events, once the server has closed its log.
fn events(server: &TestServer, folder: &Path) -> Vec<Value> {
    server.server.close();
    let text = std::fs::read_to_string(folder.join("audit.log")).unwrap();
    text.lines().map(|it| serde_json::from_str(it).unwrap()).collect()
}

/// The last event about a path of this beginning at this stage.
#[track_caller]
fn find<'a>(events: &'a [Value], stage: &str, uri: &str) -> &'a Value {
    let is_it = |it: &&Value| it["stage"] == stage && it["requestURI"].as_str().unwrap().starts_with(uri);
    events.iter().rfind(is_it).unwrap_or_else(|| panic!("no {stage} of {uri} in {events:#?}"))
}

#[tokio::test]
async fn creates_have_a_name_and_a_reason_on_every_level() {
    let (server, folder) = audited("Metadata").await;
    server.post(MAPS, config_map("named")).await.expect(201);
    server.send("GET", MAPS, &[USER], Value::Null).await.expect(403);
    let events = events(&server, folder.path());
    let forbidden = find(&events, "ResponseComplete", MAPS);
    assert_eq!(forbidden["annotations"]["authorization.k8s.io/decision"], "forbid");
    let is_create = |it: &&Value| it["verb"] == "create" && it["stage"] == "ResponseComplete";
    let created =
        events.iter().filter(is_create).find(|it| it["objectRef"]["resource"] == "configmaps").unwrap();
    assert_eq!(created["objectRef"]["name"], "named");
    assert_eq!(created["annotations"]["authorization.k8s.io/decision"], "allow");
    assert!(created.get("requestObject").is_none());
}

#[tokio::test]
async fn bodies_in_yaml_and_holds_are_written_down() {
    let (server, folder) = audited("Request").await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: plain}\ndata: {k: v}\n";
    let sent = [ADMIN, ("content-type", "application/yaml")];
    server.send_text("POST", MAPS, &sent, yaml.to_owned()).await.expect(201);
    let applied = [ADMIN, ("content-type", "application/apply-patch+yaml")];
    let path = format!("{MAPS}/plain?fieldManager=me&force=true");
    server.send_text("PATCH", &path, &applied, yaml.to_owned()).await.expect(200);
    let hold = json!({"resource": "leases.coordination.k8s.io", "reason": "a test", "release": false});
    server.post("/convoy/hold", hold).await;
    let events = events(&server, folder.path());
    let created =
        events.iter().find(|it| it["objectRef"]["name"] == "plain" && it["verb"] == "create").unwrap();
    assert_eq!(created["requestObject"]["data"]["k"], "v");
    let applied = find(&events, "ResponseComplete", &format!("{MAPS}/plain"));
    assert_eq!(applied["requestObject"]["data"]["k"], "v");
    let held = find(&events, "ResponseComplete", "/convoy/hold");
    assert_eq!((&held["requestObject"]["reason"], &held["verb"]), (&json!("a test"), &json!("post")));
}

#[tokio::test]
async fn failed_logins_and_refused_impersonation_are_written_down() {
    let (server, folder) = audited("Metadata").await;
    server.send("GET", MAPS, &[("authorization", "Bearer nobody")], Value::Null).await.expect(401);
    server
        .send("GET", "/api/v1/nodes", &[USER, ("impersonate-user", "admin")], Value::Null)
        .await
        .expect(403);
    let events = events(&server, folder.path());
    let login = find(&events, "ResponseStarted", MAPS);
    assert_eq!(login["responseStatus"]["code"], 401);
    assert_eq!(login["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    let refused = find(&events, "ResponseComplete", "/api/v1/nodes");
    assert_eq!(
        (&refused["user"]["username"], &refused["responseStatus"]["code"]),
        (&json!("user"), &json!(403))
    );
    assert!(refused.get("impersonatedUser").is_none());
}

#[tokio::test]
async fn a_watch_is_written_down_when_it_starts_and_when_it_ends() {
    let (server, folder) = audited("Metadata").await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=3600");
    let response = server.open("GET", &path, &[ADMIN], String::new()).await;
    assert_eq!(response.status(), 200);
    drop(response);
    let events = events(&server, folder.path());
    find(&events, "ResponseStarted", &path);
    let ended = find(&events, "ResponseComplete", &path);
    assert_eq!(ended["responseStatus"]["code"], 200);
}

/// A body that is not sent to its end.
fn body(
    frames: impl futures_util::Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static,
) -> RequestBody {
    StreamBody::new(frames).boxed_unsync()
}

#[tokio::test]
async fn requests_that_panic_or_are_given_up_are_written_down() {
    let (server, folder) = audited("Metadata").await;
    let peer = Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into()));
    let request = |path: &str, body: RequestBody| {
        Request::builder().method("POST").uri(path).header(ADMIN.0, ADMIN.1).body(body).unwrap()
    };
    let chain = server.server.chain();
    let never = request(MAPS, body(futures_util::stream::pending()));
    assert!(chain.serve(never, Arc::clone(&peer), None).now_or_never().is_none());
    let panics = body(futures_util::stream::poll_fn(|_| panic!("on purpose")));
    let panics = request("/api/v1/namespaces", panics);
    let panicked = AssertUnwindSafe(chain.serve(panics, peer, None)).catch_unwind().await;
    assert!(panicked.is_err());
    let events = events(&server, folder.path());
    let given_up = find(&events, "ResponseComplete", MAPS);
    assert_eq!(given_up["responseStatus"]["code"], 504);
    let panicked = find(&events, "Panic", "/api/v1/namespaces");
    assert_eq!(panicked["responseStatus"]["code"], 500);
}
