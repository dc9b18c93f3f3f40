//! Processes that are killed while they write. Set `CONVOY_SOAK_ROUNDS` for more rounds.
//!
//! A child process runs [`writes_until_it_is_killed`] on a directory and says on its standard output what it
//! is about to write and what was acknowledged. The parent kills it at a random moment, opens the directory
//! and compares.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use bytes::Bytes;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use store::{Entry, Key, ReadAt, Revision, Store, Txn};
use store_embedded::EmbeddedStore;

use crate::support::{list, open};

const CHILD_DIRECTORY: &str = "CONVOY_CRASH_CHILD_DIRECTORY";
const CHILD_SEED: &str = "CONVOY_CRASH_CHILD_SEED";
const N_TASKS: u64 = 8;

/// What a key should hold: a value, or nothing.
type Value = Option<String>;

/// What the parent knows of one task: it writes one transaction after the other.
#[derive(Default)]
struct Known {
    /// The last acknowledged value of each key and its revision; removals too.
    acknowledged: BTreeMap<String, (Value, u64)>,
    /// What was under way when the child died.
    attempted: Option<(String, Value)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let rounds = std::env::var("CONVOY_SOAK_ROUNDS").ok().and_then(|it| it.parse().ok()).unwrap_or(5);
    let directory = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(rounds);
    let mut known: BTreeMap<u64, Known> = BTreeMap::new();
    let mut newest = Revision::ZERO;
    for round in 0..rounds {
        let n_acknowledged = random.random_range(1..400);
        run_and_kill(directory.path(), round, n_acknowledged, &mut known);
        newest = newest.max(newest_acknowledged(&known));
        let store = open(directory.path());
        let current = store.current().await.unwrap();
        assert!(current >= newest, "round {round}: the revision went back from {newest} to {current}");
        newest = current;
        check(&store, round, &mut known).await;
        store.close().await;
    }
}

/// Lets a child write until it has acknowledged so much, kills it, and notes what it said.
fn run_and_kill(directory: &Path, round: u64, n_acknowledged: usize, known: &mut BTreeMap<u64, Known>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::writes_until_it_is_killed", "--nocapture"])
        .env(CHILD_DIRECTORY, directory)
        .env(CHILD_SEED, round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = 0;
    // What the child said before it died is still in the pipe and counts.
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["try", task, key, value] => {
                known.entry(task.parse().unwrap()).or_default().attempted =
                    Some(((*key).to_owned(), to_value(value)));
            }
            ["ack", task, revision] => {
                let known = known.get_mut(&task.parse().unwrap()).unwrap();
                let (key, value) = known.attempted.take().unwrap();
                known.acknowledged.insert(key, (value, revision.parse().unwrap()));
                seen += 1;
                if seen == n_acknowledged {
                    child.kill().unwrap();
                }
            }
            // The test harness talks too; the last line may be torn.
            _ => {}
        }
    }
    child.wait().unwrap();
    assert!(seen >= n_acknowledged, "the child ended by itself");
}

fn to_value(word: &str) -> Value {
    (word != "-").then(|| word.to_owned())
}

fn newest_acknowledged(known: &BTreeMap<u64, Known>) -> Revision {
    let revisions = known.values().flat_map(|it| it.acknowledged.values()).map(|(_, revision)| *revision);
    Revision::new(revisions.max().unwrap_or(0))
}

/// Every key holds what was acknowledged last, or what was under way; and both halves of a transaction agree.
async fn check(store: &EmbeddedStore, round: u64, known: &mut BTreeMap<u64, Known>) {
    let entries: BTreeMap<Key, Entry> =
        list(store, ReadAt::Latest).await.into_iter().map(|it| (it.key.clone(), it)).collect();
    let mut n_expected = 0;
    for known in known.values_mut() {
        if let Some((key, value)) = known.attempted.take() {
            let found = entries.get(key.as_str());
            let is_new = found.map(text) == value;
            let revision = found.map_or(0, |it| it.modified.get());
            let acknowledged = known.acknowledged.get(&key).map_or(0, |(_, revision)| *revision);
            // It happened, as a removal or with a revision of its own.
            if is_new && (value.is_none() || revision > acknowledged) {
                known.acknowledged.insert(key, (value, revision));
            }
        }
        for (key, (value, revision)) in &known.acknowledged {
            let found = entries.get(key.as_str());
            assert_eq!(found.map(text), *value, "round {round}: {key}, written at {revision}");
            let twin = entries.get(format!("{key}-twin").as_str());
            assert_eq!(twin.map(text), *value, "round {round}: half a transaction of {key}");
            if let Some(found) = found {
                assert_eq!(found.modified.get(), *revision, "round {round}: {key}");
                n_expected += 2;
            }
        }
    }
    assert_eq!(entries.len(), n_expected, "round {round}: there are keys that nobody wrote");
}

fn text(entry: &Entry) -> String {
    String::from_utf8(entry.value.to_vec()).unwrap().split('.').next().unwrap().to_owned()
}

/// The child: does nothing unless the parent started it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_until_it_is_killed() {
    let Ok(directory) = std::env::var(CHILD_DIRECTORY) else { return };
    let seed: u64 = std::env::var(CHILD_SEED).unwrap().parse().unwrap();
    let store = open(Path::new(&directory));
    let tasks: Vec<_> =
        (0..N_TASKS).map(|task| tokio::spawn(write_for_ever(store.clone(), seed, task))).collect();
    // History goes too, so that sweeping is interrupted as well.
    let compact = tokio::spawn(async move {
        loop {
            let current = store.current().await.unwrap();
            store.compact(Revision::new(current.get().saturating_sub(50))).await.unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    });
    for task in tasks {
        task.await.unwrap();
    }
    compact.abort();
}

async fn write_for_ever(store: EmbeddedStore, seed: u64, task: u64) {
    let mut random = StdRng::seed_from_u64(seed * N_TASKS + task);
    // Ends by itself if the parent is gone.
    for n in 0..20_000 {
        let key = format!("/crash/{task}/{}", random.random_range(0..10));
        let twin = format!("{key}-twin");
        let is_removal = random.random_bool(0.2);
        let value = if is_removal { "-".to_owned() } else { format!("{seed}:{task}:{n}") };
        say(&format!("try {task} {key} {value}"));
        let (key, twin) = (Key::from(key), Key::from(twin));
        let txn = if is_removal {
            Txn::new().delete(&key).delete(&twin)
        } else {
            let padding = ".".repeat(random.random_range(0..5000));
            let value = Bytes::from(format!("{value}{padding}"));
            Txn::new().put(&key, value.clone()).put(&twin, value)
        };
        let revision = store.commit(txn).await.unwrap();
        say(&format!("ack {task} {revision}"));
    }
}

/// One line, out at once.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}").and_then(|()| output.flush()).unwrap();
}
