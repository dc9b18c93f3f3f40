//! Copies of a cluster, backups and their restores: a copy is another cluster, a backup of nothing is no backup, and
//! nothing is made where somebody only wants to look.

use std::{
    path::Path,
    process::{Command, Output},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::{Value, json};
use testkit::{
    Answer, Client, Convoy, Options,
    etcd::{self, Etcd},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::fixture::{self, BINARY, config_map};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

fn convoy(args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    // Nobody's kubeconfig must be found by accident.
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    command.args(args).output().expect("the binary must start")
}

/// The exit code, and everything that was said.
fn said(output: &Output) -> (i32, String) {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout) + &text(&output.stderr))
}

fn run(args: &[&str]) -> Result<String> {
    let (code, page) = said(&convoy(args));
    ensure!(code == 0, "{args:?}: {page}");
    Ok(page)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a temporary directory must have a plain name")
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}})
}

/// Makes what `copy` keeps from a snapshot, and starts it on that.
async fn restore(copy: &mut Convoy, snapshot: &Path) -> Result<String> {
    copy.kill9()?;
    let data = copy.data_dir();
    std::fs::remove_dir_all(&data)?;
    let page = run(&["snapshot", "restore", text(snapshot), "--data-dir", text(&data)])?;
    copy.start_again().await?;
    Ok(page)
}

/// A request as a server hands it on: with the certificate that all servers of a cluster show each other.
async fn hand_on(to: &Convoy, headers: &[(&str, &str)], path: &str, object: &Value) -> Result<Answer> {
    let read = |name: &str| std::fs::read(to.cert_dir().join(name));
    let (certificate, key) = (read("front-proxy-client.crt")?, read("front-proxy-client.key")?);
    let client = Client::with_certificate(to.base(), to.ca(), &certificate, &key)?;
    let mut request = client.request(http::Method::POST, path).header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    for (name, value) in [
        ("x-kubernetes-peer-proxied", "true"),
        ("x-remote-user", "system:apiserver"),
        ("x-remote-group", "system:masters"),
    ] {
        request = request.header(name, value);
    }
    client.exchange(request.body(object.to_string().into())?).await
}

/// A backup is restored beside the cluster that it is of, with the same certificates, as for a rehearsal. Whatever is done
/// to the copy stays there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_copy_writes_nothing_into_the_cluster_it_was_made_from() -> Result<()> {
    let certs = tempfile::tempdir()?;
    let options = |name: &str| {
        Options::embedded(BINARY).certs(certs.path()).flag(&format!("--hostname-override={name}"))
    };
    let production = Convoy::start(options("a")).await?;
    production.admin().post(MAPS, &config_map("before", "1", "red")).await?.expect(201)?;
    let snapshot = production.home().join("snapshot");
    let kubeconfig = production.kubeconfig();
    let page = run(&["snapshot", "save", text(&snapshot), "--kubeconfig", text(&kubeconfig)])?;
    ensure!(page.starts_with("Saved "), "{page}");
    // It lacks what production has, so that it would hand such requests on to whom it takes for a member.
    let mut copy = Convoy::start(options("b").flag("--runtime-config=batch/v1=false")).await?;
    restore(&mut copy, &snapshot).await?;
    copy.admin().get(&format!("{MAPS}/before")).await?.expect(200)?;
    for n in 0..5 {
        let answer = copy.admin().post(JOBS, &job(&format!("rehearsed-{n}"))).await?;
        ensure!(answer.status == 404, "{} {}", answer.status, answer.text());
    }
    let jobs = production.admin().get(JOBS).await?.expect(200)?;
    ensure!(jobs["items"].as_array().is_some_and(Vec::is_empty), "{jobs}");
    let members = |it: &Value| it["members"].as_array().map_or(0, Vec::len);
    let status = copy.admin().get("/convoy/status").await?.expect(200)?;
    ensure!(members(&status) == 1, "{status}");
    Ok(())
}

