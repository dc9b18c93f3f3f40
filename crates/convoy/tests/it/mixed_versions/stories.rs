//! Requests that another process must answer (scenarios PP), and one discovery for all (AD).

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use testkit::{Convoy, Serving, tunnel::Tunnel};
use tokio::time::Instant;

use super::fleet::{
    ALL_JOBS, Fleet, JOBS, WITHOUT_BATCH, eventually, get, groups, is_missed, job, metric, n_members,
};

const REROUTED: &str = "apiserver_rerouted_request_total";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Longer than any answer about a server that hangs may take, on a busy machine.
const SOON: Duration = Duration::from_secs(8);

async fn n_jobs(convoy: &Convoy) -> Result<usize> {
    let list = get(convoy, ALL_JOBS).await?;
    Ok(list["items"].as_array().map_or(0, Vec::len))
}

/// PP-1 and PP-14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_answers_and_is_missed_when_it_dies_but_not_denied() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let (mut a, b) = fleet.two().await?;
    a.admin().post(JOBS, &job("one")).await?.expect(201)?;
    ensure!(n_jobs(&b).await? == 1);
    b.admin().post(JOBS, &job("two")).await?.expect(201)?;
    ensure!(n_jobs(&a).await? == 2);
    let labels = ["code=\"200\"", "group=\"batch\"", "version=\"v1\"", "resource=\"jobs\""];
    ensure!(metric(&b, REROUTED, &labels).await? >= 1.0);
    ensure!(metric(&a, REROUTED, &[]).await? == 0.0);
    a.kill9()?;
    let mut n_missed = 0;
    loop {
        let was_member = n_members(&b).await? == 2;
        let answer = b.admin().get(ALL_JOBS).await?;
        if answer.status == 404 {
            ensure!(!was_member || n_members(&b).await? == 1, "denied while it was a member");
            break;
        }
        is_missed(&answer)?;
        n_missed += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(n_missed > 0, "it was never missed");
    ensure!(metric(&b, REROUTED, &["code=\"503\""]).await? >= 1.0);
    a.start_again().await?;
    // Whoever has just joined is known at once.
    ensure!(n_jobs(&b).await? == 2);
    Ok(())
}

/// PP-2 and PP-15: reads do not fail, and writes neither, for nothing was sent to the dead one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_third_process_answers_when_the_second_dies_or_hangs() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let (mut a, b) = fleet.two().await?;
    let c = fleet.start("c", &[]).await?;
    a.admin().post(JOBS, &job("one")).await?.expect(201)?;
    for _ in 0..4 {
        ensure!(n_jobs(&b).await? == 1);
    }
    let answered = async |it: &Convoy| metric(it, "apiserver_request_total", &["resource=\"jobs\""]).await;
    ensure!(answered(&a).await? >= 2.0 && answered(&c).await? >= 2.0, "chosen evenly");
    a.kill9()?;
    for n in 0..10 {
        ensure!(n_jobs(&b).await? == 1 + n);
        b.admin().post(JOBS, &job(&format!("after-{n}"))).await?.expect(201)?;
    }
    a.start_again().await?;
    for _ in 0..4 {
        ensure!(n_jobs(&b).await? == 11);
    }
    // One that hangs is not dead: its connections are open and nothing answers.
    a.pause()?;
    let paused = Instant::now();
    while paused.elapsed() < Duration::from_secs(3) {
        let asked = Instant::now();
        ensure!(n_jobs(&b).await? == 11);
        ensure!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    }
    a.resume()?;
    Ok(())
}

/// SIGSTOP of the only one that has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_one_that_has_it_hangs_and_is_missed_soon() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let long = "--member-lease-duration=10s";
    let start = async |name: &str, flags: &[&str]| {
        Convoy::start(fleet.options(name, flags).flag(long).flag("--controllers=storage-version-gc")).await
    };
    let (a, b) = (start("a", &[]).await?, start("b", &[WITHOUT_BATCH]).await?);
    ensure!(n_jobs(&b).await? == 0);
    a.pause()?;
    let paused = Instant::now();
    let mut n_missed = 0;
    while paused.elapsed() < Duration::from_secs(7) {
        let asked = Instant::now();
        let answer = b.admin().get(ALL_JOBS).await?;
        is_missed(&answer)?;
        n_missed += 1;
        ensure!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        ensure!(n_members(&b).await? == 2, "or this proves nothing");
    }
    a.resume()?;
    eventually("it answers again", async || Ok(b.admin().get(ALL_JOBS).await?.status == 200)).await?;
    ensure!(n_missed > 1);
    Ok(())
}

