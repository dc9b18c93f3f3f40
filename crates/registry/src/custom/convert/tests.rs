//! Webhooks that tell the truth, and others.

use super::*;

type Lie = fn(&Value) -> Value;

struct Fake(Lie);

impl Webhooks for Fake {
    fn call(&self, _: &Arc<ClientConfig>, review: Bytes) -> Call {
        let review: Value = serde_json::from_slice(&review).unwrap();
        let answer = (self.0)(&review);
        Box::pin(async move { Ok(Bytes::from(answer.to_string())) })
    }
}

fn config() -> Arc<ClientConfig> {
    Arc::new(ClientConfig {
        definition: "as.x.y".to_owned(),
        client: json!({"url": "https://nowhere"}),
        review_versions: vec!["v2".to_owned(), "v1".to_owned()],
    })
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "x.y/v1", "kind": "A", "metadata": {"name": name, "uid": "u", "generation": 3}, "a": 1})
}

fn answer(review: &Value, change: impl Fn(usize, &mut Value)) -> Value {
    let mut objects = review["request"]["objects"].as_array().unwrap().clone();
    for (at, object) in objects.iter_mut().enumerate() {
        object["apiVersion"] = review["request"]["desiredAPIVersion"].clone();
        change(at, object);
    }
    json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"],
        "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects}})
}

async fn run(fake: fn(&Value) -> Value) -> Result<Vec<Value>, String> {
    let wanted = GroupVersion::new("x.y", "v2");
    let objects = vec![object("a"), object("b")];
    convert(&Fake(fake), &config(), objects, &wanted).await.map_err(|it| it.message)
}

#[tokio::test]
async fn what_comes_back_is_used_with_the_metadata_that_it_went_with() {
    let converted = run(|review| {
        answer(review, |_, it| {
            it["metadata"]["generation"] = json!(99);
            it["metadata"]["labels"] = json!({"new": "label"});
            it["b"] = it["a"].take();
        })
    })
    .await
    .unwrap();
    assert_eq!(converted.len(), 2);
    assert_eq!(converted[1]["metadata"]["generation"], 3);
    assert_eq!(converted[1]["metadata"]["labels"]["new"], "label");
    assert_eq!(converted[1]["b"], 1);
}

#[tokio::test]
async fn lies_are_refused_and_name_the_webhook() {
    let lies: [(Lie, &str); 8] = [
        (|it| answer(it, |_, it| it["apiVersion"] = json!("x.y/v1")), "invalid groupVersion"),
        (|it| answer(it, |_, it| it["kind"] = json!("B")), "invalid kind"),
        (
            |it| answer(it, |at, it| it["metadata"]["name"] = json!(["b", "a"][at])),
            "must have the same name: a != b",
        ),
        (|it| answer(it, |_, it| it["metadata"]["uid"] = json!("z")), "must have the same UID"),
        (|it| answer(it, |_, it| it["metadata"]["labels"] = json!({"-": "?"})), "metadata.labels"),
        (
            |it| {
                let mut it = answer(it, |_, _| {});
                it["response"]["convertedObjects"].as_array_mut().unwrap().pop();
                it
            },
            "returned 1 objects, expected 2",
        ),
        (
            |it| {
                let mut it = answer(it, |_, _| {});
                it["response"]["uid"] = json!("other");
                it
            },
            "expected response.uid",
        ),
        (
            |it| {
                let mut it = answer(it, |_, _| {});
                it["response"]["result"] = json!({"status": "Failure", "message": "no way"});
                it
            },
            "no way",
        ),
    ];
    for (lie, expected) in lies {
        let message = run(lie).await.unwrap_err();
        assert!(message.contains(expected) && message.contains("as.x.y"), "{message}");
    }
}