/// Whoever shows the right certificate but is no member of this cluster, such as a copy that was made in another way, is
/// refused before anything is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_no_member_handed_on_are_not_carried_out() -> Result<()> {
    let mut servers = vec![(None, fixture::embedded().await)];
    servers.extend(fixture::on_etcd().await.map(|(etcd, convoy)| (Some(etcd), convoy)));
    for (_etcd, server) in &servers {
        let status = server.admin().get("/convoy/status").await?.expect(200)?;
        let member = &status["members"][0];
        let identity = member["identity"].as_str().context("an identity")?;
        let incarnation = member["incarnation"].as_str().context("an incarnation")?;
        let cluster = status["cluster"]["id"].as_str().unwrap_or_default();
        let by = ("x-convoy-forwarded-by", identity);
        let this = ("x-convoy-incarnation", incarnation);
        for (n, (headers, code)) in [
            (vec![by, this, ("x-convoy-cluster", "another")], 403),
            (vec![by, ("x-convoy-incarnation", "another"), ("x-convoy-cluster", cluster)], 503),
            (vec![("x-convoy-forwarded-by", "nobody"), this, ("x-convoy-cluster", cluster)], 503),
            // As 0.1.0 says it, whose servers say less. This member is none of those.
            (vec![by], 503),
            (vec![], 503),
        ]
        .into_iter()
        .enumerate()
        {
            let map = config_map(&format!("stray-{n}"), "1", "red");
            let answer = hand_on(server, &headers, MAPS, &map).await?;
            ensure!(answer.status == code, "{headers:?}: {} {}", answer.status, answer.text());
        }
        let right = [by, this, ("x-convoy-cluster", cluster)];
        hand_on(server, &right, MAPS, &config_map("right", "1", "red")).await?.expect(201)?;
        let maps = server.admin().get(MAPS).await?.expect(200)?;
        let names: Vec<&str> = maps["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["metadata"]["name"].as_str())
            .collect();
        ensure!(!names.iter().any(|it| it.starts_with("stray")) && names.contains(&"right"), "{names:?}");
        let metrics = server.admin().get("/metrics").await?.text();
        for line in [
            "convoy_peer_requests_refused_total{reason=\"other_cluster\"} 1",
            "convoy_peer_requests_refused_total{reason=\"unknown_member\"} 4",
        ] {
            ensure!(metrics.contains(line), "{line} in {metrics}");
        }
    }
    Ok(())
}

/// A client that followed the first copy asks the second where it left off. It must be told to begin anew: what it missed
/// cannot be told from what it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_does_not_go_on_at_a_second_restore() -> Result<()> {
    let mut server = fixture::embedded().await;
    let snapshot = server.home().join("snapshot");
    server.term(Duration::from_secs(30)).await?;
    run(&["snapshot", "save", text(&snapshot), "--data-dir", text(&server.data_dir())])?;
    server.start_again().await?;
    let first = restore(&mut server, &snapshot).await?;
    let mut seen = 0;
    for n in 0..8 {
        let map = config_map(&format!("only-in-the-first-{n}"), "1", "red");
        seen = fixture::revision(&server.admin().post(MAPS, &map).await?.expect(201)?);
    }
    let second = restore(&mut server, &snapshot).await?;
    ensure!(first != second, "{first}");
    for n in 0..8 {
        let map = config_map(&format!("only-in-the-second-{n}"), "1", "red");
        let made = server.admin().post(MAPS, &map).await?.expect(201)?;
        ensure!(fixture::revision(&made) > seen, "{made}");
        ensure!(fixture::revision(&made) < 1 << 53, "too great for JavaScript: {made}");
    }
    let path = format!("{MAPS}?watch=true&resourceVersion={seen}");
    let status = match server.admin().watch(&path).await? {
        Err(answer) => answer.json()?,
        Ok(mut lines) => {
            let line = lines.next().await?.context("a first event")?;
            serde_json::from_slice::<Value>(&line)?["object"].take()
        }
    };
    ensure!(status["code"] == 410 && status["reason"] == "Expired", "{status}");
    Ok(())
}

