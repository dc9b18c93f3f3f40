//! `convoy up` and `convoy rollout`: several servers in one process, rolled while they serve.

mod faults;
mod rolls;

use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config, api::PostParams, config::KubeConfigOptions, config::Kubeconfig};
use serde_json::{Value, json};
use testkit::etcd::{self, Etcd};

use crate::{
    fixture::BINARY,
    keys::{both, is_valid_for, made, replace, until},
};

/// A `convoy up` that is ready, and the first line of what it said; killed when it is dropped.
struct Up(Child, String);

/// A port for the address, with some after it for the servers: other tests run beside this one.
fn port() -> u16 {
    testkit::free_port_with(3).unwrap()
}

impl Up {
    fn start(data: &Path, port: u16, args: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["up", "--data-dir"]).arg(data).args(["--secure-port", &port.to_string()]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary must start");
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = said.find(|it| it.starts_with("Convoy is ready"));
        Self(child, ready.expect("it must not end before it is ready"))
    }

    fn stop(mut self) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = (self.0.kill(), self.0.wait());
    }
}

fn rollout(data: &Path, to: &str) -> Output {
    let mut command = Command::new(BINARY);
    command.args(["rollout", "--to", to, "--data-dir"]).arg(data).output().unwrap()
}

/// Exit code, and all that was said.
fn said(output: &Output) -> (Option<i32>, String) {
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

/// Who may do what with a file.
fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn client(data: &Path, context: &str) -> Client {
    Client::try_from(config(data, context).await).unwrap()
}

async fn config(data: &Path, context: &str) -> Config {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(data.join("admin.kubeconfig")).unwrap();
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    Config::from_custom_kubeconfig(file, &options).await.unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

#[tokio::test]
async fn servers_are_rolled_forth_and_back_and_keep_what_they_had() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, port(), &["--emulated-version", "1.34"]);
    let through = client(&data, "convoy").await;
    for at in 0..3 {
        let server = client(&data, &format!("convoy-{at}")).await;
        assert_eq!(get(&server, "/version").await["minor"], "34", "server {at}");
    }
    let maps: Api<ConfigMap> = Api::namespaced(through.clone(), "default");
    let mut map = ConfigMap::default();
    map.metadata.name = Some("kept".to_owned());
    maps.create(&PostParams::default(), &map).await.unwrap();
    let class = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": "true"}}]},
    });
    let request = http::Request::post("/apis/resource.k8s.io/v1/deviceclasses")
        .header("content-type", "application/json")
        .body(class.to_string().into_bytes())
        .unwrap();
    through.request::<Value>(request).await.unwrap();

    // Everything that is needed was read at the start.
    std::fs::rename(data.join("admin.kubeconfig"), data.join("kept")).unwrap();
    for (to, minor) in [("1.36", "36"), ("1.34", "34")] {
        let (code, page) = said(&rollout(&data, to));
        assert_eq!(code, Some(0), "{page}");
        for text in [
            "convoy-0: ",
            "convoy-2 is ready as ",
            "held back: deviceclasses.resource.k8s.io",
            "(waiting for the votes of convoy-2)",
            "migration of deviceclasses.resource.k8s.io: Succeeded",
            " requests proxied; probe: ",
            "all resources are agreed on and migrated",
        ] {
            assert!(page.contains(text), "{text:?} in {page}");
        }
        let last = page.lines().last().unwrap();
        assert!(last.starts_with("rolled to ") && last.ends_with(" 0 errors"), "{page}");
        let (code, page) = said(&rollout(&data, to));
        assert!(code == Some(0) && page.contains(&format!("convoy-1 is at {to} already")), "{page}");
        assert_eq!(get(&through, "/version").await["minor"], minor);
    }
    up.stop();

    // It is what it was rolled to, though nobody says so.
    let up = Up::start(&data, port(), &["--servers", "1"]);
    let server = client(&data, "convoy-0").await;
    assert_eq!(get(&server, "/version").await["minor"], "34");
    let maps: Api<ConfigMap> = Api::namespaced(server, "default");
    assert!(maps.get_opt("kept").await.unwrap().is_some());
    up.stop();
    let up = Up::start(&data, port(), &["--servers", "1", "--emulated-version", "1.35"]);
    assert_eq!(get(&client(&data, "convoy-0").await, "/version").await["minor"], "35");
    up.stop();
}

