//! People who write and read YAML.

use schema::{json::Limits, yaml};
use serde_json::json;

use crate::harness::{MAPS, TestServer, config_map};

const AUTHORIZATION: (&str, &str) = ("authorization", "Bearer admintoken");
const SENDS: (&str, &str) = ("content-type", "application/yaml");
const READS: (&str, &str) = ("accept", "application/yaml");

#[tokio::test]
async fn yaml_goes_in_and_comes_out() {
    let server = TestServer::start().await;
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  port: \"80\"\n  script: |\n    a\n    b\n";
    let answer =
        server.send_text("POST", MAPS, &[AUTHORIZATION, SENDS, READS], text.to_owned()).await.expect(201);
    assert_eq!(answer.headers["content-type"], "application/yaml");
    assert!(
        answer.text.starts_with(
            "apiVersion: v1\ndata:\n  port: \"80\"\n  script: |\n    a\n    b\nkind: ConfigMap\n"
        )
    );
    let read = yaml::parse(answer.text.as_bytes(), Limits::REQUEST).unwrap();
    assert_eq!(read, server.get(&format!("{MAPS}/a")).await.json());

    let listed = server.send_text("GET", MAPS, &[AUTHORIZATION, READS], String::new()).await.expect(200);
    assert!(listed.text.contains("kind: ConfigMapList\n"), "{}", listed.text);
    let options = "propagationPolicy: Background\n".to_owned();
    let path = format!("{MAPS}/a");
    server.send_text("DELETE", &path, &[AUTHORIZATION, SENDS], options).await.expect(200);
    let missing = server.send_text("GET", &path, &[AUTHORIZATION, READS], String::new()).await.expect(404);
    assert!(missing.text.contains("reason: NotFound\n"), "{}", missing.text);
}

#[tokio::test]
async fn json_that_is_called_yaml_is_read() {
    let server = TestServer::start().await;
    let created = server.send("POST", MAPS, &[AUTHORIZATION, SENDS], config_map("a")).await.expect(201);
    assert_eq!(created.json()["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn bad_yaml_is_refused() {
    let server = TestServer::start().await;
    for text in ["a: [", "{", "a: *b", "\u{0}"] {
        let answer =
            server.send_text("POST", MAPS, &[AUTHORIZATION, SENDS], text.to_owned()).await.expect(400);
        assert!(
            answer.message().starts_with("the object provided is unrecognized (must be of type ConfigMap): ")
        );
    }
    let deep = "- ".repeat(2000);
    server.send_text("POST", MAPS, &[AUTHORIZATION, SENDS], deep).await.expect(400);
}

#[tokio::test]
async fn watches_are_not_yaml() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}?watch=true");
    let answer = server.send_text("GET", &path, &[AUTHORIZATION, READS], String::new()).await.expect(406);
    assert!(
        answer
            .text
            .contains("application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"),
        "{}",
        answer.text
    );
}