/// A disk that is not mounted leaves an empty directory.
#[test]
fn commands_that_only_look_make_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let (empty, absent) = (folder.path().join("empty"), folder.path().join("absent"));
    let (file, other) = (folder.path().join("backup"), folder.path().join("backup.new"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "the good one").unwrap();
    for data in [&empty, &absent] {
        for (code, command) in [
            (1, &["snapshot", "save", text(&file)][..]),
            (1, &["snapshot", "save", text(&other)]),
            (4, &["check", "--to", "1.36"]),
            (4, &["check", "--drop", "v1alpha1.widgets.example.com"]),
            (4, &["census"]),
            (1, &["status"]),
            (1, &["agreement"]),
            (1, &["agreement", "--set-guarantee", "loose"]),
            (1, &["hold", "deployments.apps"]),
        ] {
            let (found, page) = said(&convoy(&[command, &["--data-dir", text(data)]].concat()));
            assert_eq!(found, code, "{command:?}: {page}");
            let expected = format!("there is no store in {}", data.display());
            assert!(page.contains(&expected) && page.contains("--data-dir"), "{command:?}: {page}");
        }
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the good one");
    assert_eq!(names_in(&empty), Vec::<String>::new());
    assert_eq!(names_in(folder.path()), ["backup", "empty"]);
}

/// The same on etcd, where every prefix is there and most are empty.
#[tokio::test]
async fn a_prefix_that_nobody_uses_is_no_store() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    let etcd = Etcd::start().await?;
    let place = ["--etcd-servers", &etcd.url(), "--etcd-prefix", "/mistyped"];
    for (code, command) in
        [(4, &["check", "--to", "1.36"][..]), (4, &["census"]), (1, &["status"]), (1, &["agreement"])]
    {
        let (found, page) = said(&convoy(&[command, &place].concat()));
        ensure!(found == code, "{command:?}: {page}");
        ensure!(page.contains("nothing is stored in etcd under the prefix /mistyped"), "{page}");
    }
    Ok(())
}

/// A kubeconfig beside the data leads to a server, but not away from what is wrong with the data.
#[tokio::test]
async fn a_damaged_store_is_reported() -> Result<()> {
    let mut server = fixture::embedded().await;
    let (data, file) = (server.data_dir(), server.home().join("snapshot"));
    std::fs::copy(server.kubeconfig(), data.join("admin.kubeconfig"))?;
    // While the server runs, the kubeconfig is the way to it.
    run(&["status", "--data-dir", text(&data)])?;
    server.term(Duration::from_secs(30)).await?;
    let store = data.join("store.redb");
    let length = std::fs::metadata(&store)?.len();
    std::fs::OpenOptions::new().write(true).open(&store)?.set_len(length / 2)?;
    for (code, command) in [
        (4, &["check", "--to", "1.36"][..]),
        (4, &["census"]),
        (1, &["status"]),
        (1, &["agreement"]),
        (1, &["snapshot", "save", text(&file)]),
    ] {
        let (found, page) = said(&convoy(&[command, &["--data-dir", text(&data)]].concat()));
        ensure!(found == code, "{command:?}: {page}");
        ensure!(page.contains("is damaged") && page.contains("store.redb"), "{command:?}: {page}");
    }
    ensure!(!file.exists());
    Ok(())
}

/// What a crashed server left in the store keeps nobody from changing it: whoever has the directory knows that it is dead.
#[tokio::test]
async fn the_modes_can_be_changed_after_a_crash() -> Result<()> {
    let mut server = fixture::embedded().await;
    let data = server.data_dir();
    server.kill9()?;
    let page = run(&["agreement", "--set-guarantee", "loose", "--data-dir", text(&data)])?;
    ensure!(page.contains("guarantee: loose"), "{page}");
    server.start_again().await?;
    server.admin().post(MAPS, &config_map("after", "1", "red")).await?.expect(201)?;
    Ok(())
}

/// What a server sends is checked before the old file is replaced by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_not_whole_replaces_nothing() -> Result<()> {
    let server = fixture::embedded().await;
    let (file, kubeconfig) = (server.home().join("backup"), server.kubeconfig());
    let save = ["snapshot", "save", text(&file), "--kubeconfig", text(&kubeconfig)];
    run(&save)?;
    let good = std::fs::read(&file)?;
    // Something in the place of the server that sends less than it should, and ends it properly.
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    for body in [good[..good.len() - 20].to_vec(), damaged, Vec::new()] {
        let port = send_to_everybody(&server.cert_dir(), body).await?;
        let lies = std::fs::read_to_string(&kubeconfig)?
            .replace(&format!(":{}", server.port()), &format!(":{port}"));
        let elsewhere = server.home().join("elsewhere.kubeconfig");
        std::fs::write(&elsewhere, lies)?;
        let command = ["snapshot", "save", text(&file), "--kubeconfig", text(&elsewhere)];
        let command = command.map(str::to_owned);
        let asked = tokio::task::spawn_blocking(move || convoy(&command.each_ref().map(String::as_str)));
        let (code, page) = said(&asked.await?);
        ensure!(code == 1 && page.contains("is not a complete snapshot"), "{page}");
        ensure!(std::fs::read(&file)? == good, "the good file must stay");
        ensure!(!server.home().join("backup.part").exists());
    }
    Ok(())
}

