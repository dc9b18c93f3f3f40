//! Custom resources with several servers: Established, flips, deletion (SV-18).

use serde_json::{Value, json};
use testkit::tools;

use super::{
    ground::{Ground, Ship, VERSIONS, eventually},
    load::{Load, Target},
    on_both_stores,
};

pub const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const RECORD: &str = "example.com.things";

/// Things as they are written under load.
pub const LOAD: Target =
    Target { path: THINGS, prefix: "/registry/example.com/things/default/", make: thing };

on_both_stores!(
    a_definition_can_be_used_everywhere_when_it_is_established,
    flips_under_load_leave_no_put_in_another_version,
    a_deleted_definition_takes_its_storage_version_with_it,
    an_object_of_a_newer_definition_is_read_at_once,
);

pub fn thing(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"n": 1}})
}

/// The definition with this storage version.
pub fn things(storage: &str) -> Value {
    let version = |name: &str| {
        json!({"name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version("v1"), version("v2")]}})
}

/// Makes the definition and waits until it is Established.
pub async fn definition(ship: &Ship, storage: &str) {
    ship.expect(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", things(storage))
        .await;
    eventually("it is Established", async || is_established(&ship.get(DEFINITION).await)).await;
}

fn is_established(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|it| it["type"] == "Established" && it["status"] == "True")
}

async fn a_definition_can_be_used_everywhere_when_it_is_established(ground: Ground) {
    let ships = [ground.launch("a", 34).await, ground.launch("b", 35).await, ground.launch("c", 36).await];
    definition(&ships[0], "v1").await;
    // At this very moment, through every server.
    for (n, ship) in ships.iter().enumerate() {
        ship.expect(201, "POST", THINGS, thing(&format!("t{n}"))).await;
    }
    let seen = ships[2].storage_version(RECORD).await;
    assert_eq!(seen["commonEncodingVersion"], "example.com/v1");
    assert_eq!(seen["storageVersions"].as_array().unwrap().len(), 3);
    assert_eq!(seen["storageVersions"][0]["decodableVersions"], json!(["example.com/v1", "example.com/v2"]));

    // One that sleeps keeps a new definition from being Established until it is counted out.
    let [a, b, c] = ships;
    c.faults.pause();
    let mut other = things("v1");
    other["metadata"]["name"] = json!("others.example.com");
    other["spec"]["names"] =
        json!({"plural": "others", "singular": "other", "kind": "Other", "listKind": "OtherList"});
    a.expect(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", other).await;
    let path = DEFINITION.replace("things", "others");
    eventually("the two who are awake can use it", async || is_established(&b.get(&path).await)).await;
    assert_eq!(a.n_members(), 2, "it was counted out before");
    c.faults.resume();
    eventually("the sleeper is back and has reported it", async || {
        let seen = a.storage_version("example.com.others").await;
        seen["storageVersions"].as_array().unwrap().len() == 3
    })
    .await;
}

/// Soak: 1,000 flips.
async fn flips_under_load_leave_no_put_in_another_version(ground: Ground) {
    let history = ground.history().await;
    let ships = [ground.launch("a", 34).await, ground.launch("b", 35).await, ground.launch("c", 36).await];
    definition(&ships[0], "v1").await;
    let load = Load::start(LOAD, 6);
    load.only(&ships.iter().collect::<Vec<_>>());
    let flips = tools::rounds(20);
    for n in 0..flips {
        let storage = if n % 2 == 0 { "v2" } else { "v1" };
        let ship = &ships[n % ships.len()];
        let patch = json!({"spec": {"versions": things(storage)["spec"]["versions"]}});
        ship.expect(200, "PATCH", DEFINITION, patch).await;
        if n % 4 == 3 {
            // Through the server that flipped, what is written next is in the new version already.
            let name = format!("after-{n}");
            ship.expect(201, "POST", THINGS, thing(&name)).await;
            let stored = ground.stored_version(&format!("/registry/example.com/things/default/{name}")).await;
            assert_eq!(stored, Some(format!("example.com/{storage}")));
        } else {
            load.wrote(3).await;
        }
    }
    let journal = load.end().await;
    let n_written = journal.n_written();
    let last = if flips.is_multiple_of(2) { "example.com/v1" } else { "example.com/v2" };
    eventually("all agree", async || ships[1].common(RECORD).await.as_deref() == Some(last)).await;
    let judged = history.judge_with(&[("example.com", "things")], &[journal]).await;
    let least = u64::try_from(flips).unwrap();
    assert!(n_written > least && judged.n_judged > least, "{judged:?} {n_written}");
}

async fn a_deleted_definition_takes_its_storage_version_with_it(ground: Ground) {
    let (a, b) = (ground.launch("a", 36).await, ground.launch("b", 36).await);
    for _ in 0..2 {
        definition(&a, "v1").await;
        b.expect(201, "POST", THINGS, thing("t")).await;
        a.expect(200, "DELETE", DEFINITION, Value::Null).await;
        eventually("the StorageVersion is gone", async || {
            b.ask("GET", &format!("{VERSIONS}/{RECORD}"), Value::Null).await.0 == 404
        })
        .await;
        eventually("the record is gone", async || {
            use store::Store;
            ground.store.get(&store::Key::new(format!("/convoy/fences/{RECORD}"))).await.unwrap().is_none()
        })
        .await;
    }
}

/// Another server has changed the definition and stored an object by it before this one has heard of either: it brings its
/// definition up to the object's revision first.
async fn an_object_of_a_newer_definition_is_read_at_once(ground: Ground) {
    use store::{Key, Store, Txn};
    let ship = ground.launch("a", 36).await;
    definition(&ship, "v1").await;
    ship.expect(201, "POST", THINGS, thing("old")).await;
    // News takes a while; what a failed put finds comes with its answer.
    ship.faults.delay(std::time::Duration::from_millis(20));
    let crd = Key::new("/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com");
    for n in 3..13 {
        let (name, version) = (if n % 2 == 0 { format!("t{n}") } else { "old".to_owned() }, format!("v{n}"));
        let entry = ground.store.get(&crd).await.unwrap().unwrap();
        let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
        let generation = object["metadata"]["generation"].as_i64().unwrap();
        object["metadata"]["generation"] = json!(generation + 1);
        let versions = object["spec"]["versions"].as_array_mut().unwrap();
        versions.iter_mut().for_each(|it| it["storage"] = json!(false));
        let mut added = versions[0].clone();
        (added["name"], added["storage"]) = (json!(version), json!(true));
        versions.push(added);
        object["status"]["storedVersions"].as_array_mut().unwrap().push(json!(version));
        let key = Key::new(format!("/registry/example.com/things/default/{name}"));
        let mut stored = thing(&name);
        stored["apiVersion"] = json!(format!("example.com/{version}"));
        stored["metadata"]["namespace"] = json!("default");
        let txn = Txn::new().require_at(&crd, entry.modified).put(&crd, object.to_string().into());
        if ground.store.commit(txn.put(&key, stored.to_string().into())).await.is_err() {
            // The server was writing its status.
            continue;
        }
        let path = format!("{THINGS}/{name}");
        let shown = if name == "old" {
            // It is changed as this server knows it, which fails, and then as it is.
            ship.expect(200, "PATCH", &path, json!({"metadata": {"annotations": {"n": n.to_string()}}})).await
        } else {
            ship.get(&path).await
        };
        assert_eq!(
            (&shown["apiVersion"], &shown["spec"]["n"]),
            (&json!("example.com/v1"), &json!(1)),
            "{shown}"
        );
        let all = ship.get(THINGS).await;
        let versions = all["items"].as_array().unwrap().iter().map(|it| &it["apiVersion"]);
        assert!(versions.clone().all(|it| it == "example.com/v1"), "{all}");
    }
}
