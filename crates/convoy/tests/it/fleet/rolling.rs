//! Rolling upgrades and rollbacks under write load (SV-15, both scenarios of voting).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::RwLock;
use serde_json::{Value, json};

use super::{
    ground::{CLASSES, CLASSES_RECORD, Ground, NEW, OLD, PATIENCE, Ship, ask, class, eventually},
    on_both_stores,
};

on_both_stores!(
    an_upgrade_moves_with_the_last_vote_and_fails_no_write,
    a_rollback_in_the_middle_changes_nothing,
    the_last_old_server_may_stop_and_come_back_unchanged,
    when_all_were_down_the_newest_waits_for_the_others,
);

/// Writers that use whichever servers are there.
pub struct Load {
    clients: Arc<RwLock<Vec<kube::Client>>>,
    stop: Arc<AtomicBool>,
    n_written: Arc<AtomicU64>,
    writers: Vec<tokio::task::JoinHandle<Result<(), String>>>,
}

impl Load {
    /// Clients that are never let down.
    pub fn start(path: &'static str, make: fn(&str) -> Value, n_writers: usize) -> Self {
        Self::of(path, make, n_writers, Expect::Success)
    }

    /// Clients of servers that crash under their hands.
    pub fn start_amid_crashes(path: &'static str, make: fn(&str) -> Value, n_writers: usize) -> Self {
        Self::of(path, make, n_writers, Expect::Anything)
    }

    fn of(path: &'static str, make: fn(&str) -> Value, n_writers: usize, expect: Expect) -> Self {
        let clients: Arc<RwLock<Vec<kube::Client>>> = Arc::default();
        let (stop, n_written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writers = (0..n_writers).map(|writer| {
            let (clients, stop, n_written) =
                (Arc::clone(&clients), Arc::clone(&stop), Arc::clone(&n_written));
            tokio::spawn(async move {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    let client = {
                        let clients = clients.read();
                        if clients.is_empty() {
                            None
                        } else {
                            Some(clients[(n + writer) % clients.len()].clone())
                        }
                    };
                    let Some(client) = client else {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        continue;
                    };
                    n += 1;
                    let name = format!("load-{writer}-{}", n % 5);
                    if write_once(&client, path, &name, make, n, expect).await? {
                        n_written.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(())
            })
        });
        let writers = writers.collect();
        Self { clients, stop, n_written, writers }
    }

    /// Uses only these from now on.
    pub fn only(&self, ships: &[&Ship]) {
        *self.clients.write() = ships.iter().map(|it| it.server.client()).collect();
    }

    /// Ends the load; whatever a client saw that it must not see is the answer.
    pub async fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for writer in self.writers {
            writer.await.unwrap().unwrap_or_else(|it| panic!("a client's write failed: {it}"));
        }
        self.n_written.load(Ordering::Relaxed)
    }

    pub async fn wrote(&self, more: u64) {
        let before = self.n_written.load(Ordering::Relaxed);
        eventually("the load goes on", async || self.n_written.load(Ordering::Relaxed) >= before + more)
            .await;
    }
}

/// What clients put up with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Only what says that somebody else was faster.
    Success,
    /// Servers may break off.
    Anything,
}

/// Makes, changes or deletes one object. Says whether the server did what it was asked to do.
async fn write_once(
    client: &kube::Client,
    path: &str,
    name: &str,
    make: fn(&str) -> Value,
    n: usize,
    expect: Expect,
) -> Result<bool, String> {
    let object = format!("{path}/{name}");
    let (method, path, body) = match n % 7 {
        0 => ("DELETE", object, Value::Null),
        1 => ("POST", path.to_owned(), make(name)),
        _ => ("PATCH", object, json!({"metadata": {"annotations": {"n": n.to_string()}}})),
    };
    // A server that crashed in this process cannot close a connection.
    let patience = if expect == Expect::Anything { Duration::from_secs(2) } else { PATIENCE };
    match (tokio::time::timeout(patience, ask(client, method, &path, body)).await, expect) {
        (Ok((200..=202 | 404 | 409, _)), _) => Ok(true),
        (Ok((500.., _)) | Err(_), Expect::Anything) => {
            tokio::time::sleep(Duration::from_millis(10)).await;
            Ok(false)
        }
        (Ok((code, answer)), _) => Err(format!("{method} {path}: {code} {answer}")),
        (Err(_), _) => Err(format!("{method} {path}: no answer")),
    }
}

