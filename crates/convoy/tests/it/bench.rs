//! `convoy bench` as a user runs it, in small.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::{
    Convoy, Options,
    etcd::{self, Etcd},
};

use crate::fixture::BINARY;

const SMALL: [&str; 9] = [
    "bench",
    "--duration=300ms",
    "--connections=2",
    "--objects=20",
    "--watchers=3",
    "--definitions=2",
    "--start",
    "-o",
    "json",
];

async fn bench(more: &[&str]) -> Result<Value> {
    let mut command = Command::new(BINARY);
    command.args(SMALL).args(more);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{complaint}");
    serde_json::from_slice(&output.stdout).context("not a document")
}

/// Names of what was measured, and of what was not.
fn figures(endpoint: &Value) -> (Vec<String>, Vec<String>) {
    let all = endpoint["figures"].as_array().into_iter().flatten();
    let (found, skipped): (Vec<&Value>, Vec<&Value>) = all.partition(|it| it["value"].as_f64() > Some(0.0));
    let names = |them: Vec<&Value>| {
        them.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
    };
    (names(found), names(skipped))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_are_measured_side_by_side_and_left_as_they_were() -> Result<()> {
    let other = Convoy::start(Options::embedded(BINARY)).await?;
    let kubeconfig = other.kubeconfig().display().to_string();
    let report = bench(&["--against", &kubeconfig]).await?;
    let (found, skipped) = figures(&report["endpoints"][0]);
    assert_eq!(found.len(), 13, "{found:?}");
    assert!(skipped.is_empty() && found.contains(&"GET through another server".to_owned()), "{skipped:?}");
    let (found, _) = figures(&report["endpoints"][1]);
    assert_eq!(found.len(), 10, "{found:?}");
    assert_eq!(report["comparison"].as_array().map(Vec::len), Some(10), "{:#}", report["comparison"]);

    // What was deleted may take a moment to go.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    for collection in [
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/migration.k8s.io/v1alpha1/storageversionmigrations",
        "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations",
        "/api/v1/namespaces?fieldSelector=metadata.name=convoy-bench",
    ] {
        loop {
            let left = other.admin().get(collection).await?.expect(200)?;
            if left["items"] == serde_json::json!([]) {
                break;
            }
            ensure!(tokio::time::Instant::now() < deadline, "{collection}: {left} stays");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_etcd_a_second_server_hands_requests_on() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    let etcd = Etcd::start().await?;
    let url = etcd.url();
    let report = bench(&["--etcd-servers", &url, "--only", "get,proxied"]).await?;
    let (found, skipped) = figures(&report["endpoints"][0]);
    assert_eq!(found, ["GET 1 KB", "GET through another server"], "{skipped:?}");
    Ok(())
}

/// What it would delete in the end might be somebody's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_is_there_already_is_not_touched() -> Result<()> {
    let other = Convoy::start(Options::embedded(BINARY)).await?;
    let namespace =
        serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "convoy-bench"}});
    other.admin().post("/api/v1/namespaces", &namespace).await?.expect(201)?;
    let kubeconfig = other.kubeconfig().display().to_string();
    let refused = bench(&["--against", &kubeconfig, "--only", "get"]).await.unwrap_err().to_string();
    assert!(refused.contains("already exists") && refused.contains("convoy-bench"), "{refused}");
    other.admin().get("/api/v1/namespaces/convoy-bench").await?.expect(200)?;
    Ok(())
}

/// Measures watches of a server from a process with so many open files, as `ulimit` says it.
async fn watched_with(limit: &'static str) -> Result<(Option<i32>, String)> {
    let other = Convoy::start(Options::embedded(BINARY)).await?;
    let mut command = Command::new("timeout");
    command.args(["60", "sh", "-c", &format!("ulimit {limit}; exec \"$@\""), "sh", BINARY, "bench"]);
    command.args(["--duration=300ms", "--objects=20", "--only=watch", "--watchers=200", "--kubeconfig"]);
    command.arg(other.kubeconfig());
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_cannot_all_start_end_the_measurement() -> Result<()> {
    let (code, said) = watched_with("-n 150").await?;
    assert!(code == Some(1) && said.contains("open files"), "{code:?}: {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_files_are_opened_as_there_may_be() -> Result<()> {
    let (code, said) = watched_with("-S -n 150").await?;
    assert_eq!(code, Some(0), "{said}");
    Ok(())
}

/// 127.1 is this machine, and in nobody's certificate.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_have_another_name_than_its_address() -> Result<()> {
    let other = Convoy::start(Options::embedded(BINARY)).await?;
    let text = std::fs::read_to_string(other.kubeconfig())?;
    let text =
        text.replace("server: https://127.0.0.1:", "tls-server-name: localhost\n    server: https://127.1:");
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, text)?;
    let report = bench(&["--only", "get", "--against", &kubeconfig.display().to_string()]).await?;
    assert_eq!(figures(&report["endpoints"][1]).0, ["GET 1 KB"], "{report:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_interrupts_it_finds_everything_as_it_was() -> Result<()> {
    let other = Convoy::start(Options::embedded(BINARY)).await?;
    let mut command = Command::new(BINARY);
    command.args(["bench", "--duration=60s", "--only=get", "--kubeconfig"]).arg(other.kubeconfig());
    let mut bench = command.stderr(Stdio::null()).spawn()?;
    let namespace = "/api/v1/namespaces/convoy-bench";
    let is_there = async || anyhow::Ok(other.admin().get(namespace).await?.status == 200);
    while !is_there().await? {
        ensure!(bench.try_wait()?.is_none(), "it ended by itself");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensure!(Command::new("kill").arg(bench.id().to_string()).status()?.success());
    let ended = tokio::task::spawn_blocking(move || bench.wait()).await??;
    assert_eq!(ended.code(), Some(1));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while is_there().await? {
        ensure!(tokio::time::Instant::now() < deadline, "the namespace stays");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_start_is_not_waited_for() -> Result<()> {
    let begin = tokio::time::Instant::now();
    let more = ["--etcd-servers=https://127.0.0.1:1", "--etcd-cafile=/nowhere/ca.crt"];
    let why = bench(&more).await.unwrap_err().to_string();
    assert!(why.contains("the server ended with") && why.contains("/nowhere/ca.crt"), "{why}");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    Ok(())
}
