//! What the schemas of the built-in kinds do to a write: types, unknown fields, empty fields, fields of other releases.

use meta::Release;
use serde_json::{Value, json};

use crate::harness::{Answered, MAPS, TestServer};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");

fn warnings(answer: &Answered) -> Vec<String> {
    answer.headers.get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect()
}

fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "a"}},
            "template": {
                "metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}
            }
        }
    })
}

#[tokio::test]
async fn values_of_the_wrong_type_are_refused_in_upstreams_words() {
    let server = TestServer::start().await;
    let map = json!({"metadata": {"name": "t"}, "data": {"k": 5}});
    assert_eq!(
        server.post(MAPS, map).await.expect(400).message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct \
         field ConfigMap.data of type string"
    );
    let lease = json!({"metadata": {"name": "n"}, "spec": {"renewTime": "yesterday"}});
    assert_eq!(
        server.post(LEASES, lease).await.expect(400).message(),
        "Lease in version \"v1\" cannot be handled as a Lease: parsing time \"yesterday\" as \
         \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\""
    );
    let mut wrong = deployment("d");
    wrong["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = json!(6);
    assert_eq!(
        server.post(DEPLOYMENTS, wrong).await.expect(400).message(),
        "Deployment in version \"v1\" cannot be handled as a Deployment: json: cannot unmarshal number into Go struct \
         field ContainerPort.spec.template.spec.containers.ports.protocol of type v1.Protocol"
    );
}

#[tokio::test]
async fn bodies_that_are_no_objects_are_refused_in_upstreams_words() {
    let server = TestServer::start().await;
    let prefix = "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse \
                  error: json: cannot unmarshal";
    for (text, want) in [
        (
            "[1]",
            "array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" } (5b315d)",
        ),
        ("{\"kind\":5}", "number into Go struct field .kind of type string ({\"kind\":5})"),
    ] {
        let answer = server.send_text("POST", MAPS, &[ADMIN], text.to_owned()).await.expect(400);
        assert_eq!(answer.message(), format!("{prefix} {want}"));
    }
    let nothing = server.send_text("POST", MAPS, &[ADMIN], "null".to_owned()).await.expect(422);
    assert!(nothing.message().contains("name or generateName is required"), "{}", nothing.message());
}

#[tokio::test]
async fn unknown_fields_are_refused_told_or_dropped_as_the_client_wishes() {
    let server = TestServer::start().await;
    let map = |name: &str| json!({"metadata": {"name": name}, "data": {"k": "v"}, "nope": 1});
    let strict = server.post(&format!("{MAPS}?fieldValidation=Strict"), map("f")).await.expect(400);
    assert_eq!(
        strict.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"nope\""
    );
    for (query, name, n_warnings) in
        [("", "a", 1), ("?fieldValidation=Warn", "b", 1), ("?fieldValidation=Ignore", "c", 0)]
    {
        let answer = server.post(&format!("{MAPS}{query}"), map(name)).await.expect(201);
        assert_eq!(warnings(&answer), vec!["299 - \"unknown field \\\"nope\\\"\""; n_warnings]);
        assert!(answer.json().get("nope").is_none());
    }
    let wrong = server.post(&format!("{MAPS}?fieldValidation=Wrong"), map("d")).await.expect(422);
    assert_eq!(
        wrong.message(),
        "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Wrong\": supported values: \
         \"\", \"Ignore\", \"Strict\", \"Warn\""
    );
}

#[tokio::test]
async fn duplicates_and_unknown_fields_come_in_the_order_of_the_text() {
    let server = TestServer::start().await;
    let text = r#"{"z":1,"metadata":{"name":"f","name":"f"},"data":{"a":"1","a":"2"},"b":1}"#;
    let path = format!("{MAPS}?fieldValidation=Strict");
    let answer = server.send_text("POST", &path, &[ADMIN], text.to_owned()).await.expect(400);
    assert_eq!(
        answer.message(),
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"z\", \
         duplicate field \"metadata.name\", duplicate field \"data.a\", unknown field \"b\""
    );
    let told = server.send_text("POST", MAPS, &[ADMIN], text.to_owned()).await.expect(201);
    assert_eq!(warnings(&told).len(), 4);
    assert_eq!(told.json()["data"], json!({"a": "2"}));
}

#[tokio::test]
async fn a_patch_that_does_not_fit_is_refused_and_writes_nothing() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    let before = server.post(MAPS, json!({"metadata": {"name": "a"}})).await.expect(201).json();
    let wrong = server.patch(&path, "merge", json!({"data": {"k": 5}})).await.expect(422).message();
    assert!(wrong.starts_with(" \"\" is invalid: patch: Invalid value: \"{"), "{wrong}");
    assert!(
        wrong.ends_with(": json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        "{wrong}"
    );
    let strict = format!("{path}?fieldValidation=Strict");
    let wrong = server.patch(&strict, "merge", json!({"nope": 1})).await.expect(422).message();
    assert!(wrong.ends_with(": strict decoding error: unknown field \"nope\""), "{wrong}");
    let told = server.patch(&path, "merge", json!({"nope": 1})).await.expect(200);
    assert_eq!(warnings(&told), ["299 - \"unknown field \\\"nope\\\"\""]);
    assert_eq!(told.json(), before);
}

