//! Many custom objects on two servers: a restart, other selectable fields and the end of their definition, all under load.
//!
//! **Judges.** What was acknowledged is found by GET and LIST through both servers, at once and at the end of every phase;
//! what was removed is not. A prober writes another kind through one server and reads it through the other all the time,
//! and says how long its longest wait was in each phase.
//!
//! Short in CI; `cargo xtask soak large-collection` takes 500,000 objects, and no wait of the prober may be over a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use testkit::client::Answer;
use testkit::etcd::{self, Etcd};
use testkit::{Client, Convoy, Options, tools};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::fixture::{BINARY, config_map, revision};

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/crates.large.example";
const CRATES: &str = "/apis/large.example/v1/namespaces/default/crates";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Requests at the same time while everything is filled.
const FILLERS: usize = 32;
/// What a prober may wait for at most, where it is judged.
const LONGEST_STALL: Duration = Duration::from_secs(1);
/// How long a client tries again that is told to.
const PATIENCE: Duration = Duration::from_secs(120);
const PAGE: usize = 2_000;
/// Objects of the other kind.
const PROBES: usize = 50;
/// No step takes longer than this, whatever the machine.
const LIMIT: Duration = Duration::from_secs(1800);

/// What is known of every object: the revision it was acknowledged at, or that it was removed.
type Known = Arc<Mutex<BTreeMap<String, Option<u64>>>>;

fn definition(fields: &[&str]) -> Value {
    let paths: Vec<Value> = fields.iter().map(|it| json!({"jsonPath": format!(".spec.{it}")})).collect();
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": text, "size": text, "filler": text}}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "crates.large.example"},
        "spec": {"group": "large.example", "scope": "Namespaced", "names": {"plural": "crates", "kind": "Crate"},
            "versions": [{"name": "v1", "served": true, "storage": true, "selectableFields": paths,
                "schema": {"openAPIV3Schema": schema}}]}})
}

fn object(name: &str) -> Value {
    json!({"apiVersion": "large.example/v1", "kind": "Crate", "metadata": {"name": name},
        "spec": {"color": "red", "size": "s", "filler": "x".repeat(700)}})
}

/// An answer that is not to be asked for again. A client that is told to tries again, as client-go does.
async fn settled<F: Future<Output = Result<Answer>>>(ask: impl Fn() -> F) -> Result<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask().await?;
        let may_repeat = answer.status == 503 || answer.status == 429;
        if !may_repeat || !answer.headers.contains_key("retry-after") {
            return Ok(answer);
        }
        ensure!(Instant::now() < deadline, "told to try again for too long: {}", answer.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Two servers, one of which comes and goes.
struct Scene {
    _etcd: Etcd,
    first: Convoy,
    second: Convoy,
    known: Known,
}

impl Scene {
    fn clients(&self) -> [Client; 2] {
        [self.first.admin(), self.second.admin()]
    }

    /// Every object through every server, page by page, against what was acknowledged. Nothing is written meanwhile.
    async fn judge(&self, phase: &str) -> Result<()> {
        let known = self.known.lock().await.clone();
        let expected: BTreeMap<&str, u64> =
            known.iter().filter_map(|(name, at)| Some((name.as_str(), (*at)?))).collect();
        for (server, client) in self.clients().iter().enumerate() {
            let listed = list(client).await.with_context(|| format!("{phase}: server {server}"))?;
            for (name, at) in &expected {
                match listed.get(*name) {
                    Some(shown) if shown >= at => {}
                    other => {
                        bail!("{phase}: server {server} lists {name} at {other:?}, acknowledged at {at}")
                    }
                }
            }
            let extra: Vec<&String> =
                listed.keys().filter(|it| !expected.contains_key(it.as_str())).collect();
            ensure!(
                extra.is_empty(),
                "{phase}: server {server} lists {} too many: {:?}",
                extra.len(),
                extra.first()
            );
        }
        tools::report(&format!("{phase}: {} objects judged through both servers", expected.len()));
        Ok(())
    }
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMetadata,
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    token: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMetadata {
    name: String,
    resource_version: String,
}

async fn list(client: &Client) -> Result<BTreeMap<String, u64>> {
    let (mut all, mut token) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("{CRATES}?limit={PAGE}&continue={token}");
        let answer = settled(|| client.get(&path)).await?;
        ensure!(answer.status == 200, "{}", answer.text());
        let page: Page = serde_json::from_slice(&answer.body)?;
        for Item { metadata } in page.items {
            ensure!(
                all.insert(metadata.name, metadata.resource_version.parse()?).is_none(),
                "an object twice"
            );
        }
        token = page.metadata.token;
        if token.is_empty() {
            return Ok(all);
        }
    }
}

/// Makes objects through both servers, many at the same time.
async fn fill(scene: &Scene, n_objects: usize) -> Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut fillers = JoinSet::new();
    for filler in 0..FILLERS {
        let (client, next, known) =
            (scene.clients()[filler % 2].clone(), Arc::clone(&next), Arc::clone(&scene.known));
        fillers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= n_objects {
                    return anyhow::Ok(());
                }
                let name = format!("c{number:07}");
                let body = object(&name);
                let made = settled(|| client.post(CRATES, &body)).await?.expect(201)?;
                known.lock().await.insert(name, Some(revision(&made)));
            }
        });
    }
    while let Some(done) = fillers.join_next().await {
        done??;
    }
    Ok(())
}

