//! Servers inside the test process.

use convoy::{Keep, Options, Release, Server};
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::wait,
};

#[path = "../../examples/controller_test.rs"]
mod controller_test;

#[tokio::test]
async fn the_example_runs() {
    controller_test::run().await.unwrap();
}

fn map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

async fn names(client: &Client) -> Vec<String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let ours = maps.list(&kube::api::ListParams::default()).await.unwrap();
    let names = ours.items.into_iter().filter_map(|it| it.metadata.name);
    names.filter(|it| it != "kube-root-ca.crt").collect()
}

#[tokio::test]
async fn several_servers_of_different_releases_run_side_by_side() {
    let options = |minor: u16| Options { release: Release::v1(minor), ..Options::default() };
    let (old, new) = (Server::start(options(33)).await.unwrap(), Server::start(options(36)).await.unwrap());
    let maps: Api<ConfigMap> = Api::default_namespaced(old.client());
    maps.create(&PostParams::default(), &map("a")).await.unwrap();
    assert_eq!((names(&old.client()).await, names(&new.client()).await), (vec!["a".to_owned()], vec![]));
    assert_eq!(old.client().apiserver_version().await.unwrap().minor, "33");
    assert_eq!(new.client().apiserver_version().await.unwrap().minor, "36");
    old.stop().await;
    new.stop().await;
}

/// Tests start many servers in one process.
#[tokio::test]
async fn a_server_that_has_stopped_leaves_nothing_running() {
    let n_tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let come_and_go = async || {
        let server = Server::start(Options::default()).await.unwrap();
        assert_eq!(names(&server.client()).await, Vec::<String>::new());
        server.stop().await;
    };
    // The first may make what all of them share.
    come_and_go().await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let before = n_tasks();
    for _ in 0..5 {
        come_and_go().await;
    }
    crate::fleet::ground::eventually("their tasks have ended", async || n_tasks() <= before).await;
}

#[tokio::test]
async fn controllers_run_and_can_be_left_out() {
    let with = Server::start(Options::default()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(with.client());
    let made = wait::await_condition(accounts, "default", |it: Option<&ServiceAccount>| it.is_some());
    made.await.unwrap();
    with.stop().await;
    let without = Server::start(Options { controllers: String::new(), ..Options::default() }).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(without.client());
    assert!(accounts.get_opt("default").await.unwrap().is_none());
}

#[tokio::test]
async fn a_directory_outlives_its_server_and_nothing_else_does() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let options = || Options {
        keep: Keep::In(data.clone()),
        listen: Some(([127, 0, 0, 1], 0).into()),
        ..Options::default()
    };
    let first = Server::start(options()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(first.client());
    maps.create(&PostParams::default(), &map("kept")).await.unwrap();
    let kubeconfig = first.kubeconfig().unwrap().to_owned();
    assert!(kubeconfig.contains(first.url().unwrap()));
    let config = kube::config::Kubeconfig::from_yaml(&kubeconfig).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(config, &kube::config::KubeConfigOptions::default()).await;
    assert_eq!(names(&Client::try_from(config.unwrap()).unwrap()).await, ["kept"]);
    first.stop().await;
    let second = Server::start(options()).await.unwrap();
    assert_eq!(names(&second.client()).await, ["kept"]);
    second.stop().await;
}

#[tokio::test]
async fn rights_are_those_of_the_user() {
    let server = Server::start(Options::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client_as("somebody", &[]));
    let refused = maps.create(&PostParams::default(), &map("a")).await.unwrap_err();
    assert!(refused.to_string().contains("\"somebody\" cannot create resource"), "{refused}");
}
