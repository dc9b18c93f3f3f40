//! What all tests here start from.

use anyhow::Result;
use serde_json::{Value, json};
use testkit::etcd::{self, Etcd};
use testkit::{Convoy, Options};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_convoy");

/// A server on the embedded store.
pub async fn embedded() -> Convoy {
    Convoy::start(Options::embedded(BINARY)).await.expect("the server must start")
}

/// A server on an etcd of its own; `None`, said loudly, where there is no etcd.
pub async fn on_etcd() -> Option<(Etcd, Convoy)> {
    if etcd::is_missing() {
        return None;
    }
    let etcd = Etcd::start().await.expect("etcd must start");
    let options = Options::etcd(BINARY, &etcd.url(), "/registry");
    let convoy = Convoy::start(options).await.expect("the server must start");
    Some((etcd, convoy))
}

/// A ConfigMap with one value and one label.
pub fn config_map(name: &str, value: &str, group: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"group": group}},
        "data": {"value": value},
    })
}

/// Makes a namespace.
pub async fn namespace(convoy: &Convoy, name: &str) -> Result<()> {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    convoy.admin().post("/api/v1/namespaces", &object).await?.expect(201)?;
    Ok(())
}

/// A resourceVersion as a number; tests know that ours are.
pub fn revision(object: &Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or_else(|_| panic!("no resourceVersion in {object}"))
}

/// The ten kinds that every client is put through.
pub fn kinds() -> Vec<Value> {
    serde_json::from_str(include_str!("../clients/kinds.json")).expect("kinds.json must be JSON")
}
