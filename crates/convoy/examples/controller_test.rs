//! How to test a controller: a small one that keeps a ConfigMap for every Service that asks for it, against a server
//! in the same process. `cargo run -p convoy --example controller_test` runs it; so does `cargo test`.
#![allow(clippy::print_stdout, reason = "an example shows what it did")]

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use convoy::{Options, Server};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
    runtime::{Controller, controller::Action, wait, watcher},
};
use serde_json::json;

const ANNOTATION: &str = "example.com/describe";

/// The controller under test: one ConfigMap per Service with the annotation, owned by it.
async fn reconcile(service: Arc<Service>, client: Arc<Client>) -> Result<Action, kube::Error> {
    if !service.annotations().contains_key(ANNOTATION) {
        return Ok(Action::await_change());
    }
    let namespace = service.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced(Client::clone(&client), &namespace);
    let owner = service.controller_owner_ref(&());
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(service.name_any()),
            owner_references: owner.map(|it| vec![it]),
            ..ObjectMeta::default()
        },
        data: Some([("describes".to_owned(), service.name_any())].into()),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply("describer").force();
    maps.patch(&service.name_any(), &params, &Patch::Apply(&map)).await?;
    Ok(Action::await_change())
}

async fn run_controller(client: Client) {
    let services: Api<Service> = Api::all(client.clone());
    let context = Arc::new(client);
    Controller::new(services, watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), context)
        .for_each(|_| std::future::ready(()))
        .await;
}

// The tests of the crate take this file in and call `run`.
#[cfg(not(test))]
#[tokio::main]
async fn main() -> Result<()> {
    run().await
}

pub(crate) async fn run() -> Result<()> {
    let server = Server::start(Options::default()).await?;
    let client = server.client();
    let controller = tokio::spawn(run_controller(client.clone()));

    let services: Api<Service> = Api::default_namespaced(client.clone());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "web", "annotations": {ANNOTATION: "yes"}},
        "spec": {"ports": [{"port": 80}]},
    }))?;
    services.create(&PostParams::default(), &service).await?;

    // Nothing here sleeps: it waits for what is to happen, with a limit for when it does not.
    let there = wait::await_condition(maps.clone(), "web", |it: Option<&ConfigMap>| it.is_some());
    let map = tokio::time::timeout(Duration::from_secs(30), there).await??.context("a map must be made")?;
    ensure!(map.data.is_some_and(|it| it["describes"] == "web"), "the map must describe the service");
    println!("the controller made the ConfigMap");

    // The server's own garbage collector deletes what the service owned.
    services.delete("web", &DeleteParams::default()).await?;
    let gone = wait::await_condition(maps, "web", |it: Option<&ConfigMap>| it.is_none());
    tokio::time::timeout(Duration::from_secs(30), gone).await??;
    println!("the garbage collector removed it");
    controller.abort();
    server.stop().await;
    println!("the server is gone");
    Ok(())
}
