//! The command line as a contract: help, exit codes, and one clear sentence for what cannot work.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::Result;
use testkit::Options;

use crate::fixture::{self, BINARY};

fn convoy(args: &[&str]) -> Output {
    Command::new(BINARY).args(args).output().expect("the binary must start")
}

fn complaint(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("panicked"), "{said}");
    said
}

#[test]
fn help_explains_every_flag() {
    let output = convoy(&["serve", "--help"]);
    assert!(output.status.success());
    let help = String::from_utf8_lossy(&output.stdout);
    for flag in [
        "--data-dir",
        "--etcd-servers",
        "--etcd-prefix",
        "--etcd-cafile",
        "--etcd-certfile",
        "--etcd-keyfile",
        "--bind-address",
        "--secure-port",
        "--cert-dir",
        "--write-kubeconfig",
        "--hostname-override",
        "--emulated-version",
        "--runtime-config",
        "--token-auth-file",
        "--authorization-mode",
        "--audit-log-path",
        "--audit-policy-file",
        "--max-requests-inflight",
        "--max-mutating-requests-inflight",
        "--allow-unenforced-policies",
    ] {
        assert!(help.contains(flag), "{flag} in {help}");
    }
}

#[test]
fn the_page_of_flags_is_what_the_binary_says() {
    let page = include_str!("../../../../docs/flags.md");
    let mut commands = vec![Vec::new()];
    let mut n_sections = 0;
    while let Some(command) = commands.pop() {
        let mut asked = Command::new(BINARY);
        let output = asked.args(&command).arg("--help").env_remove("COLUMNS").output().unwrap();
        let help: String = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(|it| format!("{}\n", it.trim_end()))
            .collect();
        let section = format!(
            "\n## {}\n\n```text\n{help}```\n",
            [&["convoy".to_owned()], &command[..]].concat().join(" ")
        );
        assert!(page.contains(&section), "docs/flags.md is out of date: run `cargo xtask flags`\n{section}");
        n_sections += 1;
        let listed = help.lines().skip_while(|it| *it != "Commands:").skip(1).take_while(|it| !it.is_empty());
        for line in listed.filter(|it| it.starts_with("  ") && !it.starts_with("   ")) {
            let name = line.split_whitespace().next().unwrap().to_owned();
            commands.push([&command[..], &[name]].concat());
        }
    }
    assert!(n_sections > 12, "{n_sections}");
    assert_eq!(page.matches("\n## ").count(), n_sections, "docs/flags.md has commands that are no more");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["serve", "--no-such-flag"][..],
        &["no-such-command"],
        &["serve", "--secure-port", "many"],
        &["serve", "--emulated-version", "1.2"],
        &["serve", "--data-dir", "a", "--etcd-servers", "http://127.0.0.1:1"],
        &["serve", "--authorization-mode", "Nonsense"],
    ] {
        let output = convoy(args);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(!said.trim().is_empty(), "{args:?} must be explained");
    }
}

#[test]
fn what_cannot_work_is_exit_code_1_and_a_sentence() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "not a directory").unwrap();
    let file = file.to_str().unwrap();
    let certs = home.path().join("certs");
    let certs = certs.to_str().unwrap();
    let data = home.path().join("data");
    let data = data.to_str().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, names) in [
        (vec!["--data-dir", file, "--cert-dir", certs, "--secure-port", "0"], file),
        (vec!["--data-dir", data, "--cert-dir", file, "--secure-port", "0"], file),
        (
            vec![
                "--data-dir",
                data,
                "--cert-dir",
                certs,
                "--bind-address",
                "127.0.0.1",
                "--secure-port",
                &port,
            ],
            &port,
        ),
        (
            vec![
                "--data-dir",
                data,
                "--cert-dir",
                certs,
                "--secure-port",
                "0",
                "--token-auth-file",
                "/no/such/file",
            ],
            "/no/such/file",
        ),
        (
            vec![
                "--data-dir",
                data,
                "--secure-port",
                "0",
                "--tls-cert-file",
                file,
                "--tls-private-key-file",
                file,
                "--cert-dir",
                certs,
            ],
            file,
        ),
    ] {
        let args: Vec<&str> = std::iter::once("serve").chain(args).collect();
        let output = convoy(&args);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains(names), "{args:?} must name {names}: {said}");
    }
}

#[tokio::test]
async fn a_second_server_on_the_same_directory_is_refused() -> Result<()> {
    let first = fixture::embedded().await;
    let (data, certs) = (first.data_dir(), first.cert_dir());
    let (data, certs) = (data.to_str().unwrap(), certs.to_str().unwrap());
    let second = convoy(&["serve", "--data-dir", data, "--cert-dir", certs, "--secure-port", "0"]);
    let said = complaint(&second);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(data), "{said}");
    first.admin().get("/readyz").await?;
    Ok(())
}

