//! The same with processes: stopped in their tracks, cut off from etcd, far away from it, and one that nothing happens to.
//!
//! `CONVOY_BINARY` names another build of the binary to put through this.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use store::{SharedStore, SystemClock};
use store_embedded::EmbeddedStore;
use store_etcd::{EtcdConfig, EtcdStore};
use testkit::{
    Client, Convoy, Options,
    etcd::{self, Etcd},
    line::Line,
};
use tokio::{task::JoinSet, time::Instant};

use super::scene::{DEFINITION, DEFINITIONS, NAMESPACES, Notes, THINGS, WATCHFUL, definition, held, object};
use crate::fixture::BINARY;

const MERGE: &str = "application/merge-patch+json";
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the lease of a member here.
const BEYOND_THE_LEASE: Duration = Duration::from_secs(4);
/// Enough that a server is in the middle of them for a while.
const MANY: usize = 40;

fn binary() -> String {
    std::env::var("CONVOY_BINARY").unwrap_or_else(|_| BINARY.to_owned())
}

/// Servers on one etcd, each with a line of its own to it.
struct Cluster {
    servers: Vec<Convoy>,
    lines: Vec<Line>,
    store: SharedStore,
    notes: Arc<Notes>,
    _certs: tempfile::TempDir,
    _etcd: Etcd,
}

impl Cluster {
    async fn start(n_servers: usize, controllers: &str) -> Result<Option<Self>> {
        if etcd::is_missing() {
            return Ok(None);
        }
        let (etcd, certs) = (Etcd::start().await?, tempfile::tempdir()?);
        let (mut servers, mut lines) = (Vec::new(), Vec::new());
        for n in 0..n_servers {
            let line = Line::to(etcd.port()).await?;
            let options = Options::etcd(&binary(), &line.url(), "/registry")
                .certs(certs.path())
                .flag(&format!("--hostname-override=server-{n}"))
                .flag("--member-lease-duration=2s")
                .flag("--departure-settle-time=500ms")
                .flag("--etcd-compaction-interval=0")
                .flag(&format!("--controllers={controllers}"));
            servers.push(Convoy::start(options).await?);
            lines.push(line);
        }
        let config = EtcdConfig::new(vec![etcd.url()], SystemClock::shared());
        let store = SharedStore::new(EtcdStore::connect(config).await?);
        let notes = Arc::default();
        Ok(Some(Self { servers, lines, store, notes, _certs: certs, _etcd: etcd }))
    }
}

/// Makes an object, and notes it.
async fn create(notes: &Notes, client: &Client, path: &str, mut object: Value) -> Result<Value> {
    notes.attempt(&mut object);
    let made = client.post(path, &object).await?.expect(201)?;
    notes.written(path, &made);
    Ok(made)
}

async fn delete(notes: &Notes, client: &Client, path: &str, object: &Value) -> Result<()> {
    notes.asked(object);
    client.delete(path).await?.expect(200)?;
    Ok(())
}

/// Takes the finalizers off.
async fn free(notes: &Notes, client: &Client, path: &str, object: &Value) -> Result<()> {
    notes.freed(object);
    let patch = json!({"metadata": {"finalizers": null}});
    client.patch(path, MERGE, &patch).await?.expect(200)?;
    Ok(())
}

/// Defines the things, and waits until these servers serve them.
async fn define(notes: &Notes, clients: &[Client]) -> Result<Value> {
    let made = create(notes, &clients[0], DEFINITIONS, definition("things", "Thing")).await?;
    for client in clients {
        until("it is Established", async || {
            let found = client.get(DEFINITION).await.ok()?.json().ok()?;
            let mut conditions = found["status"]["conditions"].as_array()?.iter();
            conditions.any(|it| it["type"] == "Established" && it["status"] == "True").then_some(())
        })
        .await?;
        until("it is served", async || (client.get(THINGS).await.ok()?.status == 200).then_some(())).await?;
    }
    Ok(made)
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "{what}: it did not come to that");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn all_are_marked(client: &Client) -> Result<()> {
    until("all are marked", async || {
        let list = client.get(THINGS).await.ok()?.json().ok()?;
        let is_marked = |it: &Value| it["metadata"]["deletionTimestamp"].is_string();
        list["items"].as_array()?.iter().all(is_marked).then_some(())
    })
    .await
}

async fn gone(client: &Client, path: &str) -> Result<()> {
    until(&format!("{path} is gone"), async || (client.get(path).await.ok()?.status == 404).then_some(()))
        .await
}

