//! Random load over HTTP, `kill -9`, start again: every acknowledged write is there, nothing else is,
//! and resourceVersions never go back.
//!
//! The short form runs in CI; `cargo xtask soak durability-embedded` and `durability-etcd` run long.
//! [`testkit::history::durability`] is the judge.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use http::StatusCode;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use testkit::etcd::Etcd;
use testkit::history::durability::{Durability, Outcome, Seen, Write};
use testkit::{Answer, Client, Convoy, Options, tools};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::fixture::{self, config_map, revision};

const WRITERS: u64 = 8;
const KEYS_PER_WRITER: u64 = 6;
const OBJECTS: &str = "/api/v1/namespaces/default/configmaps";

type History = Arc<Mutex<Durability>>;

/// One writer: its own keys, its own random choices.
struct Writer {
    number: u64,
    client: Client,
    history: History,
    random: StdRng,
    /// Makes every value unique over all rounds.
    round: usize,
    count: u64,
    stop: watch::Receiver<bool>,
}

impl Writer {
    /// Writes until told to stop or until the server does not answer.
    async fn run(mut self) -> Result<()> {
        while !*self.stop.borrow() {
            if !self.write_once().await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// False after an unknown outcome: the server is gone, and what it did is seen after its restart.
    async fn write_once(&mut self) -> Result<bool> {
        let key = format!("w{}-{}", self.number, self.random.random_range(0..KEYS_PER_WRITER));
        let Some(current) = self.history.lock().await.certain(&key) else { return Ok(false) };
        self.count += 1;
        let value = format!("{}-{}-{}", self.round, self.number, self.count);
        let choice = self.random.random_range(0..10);
        let write = match (&current, choice) {
            (Some(_), 0..=2) => Write::Delete,
            _ => Write::Put(value),
        };
        let pending = self.history.lock().await.begin(&key, write.clone());
        let answer = self.send(&key, &write, current.as_ref(), choice).await;
        let (outcome, go_on) = judge(&answer, &write)?;
        self.history.lock().await.end(pending, outcome)?;
        Ok(go_on)
    }

    async fn send(&self, key: &str, write: &Write, current: Option<&Seen>, choice: u32) -> Result<Answer> {
        let path = format!("{OBJECTS}/{key}");
        match (write, current) {
            (Write::Delete, _) => self.client.delete(&path).await,
            (Write::Put(value), None) => self.client.post(OBJECTS, &config_map(key, value, "red")).await,
            (Write::Put(value), Some(current)) if choice.is_multiple_of(2) => {
                let mut object = config_map(key, value, "red");
                // Now and then a stale revision, which must be refused.
                let stale = choice == 8;
                let revision = if stale { current.revision - 1 } else { current.revision };
                object["metadata"]["resourceVersion"] = revision.to_string().into();
                self.client.put(&path, &object).await
            }
            (Write::Put(value), Some(_)) => {
                let patch = serde_json::json!({"data": {"value": value}});
                self.client.patch(&path, "application/merge-patch+json", &patch).await
            }
        }
    }
}

/// What a writer learns from an answer, or from none.
fn judge(answer: &Result<Answer>, write: &Write) -> Result<(Outcome, bool)> {
    let Ok(answer) = answer else { return Ok((Outcome::Unknown, false)) };
    match answer.status {
        StatusCode::OK | StatusCode::CREATED => {
            let revision = match write {
                Write::Put(_) => Some(revision(&answer.json()?)),
                Write::Delete => None,
            };
            Ok((Outcome::Acknowledged(revision), true))
        }
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => Ok((Outcome::Refused, true)),
        status if status.is_server_error() => Ok((Outcome::Unknown, false)),
        status => bail!("an answer nobody expects: {status} {}", answer.text()),
    }
}

/// Everything that is stored, as one consistent list.
async fn observe(client: &Client) -> Result<(u64, BTreeMap<String, Seen>)> {
    let list = client.get(OBJECTS).await?.expect(200)?;
    let items = list["items"].as_array().context("a list must have items")?;
    let seen = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let value = object["data"]["value"].as_str().unwrap_or_default().to_owned();
        (name, Seen { value, revision: revision(object) })
    };
    // The CA that the server publishes in each namespace is not ours.
    let ours = items.iter().map(seen).filter(|(name, _)| name != "kube-root-ca.crt");
    Ok((revision(&list), ours.collect()))
}

/// One round: load, a kill at a random moment, a restart, a look.
async fn load_until<F: AsyncFnOnce() -> Result<()>>(
    client: &Client,
    history: &History,
    round: usize,
    seed: u64,
    kill: F,
) -> Result<()> {
    let (stop, stopped) = watch::channel(false);
    let mut writers = JoinSet::new();
    for number in 0..WRITERS {
        let writer = Writer {
            number,
            client: client.clone().with_patience(Duration::from_secs(10)),
            history: Arc::clone(history),
            random: StdRng::seed_from_u64(seed ^ (number << 32)),
            round,
            count: 0,
            stop: stopped.clone(),
        };
        writers.spawn(writer.run());
    }
    kill().await?;
    stop.send_replace(true);
    while let Some(done) = writers.join_next().await {
        done??;
    }
    Ok(())
}

/// Long enough for a few hundred writes, and never the same.
async fn a_while(random: &mut StdRng) {
    tokio::time::sleep(Duration::from_millis(random.random_range(20..600))).await;
}

fn report(name: &str, rounds: usize, seed: u64, history: &Durability) {
    let (acknowledged, unknown) = (history.acknowledged(), history.unknown());
    tools::report(&format!(
        "{name}: {rounds} rounds, seed {seed}: {acknowledged} acknowledged writes kept, {unknown} unknown"
    ));
    assert!(acknowledged > rounds, "too little was written to prove anything");
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_store_keeps_every_acknowledged_write_through_kill_9() -> Result<()> {
    let (rounds, seed) = (tools::rounds(5), tools::seed());
    let mut convoy = Convoy::start(Options::embedded(fixture::BINARY)).await?;
    let history = History::default();
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..rounds {
        let client = convoy.admin();
        let kill = async || {
            a_while(&mut random).await;
            convoy.kill9()
        };
        load_until(&client, &history, round, seed.wrapping_add(round as u64), kill).await?;
        convoy.start_again().await.with_context(|| format!("round {round}, seed {seed}"))?;
        let (at, found) = observe(&convoy.admin()).await?;
        history.lock().await.observe(at, &found).with_context(|| format!("round {round}, seed {seed}"))?;
    }
    report("durability, embedded", rounds, seed, &*history.lock().await);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_store_keeps_every_acknowledged_write_through_kill_9() -> Result<()> {
    if testkit::etcd::is_missing() {
        return Ok(());
    }
    let (rounds, seed) = (tools::rounds(3), tools::seed());
    let mut etcd = Etcd::start().await?;
    let mut convoy = Convoy::start(Options::etcd(fixture::BINARY, &etcd.url(), "/registry")).await?;
    let history = History::default();
    let mut random = StdRng::seed_from_u64(seed);
    let may_kill_etcd = tools::etcd_may_be_killed("killing etcd under load");
    for round in 0..rounds {
        // In turn: the server, etcd under a running server, both.
        let (kills_server, kills_etcd) = (round % 3 != 1 || !may_kill_etcd, round % 3 != 0 && may_kill_etcd);
        let client = convoy.admin();
        let kill = async || {
            a_while(&mut random).await;
            if kills_server {
                convoy.kill9()?;
            }
            if kills_etcd {
                etcd.kill9()?;
            }
            Ok(())
        };
        load_until(&client, &history, round, seed.wrapping_add(round as u64), kill).await?;
        if kills_etcd {
            etcd.restart().await?;
        }
        if kills_server {
            convoy.start_again().await.with_context(|| format!("round {round}, seed {seed}"))?;
        }
        convoy.wait_ready().await.with_context(|| format!("round {round}, seed {seed}"))?;
        let (at, found) = observe(&convoy.admin()).await?;
        history.lock().await.observe(at, &found).with_context(|| format!("round {round}, seed {seed}"))?;
    }
    report("durability, etcd", rounds, seed, &*history.lock().await);
    Ok(())
}

/// A data file that was cut short is refused with a sentence, or everything acknowledged is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_data_file_is_refused_not_served() -> Result<()> {
    let mut convoy = Convoy::start(Options::embedded(fixture::BINARY)).await?;
    for number in 0..50 {
        let object = config_map(&format!("kept-{number}"), &"x".repeat(2_000), "red");
        convoy.admin().post(OBJECTS, &object).await?.expect(201)?;
    }
    convoy.term(Duration::from_secs(30)).await?;
    let mut files: Vec<_> = std::fs::read_dir(convoy.data_dir())?.filter_map(Result::ok).collect();
    // Nothing is in this one: it only takes up space.
    files.retain(|it| it.file_name() != "reserve");
    files.sort_by_key(|it| it.metadata().map(|it| it.len()).unwrap_or_default());
    let largest = files.last().context("there must be a data file")?.path();
    let length = std::fs::metadata(&largest)?.len();
    std::fs::OpenOptions::new().write(true).open(&largest)?.set_len(length / 2)?;
    let outcome = convoy.start_again().await;
    let message = format!("{:#}", outcome.expect_err("half a file must not be served"));
    assert!(!message.contains("panicked"), "{message}");
    Ok(())
}
