//! The Python and Node clients, ten kinds each; the work is in `tests/clients/`.

use std::path::Path;
use std::process::Command;

use testkit::{Convoy, tools};

use crate::fixture;

/// Python's client, on this server.
fn python(convoy: &Convoy, test: &str) {
    let Some(python) = tools::python() else {
        return tools::skipped(test, "CONVOY_PYTHON is not set; `cargo xtask test` sets it");
    };
    let mut command = Command::new(python);
    command.arg(script("client.py")).arg(convoy.kubeconfig()).arg(script("kinds.json")).arg("python");
    succeeds(convoy, &mut command);
}

/// Node's client, on this server.
fn node(convoy: &Convoy, test: &str) {
    let Some(modules) = tools::node() else {
        return tools::skipped(test, "CONVOY_NODE is not set; `cargo xtask test` sets it");
    };
    let mut command = Command::new("node");
    command.arg(script("client.mjs")).arg(modules);
    command.arg(convoy.kubeconfig()).arg(script("kinds.json")).arg("node");
    succeeds(convoy, &mut command);
}

fn script(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

fn succeeds(convoy: &Convoy, command: &mut Command) {
    let output = command.output().expect("the client must start");
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{failed}\nserver:\n{}", convoy.log_tail());
    assert_eq!(said.matches("ok ").count(), fixture::kinds().len(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_works_on_the_embedded_store() {
    let convoy = fixture::embedded().await;
    python(&convoy, "the Python client on the embedded store");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_client_works_on_etcd() {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return };
    python(&convoy, "the Python client on etcd");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_client_works_on_the_embedded_store() {
    let convoy = fixture::embedded().await;
    node(&convoy, "the Node client on the embedded store");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_client_works_on_etcd() {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return };
    node(&convoy, "the Node client on etcd");
}