/// Everything below a folder, names alone.
fn below(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names = Vec::new();
    for entry in entries.flatten() {
        names.push(entry.file_name().to_string_lossy().into_owned());
        names.extend(below(&entry.path()));
    }
    names
}

/// Keys of an administrator stayed in temporary directories for whoever came later.
#[test]
fn a_control_plane_that_is_killed_leaves_no_keys_behind() {
    let (temporary, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let start = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        command
            .args(["up", "--servers", "1", "--secure-port", &port().to_string(), "--data-dir"])
            .arg(data.path())
            .args(args);
        let mut child = command
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary must start");
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let ready = said.find(|it| it.starts_with("Convoy is ready")).expect("it must become ready");
        Up(child, ready)
    };
    let has_keys =
        || below(temporary.path()).iter().any(|it| it.ends_with(".key") || it.contains("kubeconfig"));
    let up = start(&[]);
    assert!(!has_keys(), "what stays is in the data directory: {:?}", below(temporary.path()));
    drop(up);
    let up = start(&["--ephemeral"]);
    assert!(has_keys(), "this one keeps them where it can");
    drop(up);
    // Another process removes them; there is nothing but its end to wait for.
    while has_keys() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn without_a_control_plane_nothing_is_rolled() {
    let folder = tempfile::tempdir().unwrap();
    let said = rollout(folder.path(), "1.36");
    assert_eq!(said.status.code(), Some(1));
    let why = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(why.contains("no `convoy up` answers at "), "{why}");
    assert_eq!(rollout(folder.path(), "1.99").status.code(), Some(2));
}

/// Two servers, on purpose: what the store can do is there whoever is asked.
#[tokio::test]
async fn a_control_plane_is_copied_while_it_runs_and_is_private() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // As somebody may have made it.
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let up = Up::start(&data, port(), &["--servers", "2"]);
    assert!(up.1.contains(&format!("it keeps everything in {}.", data.display())), "{}", up.1);
    assert_eq!((mode(&data), mode(&data.join("up.sock"))), (0o700, 0o600));
    let copy = folder.path().join("copy");
    let mut save = Command::new(BINARY);
    save.args(["snapshot", "save"]).arg(&copy).arg("--data-dir").arg(&data);
    let (code, page) = said(&save.output().unwrap());
    assert_eq!(code, Some(0), "{page}");
    let again = folder.path().join("again");
    let mut restore = Command::new(BINARY);
    restore.args(["snapshot", "restore"]).arg(&copy).arg("--data-dir").arg(&again);
    let (code, page) = said(&restore.output().unwrap());
    assert_eq!(code, Some(0), "{page}");
    up.stop();
}

#[tokio::test]
async fn what_is_ephemeral_can_be_rolled_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (unused, kubeconfig) = (folder.path().join("unused"), folder.path().join("admin.kubeconfig"));
    let mut command = Command::new(BINARY);
    let port = format!("--secure-port={}", port());
    command.env("TMPDIR", folder.path()).args(["up", "--ephemeral", "--servers=2", &port]);
    command.arg("--data-dir").arg(&unused).arg("--write-kubeconfig").arg(&kubeconfig);
    let mut up = Up(command.stdout(Stdio::piped()).spawn().unwrap(), String::new());
    let lines = BufReader::new(up.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let page: Vec<String> = lines.take_while(|it| !it.starts_with("Ctrl-C")).collect();
    assert!(page[0].ends_with("; it keeps everything in memory."), "{page:?}");
    let data = page.iter().find_map(|it| Some(it.split_once("--data-dir ")?.1)).expect("it says how to roll");
    let data = Path::new(data).to_owned();
    assert!(data.starts_with(folder.path()) && mode(&data) == 0o700);
    let through = client(folder.path(), "convoy").await;
    let maps: Api<ConfigMap> = Api::namespaced(through.clone(), "default");
    let map = ConfigMap {
        metadata: kube::core::ObjectMeta { name: Some("kept".to_owned()), ..Default::default() },
        ..Default::default()
    };
    maps.create(&PostParams::default(), &map).await.unwrap();
    let (code, said) = said(&rollout(&data, "1.35"));
    assert_eq!(code, Some(0), "{said}");
    assert!(maps.get_opt("kept").await.unwrap().is_some(), "as long as it runs");
    up.stop();
    assert!(!data.exists() && !unused.exists());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(left, ["admin.kubeconfig"]);
}

