//! Input that means harm, or comes from something broken: bounded, answered, survived.
//!
//! After each attack the server must still answer others, and its log must show no panic.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use http::Method;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use testkit::convoy::ADMIN_TOKEN;
use testkit::raw::{Raw, Reaction};
use testkit::{Convoy, Options, tools};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture;

const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";
/// Longer than any limit on slow input that the server may have.
const PATIENCE: Duration = Duration::from_secs(90);

/// The server lives, answers, and did not panic.
async fn unharmed(convoy: &mut Convoy) -> Result<()> {
    assert!(convoy.exited()?.is_none(), "the server ended\n{}", convoy.log_tail());
    convoy.admin().get("/api/v1/namespaces/default").await?.expect(200)?;
    let log = convoy.log();
    assert!(!log.contains("panicked"), "{log}");
    Ok(())
}

fn head(method: &str, path: &str, more: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n{more}\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_over_three_mebibytes_are_refused() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"},
                      "data": {"value": "x".repeat((3 << 20) + 1)}});
    let answer = convoy.admin().post(OBJECTS, &body).await?;
    let status = answer.expect(413)?;
    assert_eq!(status["reason"], "RequestEntityTooLarge", "{status}");
    // The same without a length announced beforehand.
    let mut raw = Raw::connect(&convoy).await?;
    raw.send(
        head("POST", OBJECTS, "content-type: application/json\r\ntransfer-encoding: chunked\r\n").as_bytes(),
    )
    .await;
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, " ".repeat(1 << 20));
    for _ in 0..6 {
        if !raw.send(chunk.as_bytes()).await {
            break;
        }
    }
    match raw.reaction(PATIENCE).await {
        Reaction::Answered { status, .. } => assert_eq!(status, 413),
        Reaction::Closed => {}
        Reaction::Silent => panic!("no limit on a chunked body"),
    }
    unharmed(&mut convoy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn deep_and_broken_json_is_refused() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let admin = convoy.admin();
    let deep_list = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_map = "{\"a\":".repeat(100_000);
    let nested = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"deep\"}},\"data\":{}1{}}}",
        "{\"a\":".repeat(20_000),
        "}".repeat(20_000)
    );
    let bodies: [&[u8]; 9] = [
        deep_list.as_bytes(),
        deep_map.as_bytes(),
        nested.as_bytes(),
        b"",
        b"null",
        b"\xff\xfe\x00",
        b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"\\ud800\"}}",
        b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"n\",\"labels\":7}}",
        b"{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":[]}",
    ];
    for body in bodies {
        let body = Bytes::copy_from_slice(body);
        for (method, path, content_type) in [
            (Method::POST, OBJECTS.to_owned(), "application/json"),
            (Method::PUT, format!("{OBJECTS}/kube-root-ca.crt"), "application/json"),
            (Method::PATCH, format!("{OBJECTS}/kube-root-ca.crt"), "application/json-patch+json"),
            (Method::DELETE, format!("{OBJECTS}/nothing"), "application/json"),
        ] {
            let answer = admin.send(method.clone(), &path, Some(content_type), body.clone()).await?;
            // A list of operations that is null has none, as in Go.
            let is_empty_patch = method == Method::PATCH && *body == *b"null";
            let is_refused = answer.status.is_client_error()
                || is_empty_patch
                || is_bad_delete(answer.status.as_u16(), &answer.text());
            assert!(is_refused, "{method} {path}: {} {}", answer.status, answer.text());
        }
    }
    unharmed(&mut convoy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn odd_paths_and_queries_are_answered_with_a_status() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let long_name = "a".repeat(4_000);
    for path in [
        "/api/v1/namespaces/%ff%fe/configmaps",
        "/api/v1/namespaces/default/configmaps/%00",
        "/api/v1/namespaces/default/configmaps/..%2f..%2fsecrets",
        "/api/v1/namespaces/../../secrets",
        "//api//v1//namespaces",
        "/api/v1/namespaces/default/configmaps/a/b/c/d/e/f",
        "/apis/%F0%9F%9A%A2/v1/ships",
        &format!("/api/v1/namespaces/default/configmaps/{long_name}"),
        "/api/v1/configmaps?limit=-1",
        "/api/v1/configmaps?limit=99999999999999999999999",
        "/api/v1/configmaps?limit=abc",
        "/api/v1/configmaps?continue=AAAA%00",
        "/api/v1/configmaps?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vIn0",
        "/api/v1/configmaps?labelSelector=%28%28%28%28",
        "/api/v1/configmaps?labelSelector=a+in+%28",
        "/api/v1/configmaps?fieldSelector=%3D%3D%3D",
        "/api/v1/configmaps?resourceVersion=-5",
        "/api/v1/configmaps?resourceVersion=18446744073709551616",
        "/api/v1/configmaps?watch=true&resourceVersion=99999999999&timeoutSeconds=1",
        "/api/v1/configmaps?watch=maybe",
        "/api/v1/configmaps?timeoutSeconds=-1&watch=1&timeoutSeconds=1",
        "/api/v1/configmaps?%ff=%ff&&&===",
    ] {
        let mut raw = Raw::connect(&convoy).await?;
        raw.send(head("GET", path, "connection: close\r\n").as_bytes()).await;
        match raw.reaction(PATIENCE).await {
            Reaction::Answered { status, text } => {
                assert!((200..500).contains(&status) || status == 504, "{path}: {text}")
            }
            other => panic!("{path}: {other:?}"),
        }
    }
    unharmed(&mut convoy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_http_is_refused() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let many_headers: String = (0..2_000).map(|number| format!("x-{number}: y\r\n")).collect();
    let huge_header = format!("x-big: {}\r\n", "y".repeat(2 << 20));
    let smuggled = "content-length: 5\r\ncontent-length: 7\r\n";
    let both = "content-length: 5\r\ntransfer-encoding: chunked, identity\r\n";
    for request in [
        head("GET", "/version", &many_headers),
        head("GET", "/version", &huge_header),
        head("POST", OBJECTS, smuggled),
        head("POST", OBJECTS, both),
        head("GET", &format!("/{}", "p".repeat(1 << 20)), ""),
        head("GET", "/version", "bad header\r\n"),
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\0\0\0".to_owned(),
    ] {
        let mut raw = Raw::connect(&convoy).await?;
        raw.send(request.as_bytes()).await;
        let shown = &request[..request.len().min(60)];
        match raw.reaction(PATIENCE).await {
            Reaction::Answered { status, text } => assert!((400..500).contains(&status), "{shown:?}: {text}"),
            Reaction::Closed => {}
            Reaction::Silent => panic!("{shown:?}: neither answered nor closed"),
        }
    }
    // No TLS at all.
    let mut plain = TcpStream::connect(("127.0.0.1", convoy.port())).await?;
    plain.write_all(b"GET /version HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, plain.read_to_end(&mut answer)).await?;
    assert!(!answer.starts_with(b"HTTP/1.1 2"), "plain HTTP must not be served");
    unharmed(&mut convoy).await
}

/// Connections that never finish what they began are closed, and do not keep others out meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn slow_and_half_open_connections_are_closed() -> Result<()> {
    // The limit on a whole request is a minute by default; nobody wants to wait that long here.
    let mut convoy = Convoy::start(Options::embedded(fixture::BINARY).flag("--request-timeout=5s")).await?;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(("127.0.0.1", convoy.port())).await?);
    }
    let mut slow = Vec::new();
    for _ in 0..30 {
        let mut raw = Raw::connect(&convoy).await?;
        raw.send(b"GET /version HTTP/1.1\r\nhost: loc").await;
        slow.push(raw);
    }
    let mut body = Raw::connect(&convoy).await?;
    body.send(head("POST", OBJECTS, "content-type: application/json\r\ncontent-length: 1000\r\n").as_bytes())
        .await;
    body.send(b"{\"apiVersion\":").await;
    unharmed(&mut convoy).await?;

    let closed = |mut stream: TcpStream| async move {
        let mut byte = [0];
        tokio::time::timeout(PATIENCE, stream.read(&mut byte)).await.is_ok()
    };
    assert!(closed(silent.remove(0)).await, "a connection without a handshake must be closed");
    let reaction = slow[0].reaction(PATIENCE).await;
    assert!(reaction != Reaction::Silent, "half a header must not be waited for for ever");
    let reaction = body.reaction(PATIENCE).await;
    assert!(reaction != Reaction::Silent, "half a body must not be waited for for ever");
    unharmed(&mut convoy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_do_not_keep_others_out() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let mut open = Vec::new();
    for _ in 0..400 {
        open.push(Raw::connect(&convoy).await?);
    }
    unharmed(&mut convoy).await?;
    drop(open);
    unharmed(&mut convoy).await
}

