//! Tables and bare metadata.

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
