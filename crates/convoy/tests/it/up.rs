//! `convoy up` and `convoy rollout`: several servers in one process, rolled while they serve.

mod rolls;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Config, api::PostParams, config::KubeConfigOptions, config::Kubeconfig};
use serde_json::{Value, json};

use crate::fixture::BINARY;

/// A `convoy up` that is ready; killed when it is dropped.
struct Up(Child);

impl Up {
    fn start(data: &Path, port: u16, args: &[&str]) -> Self {
        let mut command = Command::new(BINARY);
        command.args(["up", "--data-dir"]).arg(data).args(["--secure-port", &port.to_string()]).args(args);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary must start");
        let said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.map_while(Result::ok).find(|it| it.starts_with("Convoy is ready"));
        assert!(ready.is_some(), "it ended before it was ready");
        Self(child)
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

async fn client(data: &Path, context: &str) -> Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let file = Kubeconfig::read_from(data.join("admin.kubeconfig")).unwrap();
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    Client::try_from(Config::from_custom_kubeconfig(file, &options).await.unwrap()).unwrap()
}

async fn get(client: &Client, path: &str) -> Value {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request(request).await.unwrap()
}

#[tokio::test]
async fn servers_are_rolled_forth_and_back_and_keep_what_they_had() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let up = Up::start(&data, 28_443, &["--emulated-version", "1.34"]);
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

    for (to, minor) in [("1.36", "36"), ("1.35", "35")] {
        let said = rollout(&data, to);
        let page = String::from_utf8_lossy(&said.stdout).into_owned();
        assert_eq!(said.status.code(), Some(0), "{page} {}", String::from_utf8_lossy(&said.stderr));
        for text in
            ["convoy-0: ", "convoy-2 is ready as ", "all resources are agreed on and migrated", " 0 errors"]
        {
            assert!(page.contains(text), "{text:?} in {page}");
        }
        let through = client(&data, "convoy").await;
        assert_eq!(get(&through, "/version").await["minor"], minor);
    }
    up.stop();

    let up = Up::start(&data, 28_443, &["--emulated-version", "1.35", "--servers", "1"]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&data, "convoy-0").await, "default");
    assert!(maps.get_opt("kept").await.unwrap().is_some());
    up.stop();
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