#[test]
fn what_is_ephemeral_is_not_in_etcd() {
    let mut command = Command::new(BINARY);
    command.args(["up", "--ephemeral", "--etcd-servers=http://127.0.0.1:1"]);
    assert_eq!(command.output().unwrap().status.code(), Some(2));
}

/// What is in etcd is not locked by its store; keys, kubeconfig and socket are in the directory all the same.
#[tokio::test]
async fn two_control_planes_do_not_share_a_directory() {
    if etcd::is_missing() {
        return;
    }
    let etcd = Etcd::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, 0, &["--servers=1", "--etcd-servers", &etcd.url()]);
    let before = std::fs::read(data.join("admin.kubeconfig")).unwrap();
    let mut second = Command::new("timeout");
    second.args([
        "60",
        BINARY,
        "up",
        "--secure-port=0",
        "--etcd-prefix=/other",
        "--etcd-servers",
        &etcd.url(),
    ]);
    let (code, why) = said(&second.arg("--data-dir").arg(&data).output().unwrap());
    assert_eq!(code, Some(1), "{why}");
    let named = format!("another `convoy up` runs in {}; stop it, or", data.display());
    assert!(why.contains(&named), "{why}");
    assert_eq!(std::fs::read(data.join("admin.kubeconfig")).unwrap(), before);
    up.stop();
    Up::start(&data, 0, &["--servers=1", "--etcd-servers", &etcd.url()]).stop();
}

/// As `--data-dir /tmp` would be.
#[test]
fn a_directory_that_others_use_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("theirs"), "").unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        let up = Up::start(&data, 0, &["--servers=1"]);
        assert_eq!(mode(&data), 0o755);
        for ours in ["pki", "up.sock", "up.lock", "store.redb", "admin.kubeconfig"] {
            assert_eq!(mode(&data.join(ours)) & 0o077, 0, "{ours}");
        }
        up.stop();
    }
}

/// Its kubeconfig was written at the start alone: with other certificates nobody could use it any more.
#[tokio::test]
async fn names_for_its_certificate_and_authorities_that_are_replaced_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, pki) = (folder.path(), folder.path().join("pki"));
    let port = port();
    let up = Up::start(data, port, &["--servers", "1", "--tls-san", "lb.example"]);
    let address = ([127, 0, 0, 1], port).into();
    assert!(is_valid_for(address, &pki.join("ca.crt"), "lb.example").await);

    let (new, _) = made();
    replace(&pki.join("ca.crt"), both(&pki.join("ca.crt"), &new.path().join("ca.crt")));
    let written = || std::fs::read_to_string(data.join("admin.kubeconfig")).unwrap();
    let before = written();
    until("both authorities in the kubeconfig", async || Ok(written() != before)).await.unwrap();
    let between = written();
    replace(&pki.join("ca.key"), std::fs::read(new.path().join("ca.key")).unwrap());
    until("a certificate of the new authority", async || {
        Ok(is_valid_for(address, &new.path().join("ca.crt"), "lb.example").await)
    })
    .await
    .unwrap();
    until("the new certificate in the kubeconfig", async || Ok(written() != between)).await.unwrap();
    replace(&pki.join("ca.crt"), std::fs::read(new.path().join("ca.crt")).unwrap());
    let between = written();
    until("the new authority alone", async || Ok(written() != between)).await.unwrap();
    get(&client(data, "convoy").await, "/api/v1/namespaces").await;
    get(&client(data, "convoy-0").await, "/api/v1/namespaces").await;
    up.stop();
}