/// Makes, changes and removes objects through one server and looks at once through the other, until told to stop.
async fn load(
    writer: Client,
    reader: Client,
    name: &'static str,
    known: Known,
    stop: Arc<AtomicBool>,
) -> Result<usize> {
    let mut number = 0;
    while !stop.load(Ordering::Acquire) {
        let name = format!("{name}{number:05}");
        let (path, body) = (format!("{CRATES}/{name}"), object(&name));
        let made = settled(|| writer.post(CRATES, &body)).await?.expect(201)?;
        known.lock().await.insert(name.clone(), Some(revision(&made)));
        for client in [&writer, &reader] {
            let found = settled(|| client.get(&path)).await?;
            ensure!(found.status == 200, "{name} was acknowledged at {}: {}", revision(&made), found.text());
            ensure!(
                revision(&found.json()?) >= revision(&made),
                "{name} is older than what was acknowledged"
            );
        }
        let old = format!("c{number:07}");
        let is_there = known.lock().await.get(&old).is_some_and(Option::is_some);
        if number % 3 == 0 && is_there && name.starts_with('a') {
            known.lock().await.insert(old.clone(), None);
            let path = format!("{CRATES}/{old}");
            let removed = settled(|| writer.delete(&path)).await?;
            ensure!(removed.status == 200, "{}", removed.text());
            let found = settled(|| reader.get(&path)).await?;
            ensure!(found.status == 404, "{old} was removed: {}", found.text());
        }
        number += 1;
    }
    Ok(number)
}

/// Writes another kind through one server and reads it through another, and notes the longest wait for an answer.
async fn probe(clients: Vec<Client>, stop: Arc<AtomicBool>) -> Result<Duration> {
    let (mut longest, mut number) = (Duration::ZERO, 0_usize);
    while !stop.load(Ordering::Acquire) {
        let (writer, reader) = (&clients[number % clients.len()], &clients[(number + 1) % clients.len()]);
        let path = format!("{MAPS}/probe{}", number % PROBES);
        let patch = json!({"data": {"number": number.to_string()}});
        let written =
            timed(&mut longest, writer.patch(&path, "application/merge-patch+json", &patch)).await?;
        let found = timed(&mut longest, reader.get(&path)).await?;
        ensure!(revision(&found) >= revision(&written), "a probe reads less than was acknowledged");
        let path = format!("{MAPS}?labelSelector=group%3Dprobe");
        let listed = timed(&mut longest, reader.get(&path)).await?;
        let n_listed = listed["items"].as_array().map(Vec::len);
        ensure!(n_listed == Some(PROBES), "{n_listed:?} probes are listed");
        number += 1;
    }
    Ok(longest)
}

/// The object of a good answer; the longest wait is noted.
async fn timed(longest: &mut Duration, ask: impl Future<Output = Result<Answer>>) -> Result<Value> {
    let began = Instant::now();
    let answer = ask.await?.expect(200)?;
    *longest = (*longest).max(began.elapsed());
    Ok(answer)
}

/// Everything that goes on beside a phase.
struct Beside {
    stop: Arc<AtomicBool>,
    prober: JoinHandle<Result<Duration>>,
    writers: Vec<JoinHandle<Result<usize>>>,
}

impl Beside {
    /// Probes these servers; `writers` pairs whom objects are written through and whom they are read through.
    fn start(scene: &Scene, probed: Vec<Client>, writers: Vec<(&'static str, Client, Client)>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let prober = tokio::spawn(probe(probed, Arc::clone(&stop)));
        let spawn = |(name, writer, reader)| {
            tokio::spawn(load(writer, reader, name, Arc::clone(&scene.known), Arc::clone(&stop)))
        };
        Self { prober, writers: writers.into_iter().map(spawn).collect(), stop }
    }

    async fn end(self, phase: &str) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        let mut n_written = 0;
        for writer in self.writers {
            n_written += writer.await?.with_context(|| phase.to_owned())?;
        }
        let longest = self.prober.await?.with_context(|| format!("{phase}: another kind"))?;
        tools::report(&format!(
            "{phase}: {n_written} objects written; another kind waited at most {longest:?}"
        ));
        if tools::is_soak() {
            ensure!(longest <= LONGEST_STALL, "{phase}: another kind waited {longest:?}");
        }
        Ok(())
    }
}