/// Valid requests with a few bytes changed: whatever comes out, the server answers or closes, never with
/// a 5xx that would mean it was surprised.
#[tokio::test(flavor = "multi_thread")]
async fn mutated_requests_never_surprise_the_server() -> Result<()> {
    let (rounds, seed) = (tools::rounds(300), tools::seed());
    let mut convoy = fixture::embedded().await;
    let mut random = StdRng::seed_from_u64(seed);
    let object = fixture::config_map("mutant", "value", "red").to_string();
    let patch =
        r#"[{"op":"add","path":"/data/a","value":"b"},{"op":"move","from":"/data/a","path":"/data/c"}]"#;
    let with_body = |method: &str, path: &str, content_type: &str, body: &str| {
        let more = format!(
            "content-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n",
            body.len()
        );
        head(method, path, &more) + body
    };
    let seeds = [
        with_body("POST", OBJECTS, "application/json", &object),
        with_body("PUT", &format!("{OBJECTS}/mutant"), "application/json", &object),
        with_body("PATCH", &format!("{OBJECTS}/mutant"), "application/json-patch+json", patch),
        with_body(
            "PATCH",
            &format!("{OBJECTS}/mutant"),
            "application/merge-patch+json",
            r#"{"data":{"a":null}}"#,
        ),
        with_body(
            "DELETE",
            &format!("{OBJECTS}/mutant"),
            "application/json",
            r#"{"preconditions":{"uid":"x"}}"#,
        ),
        head(
            "GET",
            &format!("{OBJECTS}?labelSelector=group%20in%20(red,blue),!x&limit=2"),
            "connection: close\r\n",
        ),
        head(
            "GET",
            &format!("{OBJECTS}?watch=1&timeoutSeconds=1&resourceVersion=1"),
            "connection: close\r\n",
        ),
        head(
            "GET",
            "/apis?x=y",
            "accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\r\nconnection: close\r\n",
        ),
    ];
    for round in 0..rounds {
        let mut request = seeds[random.random_range(0..seeds.len())].clone().into_bytes();
        for _ in 0..random.random_range(1..6) {
            mutate(&mut request, &mut random);
        }
        let mut raw = Raw::connect(&convoy).await?;
        raw.send(&request).await;
        // A mutation that asks for more bytes than come is left waiting; the test does not wait with it.
        if let Reaction::Answered { status, text } = raw.reaction(Duration::from_millis(500)).await {
            let shown = String::from_utf8_lossy(&request);
            let is_expected = [501, 503, 504, 505].contains(&status) || is_bad_delete(status, &text);
            let surprised = status >= 500 && !is_expected;
            assert!(!surprised, "round {round}, seed {seed}: {text}\nfor {shown}");
        }
    }
    tools::report(&format!("hostile: {rounds} mutated requests, seed {seed}: no surprise"));
    unharmed(&mut convoy).await
}

