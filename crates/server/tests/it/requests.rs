//! Paths, methods, forms: what happens before a verb does anything.

use serde_json::json;

use crate::harness::{MAPS, TestServer, config_map};

const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");

#[tokio::test]
async fn unknown_paths_are_answered_as_upstream_answers_them() {
    let server = TestServer::start().await;
    for (path, is_json) in [
        ("/api/v1/namespaces/default/nothings", true),
        ("/apis/apps/v9/deployments", true),
        ("/api/v2", true),
        ("/apis/none.example/v1/things", false),
        ("/nonsense", false),
    ] {
        let answered = server.get(path).await.expect(404);
        if is_json {
            assert_eq!(answered.message(), "the server could not find the requested resource", "{path}");
        } else {
            assert_eq!(answered.text, "404 page not found\n", "{path}");
        }
    }
}

#[tokio::test]
async fn methods_that_a_resource_does_not_have_get_405() {
    let server = TestServer::start().await;
    server.post(&format!("{MAPS}/a"), config_map("a")).await.expect(405);
    server.ask("PUT", MAPS, config_map("a")).await.expect(405);
    server.ask("DELETE", "/api/v1/namespaces", serde_json::Value::Null).await.expect(405);
    server.ask("POST", "/version", json!({})).await.expect(405);
}

#[tokio::test]
async fn forms_that_are_not_spoken_get_406_and_415() {
    let server = TestServer::start().await;
    let accept = [ADMIN, ("accept", "application/xml")];
    server.send("GET", MAPS, &accept, json!(null)).await.expect(406);
    let sent = [ADMIN, ("content-type", "text/plain")];
    let answered = server.send_text("POST", MAPS, &sent, "x".to_owned()).await.expect(415);
    assert!(answered.message().starts_with("the body of the request was in an unknown format"));
}

#[tokio::test]
async fn broken_bodies_are_named() {
    let server = TestServer::start().await;
    let check = async |body: &str, message: &str| {
        let answered = server.send_text("POST", MAPS, &[ADMIN], body.to_owned()).await.expect(400);
        assert_eq!(answered.message(), message);
    };
    check(
        "{",
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: \
         unexpected end of JSON input ({)",
    )
    .await;
    check(
        "",
        "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: \
         unexpected end of JSON input (<empty>)",
    )
    .await;
    check(
        r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}"#,
        "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): \
         unknown conversion",
    )
    .await;
    server.send_text("POST", MAPS, &[ADMIN], "[".repeat(100_000)).await.expect(400);
    server.send_text("POST", MAPS, &[ADMIN], " ".repeat(4 << 20)).await.expect(413);
}

#[tokio::test]
async fn discovery_names_what_is_served_and_can_be_cached() {
    let server = TestServer::start().await;
    let groups = server.get("/apis").await.expect(200).json();
    assert_eq!(groups["kind"], "APIGroupList");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let answered = server.send("GET", "/apis", &[ADMIN, ("accept", accept)], json!(null)).await.expect(200);
    assert_eq!(answered.json()["kind"], "APIGroupDiscoveryList");
    let etag = answered.headers["etag"].to_str().unwrap().to_owned();
    let headers = [ADMIN, ("accept", accept), ("if-none-match", etag.as_str())];
    server.send("GET", "/apis", &headers, json!(null)).await.expect(304);
}

#[tokio::test]
async fn every_answer_carries_an_audit_id() {
    let server = TestServer::start().await;
    for path in ["/version", "/nonsense", MAPS] {
        assert!(server.get(path).await.headers.contains_key("audit-id"), "{path}");
    }
}

#[tokio::test]
async fn people_get_line_breaks() {
    let server = TestServer::start().await;
    let curl = server.send("GET", "/version", &[("user-agent", "curl/8")], json!(null)).await.expect(200);
    assert!(curl.text.contains("\n  "));
    assert!(!server.get("/version").await.text.contains('\n'));
}

#[tokio::test]
async fn what_needs_nodes_says_so() {
    let server = TestServer::start().await;
    let answered = server.get("/api/v1/namespaces/default/pods/x/log").await.expect(501);
    assert!(answered.message().contains("has no nodes"), "{}", answered.message());
}

#[tokio::test]
async fn long_answers_are_compressed_for_those_who_can_read_it() {
    let server = TestServer::start().await;
    for n in 0..20 {
        let mut map = config_map(&format!("m{n}"));
        map["data"]["big"] = "x".repeat(20_000).into();
        server.post(MAPS, map).await.expect(201);
    }
    let answered = server.send("GET", MAPS, &[ADMIN, ("accept-encoding", "gzip")], json!(null)).await;
    assert_eq!(answered.headers["content-encoding"], "gzip");
    assert!(!server.get(MAPS).await.headers.contains_key("content-encoding"));
}
