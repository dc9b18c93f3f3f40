//! Running it: health, metrics, draining, what is there after the first start.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use testkit::{Convoy, Options, StoreChoice};

use crate::fixture::{self, BINARY, config_map};

#[tokio::test]
async fn health_and_version_are_open_and_the_rest_is_not() -> Result<()> {
    let convoy = fixture::embedded().await;
    let nobody = convoy.client(None);
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(nobody.get(path).await?.status, 200, "{path}");
    }
    assert_eq!(convoy.admin().get("/readyz/ping").await?.status, 200);
    let verbose = nobody.get("/readyz?verbose").await?.text();
    assert!(verbose.contains("[+]ping ok") && verbose.contains("readyz check passed"), "{verbose}");
    for path in ["/api", "/apis", "/metrics", "/api/v1/namespaces", "/api/v1/secrets"] {
        let answer = nobody.get(path).await?;
        assert_eq!(answer.status, 403, "{path}: {}", answer.text());
    }
    let stranger = convoy.client(Some("no-such-token"));
    assert_eq!(stranger.get("/api/v1/namespaces").await?.status, 401);
    let user = convoy.client(Some(testkit::convoy::USER_TOKEN));
    assert_eq!(user.get("/api").await?.status, 200);
    let refused = user.get("/api/v1/namespaces/default/secrets").await?.expect(403)?;
    let expected = "secrets is forbidden: User \"user\" cannot list resource \"secrets\" in API group \"\" in the namespace \"default\"";
    assert_eq!(refused["message"], expected);
    Ok(())
}

#[tokio::test]
async fn system_namespaces_and_service_accounts_are_there() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let namespace = admin.get(&format!("/api/v1/namespaces/{name}")).await?.expect(200)?;
        assert_eq!(namespace["status"]["phase"], "Active", "{namespace}");
    }
    fixture::namespace(&convoy, "fresh").await?;
    for name in ["default", "kube-system", "fresh"] {
        let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while admin.get(&path).await?.status != 200 {
            assert!(tokio::time::Instant::now() < deadline, "{path} must appear\n{}", convoy.log_tail());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let role =
        admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin").await?.expect(200)?;
    assert_eq!(role["rules"][0]["verbs"], json!(["*"]));
    Ok(())
}

#[tokio::test]
async fn metrics_have_upstream_names() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    admin.get("/api/v1/namespaces").await?.expect(200)?;
    let metrics = admin.get("/metrics").await?.text();
    for name in [
        "apiserver_request_total{",
        "apiserver_request_duration_seconds_bucket{",
        "apiserver_current_inflight_requests{",
        "kubernetes_healthcheck{",
    ] {
        assert!(metrics.contains(name), "{name} in\n{metrics}");
    }
    Ok(())
}

#[tokio::test]
async fn every_answer_has_an_audit_id() -> Result<()> {
    let convoy = fixture::embedded().await;
    for path in ["/version", "/api/v1/namespaces", "/nothing/here"] {
        assert!(convoy.admin().get(path).await?.headers.contains_key("audit-id"), "{path}");
    }
    Ok(())
}

/// SIGTERM: readiness goes, a watch ends cleanly, the store is closed, and everything is there again.
#[tokio::test]
async fn draining_ends_watches_cleanly_and_loses_nothing() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let admin = convoy.admin();
    let objects = "/api/v1/namespaces/default/configmaps";
    let created = admin.post(objects, &config_map("kept", "1", "red")).await?.expect(201)?;
    let watch = admin.watch(&format!("{objects}?watch=true&labelSelector=group%3Dred")).await?;
    let Ok(mut lines) = watch else { panic!("the watch must start") };
    assert!(lines.next().await?.is_some(), "the object must be shown");
    let follow = tokio::spawn(async move {
        while lines.next().await?.is_some() {}
        anyhow::Ok(())
    });
    let status = convoy.term(Duration::from_secs(60)).await?;
    assert_eq!(status.code(), Some(0), "{}", convoy.log_tail());
    follow.await?.expect("a drained watch must end, not break off");
    convoy.start_again().await?;
    let kept = convoy.admin().get(&format!("{objects}/kept")).await?.expect(200)?;
    assert_eq!(kept["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
    Ok(())
}

/// Snapshot, go on, restore: the old content is back, and revisions still only grow.
#[tokio::test]
async fn a_snapshot_can_be_restored() -> Result<()> {
    let mut convoy = fixture::embedded().await;
    let objects = "/api/v1/namespaces/default/configmaps";
    convoy.admin().post(objects, &config_map("before", "1", "red")).await?.expect(201)?;
    let file = convoy.home().join("snapshot");
    let file = file.to_str().unwrap();
    let data = convoy.data_dir();
    let data = data.to_str().unwrap();
    convoy.term(Duration::from_secs(30)).await?;
    let run = |args: &[&str]| {
        let output = std::process::Command::new(BINARY).args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&["snapshot", "save", file, "--data-dir", data]);
    convoy.start_again().await?;
    let after = convoy.admin().post(objects, &config_map("after", "1", "red")).await?.expect(201)?;
    convoy.term(Duration::from_secs(30)).await?;
    std::fs::remove_dir_all(data)?;
    run(&["snapshot", "restore", file, "--data-dir", data]);
    convoy.start_again().await?;
    let admin = convoy.admin();
    admin.get(&format!("{objects}/before")).await?.expect(200)?;
    admin.get(&format!("{objects}/after")).await?.expect(404)?;
    let later = admin.post(objects, &config_map("later", "1", "red")).await?.expect(201)?;
    assert!(fixture::revision(&later) > fixture::revision(&after), "a restore must raise the revision");
    Ok(())
}

/// Two servers on one etcd: what one writes, the other shows, at once and in its watches.
#[tokio::test]
async fn two_servers_share_one_etcd() -> Result<()> {
    let Some((_etcd, first)) = fixture::on_etcd().await else { return Ok(()) };
    let mut options = Options::embedded(BINARY).flag("--hostname-override=second");
    options.store = StoreChoice::Etcd { endpoint: _etcd.url(), prefix: "/registry".to_owned() };
    let second = Convoy::start(options).await?;
    let objects = "/api/v1/namespaces/default/configmaps";
    let watch = second.admin().watch(&format!("{objects}?watch=true&labelSelector=group%3Dshared")).await?;
    let Ok(mut lines) = watch else { panic!("the watch must start") };
    for number in 0..20 {
        let name = format!("shared-{number}");
        first.admin().post(objects, &config_map(&name, "1", "shared")).await?.expect(201)?;
        second.admin().get(&format!("{objects}/{name}")).await?.expect(200)?;
        let list =
            second.admin().get(&format!("{objects}?labelSelector=group%3Dshared")).await?.expect(200)?;
        assert_eq!(list["items"].as_array().map(Vec::len), Some(number + 1));
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next()).await??.expect("an event");
        assert!(String::from_utf8_lossy(&line).contains(&name));
    }
    Ok(())
}
