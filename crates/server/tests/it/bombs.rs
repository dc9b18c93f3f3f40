//! Bodies and queries that are small and would cost much: deep trees, aliases of aliases, copies of copies. Each is
//! refused at the door, and the server goes on answering.

use crate::harness::{MAPS, TestServer, config_map};

#[tokio::test]
async fn bombs_are_refused_and_the_server_goes_on() {
    let server = TestServer::start().await;
    server.post(MAPS, config_map("a")).await.expect(201);
    let deep = |n: usize| format!("{}1{}", "{\"a\":".repeat(n), "}".repeat(n));
    let object = |field: &str, value: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\"}},\"{field}\":{value}}}"
        )
    };
    let mut aliases = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        aliases.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    let copies = (0..64)
        .map(|n| format!("{{\"op\":\"copy\",\"from\":\"\",\"path\":\"/c{n}\"}}"))
        .collect::<Vec<_>>()
        .join(",");
    let one = format!("{MAPS}/a");
    let apply = format!("{MAPS}/a?fieldManager=m");
    for (method, path, media, body) in [
        ("POST", MAPS, "application/json", object("data", &deep(100_000))),
        ("POST", MAPS, "application/yaml", object("data", &deep(100_000))),
        ("POST", MAPS, "application/yaml", "- ".repeat(5_000)),
        ("POST", MAPS, "application/yaml", aliases.clone()),
        ("PATCH", &one, "application/merge-patch+json", deep(100_000)),
        ("PATCH", &one, "application/strategic-merge-patch+json", deep(100_000)),
        ("PATCH", &one, "application/json-patch+json", format!("[{copies}]")),
        ("PATCH", &apply, "application/apply-patch+yaml", object("data", &deep(100_000))),
        ("PATCH", &apply, "application/apply-patch+yaml", aliases),
    ] {
        let headers = [("authorization", "Bearer admintoken"), ("content-type", media)];
        let answered = server.send_text(method, path, &headers, body).await;
        let shown: String = answered.text.chars().take(200).collect();
        assert!((400..500).contains(&answered.code), "{method} {media}: {} {shown}", answered.code);
    }
    let selector = vec!["a"; 10_000].join("%2C");
    assert!(server.get(&format!("{MAPS}?labelSelector={selector}")).await.code < 500);
    server.get(&one).await.expect(200);
}