/// All these can be read, for as long as anybody could still be at work.
async fn stay(client: &Client, names: &[String]) -> Result<()> {
    let end = Instant::now() + WATCHFUL;
    while Instant::now() < end {
        let list = client.get(THINGS).await?.expect(200)?;
        let found: Vec<&str> = list["items"]
            .as_array()
            .context("a list must have items")?
            .iter()
            .filter_map(|it| it["metadata"]["name"].as_str())
            .collect();
        let lost: Vec<&String> = names.iter().filter(|it| !found.contains(&it.as_str())).collect();
        ensure!(lost.is_empty(), "{} of {} are lost: {lost:?}", lost.len(), names.len());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// How somebody is away.
#[derive(Clone, Copy)]
enum Away {
    Stopped,
    CutOff,
}

/// A server is in its loop when it goes away: finalizers hold the objects. The other one ends the definition, and it
/// and its objects are made anew before the first one is back.
async fn comes_back(away: Away) -> Result<()> {
    let Some(cluster) = Cluster::start(2, "storage-version-gc").await? else { return Ok(()) };
    let notes = &cluster.notes;
    let clients: Vec<Client> = cluster.servers.iter().map(Convoy::admin).collect();
    let there = &clients[1];
    let names: Vec<String> = (0..MANY).map(|it| format!("thing-{it}")).collect();
    let defined = define(notes, &clients).await?;
    let mut things = Vec::new();
    for name in &names {
        things.push(create(notes, there, THINGS, held("Thing", name)).await?);
    }
    delete(notes, there, DEFINITION, &defined).await?;
    // Both servers are at it by then.
    all_are_marked(there).await?;
    let begun = Instant::now();
    match away {
        Away::Stopped => cluster.servers[0].pause()?,
        Away::CutOff => cluster.lines[0].cut(),
    }
    for (name, thing) in names.iter().zip(&things) {
        free(notes, there, &format!("{THINGS}/{name}"), thing).await?;
    }
    gone(there, DEFINITION).await?;
    define(notes, std::slice::from_ref(there)).await?;
    for name in &names {
        create(notes, there, THINGS, object("Thing", name)).await?;
    }
    tokio::time::sleep_until(begun + BEYOND_THE_LEASE).await;
    match away {
        Away::Stopped => cluster.servers[0].resume()?,
        Away::CutOff => cluster.lines[0].mend(),
    }
    stay(there, &names).await?;
    until("it is back", async || (clients[0].get("/readyz").await.ok()?.status == 200).then_some(())).await?;
    stay(there, &names).await?;
    notes.judge(&cluster.store).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_stopped_spares_the_objects_of_a_recreated_definition() -> Result<()> {
    comes_back(Away::Stopped).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_cut_off_spares_the_objects_of_a_recreated_definition() -> Result<()> {
    comes_back(Away::CutOff).await
}

/// One healthy server: somebody takes the finalizers off a definition that waits for its objects.
async fn forced_to_go(client: &Client, notes: &Notes) -> Result<()> {
    let clients = std::slice::from_ref(client);
    let defined = define(notes, clients).await?;
    let mut things = Vec::new();
    for n in 0..MANY {
        things.push(create(notes, client, THINGS, held("Thing", &format!("held-{n}"))).await?);
    }
    delete(notes, client, DEFINITION, &defined).await?;
    all_are_marked(client).await?;
    free(notes, client, DEFINITION, &defined).await?;
    gone(client, DEFINITION).await?;
    let again = define(notes, clients).await?;
    let names: Vec<String> = (0..MANY).map(|it| format!("held-{it}")).collect();
    stay(client, &names).await?;
    // They were marked before their definition went, so this is their end; and then they are restored from somewhere.
    for (name, thing) in names.iter().zip(&things) {
        free(notes, client, &format!("{THINGS}/{name}"), thing).await?;
        gone(client, &format!("{THINGS}/{name}")).await?;
    }
    for name in &names {
        create(notes, client, THINGS, object("Thing", name)).await?;
    }
    stay(client, &names).await?;
    delete(notes, client, DEFINITION, &again).await?;
    gone(client, DEFINITION).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_is_forced_to_go_on_the_embedded_store() -> Result<()> {
    let mut convoy = Convoy::start(Options::embedded(&binary())).await?;
    let notes = Notes::default();
    forced_to_go(&convoy.admin(), &notes).await?;
    let ended = convoy.term(PATIENCE).await?;
    ensure!(ended.success(), "{ended}");
    let options = store_embedded::Options {
        compaction_interval: None,
        ..store_embedded::Options::new(SystemClock::shared())
    };
    let store = EmbeddedStore::open(&convoy.data_dir(), options)?;
    notes.judge(&SharedStore::new(store)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_is_forced_to_go_on_etcd() -> Result<()> {
    let Some(cluster) = Cluster::start(1, "*").await? else { return Ok(()) };
    forced_to_go(&cluster.servers[0].admin(), &cluster.notes).await?;
    cluster.notes.judge(&cluster.store).await;
    Ok(())
}

/// etcd is 50 ms away: between looking at a namespace and creating something in it a lot can happen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creates_that_race_with_the_end_of_their_namespace_leave_no_orphans() -> Result<()> {
    let Some(cluster) = Cluster::start(2, "namespace,storage-version-gc").await? else { return Ok(()) };
    cluster.lines.iter().for_each(|it| it.away(Duration::from_millis(50)));
    let client = cluster.servers[0].admin();
    let path = format!("{NAMESPACES}/tenant");
    for round in 0..3 {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenant"}});
        let namespace = create(&cluster.notes, &client, NAMESPACES, namespace).await?;
        let mut writers = JoinSet::new();
        for (n, server) in cluster.servers.iter().cycle().take(6).enumerate() {
            writers.spawn(fill(Arc::clone(&cluster.notes), server.admin(), format!("{round}-{n}")));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        delete(&cluster.notes, &client, &path, &namespace).await?;
        gone(&client, &path).await?;
        let made: usize = writers.join_all().await.into_iter().sum::<Result<usize>>()?;
        ensure!(made > 0, "nothing was created in round {round}");
    }
    cluster.notes.judge(&cluster.store).await;
    Ok(())
}

/// Creates one object after the other until the namespace is said to be gone; how many were made.
async fn fill(notes: Arc<Notes>, client: Client, word: String) -> Result<usize> {
    let path = format!("{NAMESPACES}/tenant/secrets");
    let mut n_made = 0;
    for n in 0.. {
        let mut object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("s-{word}-{n}")}});
        notes.attempt(&mut object);
        let answer = client.post(&path, &object).await?;
        match answer.status.as_u16() {
            201 => {
                notes.written(&path, &answer.json()?);
                n_made += 1;
            }
            403 => {}
            404 => break,
            other => anyhow::bail!("{other} {}", answer.text()),
        }
    }
    Ok(n_made)
}
