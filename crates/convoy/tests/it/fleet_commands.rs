//! `convoy hold`, `convoy status --watch` and `convoy agreement` as people call them, on both stores.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Output, Stdio},
    sync::mpsc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::Convoy;

use crate::fixture::{self, BINARY};

const CLASSES: &str = "deviceclasses.resource.k8s.io";

/// What a command said, and its exit code.
fn convoy(args: &[&str]) -> Result<(i32, String)> {
    let Output { status, stdout, stderr } = Command::new(BINARY).args(args).output()?;
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    Ok((status.code().context("it was killed")?, said))
}

fn expect(code: i32, text: &str, args: &[&str]) -> Result<()> {
    let (found, said) = convoy(args)?;
    ensure!(found == code && said.contains(text), "{args:?}: {found} {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleet_is_steered_by_commands_on_the_embedded_store() -> Result<()> {
    let server = fixture::embedded().await;
    let folder = server.data_dir().display().to_string();
    steer(server, ["--data-dir", &folder], 1, "is in use by another process").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fleet_is_steered_by_commands_on_etcd() -> Result<()> {
    let Some((etcd, server)) = fixture::on_etcd().await else { return Ok(()) };
    steer(server, ["--etcd-servers", &etcd.url()], 3, "is still a member: stop all servers first").await
}

async fn steer(mut server: Convoy, store: [&str; 2], locked: i32, why: &str) -> Result<()> {
    let kubeconfig = server.kubeconfig().display().to_string();
    let cluster = ["--kubeconfig", &kubeconfig];
    let with = |args: &[&str], more: [&str; 2]| -> Vec<String> {
        args.iter().chain(&more).map(|it| (*it).to_owned()).collect()
    };
    let run = |code: i32, text: &str, args: Vec<String>| {
        expect(code, text, &args.iter().map(String::as_str).collect::<Vec<_>>())
    };

    // A hold is set, shown to whoever watches, and lifted.
    let mut watch = Watch::start(&kubeconfig)?;
    ensure!(watch.next()?.hold.is_empty(), "nothing is held yet");
    run(0, "is held at resource.k8s.io/v1\n", with(&["hold", CLASSES, "--reason", "not today"], cluster))?;
    ensure!(watch.next()?.hold.contains("not today"), "the hold is shown with its reason");
    run(
        0,
        "is no longer held; it is stored as resource.k8s.io/v1\n",
        with(&["hold", CLASSES, "--release"], cluster),
    )?;
    ensure!(watch.next()?.hold.is_empty(), "it is lifted");
    watch.end()?;
    run(1, "not found", with(&["hold", "nothings.example.com"], cluster))?;

    // The modes are shown by a running server and changed only without one.
    run(0, "Agreement: vote; guarantee: strict\n", with(&["agreement"], cluster))?;
    run(1, "stop all servers", with(&["agreement", "--set-agreement", "report"], cluster))?;
    run(locked, why, with(&["agreement", "--set-agreement", "report"], store))?;
    ensure!(server.term(Duration::from_secs(30)).await?.success(), "it stops");
    let change = ["agreement", "--set-agreement", "report", "--set-guarantee", "loose"];
    run(0, "Agreement: report; guarantee: loose\n", with(&change, store))?;
    run(0, "Agreement: report; guarantee: loose\n", with(&["agreement"], store))?;

    // A server that is told nothing follows.
    server.start_again().await?;
    let shown = convoy(&["agreement", "-o", "json", "--kubeconfig", &kubeconfig])?.1;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["agreement"] == "report" && shown["guarantee"] == "loose", "{shown}");
    run(1, "the servers agree by reports", with(&["hold", CLASSES], cluster))
}

/// `convoy status --watch -o json`, document by document.
struct Watch {
    child: std::process::Child,
    views: mpsc::Receiver<Value>,
}

/// What a document says of device classes.
struct Shown {
    hold: String,
}

impl Watch {
    fn start(kubeconfig: &str) -> Result<Self> {
        let mut child = Command::new(BINARY)
            .args(["status", "--watch", "-o", "json", "--kubeconfig", kubeconfig])
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = BufReader::new(child.stdout.take().context("it is piped")?);
        let (sender, views) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            for line in stdout.lines().map_while(Result::ok) {
                text.push_str(&line);
                // The last line of a document is the only one that is not indented.
                if line == "}" {
                    let view = serde_json::from_str(&std::mem::take(&mut text));
                    let _ = sender.send(view.unwrap_or(Value::Null));
                }
            }
        });
        Ok(Self { child, views })
    }

    /// The next document, which comes only when something has changed.
    fn next(&mut self) -> Result<Shown> {
        let view = self.views.recv_timeout(Duration::from_secs(30)).context("nothing is shown")?;
        ensure!(view["members"].as_array().is_some_and(|it| it.len() == 1), "{view}");
        let resources = view["resources"].as_array().context("resources")?;
        let classes = resources.iter().find(|it| it["resource"] == CLASSES).context("device classes")?;
        Ok(Shown { hold: classes["hold"].as_str().unwrap_or_default().to_owned() })
    }

    /// Ctrl-C ends it as if it had looked once.
    fn end(mut self) -> Result<()> {
        let pid = self.child.id();
        Command::new("sh").arg("-c").arg(format!("kill -INT {pid}")).status()?;
        let ended = self.child.wait()?;
        ensure!(ended.code() == Some(0), "{ended}");
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