#[tokio::test]
async fn a_server_ends_with_exit_code_0_when_asked_to() -> Result<()> {
    let mut convoy = testkit::Convoy::start(Options::embedded(BINARY)).await?;
    let status = convoy.term(Duration::from_secs(30)).await?;
    assert_eq!(status.code(), Some(0), "{}", convoy.log_tail());
    convoy.start_again().await
}

/// What is stored is counted by a running server and in a store at rest, and both say what may be dropped; `migrate` does
/// what stands in the way of it.
#[tokio::test]
async fn a_census_tells_which_versions_can_be_dropped_and_migrate_sees_to_it() -> Result<()> {
    let by_hand = Options::embedded(BINARY).flag("--controllers=*,-storage-version-trigger");
    let mut server = testkit::Convoy::start(by_hand).await?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let admin = server.admin();
    let made = admin.post(definitions, &widgets("v1alpha1")).await?.expect(201)?;
    let path = format!("{definitions}/widgets.example.com");
    let widget = |name: &str| serde_json::json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}});
    let objects = "/apis/example.com/v1/namespaces/default/widgets";
    while admin.post(objects, &widget("w0")).await?.expect(201).is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    admin.post(objects, &widget("w1")).await?.expect(201)?;
    let mut flipped = admin.get(&path).await?.expect(200)?;
    flipped["spec"]["versions"] = widgets("v1")["spec"]["versions"].clone();
    assert_ne!(flipped["spec"]["versions"], made["spec"]["versions"]);
    admin.put(&path, &flipped).await?.expect(200)?;
    admin.post(objects, &widget("w2")).await?.expect(201)?;

    let kubeconfig = server.kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap().to_owned();
    let running = ["--kubeconfig", kubeconfig.as_str()];
    check_census(&running, "2 of 3 objects, not safe to drop", Some(3));
    check_migrate(&running, &["widgets.example.com", "--dry-run"], "2 objects would be", 0);
    check_census(&running, "2 of 3 objects, not safe to drop", Some(3));
    check_migrate(&running, &["--pause", "widgets.example.com"], "", 1);
    check_migrate(
        &running,
        &["--all"],
        "v1alpha1 left status.storedVersions (evidence: StoreScan of 3 objects)",
        0,
    );
    check_migrate(&running, &["--all"], "there is nothing to migrate", 0);
    check_migrate(&running, &["ships.example.com", "--no-wait"], "ships.example.com: migration ", 0);
    check_migrate(&running, &["--cancel", "ships.example.com"], "is cancelled", 0);
    let said = convoy(&[&["check", "--drop", "v1alpha1.widgets.example.com"], &running[..]].concat());
    assert_eq!(said.status.code(), Some(0), "{}", complaint(&said));
    let data = server.data_dir();
    server.term(Duration::from_secs(30)).await?;
    let stored = ["--data-dir", data.to_str().unwrap()];
    let said = convoy(&[&["check", "--drop", "v1alpha1.widgets.example.com"], &stored[..]].concat());
    assert_eq!(said.status.code(), Some(0), "{}", complaint(&said));
    let said = convoy(&[&["check", "--to", "1.33"], &stored[..]].concat());
    assert_eq!(said.status.code(), Some(0), "{}", complaint(&said));
    let said = convoy(&[&["check", "--drop", "v1.ships.example.com"], &stored[..]].concat());
    assert_eq!(said.status.code(), Some(4), "{}", complaint(&said));
    Ok(())
}

fn check_migrate(cluster: &[&str], args: &[&str], expected: &str, code: i32) {
    let said = convoy(&[&["migrate"], args, cluster].concat());
    let page = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.status.code(), Some(code), "{args:?}: {page} {}", complaint(&said));
    assert!(page.contains(expected), "{args:?}: {page}");
}

fn check_census(cluster: &[&str], verdict: &str, code: Option<i32>) {
    let verdict = format!("v1alpha1 of widgets.example.com: {verdict}");
    let said = convoy(&[&["census", "widgets.example.com"], cluster].concat());
    let page = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(page.contains(&verdict), "{page} {}", complaint(&said));
    let checked =
        convoy(&[&["check", "--drop", "v1alpha1.widgets.example.com", "-o", "json"], cluster].concat());
    assert_eq!(checked.status.code(), code, "{}", complaint(&checked));
    let document: serde_json::Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(document["safe"], code == Some(0));
    assert_eq!(document["reasons"][0], verdict);
}

fn widgets(storage: &str) -> serde_json::Value {
    let version = |name: &str| {
        serde_json::json!({"name": name, "served": true, "storage": name == storage,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    serde_json::json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [version("v1alpha1"), version("v1")]}})
}
