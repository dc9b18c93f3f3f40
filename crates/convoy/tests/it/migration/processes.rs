//! `convoy migrate --local` and `convoy controllers` as people run them, against a server that migrates nothing by itself.

use std::{
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::tools;

use super::{
    history::History,
    widgets::{
        DEFINITION, RESOURCE, annotate, fill, flip, is_frozen, migrated, migrations_of, settled, stored,
        stored_versions, succeeded, triggered,
    },
};
use crate::{
    fixture::BINARY,
    fleet::{
        ground::{Ground, Ship, eventually},
        on_both_stores,
    },
};

on_both_stores!(
    /// T1, T3, A1, A20.
    a_person_migrates_with_one_command,
    /// T1, T9, B1, D6.
    controllers_that_are_killed_anywhere_leave_nothing_behind,
    /// A13, A17.
    a_freeze_that_a_command_left_behind_is_lifted_by_another,
    /// A1, A10, A20.
    controllers_find_every_api_server_by_themselves,
    /// A1, A20.
    controllers_may_be_told_that_less_evidence_is_enough,
    /// D6.
    of_two_controllers_one_works_and_the_other_takes_over,
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
        self.start(&format!("{line} {}", self.ship.server.url().unwrap()))
    }

    fn start(&self, line: &str) -> Running {
        let mut command = self.command(line);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

/// What a process answers to whoever looks after it.
async fn page(port: u16, path: &str) -> Option<(u16, String)> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
    tokio::spawn(connection);
    let request = http::Request::get(path).header("host", "localhost").body(String::new()).unwrap();
    let response = sender.send_request(request).await.ok()?;
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.ok()?.to_bytes();
    Some((code, String::from_utf8_lossy(&body).into_owned()))
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
    // What programs get stands alone on the standard output, progress beside it.
    let mut command = reached.command(&format!("{migrate} -o json"));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = &document["migrations"][0];
    assert_eq!((&told["resource"], &told["action"]), (&json!(RESOURCE), &json!("asked for")), "{document:#}");
    assert_eq!(told["status"]["phase"], "Succeeded", "{document:#}");
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

/// Ctrl-C of `--local`: nobody is there any more who would hear of a cancel.
async fn a_freeze_that_a_command_left_behind_is_lifted_by_another(ground: Ground) {
    let history = History::of(&ground).await;
    let reached = Reached::on(&ground).await;
    let ship = &reached.ship;
    fill(ship, 20).await;
    flip(ship, "v2").await;
    let running = reached.start("migrate widgets.example.com --local --rate 1");
    eventually("it is frozen", async || is_frozen(&ship.get(DEFINITION).await)).await;
    drop(running);
    let (code, said) = reached.run("migrate --cancel widgets.example.com").await;
    assert_eq!(code, Some(0), "{said}");
    assert!(!is_frozen(&ship.get(DEFINITION).await), "{said}");
    let all = migrations_of(ship, RESOURCE).await;
    assert_eq!(all[0]["status"]["reason"], "Cancelled", "{all:#?}");
    assert_eq!(all[0]["metadata"]["finalizers"], Value::Null, "{all:#?}");
    assert_eq!(stored_versions(ship).await, json!(["v1", "v2"]));
    // One whose migration is over, or gone.
    let left = json!({"ksvm.sigs.k8s.io/migrating": "true", "convoy.dev/migration": "migration.k8s.io/gone"});
    annotate(ship, DEFINITION, left).await;
    let (code, said) = reached.run("migrate --cancel widgets.example.com").await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("a freeze that was left behind is lifted"), "{said}");
    let (code, said) = reached.run("migrate --cancel widgets.example.com").await;
    assert_eq!(code, Some(1), "{said}");
    assert!(!history.judge().await.is_frozen);
}

const IDENTITIES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases\
    ?labelSelector=apiserver.kubernetes.io/identity=kube-apiserver";

/// As kube-apiserver says where it is, but for the address, which may not be that of a machine to itself; that it is
/// there every server says by itself.
async fn announce(ship: &Ship) {
    let url: http::Uri = ship.server.url().unwrap().parse().unwrap();
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "FQDN",
        "metadata": {"name": "kubernetes", "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "endpoints": [{"addresses": ["localhost"], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": url.port_u16().unwrap(), "protocol": "TCP"}]});
    ship.expect(201, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", slice).await;
    eventually("it has a Lease", async || {
        let leases = ship.get(IDENTITIES).await;
        leases["items"].as_array().is_some_and(|it| it.len() == 1)
    })
    .await;
}