async fn an_upgrade_moves_with_the_last_vote_and_fails_no_write(ground: Ground) {
    let history = ground.history().await;
    let mut ships = Vec::new();
    for name in ["a", "b", "c"] {
        ships.push(ground.launch(name, 34).await);
    }
    let load = Load::start(CLASSES, class, 3);
    load.only(&ships.iter().collect::<Vec<_>>());
    load.wrote(20).await;
    assert_eq!(ships[0].common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    let epoch = ships[0].storage_version(CLASSES_RECORD).await["epoch"].clone();
    for (n, name) in ["a", "b", "c"].into_iter().enumerate() {
        let old = ships.remove(0);
        load.only(&ships.iter().collect::<Vec<_>>());
        // Requests on their way are finished.
        old.server.stop().await;
        ships.push(ground.launch(name, 36).await);
        load.only(&ships.iter().collect::<Vec<_>>());
        load.wrote(20).await;
        let seen = ships[0].storage_version(CLASSES_RECORD).await;
        let expected = if n < 2 { OLD } else { NEW };
        assert_eq!(seen["commonEncodingVersion"], expected, "after {name}: {seen}");
        // From old to new without a moment in between, and not before.
        assert_eq!(seen["epoch"] == epoch, n < 2, "after {name}: {seen}");
    }
    load.wrote(20).await;
    let n_written = load.end().await;
    let judged = history.judge(&[]).await;
    assert!(judged.n_judged > 100 && n_written > 100, "{judged:?} {n_written}");
    // Discovery follows what is written.
    let documents = ships[0].get("/apis/resource.k8s.io/v1").await;
    let classes = documents["resources"].as_array().unwrap().iter().find(|it| it["name"] == "deviceclasses");
    let hash = classes.unwrap()["storageVersionHash"].as_str().unwrap().to_owned();
    let old = ground.launch("d", 34).await;
    let documents = old.get("/apis/resource.k8s.io/v1").await;
    let classes = documents["resources"].as_array().unwrap().iter().find(|it| it["name"] == "deviceclasses");
    assert_eq!(classes.unwrap()["storageVersionHash"], hash.as_str());
}

async fn a_rollback_in_the_middle_changes_nothing(ground: Ground) {
    let history = ground.history().await;
    let mut ships =
        vec![ground.launch("a", 34).await, ground.launch("b", 34).await, ground.launch("c", 34).await];
    ships[0].expect(201, "POST", CLASSES, class("x")).await;
    let epoch = ships[0].storage_version(CLASSES_RECORD).await["epoch"].clone();
    for (name, minor) in [("a", 36), ("b", 36), ("b", 34), ("a", 34)] {
        let place = if name == "a" { 0 } else { 1 };
        ships.remove(place).server.stop().await;
        ships.insert(place, ground.launch(name, minor).await);
        let seen = ships[place].storage_version(CLASSES_RECORD).await;
        assert_eq!((&seen["commonEncodingVersion"], &seen["epoch"]), (&json!(OLD), &epoch), "{name} {minor}");
        ships[place]
            .expect(
                200,
                "PATCH",
                &format!("{CLASSES}/x"),
                json!({"metadata": {"labels": {"n": minor.to_string()}}}),
            )
            .await;
        assert_eq!(ground.stored_version("/registry/deviceclasses/x").await.as_deref(), Some(OLD));
    }
    history.judge(&[]).await;
}

async fn the_last_old_server_may_stop_and_come_back_unchanged(ground: Ground) {
    let flags = ["--departure-settle-time=20s"];
    let new = ground.launch_with("new", 34, &flags).await;
    let old = ground.launch_with("old", 34, &flags).await;
    new.server.stop().await;
    let new = ground.launch_with("new", 36, &flags).await;
    old.server.stop().await;
    eventually("its entry is gone", async || {
        new.storage_version(CLASSES_RECORD).await["storageVersions"].as_array().unwrap().len() == 1
    })
    .await;
    // Nothing moves while it may come back.
    assert_eq!(new.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    let old = ground.launch_with("old", 34, &flags).await;
    assert_eq!(new.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    old.server.stop().await;
    // It comes back with the new vote: that moves at once.
    let old = ground.launch_with("old", 36, &flags).await;
    eventually("all vote for the new one", async || old.common(CLASSES_RECORD).await.as_deref() == Some(NEW))
        .await;
    drop(new);
}

async fn when_all_were_down_the_newest_waits_for_the_others(ground: Ground) {
    let flags = ["--departure-settle-time=3s"];
    let (a, b) = (ground.launch_with("a", 34, &flags).await, ground.launch_with("b", 34, &flags).await);
    a.server.stop().await;
    b.server.crash();
    let newest = ground.launch_with("a", 36, &flags).await;
    assert_eq!(newest.common(CLASSES_RECORD).await.as_deref(), Some(OLD));
    newest.expect(201, "POST", CLASSES, class("x")).await;
    assert_eq!(ground.stored_version("/registry/deviceclasses/x").await.as_deref(), Some(OLD));
    // After the settle time nobody waits any longer.
    eventually("it moves on", async || newest.common(CLASSES_RECORD).await.as_deref() == Some(NEW)).await;
}
