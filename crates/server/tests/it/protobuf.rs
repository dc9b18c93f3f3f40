//! A client that speaks protobuf and nothing else.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use catalog::Schemas;
use http::Request;
use http_body_util::BodyExt;
use meta::Release;
use schema::{model::TypeId, protobuf};
use serde_json::{Value, json};
use server::{
    body::{Body, full_body},
    listen::Peer,
};

use crate::harness::{MAPS, TestServer, config_map};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

struct Client {
    server: TestServer,
    schemas: Schemas,
}

struct Answer {
    code: u16,
    content_type: String,
    bytes: Bytes,
}

impl Client {
    async fn start() -> Self {
        Self { server: TestServer::start().await, schemas: Schemas::new(Release::v1(36)) }
    }

    fn find(&self, api_version: &str, kind: &str) -> Option<TypeId> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.schemas.kind(group, version, kind)
    }

    fn encode(&self, object: &Value) -> Vec<u8> {
        let text = |name: &str| object[name].as_str().unwrap();
        let ty = self.find(text("apiVersion"), text("kind")).unwrap();
        protobuf::encode_object(object, self.schemas.schema(), ty)
    }

    fn decode(&self, bytes: &[u8]) -> Value {
        protobuf::decode_object(bytes, &|version, kind| self.find(version, kind), self.schemas.schema())
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
    }

    async fn open(&self, method: &str, path: &str, sent: &str, body: Vec<u8>) -> http::Response<Body> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", "Bearer admintoken")
            .header("accept", PROTOBUF)
            .header("content-type", sent);
        let peer = Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into()));
        self.server.server.chain().serve(request.body(full_body(body)).unwrap(), peer, None).await
    }

    async fn send(&self, method: &str, path: &str, sent: &str, body: Vec<u8>) -> Answer {
        let (parts, body) = self.open(method, path, sent, body).await.into_parts();
        let content_type = parts.headers["content-type"].to_str().unwrap().to_owned();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer { code: parts.status.as_u16(), content_type, bytes }
    }

    /// Asks, and reads the answer, which must be protobuf.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> impl Future<Output = (u16, Value)> {
        let body = if body.is_null() { Vec::new() } else { self.encode(body) };
        async move {
            let answer = self.send(method, path, PROTOBUF, body).await;
            assert_eq!(answer.content_type, PROTOBUF);
            (answer.code, self.decode(&answer.bytes))
        }
    }
}

/// The events of a watch.
struct Events<'a> {
    client: &'a Client,
    body: Body,
    rest: Vec<u8>,
}

impl<'a> Events<'a> {
    async fn open(client: &'a Client, path: &str) -> Self {
        let response = client.open("GET", &format!("{path}?watch=true"), PROTOBUF, Vec::new()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], format!("{PROTOBUF};stream=watch"));
        Self { client, body: response.into_body(), rest: Vec::new() }
    }

    async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some(frame) = protobuf::decode_watch_frame(&self.rest).unwrap() {
                let event = (frame.event.clone(), self.client.decode(frame.object));
                let length = frame.length;
                self.rest.drain(..length);
                return event;
            }
            let frame =
                tokio::time::timeout(Duration::from_secs(10), self.body.frame()).await.expect("an event");
            self.rest.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        }
    }
}

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {
                    "containers": [{
                        "name": "c", "image": "i",
                        "ports": [{"containerPort": 80, "protocol": "TCP"}],
                        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                        "livenessProbe": {"httpGet": {"path": "/", "port": "http"}},
                        "securityContext": {"privileged": false, "runAsUser": 0},
                    }],
                    "volumes": [
                        {"name": "v", "emptyDir": {}},
                        {"name": "w", "configMap": {"name": "m", "optional": false}},
                    ],
                },
            },
        },
    })
}

fn lease() -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"},
        "spec": {"holderIdentity": "me", "leaseTransitions": 0, "renewTime": "2026-11-15T21:10:53.123456Z"},
    })
}

/// Upstream has no protobuf for this kind; ours has.
fn migration() -> Value {
    json!({
        "apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration", "metadata": {"name": "a"},
        "spec": {"resource": {"group": "example.com", "version": "v1", "resource": "widgets"}},
    })
}

/// Everything that was sent is in what came back.
#[track_caller]
fn assert_has(object: &Value, sent: &Value, path: &str) {
    match sent {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            assert_has(&object[name], value, &format!("{path}.{name}"));
        }),
        Value::Array(elements) => elements.iter().enumerate().for_each(|(at, value)| {
            assert_has(&object[at], value, &format!("{path}[{at}]"));
        }),
        value => assert_eq!(object, value, "{path}"),
    }
}

