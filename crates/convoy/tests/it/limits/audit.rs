//! Every stored change has its audit event, however its client behaves.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::convoy::ADMIN_TOKEN;
use testkit::frames::Frames;
use testkit::raw::Raw;
use testkit::{Convoy, Lines, Options, tools};

use crate::fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Everything, with what was sent and answered.
const POLICY: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

/// Clients at a time.
const CLIENTS: usize = 8;

/// A server that writes an audit log, and where that is.
async fn audited(folder: &TempDir) -> Result<Convoy> {
    let policy = folder.path().join("policy.yaml");
    std::fs::write(&policy, POLICY)?;
    let log = folder.path().join("audit.log");
    let options = Options::embedded(fixture::BINARY)
        .flag(&format!("--audit-policy-file={}", policy.display()))
        .flag(&format!("--audit-log-path={}", log.display()));
    Convoy::start(options).await
}

fn events(log: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(log).context("there must be a log")?;
    text.lines().map(|it| serde_json::from_str(it).context("a line must be JSON")).collect()
}

/// One request and how its client goes away.
struct Plan {
    method: Method,
    path: String,
    content_type: &'static str,
    body: String,
    /// HTTP/2, where a request can be taken back alone.
    is_h2: bool,
    /// How long the client waits after everything is sent.
    patience: Duration,
}

/// A create, a patch and a delete of one object; nothing is asked for twice.
fn plans(number: usize, random: &mut StdRng) -> Vec<Plan> {
    let name = format!("c{number}");
    let object = fixture::config_map(&name, "first", "red").to_string();
    let requests = [
        (Method::POST, MAPS.to_owned(), "application/json", object),
        (
            Method::PATCH,
            format!("{MAPS}/{name}"),
            "application/merge-patch+json",
            json!({"data": {"value": "second"}}).to_string(),
        ),
        (Method::DELETE, format!("{MAPS}/{name}"), "", String::new()),
    ];
    let n_requests = random.random_range(1..=requests.len());
    let plan = |(method, path, content_type, body)| Plan {
        method,
        path,
        content_type,
        body,
        is_h2: random.random(),
        patience: Duration::from_micros(random.random_range(0..12_000)),
    };
    requests.into_iter().take(n_requests).map(plan).collect()
}

/// Sends a request and hangs up, or takes it back, without looking at the answer.
async fn hang_up(convoy: &Convoy, plan: &Plan) -> Result<()> {
    let Plan { method, path, content_type, body, is_h2, patience } = plan;
    if *is_h2 {
        let mut frames = Frames::connect(convoy.port(), convoy.ca(), 65_535).await?;
        let stream =
            frames.request(method.as_str(), path, ADMIN_TOKEN, content_type, body.as_bytes()).await?;
        tokio::time::sleep(*patience).await;
        frames.reset(stream).await?;
        return Ok(());
    }
    let mut raw = Raw::connect(convoy).await?;
    let kind =
        if content_type.is_empty() { String::new() } else { format!("content-type: {content_type}\r\n") };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ADMIN_TOKEN}\r\n{kind}content-length: {}\r\n\r\n",
        body.len()
    );
    raw.send(format!("{head}{body}").as_bytes()).await;
    tokio::time::sleep(*patience).await;
    Ok(())
}

/// What was stored of the objects of this test, as (verb, name), until the sentinel is seen.
async fn stored(mut changes: Lines) -> Result<BTreeSet<(&'static str, String)>> {
    let mut seen = BTreeSet::new();
    loop {
        let line = changes.next().await?.context("the watch must go on")?;
        let event: Value = serde_json::from_slice(&line)?;
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if name == "sentinel" {
            return Ok(seen);
        }
        let verb = match event["type"].as_str() {
            Some("ADDED") => "create",
            Some("MODIFIED") => "patch",
            Some("DELETED") => "delete",
            _ => continue,
        };
        if name.starts_with('c') {
            seen.insert((verb, name));
        }
    }
}

/// A request's future, the end of its audit record included, was dropped when its client hung up, while the commit went
/// on: 241 of 363 objects were stored without any event.
#[tokio::test(flavor = "multi_thread")]
async fn every_stored_change_has_its_event_though_clients_hang_up() -> Result<()> {
    let (rounds, seed) = (tools::rounds(160), tools::seed());
    let folder = tempfile::tempdir()?;
    let mut convoy = audited(&folder).await?;
    let watch = format!("{MAPS}?watch=true&resourceVersion=0&timeoutSeconds=86400");
    let changes = convoy.admin().watch(&watch).await?.map_err(|it| anyhow::anyhow!("{}", it.text()))?;
    let watched = tokio::spawn(stored(changes));
    let mut random = StdRng::seed_from_u64(seed);
    let mut numbers = 0..rounds;
    loop {
        let batch: Vec<Vec<Plan>> = numbers.by_ref().take(CLIENTS).map(|it| plans(it, &mut random)).collect();
        if batch.is_empty() {
            break;
        }
        let convoy = &convoy;
        let clients = batch.iter().map(|plans| async move {
            for plan in plans {
                hang_up(convoy, plan).await?;
            }
            anyhow::Ok(())
        });
        futures_util::future::try_join_all(clients).await?;
    }
    // A server that stops finishes what it has begun, and writes down what it did.
    convoy.admin().post(MAPS, &fixture::config_map("sentinel", "", "red")).await?.expect(201)?;
    let stored = watched.await??;
    assert!(convoy.term(Duration::from_secs(60)).await?.success());
    let events = events(&folder.path().join("audit.log"))?;
    let told: BTreeSet<(&str, &str)> = events
        .iter()
        .filter(|it| it["stage"] == "ResponseComplete" || it["stage"] == "Panic")
        .filter_map(|it| Some((it["verb"].as_str()?, it["objectRef"]["name"].as_str()?)))
        .collect();
    let missing: Vec<_> =
        stored.iter().filter(|(verb, name)| !told.contains(&(*verb, name.as_str()))).collect();
    assert!(
        missing.is_empty(),
        "seed {seed}: {} of {} changes are not told: {missing:?}",
        missing.len(),
        stored.len()
    );
    assert!(stored.len() > rounds / 4, "only {} changes: nothing was judged", stored.len());
    let received = events.iter().filter(|it| it["stage"] == "RequestReceived").count();
    let complete = events.iter().filter(|it| it["stage"] == "ResponseComplete").count();
    assert!(complete + 20 >= received, "{received} requests came, {complete} ended");
    tools::report(&format!("audit: {} changes of {rounds} objects, seed {seed}: all are told", stored.len()));
    Ok(())
}
