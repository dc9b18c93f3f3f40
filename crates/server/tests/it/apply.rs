//! Server-side apply, strategic merge patches, and who owns what after every kind of write.

use serde_json::{Value, json};

use crate::harness::{Answered, MAPS, TestServer, config_map};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const APPLY: &str = "application/apply-patch+yaml";

async fn apply(server: &TestServer, path: &str, query: &str, body: &Value) -> Answered {
    apply_text(server, path, query, &body.to_string()).await
}

async fn apply_text(server: &TestServer, path: &str, query: &str, body: &str) -> Answered {
    let headers = [("authorization", "Bearer admintoken"), ("content-type", APPLY)];
    server.send_text("PATCH", &format!("{path}?{query}"), &headers, body.to_owned()).await
}

fn data(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn deployment(name: &str, containers: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": "d"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "d"}},
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": containers}}
        }
    })
}

/// What each manager owns: `[manager, operation, subresource, fields]`.
fn owners(object: &Value) -> Vec<(String, String, String, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|it| {
            (text(&it["manager"]), text(&it["operation"]), text(&it["subresource"]), it["fieldsV1"].clone())
        })
        .collect()
}

fn entry(manager: &str, operation: &str, fields: Value) -> (String, String, String, Value) {
    (manager.to_owned(), operation.to_owned(), String::new(), fields)
}

#[tokio::test]
async fn a_configuration_is_applied_as_kube_apiserver_does() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/s");
    let made = apply(&server, &path, "fieldManager=one", &data("s", &json!({"a": "1", "b": "1"}))).await;
    let made = made.expect(201).json();
    assert_eq!(owners(&made), [entry("one", "Apply", json!({"f:data": {"f:a": {}, "f:b": {}}}))]);

    let two = data("s", &json!({"a": "2"}));
    let refused = apply(&server, &path, "fieldManager=two", &two).await.expect(409).json();
    assert_eq!(
        (&refused["message"], &refused["reason"], &refused["details"]),
        (
            &json!("Apply failed with 1 conflict: conflict with \"one\": .data.a"),
            &json!("Conflict"),
            &json!({"causes": [
                {"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"}
            ]})
        )
    );
    let forced = apply(&server, &path, "fieldManager=two&force=true", &two).await.expect(200).json();
    assert_eq!(forced["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(
        owners(&forced),
        [
            entry("one", "Apply", json!({"f:data": {"f:b": {}}})),
            entry("two", "Apply", json!({"f:data": {"f:a": {}}}))
        ]
    );
    let same =
        apply(&server, &path, "fieldManager=one", &data("s", &json!({"b": "1"}))).await.expect(200).json();
    assert_eq!(same, forced);
    let less = apply(&server, &path, "fieldManager=one", &data("s", &json!({}))).await.expect(200).json();
    assert_eq!(less["data"], json!({"a": "2"}));
    assert_eq!(server.get(&path).await.json(), less);
}

#[tokio::test]
async fn what_is_wrong_with_a_configuration_is_told() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/s");
    apply(&server, &path, "fieldManager=one", &data("s", &json!({"a": "1"}))).await.expect(201);
    let nobody = apply(&server, &path, "", &data("s", &json!({}))).await.expect(422);
    assert_eq!(
        nobody.message(),
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let other = apply(&server, &path, "fieldManager=one", &data("t", &json!({}))).await.expect(400);
    assert_eq!(other.message(), "the name of the object (t) does not match the name on the URL (s)");
    let managed = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"managedFields": []}});
    let managed = apply(&server, &path, "fieldManager=one", &managed).await.expect(400);
    assert_eq!(managed.message(), "metadata.managedFields must be nil");
    let kind = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    let kind = apply(&server, &path, "fieldManager=one", &kind).await.expect(400);
    assert_eq!(kind.message(), "invalid object type: /v1, Kind=Secret");
    let broken = apply_text(&server, &path, "fieldManager=one", "a: [").await.expect(400);
    assert!(broken.message().starts_with("error decoding YAML: "), "{}", broken.message());
    let long = "x".repeat(129);
    let long =
        apply(&server, &path, &format!("fieldManager={long}"), &data("s", &json!({}))).await.expect(422);
    assert!(
        long.message().ends_with("fieldManager: Too long: may not be more than 128 bytes"),
        "{}",
        long.message()
    );
    let forced = server.patch(&format!("{path}?force=true"), "merge", json!({})).await.expect(422);
    assert!(forced.message().ends_with("force: Forbidden: may not be specified for non-apply patch"));
    let twice = deployment("d", &json!([{"name": "a"}, {"name": "a"}]));
    let twice = apply(&server, &format!("{DEPLOYMENTS}/d"), "fieldManager=one", &twice).await.expect(500);
    assert_eq!(
        twice.message(),
        "failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.template.spec.containers: \
         duplicate entries for key [name=\"a\"]"
    );
    let mut typo = deployment("d", &json!([]));
    typo["spec"]["replicsa"] = json!(1);
    let typo = apply(&server, &format!("{DEPLOYMENTS}/d"), "fieldManager=one", &typo).await.expect(500);
    assert!(
        typo.message().ends_with("): .spec.replicsa: field not declared in schema"),
        "{}",
        typo.message()
    );
}