/// Answers every request with the same bytes, with a server's certificate; says where.
async fn send_to_everybody(certs: &Path, body: Vec<u8>) -> Result<u16> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let chain = CertificateDer::pem_file_iter(certs.join("apiserver.crt"))?.collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_file(certs.join("apiserver.key"))?;
    let acceptor = TlsAcceptor::from(Arc::new(config.with_no_client_auth().with_single_cert(chain, key)?));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let Ok(byte) = stream.read_u8().await else { break };
                head.push(byte);
            }
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(&[answer.as_bytes(), &body].concat()).await;
            let _ = stream.shutdown().await;
        }
    });
    Ok(port)
}

/// A second process of the same name, but with other certificates, cannot ask the first one who it is. That must not end
/// the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_twin_with_other_certificates_does_not_end_the_first_server() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    let etcd = Etcd::start().await?;
    let named = |prefix: &str| Options::etcd(BINARY, &etcd.url(), prefix).flag("--hostname-override=a");
    let mut first = Convoy::start(named("/registry")).await?;
    // Makes certificates of its own elsewhere.
    let mut twin = Convoy::start(named("/elsewhere")).await?;
    twin.kill9()?;
    *twin.options_mut() = named("/registry");
    twin.spawn()?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !twin.log().contains("it is not known to be gone") {
        ensure!(first.exited()?.is_none(), "the twin ended it: {}", first.log_tail());
        ensure!(tokio::time::Instant::now() < deadline, "{}", twin.log_tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for n in 0..3 {
        first.admin().post(MAPS, &config_map(&format!("after-{n}"), "1", "red")).await?.expect(201)?;
    }
    ensure!(first.exited()?.is_none(), "{}", first.log_tail());
    // Once the first is gone, the other takes its place.
    first.kill9()?;
    twin.wait_ready().await?;
    twin.admin().get(&format!("{MAPS}/after-0")).await?.expect(200)?;
    Ok(())
}

/// One cluster inside another: the outer one would take the inner one's keys for objects of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_inside_another_is_refused_whichever_comes_second() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    for (first, second) in [("/a", "/a/b"), ("/a/b", "/a"), ("/a", "/a/b/c"), ("/a/b/c", "/a")] {
        let etcd = Etcd::start().await?;
        let mut kept = Convoy::start(Options::etcd(BINARY, &etcd.url(), first)).await?;
        let refused = Convoy::start(Options::etcd(BINARY, &etcd.url(), second)).await;
        let why = refused.err().map(|it| format!("{it:#}")).unwrap_or_default();
        let expected = format!("the etcd prefixes {second} and {first} lie inside each other");
        ensure!(why.contains(&expected), "{first} {second}: {why}");
        kept.kill9()?;
        kept.start_again().await?;
        Convoy::start(Options::etcd(BINARY, &etcd.url(), "/ab")).await?;
    }
    Ok(())
}

/// The environment may name another cluster, whose copy would replace the backup that is wanted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_not_saved_from_whatever_cluster_the_environment_names() -> Result<()> {
    let production = Convoy::start(Options::embedded(BINARY)).await?;
    let other = Convoy::start(Options::embedded(BINARY)).await?;
    let file = production.home().join("backup");
    std::fs::write(&file, "the last good one")?;
    let data = production.data_dir();
    ensure!(!data.join("admin.kubeconfig").exists(), "this is about a directory without one");
    let mut command = Command::new(BINARY);
    command.env("KUBECONFIG", other.kubeconfig()).env("HOME", "/nonexistent");
    command.args(["snapshot", "save", text(&file), "--data-dir", text(&data)]);
    let (code, page) = said(&command.output()?);
    ensure!(code == 1 && page.contains("ask the server that runs there, with --kubeconfig"), "{code} {page}");
    ensure!(std::fs::read_to_string(&file)? == "the last good one", "it was replaced");
    Ok(())
}