async fn until(what: &str, is_done: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_done().await? {
        ensure!(Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Whether objects can be selected by this field, through one server.
async fn is_selectable(client: &Client, field: &str) -> Result<bool> {
    let answer = client.get(&format!("{CRATES}?limit=1&fieldSelector=spec.{field}%3Dred")).await?;
    match answer.status.as_u16() {
        200 => Ok(true),
        // The definition is not there yet, or the field is being indexed.
        400 | 503 => Ok(false),
        _ => bail!("{}", answer.text()),
    }
}

async fn start() -> Result<Scene> {
    let quota = "--quota-backend-bytes=8589934592";
    let etcd = Etcd::start_with(None, &[quota]).await?;
    let first = Convoy::start(Options::etcd(BINARY, &etcd.url(), "/registry")).await?;
    let options = Options::etcd(BINARY, &etcd.url(), "/registry").flag("--hostname-override=second");
    let second = Convoy::start(options).await?;
    let scene = Scene { _etcd: etcd, first, second, known: Known::default() };
    scene.first.admin().post(CRDS, &definition(&["size"])).await?.expect(201)?;
    for client in scene.clients() {
        until("the definition", async || Ok(client.get(CRATES).await?.status == 200)).await?;
    }
    for number in 0..PROBES {
        let probe = config_map(&format!("probe{number}"), "1", "probe");
        scene.first.admin().post(MAPS, &probe).await?.expect(201)?;
    }
    Ok(scene)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_collection_is_never_told_falsely() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    let n_objects = tools::rounds(2_000);
    let mut scene = start().await?;
    let began = Instant::now();
    fill(&scene, n_objects).await?;
    tools::report(&format!("{n_objects} objects made in {:.1} s", began.elapsed().as_secs_f64()));
    scene.judge("filled").await?;

    let began = Instant::now();
    let [first, _] = scene.clients();
    let beside =
        Beside::start(&scene, vec![first.clone()], vec![("a-restart", first.clone(), first.clone())]);
    scene.second.term(LIMIT).await?;
    scene.second.spawn()?;
    let second = scene.second.admin();
    // Longer than servers with little in them may take.
    while !second.get("/readyz").await.is_ok_and(|it| it.status == 200) {
        if let Some(status) = scene.second.exited()? {
            bail!("the server ended at start: {status}\n{}", scene.second.log_tail());
        }
        ensure!(began.elapsed() < LIMIT, "the server is not ready\n{}", scene.second.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tools::report(&format!("restarted in {:.1} s", began.elapsed().as_secs_f64()));
    beside.end("restart").await?;
    scene.judge("restarted").await?;

    let began = Instant::now();
    let [first, second] = scene.clients();
    let writers =
        vec![("a-fields", first.clone(), second.clone()), ("b-fields", second.clone(), first.clone())];
    let beside = Beside::start(&scene, vec![first.clone(), second.clone()], writers);
    let patch = json!({"spec": {"versions": definition(&["color", "size"])["spec"]["versions"]}});
    settled(|| first.patch(CRD, "application/merge-patch+json", &patch)).await?.expect(200)?;
    for client in [&first, &second] {
        until("the new field", async || is_selectable(client, "color").await).await?;
    }
    tools::report(&format!("another field after {:.1} s", began.elapsed().as_secs_f64()));
    beside.end("fields").await?;
    scene.judge("fields changed").await?;

    let began = Instant::now();
    let beside = Beside::start(&scene, vec![first.clone(), second.clone()], Vec::new());
    settled(|| first.delete(CRD)).await?.expect(200)?;
    for client in [&first, &second] {
        until("the end of the definition", async || {
            let is_gone = client.get(CRD).await?.status == 404;
            Ok(is_gone && client.get(CRATES).await?.status == 404)
        })
        .await?;
    }
    tools::report(&format!("definition gone after {:.1} s", began.elapsed().as_secs_f64()));
    beside.end("definition deleted").await?;

    // Made anew it is empty: nothing was left behind.
    scene.known.lock().await.clear();
    let anew = definition(&[]);
    settled(|| first.post(CRDS, &anew)).await?.expect(201)?;
    for client in [&first, &second] {
        until("the definition", async || Ok(client.get(CRATES).await?.status == 200)).await?;
    }
    scene.judge("made anew").await
}