/// Upstream answers 500 when it cannot read the options in the body of a DELETE, and so do we: the message is about
/// the body, and there is no reason.
fn is_bad_delete(status: u16, answer: &str) -> bool {
    status == 500
        && !answer.contains("\"reason\"")
        && [
            "json parse error",
            "yaml: ",
            "converting YAML",
            "json: cannot",
            "no kind ",
            "Object 'Kind' is missing",
        ]
        .iter()
        .any(|it| answer.contains(it))
}

fn mutate(bytes: &mut Vec<u8>, random: &mut StdRng) {
    // The token stays whole, or every request would end at 401.
    let protected = bytes.windows(4).position(|it| it == b"\r\nau").unwrap_or(0);
    let after = protected + ADMIN_TOKEN.len() + 30;
    let at = random.random_range(0..bytes.len());
    if (protected..after).contains(&at) {
        return;
    }
    let byte: u8 = random.random();
    match random.random_range(0..5) {
        0 => bytes[at] = byte,
        1 => bytes.insert(at, byte),
        2 => {
            bytes.remove(at);
        }
        3 => bytes[at] ^= 1 << random.random_range(0..8_u8),
        _ => {
            let end = (at + random.random_range(1..20)).min(bytes.len());
            let copied = bytes[at..end].to_vec();
            bytes.splice(at..at, copied);
        }
    }
}
