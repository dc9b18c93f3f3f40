//! What becomes of `convoy up` when its store fails.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use testkit::etcd::{self, Etcd};

use super::{Up, config, port};
use crate::fixture::BINARY;

/// A client that does not try again by itself: what servers say is what is looked at.
async fn client(data: &Path, context: &str) -> Client {
    let mut config = config(data, context).await;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn map(name: &str, size: usize) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = Some([("text".to_owned(), "x".repeat(size))].into());
    map
}

/// What `/readyz` answers, with what it says of every check.
async fn health(client: &Client) -> Result<String, String> {
    let request = http::Request::get("/readyz?verbose").body(Vec::new()).unwrap();
    client.request_text(request).await.map_err(|it| it.to_string())
}

async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
    while !check().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: it did not come to that");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A store that holds less than servers have seen, as after a restore from an old backup: nothing that they remember can
/// be trusted, and only new ones help.
#[tokio::test]
async fn servers_whose_store_went_back_are_replaced() {
    if etcd::is_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut etcd = Etcd::start().await.unwrap();
    let _up = Up::start(&data, port(), &["--servers", "2", "--etcd-servers", &etcd.url()]);
    let servers = [client(&data, "convoy-0").await, client(&data, "convoy-1").await];
    let maps = |at: usize| -> Api<ConfigMap> { Api::namespaced(servers[at].clone(), "default") };
    for n in 0..50 {
        maps(n % 2).create(&PostParams::default(), &map(&format!("lost-{n}"), 10)).await.unwrap();
    }

    etcd.kill9().unwrap();
    std::fs::remove_dir_all(etcd.data_dir()).unwrap();
    etcd.restart().await.unwrap();

    for (at, server) in servers.iter().enumerate() {
        let what = format!("convoy-{at} is ready on what is there now");
        eventually(&what, async || {
            let left = maps(at).list(&ListParams::default()).await;
            let is_old =
                |it: &ConfigMap| it.metadata.name.as_deref().is_some_and(|it| it.starts_with("lost"));
            left.is_ok_and(|it| !it.items.iter().any(is_old)) && health(server).await.is_ok()
        })
        .await;
    }
    maps(0).create(&PostParams::default(), &map("new", 10)).await.unwrap();
    assert!(maps(1).get_opt("new").await.unwrap().is_some());
}

/// The disk takes no more, here because the process may not make a file larger: everything can be read and removed, and
/// writes go on when there is space.
#[tokio::test]
async fn a_full_disk_takes_removals_and_writes_go_on_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut command = Command::new("sh");
    // The signal is ignored, so that writes fail as on a full disk.
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 8192; exec \"$@\"", "sh", BINARY, "up", "--servers=2"]);
    command.arg("--secure-port=29243").arg("--data-dir").arg(&data);
    let mut up = Up(command.stdout(Stdio::piped()).spawn().unwrap(), String::new());
    let mut lines = BufReader::new(up.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|it| it.starts_with("Convoy is ready")));
    let through = client(&data, "convoy").await;
    let maps: Api<ConfigMap> = Api::namespaced(through.clone(), "default");

    let mut kept = Vec::new();
    let refused = loop {
        let name = format!("m-{}", kept.len());
        match maps.create(&PostParams::default(), &map(&name, 100_000)).await {
            Ok(_) => kept.push(name),
            Err(error) => break error.to_string(),
        }
        assert!(kept.len() < 500, "the limit has no effect");
    };
    assert!(!kept.is_empty(), "{refused}");
    assert!(refused.contains("database space exceeded"), "{refused}");
    // What was acknowledged is still there to read, through every server.
    for name in ["convoy-0", "convoy-1"] {
        let server = client(&data, name).await;
        let maps: Api<ConfigMap> = Api::namespaced(server, "default");
        for name in &kept {
            assert!(maps.get_opt(name).await.unwrap().is_some(), "{name}");
        }
    }
    let gone = kept.remove(0);
    maps.delete(&gone, &DeleteParams::default()).await.unwrap();
    assert!(maps.get_opt(&gone).await.unwrap().is_none());
    let refused = maps.create(&PostParams::default(), &map("more", 100_000)).await.unwrap_err();
    assert!(refused.to_string().contains("database space exceeded"), "{refused}");

    let pid = rustix::process::Pid::from_child(&up.0);
    let limits = rustix::process::Rlimit { current: None, maximum: None };
    rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limits).unwrap();
    eventually("writes go on", async || {
        maps.create(&PostParams::default(), &map("more", 100_000)).await.is_ok()
    })
    .await;
    for name in &kept {
        assert!(maps.get_opt(name).await.unwrap().is_some(), "{name}");
    }
}
