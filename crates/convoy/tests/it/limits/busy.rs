//! Much to compress, to convert and to judge: others are answered meanwhile.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use testkit::convoy::USER_TOKEN;
use testkit::frames::{Frame, Frames};
use testkit::{Convoy, tools};
use tokio::time::Instant;

use crate::fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

const SMALL: &str = "/api/v1/namespaces/kube-public/configmaps";

/// How long a health check may take at most, on a busy machine.
const SOON: Duration = Duration::from_secs(2);

/// A server with a collection that takes a while to compress and to render.
async fn served() -> Result<Convoy> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"}, "subjects": [{"kind": "User", "name": "user"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &role).await?.expect(201)?;
    for number in 0..40 {
        let map = fixture::config_map(&format!("large-{number}"), &"x".repeat(900_000), "red");
        admin.post(MAPS, &map).await?.expect(201)?;
    }
    for number in 0..400 {
        let mut map = fixture::config_map(&format!("small-{number}"), "x", "red");
        map["metadata"]["namespace"] = "kube-public".into();
        admin.post(SMALL, &map).await?.expect(201)?;
    }
    Ok(convoy)
}

/// Asks for so many answers, all of which may be sent at once.
async fn ask(convoy: &Convoy, headers: &[(&str, &str)], path: &str, n_requests: usize) -> Result<Frames> {
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 100_000_000).await?;
    frames.widen(0, 1_000_000_000).await?;
    headers.iter().for_each(|(name, value)| frames.always(name, value));
    for _ in 0..n_requests {
        frames.request("GET", path, USER_TOKEN, "", b"").await?;
    }
    Ok(frames)
}

/// Compressed lists, tables, YAML and long selectors were worked on by the threads that serve connections: a few dozen
/// of them, and nobody was answered for as long as they took.
#[tokio::test(flavor = "multi_thread")]
async fn lists_and_watches_leave_time_for_health_checks() -> Result<()> {
    let mut convoy = served().await?;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    // As many terms as fit into a frame of HTTP/2.
    let terms: Vec<String> = (0..2_300).map(|it| format!("!k{it}")).collect();
    let selected = format!("{SMALL}?watch=true&labelSelector={}", terms.join(","));
    let mut open = Vec::new();
    for (headers, path, n_requests) in [
        (&[("accept-encoding", "gzip")][..], MAPS, 50),
        (&[("accept", table), ("accept-encoding", "gzip")][..], MAPS, 46),
        (&[("accept", "application/yaml")][..], MAPS, 4),
        (&[("accept", table)][..], &format!("{MAPS}?watch=true"), 20),
        (&[][..], &selected, 150),
    ] {
        open.push(ask(&convoy, headers, path, n_requests).await?);
    }
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_secs(6) {
        let asked = Instant::now();
        assert_eq!(convoy.client(None).get("/livez").await?.text(), "ok");
        longest = longest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tools::report(&format!("the longest health check took {} ms", longest.as_millis()));
    assert!(longest < SOON, "a health check took {longest:?}");
    assert!(convoy.exited()?.is_none(), "{}", convoy.log_tail());
    assert!(!convoy.log().contains("no longer a member"), "{}", convoy.log_tail());
    drop(open);
    Ok(())
}

/// Every list of an old revision is read from the store anew, and every table and YAML made as a whole: one user could
/// have a hundred of them in memory, each of any size.
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_made_as_a_whole_take_bounded_memory() -> Result<()> {
    let convoy = served().await?;
    let listed = convoy.admin().get(&format!("{MAPS}?limit=1")).await?.expect(200)?;
    let revision = listed["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let old = format!("{MAPS}?resourceVersion={revision}&resourceVersionMatch=Exact");
    let before = convoy.resident_kib()?;
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 1).await?;
    for _ in 0..N_OLD {
        frames.request("GET", &old, USER_TOKEN, "", b"").await?;
    }
    let (mut n_answered, mut most) = (0, 0);
    while n_answered < N_OLD {
        let frame = frames.next(Duration::from_secs(60)).await.context("every list must be answered")?;
        n_answered += usize::from(matches!(frame, Frame::Headers { .. }));
        most = most.max(convoy.resident_kib()?);
    }
    // One is 36 MB.
    assert!(most < before + 512 * 1024, "from {before} to {most} KiB");
    tools::report(&format!("{N_OLD} lists took {} MiB", most.saturating_sub(before) / 1024));
    Ok(())
}

/// As many as keep the machine whole if all are in memory at once.
const N_OLD: usize = 40;
