//! `convoy migrate --local` and `convoy controllers` as people run them, against a server that migrates nothing by itself.

use std::{
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use tempfile::TempDir;
use testkit::tools;

use super::{
    history::History,
    widgets::{DEFINITION, RESOURCE, fill, flip, is_frozen, migrated, settled, stored, stored_versions},
};
use crate::{
    fixture::BINARY,
    fleet::{
        ground::{Ground, Ship},
        on_both_stores,
    },
};

on_both_stores!(
    /// T1, T3, A1, A20.
    a_person_migrates_with_one_command,
    /// T1, T9, B1, D6.
    controllers_that_are_killed_anywhere_leave_nothing_behind,
);

/// A server, and how processes reach it.
struct Reached {
    ship: Ship,
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Reached {
    async fn on(ground: &Ground) -> Self {
        let ship = ground.launch_reachable("a", 36, &[]).await;
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, ship.server.kubeconfig().unwrap()).unwrap();
        Self { ship, kubeconfig, _folder: folder }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(BINARY);
        command.args(line.split_whitespace()).arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    async fn run(&self, line: &str) -> (Option<i32>, String) {
        let mut command = self.command(line);
        let output: Output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    fn controllers(&self) -> Running {
        let line = "controllers --leader-elect=false --metrics-bind-address 127.0.0.1:0 --endpoint";
        let mut command = self.command(&format!("{line} {}", self.ship.server.url().unwrap()));
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn a_person_migrates_with_one_command(ground: Ground) {
    let history = History::of(&ground).await;
    let reached = Reached::on(&ground).await;
    let ship = &reached.ship;
    fill(ship, 20).await;
    let migrate = "migrate widgets.example.com --local";
    for (storage, before) in [("v2", "v1"), ("v3", "v2"), ("v1", "v3")] {
        flip(ship, storage).await;
        let drop = format!("check --drop {before}.widgets.example.com");
        assert_eq!(reached.run(&drop).await.0, Some(3));
        // One address may hide several servers: whether that is good enough is for people to say.
        let (code, said) = reached.run(migrate).await;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("status.storedVersions stays as it is"), "{said}");
        assert_eq!(stored_versions(ship).await, json!([before, storage]));
        let (code, said) = reached.run(&format!("{migrate} --accept-evidence SecondPassOneEndpoint")).await;
        assert_eq!(code, Some(0), "{said}");
        let left =
            format!("{before} left status.storedVersions (evidence: SecondPassOneEndpoint of 20 objects)");
        assert!(said.contains(&left), "{said}");
        assert_eq!(stored_versions(ship).await, json!([storage]));
        assert!(!is_frozen(&ship.get(DEFINITION).await));
        assert_eq!(reached.run(&drop).await.0, Some(0));
    }
    let (code, said) = reached.run("migrate --all --local").await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("there is nothing to migrate"), "{said}");
    let judged = history.judge().await;
    assert!(judged.puts.values().all(|it| *it == 4), "{:?}", judged.puts);
}

async fn controllers_that_are_killed_anywhere_leave_nothing_behind(ground: Ground) {
    let (rounds, seed) = (tools::rounds(3), tools::seed());
    let mut random = StdRng::seed_from_u64(seed);
    let history = History::of(&ground).await;
    let reached = Reached::on(&ground).await;
    let ship = &reached.ship;
    fill(ship, 40).await;
    let mut running = reached.controllers();
    settled(ship, RESOURCE, "example.com/v1").await;
    for round in 0..rounds {
        let storage = ["v2", "v3", "v1"][round % 3];
        flip(ship, storage).await;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
            drop(running);
            running = reached.controllers();
        }
        migrated(ship, storage).await;
        assert_eq!(stored(&ground).await, [(format!("example.com/{storage}"), 40)].into(), "seed {seed}");
        settled(ship, RESOURCE, &format!("example.com/{storage}")).await;
    }
    assert!(!history.judge().await.is_frozen, "seed {seed}");
}
