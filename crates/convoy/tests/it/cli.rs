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
    let output = Command::new(BINARY).args(["serve", "--help"]).env_remove("COLUMNS").output().unwrap();
    let help: Vec<_> =
        String::from_utf8_lossy(&output.stdout).lines().map(|it| it.trim_end().to_owned()).collect();
    let help = help.join("\n");
    let page = include_str!("../../../../docs/flags.md");
    assert!(page.contains(&help), "docs/flags.md is out of date: run `cargo xtask flags`");
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
