//! Requests that compute for long: others are answered meanwhile, and the server stays what it is.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use testkit::Convoy;

use crate::fixture;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WORDS: &str = "/apis/limits.example/v1/namespaces/default/words";

/// A kind whose texts take long to match: as many steps for each byte as a definition can ask for and be matched at all.
async fn define(convoy: &Convoy) -> Result<()> {
    let text = json!({"type": "string", "pattern": "^[ab]*a[ab]{1500}$"});
    let schema = json!({"type": "object", "properties": {"text": text}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "words.limits.example"},
        "spec": {"group": "limits.example", "scope": "Namespaced",
            "names": {"plural": "words", "kind": "Word"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    convoy.admin().post(CRDS, &definition).await?.expect(201)?;
    for _ in 0..600 {
        if convoy.admin().get(WORDS).await?.status == 200 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the definition was never established");
}

/// An object with a text of which every letter leads to a state that was not there before, and which does not match in
/// the end.
fn word(name: &str, length: u64) -> Value {
    let letter =
        |n: u64| if n.wrapping_mul(0x9E37_79B9_7F4A_7C15).count_ones().is_multiple_of(2) { 'a' } else { 'b' };
    let text: String = (0..length).map(letter).chain(['!']).collect();
    json!({"apiVersion": "limits.example/v1", "kind": "Word", "metadata": {"name": name}, "text": text})
}

/// A pattern of modest size times 200 KB took 16 s of a thread that also renews leases and answers health checks; two of
/// them, and the server lost its lease.
#[tokio::test(flavor = "multi_thread")]
async fn long_computations_take_neither_health_nor_membership() -> Result<()> {
    let convoy = fixture::embedded().await;
    define(&convoy).await?;
    let refused = convoy.admin().post(WORDS, &word("long", 200_000)).await?;
    let text = refused.expect(422)?["message"].as_str().unwrap_or_default().to_owned();
    assert!(text.contains("exceeds the budget"), "{}", text.chars().take(300).collect::<String>());
    // What is within the budget is matched, which takes as long as it takes.
    let busy = (0..4).map(|n| {
        let admin = convoy.admin();
        tokio::spawn(async move { admin.post(WORDS, &word(&format!("w{n}"), 30_000)).await })
    });
    let busy: Vec<_> = busy.collect();
    for _ in 0..20 {
        assert_eq!(convoy.client(None).get("/livez").await?.text(), "ok");
        convoy.admin().get("/api/v1/namespaces/default").await?.expect(200)?;
    }
    for task in busy {
        let answer = task.await??;
        let text = answer.expect(422)?["message"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("should match"), "{}", text.chars().take(300).collect::<String>());
    }
    assert!(!convoy.log().contains("no longer a member"), "{}", convoy.log_tail());
    Ok(())
}
