//! Tables and bare metadata.

use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::harness::{MAPS, TestServer, config_map};

const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

#[tokio::test]
async fn a_list_can_be_a_table() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("t")).await.expect(201);
    let table = server.send("GET", MAPS, &[ADMIN, ("accept", TABLE)], Value::Null).await.expect(200).json();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(names, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"].as_array().unwrap()[..2], [json!("t"), json!(1)]);
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert!(table["rows"][0]["object"].get("data").is_none());
    let bare = server
        .send("GET", &format!("{MAPS}?includeObject=None"), &[ADMIN, ("accept", TABLE)], Value::Null)
        .await;
    assert!(bare.json()["rows"][0]["object"].is_null());
    let one =
        server.send("GET", &format!("{MAPS}/t"), &[ADMIN, ("accept", TABLE)], Value::Null).await.expect(200);
    assert_eq!(one.json()["rows"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn failures_stay_statuses_whatever_was_asked_for() {
    let server = TestServer::start().await;
    let missing =
        server.send("GET", &format!("{MAPS}/x"), &[ADMIN, ("accept", TABLE)], Value::Null).await.expect(404);
    assert_eq!(missing.json()["kind"], "Status");
}

#[tokio::test]
async fn a_list_can_be_bare_metadata() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("t")).await.expect(201);
    let list = server.send("GET", MAPS, &[ADMIN, ("accept", METADATA)], Value::Null).await.expect(200).json();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(list["items"][0]["metadata"]["name"], "t");
    assert!(list["items"][0].get("data").is_none());
}

#[tokio::test]
async fn a_watch_can_be_a_table() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("t")).await.expect(201);
    let path = format!("{MAPS}?watch=1&timeoutSeconds=1");
    let lines = server.send("GET", &path, &[ADMIN, ("accept", TABLE)], Value::Null).await.expect(200).text;
    let event: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")));
    assert_eq!(event["object"]["rows"][0]["cells"][0], "t");
}

#[tokio::test]
async fn openapi_leads_from_the_index_to_every_document() {
    let server = TestServer::start().await;
    let index = server.get("/openapi/v3").await.expect(200).json();
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap().to_owned();
    let document = server.get(&url).await.expect(200);
    assert_eq!(document.headers["cache-control"], "public, immutable");
    assert!(document.json()["components"]["schemas"]["io.k8s.api.apps.v1.Deployment"].is_object());
    server.get("/openapi/v3/apis/none/v1").await.expect(404);
}

#[tokio::test]
async fn openapi_v2_is_one_document_whose_references_all_lead_somewhere() {
    let server = TestServer::start().await;
    let answer = server.get("/openapi/v2").await.expect(200);
    let document = answer.json();
    let definitions = document["definitions"].as_object().unwrap();
    for reference in answer.text.split("\"$ref\":\"").skip(1) {
        let target = reference.split('"').next().unwrap();
        let name = target.strip_prefix("#/definitions/").unwrap_or_else(|| panic!("{target}"));
        assert!(definitions.contains_key(name), "{name}");
    }
    let kinds = &definitions["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"];
    assert_eq!(kinds, &json!([{"group": "apps", "kind": "Deployment", "version": "v1"}]));
    assert!(document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"].is_object());

    let etag = answer.headers["etag"].to_str().unwrap();
    let ask = async |name, value| {
        server.send_text("GET", "/openapi/v2", &[ADMIN, (name, value)], String::new()).await
    };
    ask("if-none-match", etag).await.expect(304);
    ask("accept", "text/html").await.expect(406);
    let wanted = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let bytes = ask("accept", wanted).await.expect(200);
    assert_eq!(bytes.headers["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
}

/// One document as bytes: whether two answers are the same memory can be seen.
async fn bytes(server: &TestServer, path: &str, more: (&str, &str)) -> (bytes::Bytes, http::HeaderMap) {
    let response = server.open("GET", path, &[ADMIN, more], String::new()).await;
    assert_eq!(response.status(), 200, "{path}");
    let (parts, body) = response.into_parts();
    (body.collect().await.unwrap().to_bytes(), parts.headers)
}

/// Rendering OpenAPI took 50 ms of a serving thread for every request of anybody: 64 loops of a user without rights made
/// others wait for 20 s.
#[tokio::test]
async fn documents_are_made_once_and_sent_from_the_same_memory() {
    let server = TestServer::start().await;
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for (path, more) in [
        ("/openapi/v2", ("accept", "application/json")),
        ("/openapi/v2", ("accept-encoding", "gzip")),
        ("/openapi/v2", ("accept", protobuf)),
        ("/openapi/v3", ("accept", "application/json")),
        ("/openapi/v3/api/v1", ("accept", "*/*")),
        ("/openapi/v3/api/v1", ("accept-encoding", "gzip")),
        ("/openapi/v3/apis/apps/v1?pretty=true", ("accept", "application/json")),
        ("/apis", ("accept", aggregated)),
        ("/", ("accept", "application/json")),
    ] {
        let (first, headers) = bytes(&server, path, more).await;
        let (second, _) = bytes(&server, path, more).await;
        assert_eq!(first.as_ptr(), second.as_ptr(), "{path} {more:?} was made anew");
        if path == "/" {
            continue;
        }
        let etag = headers["etag"].to_str().unwrap();
        let known = [ADMIN, more, ("if-none-match", etag)];
        let unchanged = server.send("GET", path, &known, Value::Null).await.expect(304);
        assert_eq!((unchanged.text.as_str(), &unchanged.headers["etag"]), ("", &headers["etag"]), "{path}");
    }
    let yaml = [ADMIN, ("accept", "application/yaml")];
    server.send("GET", "/openapi/v3/api/v1", &yaml, Value::Null).await.expect(406);
}

#[tokio::test]
async fn documents_are_made_once_per_change_however_many_ask() {
    let server = TestServer::start().await;
    let json = ("accept", "application/json");
    for round in 0..3 {
        let (_, before) = bytes(&server, "/openapi/v2", json).await;
        let name = format!("round{round}s");
        let definition = serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition", "metadata": {"name": format!("{name}.a.example")},
            "spec": {"group": "a.example", "scope": "Namespaced", "names": {"plural": name, "kind": name},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.expect(201);
        crate::custom::established(&server, "Bearer admintoken", &format!("{name}.a.example")).await;
        for path in ["/openapi/v2", "/openapi/v3/apis/a.example/v1", "/openapi/v3"] {
            let asked = (0..16).map(|_| bytes(&server, path, json));
            let answers = futures_util::future::join_all(asked).await;
            let (first, headers) = &answers[0];
            assert!(
                answers.iter().all(|it| it.0.as_ptr() == first.as_ptr()),
                "{path} was made several times"
            );
            assert_ne!(headers["etag"], before["etag"]);
            assert!(String::from_utf8_lossy(first).contains("a.example"), "{path}");
        }
    }
}