#[tokio::test]
async fn empty_fields_are_as_a_typed_round_trip_leaves_them() {
    let server = TestServer::start().await;
    let map = json!({"metadata": {"name": "a", "labels": {}, "creationTimestamp": null}, "data": {}, "immutable": false});
    let map = server.post(MAPS, map).await.expect(201).json();
    assert!(map["metadata"].get("labels").is_none() && map.get("data").is_none());
    assert_eq!(map["immutable"], json!(false), "a pointer keeps its zero");

    let mut sent = deployment("d");
    let container = &mut sent["spec"]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"limits": {"cpu": "1000m", "memory": 1024}});
    container["args"] = json!([]);
    let stored = server.post(DEPLOYMENTS, sent).await.expect(201).json();
    let container = &stored["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"limits": {"cpu": "1", "memory": "1024"}}));
    assert!(container.get("args").is_none());
    assert_eq!(container["ports"][0]["protocol"], "TCP");
    assert_eq!(stored["status"], json!({}));
}

#[tokio::test]
async fn sending_a_manifest_again_changes_nothing() {
    let server = TestServer::start().await;
    let first = server.post(DEPLOYMENTS, deployment("d")).await.expect(201).json();
    let path = format!("{DEPLOYMENTS}/d");
    assert_eq!(server.ask("PUT", &path, deployment("d")).await.expect(200).json(), first);
    assert_eq!(server.patch(&path, "merge", deployment("d")).await.expect(200).json(), first);
}

#[tokio::test]
async fn an_older_release_loses_nothing_that_a_newer_one_stored() {
    // The older one is there first: it could not join where versions are selected that it cannot read.
    let older = TestServer::start_as(Release::v1(33), |_| {}).await;
    let newer = TestServer::start_on(older.store.clone(), Release::v1(36), |_| {}).await;
    let mut sent = deployment("d");
    let container = &mut sent["spec"]["template"]["spec"]["containers"][0];
    // Known since 1.34.
    container["restartPolicyRules"] = json!([{"action": "Restart"}]);
    let rules = container["restartPolicyRules"].clone();
    let stored = newer.post(DEPLOYMENTS, sent).await.expect(201).json();
    let at =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["restartPolicyRules"].clone();
    assert_eq!(at(&stored), rules);

    let path = format!("{DEPLOYMENTS}/d");
    assert_eq!(at(&older.get(&path).await.expect(200).json()), rules);
    // A client of 1.33 does not send what it does not know.
    let mut put = deployment("d");
    put["spec"]["replicas"] = json!(3);
    let after = older.ask("PUT", &path, put).await.expect(200).json();
    assert_eq!((at(&after), &after["spec"]["replicas"]), (rules.clone(), &json!(3)));
    let after = older.patch(&path, "merge", json!({"spec": {"replicas": 4}})).await.expect(200);
    assert_eq!(warnings(&after), Vec::<String>::new());
    assert_eq!(at(&after.json()), rules);
    // It cannot add such a field, though.
    let mut sent = deployment("e");
    sent["spec"]["template"]["spec"]["containers"][0]["restartPolicyRules"] = rules;
    let added = older.post(DEPLOYMENTS, sent).await.expect(201);
    let field = "spec.template.spec.containers[0].restartPolicyRules";
    assert_eq!(warnings(&added), [format!("299 - \"unknown field \\\"{field}\\\"\"")]);
    assert_eq!(at(&added.json()), Value::Null);
}

#[tokio::test]
async fn reviews_are_checked_too() {
    let server = TestServer::start().await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let wrong = json!({"spec": {"resourceAttributes": {"verb": 1}}});
    assert_eq!(
        server.post(path, wrong).await.expect(400).message(),
        "SelfSubjectAccessReview in version \"v1\" cannot be handled as a SelfSubjectAccessReview: json: cannot unmarshal \
         number into Go struct field ResourceAttributes.spec.resourceAttributes.verb of type string"
    );
    let odd = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}, "x": 1}});
    let answer = server.post(path, odd).await.expect(201);
    assert_eq!(warnings(&answer), ["299 - \"unknown field \\\"spec.x\\\"\""]);
    assert_eq!(answer.json()["status"]["allowed"], true);
}

/// A text of which every letter leads to a state that was not there before, and which does not match in the end.
fn confusing(length: u64) -> String {
    let letter =
        |n: u64| if n.wrapping_mul(0x9E37_79B9_7F4A_7C15).count_ones().is_multiple_of(2) { 'a' } else { 'b' };
    (0..length).map(letter).chain(['!']).collect()
}

/// With one thread for everything, other tasks get their turn while a request computes.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_long_validation_leaves_the_thread_to_others() {
    let server = std::sync::Arc::new(TestServer::start().await);
    let text = json!({"type": "string", "pattern": "^[ab]*a[ab]{1500}$"});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "words.limits.example"},
        "spec": {"group": "limits.example", "scope": "Namespaced", "names": {"plural": "words", "kind": "Word"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"text": text}}}}]}});
    server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition).await.expect(201);
    crate::custom::established(&server, "Bearer admintoken", "words.limits.example").await;
    let word = json!({"apiVersion": "limits.example/v1", "kind": "Word", "metadata": {"name": "w"},
        "text": confusing(30_000)});
    let asked = std::sync::Arc::clone(&server);
    let mut request = tokio::spawn(async move {
        asked.post("/apis/limits.example/v1/namespaces/default/words", word).await.expect(422).message()
    });
    // In a task: the test's own future has a thread for itself.
    let n_turns = tokio::spawn(async move {
        let mut n_turns = 0;
        loop {
            tokio::select! {
                message = &mut request => {
                    assert!(message.unwrap().contains("should match"));
                    return n_turns;
                }
                () = tokio::time::sleep(std::time::Duration::from_millis(1)) => n_turns += 1,
            }
        }
    });
    let n_turns = n_turns.await.unwrap();
    assert!(n_turns >= 20, "others had {n_turns} turns meanwhile");
}
