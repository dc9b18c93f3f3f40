//! `…/scale` in every way it can be written.

use serde_json::{Value, json};

use crate::harness::{Answered, TestServer};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SCALE: &str = "/apis/apps/v1/namespaces/default/deployments/d/scale";
const ADMIN: (&str, &str) = ("authorization", "Bearer admintoken");

async fn start() -> TestServer {
    let server = TestServer::start().await;
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "d"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]},
            "template": {
                "metadata": {"labels": {"app": "d", "x": "y"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    server.post(&format!("{DEPLOYMENTS}?fieldManager=maker"), deployment).await.expect(201);
    server
}

fn scale(replicas: impl Into<Value>) -> Value {
    let replicas: Value = replicas.into();
    json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d"}, "spec": {"replicas": replicas}})
}

async fn apply(server: &TestServer, query: &str, replicas: i64) -> Answered {
    let headers = [ADMIN, ("content-type", "application/apply-patch+yaml")];
    server.send("PATCH", &format!("{SCALE}?{query}"), &headers, scale(replicas)).await
}

async fn replicas(server: &TestServer) -> Value {
    server.get(&format!("{DEPLOYMENTS}/d")).await.json()["spec"]["replicas"].clone()
}

#[tokio::test]
async fn a_scale_is_read_replaced_and_patched() {
    let server = start().await;
    let read = server.get(SCALE).await.expect(200).json();
    assert_eq!(read["status"]["selector"], "app=d,x");
    assert_eq!(read["spec"]["replicas"], 2);
    server.ask("PUT", SCALE, scale(3)).await.expect(200);
    assert_eq!(replicas(&server).await, 3);
    for (kind, patch) in [
        ("merge", json!({"spec": {"replicas": 4}})),
        ("strategic-merge", json!({"spec": {"replicas": 5}})),
        ("json", json!([{"op": "replace", "path": "/spec/replicas", "value": 6}])),
    ] {
        let patched = server.patch(SCALE, kind, patch).await.expect(200).json();
        assert_eq!(patched["spec"]["replicas"], replicas(&server).await, "{kind}");
    }
    assert_eq!(replicas(&server).await, 6);
}

#[tokio::test]
async fn wrong_scales_are_refused() {
    let server = start().await;
    let check = async |body: Value, code: u16, message: &str| {
        let answered = server.ask("PUT", SCALE, body).await.expect(code);
        assert_eq!(answered.message(), message);
    };
    check(
        scale(-1),
        422,
        "Scale.autoscaling \"d\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    )
    .await;
    check(
        scale("many"),
        400,
        "Scale in version \"v1\" cannot be handled as a Scale: json: cannot unmarshal string into Go struct field \
         ScaleSpec.spec.replicas of type int32",
    )
    .await;
    let mut other = scale(1);
    other["metadata"]["name"] = json!("e");
    check(other, 400, "the name of the object (e) does not match the name on the URL (d)").await;
    let mut other = scale(1);
    other["metadata"]["uid"] = json!("nope");
    let uid = server.get(SCALE).await.json()["metadata"]["uid"].as_str().unwrap().to_owned();
    let message = format!(
        "Operation cannot be fulfilled on deployments/scale.apps \"d\": Precondition failed: UID in precondition: nope, \
         UID in object meta: {uid}"
    );
    check(other, 409, &message).await;
    let mut other = scale(1);
    other["metadata"]["resourceVersion"] = json!("1");
    let message = "Operation cannot be fulfilled on deployments.apps \"d\": the object has been modified; please apply \
                   your changes to the latest version and try again";
    check(other, 409, message).await;
    check(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}}),
        400,
        "Deployment in version \"v1\" cannot be handled as a Scale: converting (v1.Deployment) to (autoscaling.Scale): \
         unknown conversion",
    )
    .await;
    let missing = server.get(&format!("{DEPLOYMENTS}/none/scale")).await.expect(404);
    assert_eq!(missing.message(), "deployments/scale.apps \"none\" not found");
    let strict = format!("{SCALE}?fieldValidation=Strict");
    let mut odd = scale(1);
    odd["spec"]["nope"] = json!(1);
    let refused = server.ask("PUT", &strict, odd.clone()).await.expect(400);
    assert!(refused.message().ends_with("strict decoding error: unknown field \"spec.nope\""));
    let warned = server.ask("PUT", SCALE, odd).await.expect(200);
    assert_eq!(warned.headers["warning"], "299 - \"unknown field \\\"spec.nope\\\"\"");
}

#[tokio::test]
async fn applying_a_scale_conflicts_with_whoever_owns_the_replicas() {
    let server = start().await;
    let refused = apply(&server, "fieldManager=scaler", 7).await.expect(409);
    assert_eq!(
        refused.message(),
        "Apply failed with 1 conflict: conflict with \"maker\" using autoscaling/v1: .spec.replicas"
    );
    apply(&server, "fieldManager=scaler&force=true", 7).await.expect(200);
    assert_eq!(replicas(&server).await, 7);
    let deployment = server.get(&format!("{DEPLOYMENTS}/d")).await.json();
    let entries = deployment["metadata"]["managedFields"].as_array().unwrap();
    let entry = |manager: &str| entries.iter().find(|it| it["manager"] == manager).unwrap();
    assert_eq!(entry("scaler")["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(
        (&entry("scaler")["operation"], &entry("scaler")["subresource"]),
        (&json!("Apply"), &json!("scale"))
    );
    assert_eq!(entry("scaler")["apiVersion"], "apps/v1");
    assert!(entry("maker")["fieldsV1"]["f:spec"].get("f:replicas").is_none());
    // The same again changes nothing.
    let before = deployment["metadata"]["resourceVersion"].clone();
    apply(&server, "fieldManager=scaler", 7).await.expect(200);
    assert_eq!(server.get(&format!("{DEPLOYMENTS}/d")).await.json()["metadata"]["resourceVersion"], before);
    apply(&server, "", 7).await.expect(422);
}
