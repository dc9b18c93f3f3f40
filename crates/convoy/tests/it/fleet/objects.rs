//! StorageVersion objects as people meet them through the API (SV-13, SV-14).

use serde_json::{Value, json};

use super::{
    ground::{CLASSES_RECORD, Ground, NEW, VERSIONS},
    on_both_stores,
};

on_both_stores!(
    people_may_make_and_annotate_them_and_say_nothing_of_servers,
    their_names_have_a_group_and_a_resource
);

fn made(name: &str) -> Value {
    json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": name}, "spec": {}})
}

/// SV-14: cluster-scoped, no create on update, a create wipes the status, an update of the object ignores it.
async fn people_may_make_and_annotate_them_and_say_nothing_of_servers(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    let group = ship.get("/apis/internal.apiserver.k8s.io/v1alpha1").await;
    let resource = group["resources"].as_array().unwrap().iter().find(|it| it["name"] == "storageversions");
    assert_eq!(resource.unwrap()["namespaced"], false);
    let status = json!({"storageVersions": [{"apiServerID": "x", "encodingVersion": "v1", "decodableVersions": ["v1"]}],
        "commonEncodingVersion": "v1"});
    let mut object = made("test.resources");
    object["status"] = status.clone();
    let path = format!("{VERSIONS}/test.resources");
    // Nothing is made by an update.
    ship.expect(404, "PUT", &path, object.clone()).await;
    let created = ship.expect(201, "POST", VERSIONS, object.clone()).await;
    assert_eq!(created["status"], json!({}));
    assert_eq!(created["metadata"].get("namespace"), None);
    object["metadata"] = created["metadata"].clone();
    object["metadata"]["labels"] = json!({"mine": "yes"});
    let updated = ship.expect(200, "PUT", &path, object.clone()).await;
    assert_eq!((&updated["status"], &updated["metadata"]["labels"]["mine"]), (&json!({}), &json!("yes")));
    // Whoever updates says what they have seen.
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let refused = ship.expect(422, "PUT", &path, object).await;
    assert!(refused["message"].as_str().unwrap().contains("must be specified for an update"), "{refused}");
    // The same with one that servers stand behind.
    let path = format!("{VERSIONS}/{CLASSES_RECORD}");
    let patched =
        ship.expect(200, "PATCH", &path, json!({"status": status, "metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(
        (&patched["status"]["commonEncodingVersion"], &patched["metadata"]["labels"]["a"]),
        (&json!(NEW), &json!("b"))
    );
}

/// SV-13: the rules of the name, through the API.
async fn their_names_have_a_group_and_a_resource(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    let refused = ship.expect(422, "POST", VERSIONS, made("pods")).await;
    assert!(
        refused["message"].as_str().unwrap().contains("name must be in the form of <group>.<resource>"),
        "{refused}"
    );
    let refused = ship.expect(422, "POST", VERSIONS, made(&format!("core.{}", "p".repeat(64)))).await;
    assert!(
        refused["message"].as_str().unwrap().contains("the resource segment must be no more than 63"),
        "{refused}"
    );
    ship.expect(201, "POST", VERSIONS, made(&format!("core.{}", "p".repeat(63)))).await;
}