async fn controllers_find_every_api_server_by_themselves(ground: Ground) {
    let reached = Reached::on(&ground).await;
    let ship = &reached.ship;
    fill(ship, 20).await;
    announce(ship).await;
    let port = testkit::free_port_with(0).unwrap();
    let line = format!("controllers --leader-elect=false --metrics-bind-address 127.0.0.1:{port}");
    let _running = reached.start(&line);
    settled(ship, RESOURCE, "example.com/v1").await;
    flip(ship, "v2").await;
    let done = succeeded(ship, &triggered(ship, "v2").await).await;
    assert_eq!(done["status"]["evidence"]["kind"], "SecondPassAllEndpoints", "{done:#}");
    migrated(ship, "v2").await;
    for path in ["/readyz", "/livez", "/healthz"] {
        assert_eq!(page(port, path).await, Some((200, "ok".to_owned())), "{path}");
    }
    let value = async |name: &str| {
        let (_, metrics) = page(port, "/metrics").await.unwrap();
        let name = format!(r#"storage_migrator_core_migrator_{name}{{resource="widgets.example.com""#);
        metrics.lines().find_map(|it| it.strip_prefix(&name)?.rsplit(' ').next()?.parse::<f64>().ok())
    };
    // An end is counted when it has been written.
    eventually("both ends are counted", async || value("migrations_total").await == Some(2.0)).await;
    // Nothing was to be written before the flip.
    assert_eq!(value("migrated_objects_total").await, Some(20.0));
    assert_eq!(value("remaining_objects").await, Some(0.0));
}

async fn controllers_may_be_told_that_less_evidence_is_enough(ground: Ground) {
    let reached = Reached::on(&ground).await;
    let ship = &reached.ship;
    fill(ship, 20).await;
    let line = "controllers --leader-elect=false --metrics-bind-address 127.0.0.1:0";
    let _running = reached.start(&format!("{line} --accept-evidence SecondPassOneEndpoint"));
    settled(ship, RESOURCE, "example.com/v1").await;
    flip(ship, "v2").await;
    let done = succeeded(ship, &triggered(ship, "v2").await).await;
    assert_eq!(done["status"]["evidence"]["kind"], "SecondPassOneEndpoint", "{done:#}");
    assert_eq!(done["status"]["prunedVersions"], json!(["v1"]), "{done:#}");
    migrated(ship, "v2").await;
}

async fn of_two_controllers_one_works_and_the_other_takes_over(ground: Ground) {
    const LEASE: &str =
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/convoy-storage-version-migrator";
    let reached = Reached::on(&ground).await;
    let ship = &reached.ship;
    fill(ship, 10).await;
    let line =
        format!("controllers --metrics-bind-address 127.0.0.1:0 --endpoint {}", ship.server.url().unwrap());
    let holder = async || {
        let (_, lease) = ship.ask("GET", LEASE, Value::Null).await;
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    };
    let first = reached.start(&line);
    eventually("the first holds the Lease", async || !holder().await.is_empty()).await;
    let before = holder().await;
    let _second = reached.start(&line);
    settled(ship, RESOURCE, "example.com/v1").await;
    assert_eq!(holder().await, before);
    drop(first);
    flip(ship, "v2").await;
    migrated(ship, "v2").await;
    assert_ne!(holder().await, before);
}

/// The best proof that can be had beside a cluster that is not ours: every stored value is looked at.
#[tokio::test]
async fn who_may_read_etcd_proves_by_what_is_stored() {
    let Some(ground) = Ground::etcd().await else { return };
    let reached = Reached::on(&ground).await;
    fill(&reached.ship, 20).await;
    flip(&reached.ship, "v2").await;
    let line = format!(
        "migrate {RESOURCE} --local --endpoint {} --verify-etcd-servers {}",
        reached.ship.server.url().unwrap(),
        ground.etcd_url().unwrap()
    );
    let (code, said) = reached.run(&line).await;
    assert_eq!(code, Some(0), "{said}");
    let list = reached.ship.get("/apis/migration.k8s.io/v1alpha1/storageversionmigrations").await;
    let status = &list["items"][0]["status"];
    assert_eq!(status["evidence"]["kind"], "StoreScan", "{status:#}");
    assert_eq!(status["evidence"]["objects"], 20, "{status:#}");
    assert_eq!(stored_versions(&reached.ship).await, json!(["v2"]));
    assert_eq!(stored(&ground).await, [("example.com/v2".to_owned(), 20)].into());
}