/// PP-3, over both kinds of transport.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_to_other_processes_leads_through_the_egress_proxy() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("egress.sock");
    let over_socket = Tunnel::unix(&socket)?;
    let (over_port, port) = Tunnel::tcp().await?;
    let a = fleet.start("a", &[]).await?;
    a.admin().post(JOBS, &job("one")).await?.expect(201)?;
    let transports = [
        ("b", format!("uds: {{udsName: {}}}", socket.display()), over_socket),
        ("c", format!("tcp: {{url: 'http://127.0.0.1:{port}'}}"), over_port),
    ];
    for (name, transport, tunnel) in transports {
        let file = folder.path().join(format!("{name}.yaml"));
        std::fs::write(
            &file,
            format!(
                "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n\
                 - name: controlplane\n  connection: {{proxyProtocol: HTTPConnect, transport: {{{transport}}}}}\n"
            ),
        )?;
        let egress = format!("--egress-selector-config-file={}", file.display());
        let server = fleet.start(name, &[WITHOUT_BATCH, &egress]).await?;
        let before = tunnel.n_opened();
        ensure!(n_jobs(&server).await? == 1);
        ensure!(tunnel.n_opened() > before, "{name}: the proxy was not used");
        // There is no other way.
        drop(tunnel);
        eventually("without the proxy the other server is missed", async || {
            let answer = server.admin().get(ALL_JOBS).await?;
            Ok(answer.status != 200 && is_missed(&answer).map(|()| true)?)
        })
        .await?;
    }
    Ok(())
}

/// With certificates of one's own, and nothing that says how the others prove themselves, there is no way to them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_certificates_without_a_peer_ca_cannot_reach_the_others() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let a = fleet.start("a", &[]).await?;
    a.admin().post(JOBS, &job("one")).await?.expect(201)?;
    let own = || Serving {
        certificate: fleet.cert("apiserver.crt"),
        key: fleet.cert("apiserver.key"),
        ca: fleet.cert("ca.crt"),
    };
    let start = async |name: &str, flags: &[&str]| {
        let options = fleet.options(name, flags).flag(WITHOUT_BATCH).serving(own());
        Convoy::start(options.flag("--controllers=storage-version-gc")).await
    };
    let without = start("b", &[]).await?;
    for _ in 0..3 {
        is_missed(&without.admin().get(ALL_JOBS).await?)?;
    }
    // What it has itself it answers.
    get(&without, "/api/v1/configmaps").await?;
    let with = start("c", &[&format!("--peer-ca-file={}", fleet.cert("ca.crt").display())]).await?;
    ensure!(n_jobs(&with).await? == 1);
    Ok(())
}

/// AD-1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_discovery_for_all_processes() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let a = fleet.start("a", &["--runtime-config=apps/v1=false"]).await?;
    let b = fleet.start("b", &[WITHOUT_BATCH]).await?;
    for server in [&a, &b] {
        eventually("both see both", async || {
            let all = groups(server, "").await?;
            Ok(["apps", "batch"].iter().all(|it| all.iter().any(|group| group == it)))
        })
        .await?;
    }
    let (at_a, at_b) = (groups(&a, ";profile=nopeer").await?, groups(&b, ";profile=nopeer").await?);
    let has = |list: &[String], group: &str| list.iter().any(|it| it == group);
    ensure!(!has(&at_a, "apps") && has(&at_a, "batch"), "{at_a:?}");
    ensure!(has(&at_b, "apps") && !has(&at_b, "batch"), "{at_b:?}");
    ensure!(groups(&a, "").await? == groups(&b, "").await?);
    let selector = "labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver";
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?{selector}");
    // A server publishes its Lease a moment after it is ready.
    eventually("both have a Lease", async || {
        Ok(get(&a, &path).await?["items"].as_array().is_some_and(|it| it.len() == 2))
    })
    .await
}

fn definition(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{plural}.example.com")},
        "spec": {"group": format!("{plural}.example.com"), "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

/// AD-2; and a definition that was made through another process, and a process that has joined, are known at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_and_a_process_are_known_at_once() -> Result<()> {
    let Some(fleet) = Fleet::new().await? else { return Ok(()) };
    let (mut a, b) = fleet.two().await?;
    let c = fleet.start("c", &[WITHOUT_BATCH]).await?;
    for round in 0..3 {
        let (plural, kind) = (format!("foos{round}"), format!("Foo{round}"));
        let (group, name) = (format!("{plural}.example.com"), format!("{plural}.{plural}.example.com"));
        let path = format!("{DEFINITIONS}/{name}");
        let objects = format!("/apis/{group}/v1/{plural}");
        a.admin().post(DEFINITIONS, &definition(&plural, &kind)).await?.expect(201)?;
        let is_established = |crd: &Value| {
            let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
        };
        let (at_b, at_c) = (b.admin(), c.admin());
        // Connections exist, so that nothing but the request itself takes time.
        for client in [&at_b, &at_c] {
            client.get("/version").await?.expect(200)?;
        }
        while !is_established(&get(&a, &path).await?) {}
        at_b.get(&objects).await?.expect(200)?;
        at_c.get(&objects).await?.expect(200)?;
        for server in [&a, &b, &c] {
            eventually("all show the group", async || Ok(groups(server, "").await?.contains(&group))).await?;
        }
        ensure!(a.admin().delete(&path).await?.status == 200);
        for server in [&a, &b, &c] {
            for profile in ["", ";profile=nopeer"] {
                eventually("nobody shows the group", async || {
                    Ok(!groups(server, profile).await?.contains(&group))
                })
                .await?;
            }
        }
        ensure!(a.term(Duration::from_secs(20)).await?.success());
        ensure!(at_b.get(ALL_JOBS).await?.status == 404, "it has said good-bye");
        a.start_again().await?;
        at_b.get(ALL_JOBS).await?.expect(200)?;
        at_c.get(ALL_JOBS).await?.expect(200)?;
    }
    Ok(())
}