#[tokio::test]
async fn objects_live_their_whole_life_in_protobuf() {
    let client = Client::start().await;
    for (collection, object, patch) in [
        (MAPS, config_map("a"), json!({"data": {"k": null, "n": "m"}})),
        ("/apis/apps/v1/namespaces/default/deployments", deployment(), json!({"spec": {"replicas": 0}})),
        (
            "/apis/coordination.k8s.io/v1/namespaces/default/leases",
            lease(),
            json!({"spec": {"leaseDurationSeconds": 15}}),
        ),
        (
            "/apis/migration.k8s.io/v1alpha1/storageversionmigrations",
            migration(),
            json!({"spec": {"continueToken": "next"}}),
        ),
    ] {
        let path = format!("{collection}/a");
        let mut events = Events::open(&client, collection).await;
        let (code, created) = client.ask("POST", collection, &object).await;
        assert_eq!(code, 201, "{created}");
        assert_has(&created, &object, "");
        assert!(created["metadata"]["uid"].is_string());
        let (event, mut seen) = events.next().await;
        while event == "ADDED" && seen["metadata"]["name"] != "a" {
            seen = events.next().await.1;
        }
        assert_eq!(seen, created);

        let (code, got) = client.ask("GET", &path, &Value::Null).await;
        assert_eq!((code, &got), (200, &created));
        let (code, listed) = client.ask("GET", collection, &Value::Null).await;
        assert_eq!(code, 200);
        assert_eq!(listed["kind"], format!("{}List", object["kind"].as_str().unwrap()));
        assert!(listed["metadata"]["resourceVersion"].is_string());
        let mut item =
            listed["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == "a").cloned();
        item.as_mut().unwrap()["apiVersion"] = object["apiVersion"].clone();
        item.as_mut().unwrap()["kind"] = object["kind"].clone();
        assert_eq!(item.as_ref(), Some(&created));

        let mut changed = got.clone();
        changed["metadata"]["labels"] = json!({"l": "m"});
        let (code, updated) = client.ask("PUT", &path, &changed).await;
        assert_eq!(code, 200, "{updated}");
        assert_eq!(updated["metadata"]["labels"], json!({"l": "m"}));
        assert_eq!(events.next().await, ("MODIFIED".to_owned(), updated.clone()));

        for (kind, patch) in
            [("merge", patch), ("json", json!([{"op": "add", "path": "/metadata/labels/p", "value": "q"}]))]
        {
            let sent = format!("application/{kind}-patch+json");
            let answer = client.send("PATCH", &path, &sent, patch.to_string().into_bytes()).await;
            assert_eq!((answer.code, answer.content_type.as_str()), (200, PROTOBUF));
        }
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": created["metadata"]["uid"]},
        });
        let (code, deleted) = client.ask("DELETE", &path, &options).await;
        assert_eq!((code, &deleted["kind"]), (200, &json!("Status")));
        assert_eq!(deleted["details"]["uid"], created["metadata"]["uid"]);
        let (code, status) = client.ask("GET", &path, &Value::Null).await;
        assert_eq!((code, &status["reason"], &status["kind"]), (404, &json!("NotFound"), &json!("Status")));
    }
}

#[tokio::test]
async fn preconditions_in_protobuf_count() {
    let client = Client::start().await;
    client.ask("POST", MAPS, &config_map("a")).await;
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "other"}});
    let (code, status) = client.ask("DELETE", &format!("{MAPS}/a"), &options).await;
    assert_eq!((code, &status["reason"]), (409, &json!("Conflict")));
    // Collections are deleted in protobuf, too.
    let (code, list) = client.ask("DELETE", MAPS, &Value::Null).await;
    assert_eq!((code, &list["kind"]), (200, &json!("ConfigMapList")));
}

#[tokio::test]
async fn questions_are_answered_in_protobuf() {
    let client = Client::start().await;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "default"}},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (code, answer) = client.ask("POST", path, &review).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)));

    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}});
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(client.ask("POST", accounts, &account).await.0, 201);
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600},
    });
    let (code, answer) = client.ask("POST", &format!("{accounts}/robot/token"), &request).await;
    assert_eq!(code, 201, "{answer}");
    assert!(answer["status"]["token"].as_str().unwrap().starts_with("ey"));
    assert!(answer["status"]["expirationTimestamp"].is_string());
}