#[tokio::test]
async fn applying_again_writes_nothing() {
    let server = TestServer::start().await;
    let path = format!("{DEPLOYMENTS}/d");
    let config = deployment("d", &json!([{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]));
    let first = apply(&server, &path, "fieldManager=one", &config).await.expect(201).json();
    let again = apply(&server, &path, "fieldManager=one", &config).await.expect(200).json();
    assert_eq!(again["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    assert_eq!(again["metadata"]["managedFields"], first["metadata"]["managedFields"]);
    let dry = apply(&server, &path, "fieldManager=two&dryRun=All", &config).await.expect(200).json();
    assert_eq!(owners(&dry).len(), 2);
    assert_eq!(owners(&server.get(&path).await.json()).len(), 1);
}

#[tokio::test]
async fn yaml_is_applied_too() {
    let server = TestServer::start().await;
    let text = "# mine\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: \"1\"\n  b: |\n    two\n";
    let made =
        apply_text(&server, &format!("{MAPS}/yaml"), "fieldManager=one", text).await.expect(201).json();
    assert_eq!(made["data"], json!({"a": "1", "b": "two\n"}));
}

#[tokio::test]
async fn containers_are_merged_by_name_in_both_languages() {
    let server = TestServer::start().await;
    let path = format!("{DEPLOYMENTS}/d");
    let one = deployment("d", &json!([{"name": "a", "image": "1"}]));
    apply(&server, &path, "fieldManager=one", &one).await.expect(201);
    let two = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"template": {"spec": {"containers": [{"name": "b", "image": "2"}]}}}
    });
    let both = apply(&server, &path, "fieldManager=two", &two).await.expect(200).json();
    let images = |object: &Value| -> Vec<(String, String)> {
        let containers = object["spec"]["template"]["spec"]["containers"].as_array().unwrap();
        let text = |it: &Value| it.as_str().unwrap().to_owned();
        containers.iter().map(|it| (text(&it["name"]), text(&it["image"]))).collect()
    };
    let pair = |name: &str, image: &str| (name.to_owned(), image.to_owned());
    assert_eq!(images(&both), [pair("a", "1"), pair("b", "2")]);
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "3"}]}}}});
    let patched = server.patch(&path, "strategic-merge", patch).await.expect(200).json();
    assert_eq!(images(&patched), [pair("a", "1"), pair("b", "3")]);
    let bad = json!({"spec": {"template": {"spec": {"containers": [{"image": "3"}]}}}});
    let bad = server.patch(&path, "strategic-merge", bad).await.expect(500);
    assert_eq!(bad.message(), "map: map[image:3] does not contain declared merge key: name");
    let refused = apply(&server, &path, "fieldManager=two", &two).await.expect(409);
    assert!(
        refused.message().ends_with(" using apps/v1: .spec.template.spec.containers[name=\"b\"].image"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn every_write_says_who_owns_what() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    let headers = [("authorization", "Bearer admintoken"), ("user-agent", "differential/1.0 (test)")];
    let made = server.send("POST", MAPS, &headers, config_map("a")).await.expect(201).json();
    assert_eq!(owners(&made), [entry("differential", "Update", json!({"f:data": {".": {}, "f:k": {}}}))]);
    // A client that knows nothing of owners changes nothing about them.
    let mut bare = made.clone();
    bare["metadata"].as_object_mut().unwrap().remove("managedFields");
    let same = server.send("PUT", &path, &headers, bare).await.expect(200).json();
    assert_eq!(same, made);
    let other = server.patch(&format!("{path}?fieldManager=m"), "merge", json!({"data": {"k": "w"}})).await;
    let other = other.expect(200).json();
    assert_eq!(
        owners(&other),
        [
            entry("differential", "Update", json!({"f:data": {}})),
            entry("m", "Update", json!({"f:data": {"f:k": {}}}))
        ]
    );
    let reset =
        server.patch(&path, "merge", json!({"metadata": {"managedFields": [{}]}})).await.expect(200).json();
    assert_eq!(owners(&reset), []);
    let config = data("a", &json!({"k": "x"}));
    let refused = apply(&server, &path, "fieldManager=one", &config).await.expect(409);
    assert_eq!(
        refused.message(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.k"
    );
}

#[tokio::test]
async fn the_owners_of_a_deployment_are_those_kube_apiserver_names() {
    let server = TestServer::start().await;
    let headers = [("authorization", "Bearer admintoken"), ("user-agent", "differential/1.0")];
    let body = deployment("d", &json!([{"name": "c", "image": "nginx"}]));
    let made = server.send("POST", DEPLOYMENTS, &headers, body).await.expect(201).json();
    let owned = owners(&made);
    assert_eq!(owned.len(), 1);
    let fields = &owned[0].3;
    assert_eq!(fields["f:metadata"], json!({"f:labels": {".": {}, "f:app": {}}}));
    let spec = &fields["f:spec"];
    assert_eq!((&spec["f:replicas"], &spec["f:selector"]), (&json!({}), &json!({})));
    assert_eq!(spec.get("."), None);
    let template = &spec["f:template"];
    assert_eq!(template["f:metadata"], json!({"f:labels": {".": {}, "f:app": {}}}));
    let containers = &template["f:spec"]["f:containers"];
    assert_eq!(containers.get("."), None, "{containers}");
    assert_eq!(containers["k:{\"name\":\"c\"}"]["f:image"], json!({}));
    assert_eq!(fields.get("f:status"), None);
    let status = json!({"status": {"replicas": 1}});
    let path = format!("{DEPLOYMENTS}/d/status?fieldManager=s");
    let changed = server.patch(&path, "merge", status).await.expect(200).json();
    let status = owners(&changed).into_iter().find(|it| it.0 == "s").unwrap();
    assert_eq!((status.2.as_str(), status.3), ("status", json!({"f:status": {"f:replicas": {}}})));
}

#[tokio::test]
async fn a_namespace_belongs_to_its_maker_but_its_finalizer_does_not() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "mine"}});
    let made = server.post("/api/v1/namespaces?fieldManager=m", body).await.expect(201).json();
    let labels = json!({".": {}, "f:kubernetes.io/metadata.name": {}});
    assert_eq!(owners(&made), [entry("m", "Update", json!({"f:metadata": {"f:labels": labels}}))]);
}

#[tokio::test]
async fn a_scale_has_an_owner_of_its_own() {
    let server = TestServer::start().await;
    let body = deployment("d", &json!([{"name": "c", "image": "nginx"}]));
    server.post(&format!("{DEPLOYMENTS}?fieldManager=m"), body).await.expect(201);
    let scale = format!("{DEPLOYMENTS}/d/scale?fieldManager=m");
    server.patch(&scale, "merge", json!({"spec": {"replicas": 3}})).await.expect(200);
    let live = server.get(&format!("{DEPLOYMENTS}/d")).await.json();
    let owned = owners(&live);
    assert_eq!(
        owned[0],
        ("m".into(), "Update".into(), "scale".into(), json!({"f:spec": {"f:replicas": {}}}))
    );
    assert_eq!(live["metadata"]["managedFields"][0].get("time"), None);
    assert_eq!((owned.len(), owned[1].3["f:spec"].get("f:replicas")), (2, None));
}