/// Bytes as kubectl 1.33 sends them for `kubectl create configmap a --from-literal=k=v`.
#[tokio::test]
async fn the_bytes_of_a_go_client_are_understood() {
    let client = Client::start().await;
    let bytes =
        b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1b\x0a\x11\x0a\x01a\x12\x00\x1a\x00\x22\x00\x2a\x00\
        \x32\x00\x38\x00\x42\x00\x12\x06\x0a\x01k\x12\x01v\x1a\x00\x22\x00";
    let answer = client.send("POST", MAPS, PROTOBUF, bytes.to_vec()).await;
    let created = client.decode(&answer.bytes);
    assert_eq!(answer.code, 201, "{created}");
    assert_eq!(created["data"], json!({"k": "v"}));
    assert!(created["metadata"].get("generateName").is_none());
}

#[tokio::test]
async fn what_is_not_understood_is_refused_as_upstream_does() {
    let client = Client::start().await;
    let refused = async |path: &str, sent: &str, body: &[u8]| {
        let answer = client.send("POST", path, sent, body.to_vec()).await;
        let status = client.decode(&answer.bytes);
        (answer.code, status["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(
        refused(MAPS, PROTOBUF, b"{}").await,
        (
            400,
            "the object provided is unrecognized (must be of type ConfigMap): provided data does not appear to be a \
             protobuf message, expected prefix [107 56 115 0] ({})"
                .to_owned()
        )
    );
    assert_eq!(
        refused(MAPS, PROTOBUF, b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x02\x0a\x05").await,
        (400, "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: unexpected EOF".to_owned())
    );
    let (code, message) = refused(MAPS, "text/plain", b"x").await;
    assert_eq!(code, 415);
    assert!(
        message.ends_with("application/json, application/yaml, application/vnd.kubernetes.protobuf"),
        "{message}"
    );
    let pod = client.encode(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}));
    assert_eq!(refused(MAPS, PROTOBUF, &pod).await.0, 400);
}

/// Long lists leave the threads that serve requests, and stay complete.
#[tokio::test]
async fn long_lists_are_complete() {
    let client = Client::start().await;
    for at in 0..40 {
        let mut object = config_map(&format!("m{at}"));
        object["data"]["big"] = "x".repeat(10_000).into();
        assert_eq!(client.ask("POST", MAPS, &object).await.0, 201);
    }
    let (code, list) = client.ask("GET", MAPS, &Value::Null).await;
    assert_eq!(code, 200);
    let big = |it: &&Value| it["data"]["big"].as_str().is_some_and(|it| it.len() == 10_000);
    assert_eq!(list["items"].as_array().unwrap().iter().filter(big).count(), 40);
}

#[tokio::test]
async fn documents_and_scales_have_a_form_too() {
    let client = Client::start().await;
    let (code, groups) = client.ask("GET", "/apis", &Value::Null).await;
    assert_eq!((code, &groups["kind"]), (200, &json!("APIGroupList")));
    assert!(groups["groups"].as_array().unwrap().iter().any(|it| it["name"] == "apps"));
    let (code, resources) = client.ask("GET", "/api/v1", &Value::Null).await;
    assert_eq!((code, &resources["groupVersion"]), (200, &json!("v1")));
    let pods = resources["resources"].as_array().unwrap().iter().find(|it| it["name"] == "pods").unwrap();
    assert_eq!((&pods["namespaced"], &pods["shortNames"]), (&json!(true), &json!(["po"])));
    assert!(pods["verbs"].as_array().unwrap().contains(&json!("watch")));
    // This is no object, and JSON to everybody.
    let version = client.send("GET", "/version", PROTOBUF, Vec::new()).await;
    assert_eq!((version.code, version.content_type.as_str()), (200, "application/json"));

    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(client.ask("POST", deployments, &deployment()).await.0, 201);
    let path = format!("{deployments}/a/scale");
    let (code, mut scale) = client.ask("GET", &path, &Value::Null).await;
    assert_eq!((code, &scale["apiVersion"]), (200, &json!("autoscaling/v1")), "{scale}");
    scale["spec"]["replicas"] = json!(3);
    let (code, scale) = client.ask("PUT", &path, &scale).await;
    assert_eq!((code, &scale["spec"]["replicas"]), (200, &json!(3)), "{scale}");
}
