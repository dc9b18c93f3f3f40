//! Answers that nobody reads: they count and are timed until their last byte, and cost nobody else anything.

use std::time::Duration;

use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use testkit::convoy::{ADMIN_TOKEN, USER_TOKEN};
use testkit::frames::{Frame, Frames};
use testkit::raw::Raw;
use testkit::{Convoy, Options, tools};

use crate::fixture;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Longer than the server waits for anything here, on the slowest machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server with few slots and a short time for answers, on which the user may read large config maps.
async fn served() -> Result<Convoy> {
    let options =
        Options::embedded(fixture::BINARY).flag("--request-timeout=3s").flag("--max-requests-inflight=16");
    let convoy = Convoy::start(options).await?;
    let admin = convoy.admin();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "reader"}, "subjects": [{"kind": "User", "name": "user"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}});
    admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &role).await?.expect(201)?;
    for number in 0..12 {
        let map = fixture::config_map(&format!("large-{number}"), &"x".repeat(900_000), "red");
        admin.post(MAPS, &map).await?.expect(201)?;
    }
    Ok(convoy)
}

/// How many reads are worked on, the question itself among them.
async fn in_flight(convoy: &Convoy) -> Result<u64> {
    let text = convoy.admin().get("/metrics").await?.text();
    let line = text
        .lines()
        .find(|it| it.starts_with("apiserver_current_inflight_requests{request_kind=\"readOnly\"}"))
        .context("there must be such a metric")?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

async fn until_in_flight(convoy: &Convoy, is_right: impl Fn(u64) -> bool) -> Result<()> {
    let waited = async {
        while !is_right(in_flight(convoy).await?) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, waited).await.context("the number in flight never became right")?
}

/// With a window of 0 an answer was neither counted nor timed: a client could ask for everything without end and read
/// none of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unread_answer_keeps_its_slot_until_it_is_reset() -> Result<()> {
    let convoy = served().await?;
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 0).await?;
    let one = frames.request("GET", &format!("{MAPS}/large-0"), USER_TOKEN, "", b"").await?;
    let two = frames.request("GET", MAPS, USER_TOKEN, "", b"").await?;
    until_in_flight(&convoy, |it| it >= 3).await?;
    let mut reset = Vec::new();
    while reset.len() < 2 {
        match frames.next(PATIENCE).await.context("both must be reset")? {
            Frame::Reset { stream, .. } => reset.push(stream),
            Frame::Data { bytes, .. } => assert_eq!(bytes, 0, "nobody asked for bytes"),
            _ => {}
        }
    }
    reset.sort_unstable();
    assert_eq!(reset, [one, two]);
    until_in_flight(&convoy, |it| it == 1).await?;
    // The connection, and whoever else uses it, goes on.
    let three = frames.request("GET", &format!("{MAPS}/large-0"), USER_TOKEN, "", b"").await?;
    frames.widen(three, 2_000_000).await?;
    frames.widen(0, 2_000_000).await?;
    loop {
        match frames.next(PATIENCE).await.context("it must be answered")? {
            Frame::Data { stream, ends: true, .. } if stream == three => return Ok(()),
            Frame::Reset { stream, .. } if stream == three => panic!("an answer that is read was reset"),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unread_answer_of_http_1_ends_its_connection() -> Result<()> {
    let convoy = served().await?;
    let mut raw = Raw::connect(&convoy).await?;
    let head =
        format!("GET {MAPS} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {USER_TOKEN}\r\n\r\n");
    assert!(raw.send(head.as_bytes()).await);
    until_in_flight(&convoy, |it| it >= 2).await?;
    until_in_flight(&convoy, |it| it == 1).await?;
    let (read, is_closed) = raw.drain(PATIENCE).await;
    assert!(is_closed, "a connection whose answer nobody read must be closed");
    assert!(read < 12 * 900_000, "{read} bytes came: the answer was not stuck, and nothing was judged");
    Ok(())
}

/// Each unread watch held copies of up to 64 objects: with 250 of them on one connection the server ran out of memory.
#[tokio::test(flavor = "multi_thread")]
async fn unread_watches_hold_no_copies_of_objects() -> Result<()> {
    let convoy = served().await?;
    let before = convoy.resident_kib()?;
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 1).await?;
    for _ in 0..N_WATCHES {
        frames.request("GET", &format!("{MAPS}?watch=true"), USER_TOKEN, "", b"").await?;
    }
    let mut n_begun = 0;
    while n_begun < N_WATCHES {
        let frame = frames.next(PATIENCE).await.context("every watch must begin")?;
        // The one byte that it may send.
        n_begun += usize::from(matches!(frame, Frame::Data { bytes: 1, .. }));
    }
    let after = convoy.resident_kib()?;
    // All objects are 11 MB: one copy for each watch would be a gigabyte.
    assert!(after < before + 128 * 1024, "from {before} to {after} KiB");
    // Whoever takes nothing of what is there for it is not waited for.
    for _ in 0..N_WATCHES {
        loop {
            match frames.next(PATIENCE).await.context("every watch must be reset")? {
                Frame::Reset { .. } => break,
                Frame::Data { bytes, .. } => assert!(bytes <= 1, "nobody asked for bytes"),
                _ => {}
            }
        }
    }
    Ok(())
}

/// A copy of the store was cut off after the time of a request, however fast it was read.
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_lasts_as_long_as_it_is_read() -> Result<()> {
    let convoy = served().await?;
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 100_000).await?;
    frames.widen(0, 1_000_000_000).await?;
    let read = frames.request("POST", "/convoy/snapshot", ADMIN_TOKEN, "", b"").await?;
    let began = tokio::time::Instant::now();
    let mut n_read = 0;
    loop {
        match frames.next(Duration::from_millis(500)).await {
            Some(Frame::Reset { .. }) => panic!("reset after {n_read} bytes"),
            Some(Frame::Data { bytes, ends, .. }) => {
                n_read += bytes;
                if ends {
                    break;
                }
            }
            Some(_) => {}
            None => frames.widen(read, 1_500_000).await?,
        }
    }
    assert!(n_read > 12 * 900_000, "{n_read} bytes came");
    assert!(began.elapsed() > Duration::from_secs(3), "nothing was judged: it was read at once");
    // One that nobody reads is not kept.
    let unread = frames.request("POST", "/convoy/snapshot", ADMIN_TOKEN, "", b"").await?;
    loop {
        match frames.next(PATIENCE).await.context("it must be reset")? {
            Frame::Reset { stream, .. } if stream == unread => return Ok(()),
            _ => {}
        }
    }
}

/// Watches on one connection; as many as keep the machine whole if each holds copies.
const N_WATCHES: usize = 100;

/// A watch without events, or with a client that goes on reading, has no limit but its own.
#[tokio::test(flavor = "multi_thread")]
async fn watches_that_are_read_or_quiet_go_on() -> Result<()> {
    let convoy = served().await?;
    let mut frames = Frames::connect(convoy.port(), convoy.ca(), 4_000_000).await?;
    frames.widen(0, 1_000_000_000).await?;
    let quiet = "/api/v1/namespaces/kube-public/pods?watch=true";
    frames.request("GET", quiet, USER_TOKEN, "", b"").await?;
    let slow = frames.request("GET", &format!("{MAPS}?watch=true"), USER_TOKEN, "", b"").await?;
    let began = tokio::time::Instant::now();
    let mut n_read = 0;
    // Longer than twice the time that an answer has.
    while began.elapsed() < Duration::from_secs(8) {
        match frames.next(Duration::from_millis(500)).await {
            Some(Frame::Reset { stream, .. }) => panic!("stream {stream} was reset"),
            Some(Frame::Data { stream, bytes, ends }) => {
                assert!(!ends, "stream {stream} ended");
                n_read += bytes;
                continue;
            }
            Some(_) => continue,
            None => {}
        }
        // Everything that it may send has come.
        frames.widen(slow, 700_000).await?;
    }
    assert!(n_read > 12 * 900_000, "{n_read} bytes came");
    Ok(())
}

/// Many connections that ask for much and read nothing, or little: others are answered meanwhile, and all is over soon
/// after they have gone quiet.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_cost_others_nothing() -> Result<()> {
    let (rounds, seed) = (tools::rounds(24), tools::seed());
    let mut random = StdRng::seed_from_u64(seed);
    let mut convoy = served().await?;
    let mut open: Vec<Frames> = Vec::new();
    let mut n_asked = 0;
    let before = convoy.resident_kib()?;
    for _ in 0..rounds {
        let window = [0, 1, 100, 16_384, 70_000][random.random_range(0..5)];
        let mut frames = Frames::connect(convoy.port(), convoy.ca(), window).await?;
        for _ in 0..random.random_range(1..40) {
            let path = match random.random_range(0..6) {
                0 => MAPS.to_owned(),
                1 => "/openapi/v2".to_owned(),
                2 => format!("{MAPS}?limit=3"),
                3 => format!("{MAPS}?watch=true"),
                4 => format!(
                    "{MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                ),
                _ => format!("{MAPS}/large-{}", random.random_range(0..12)),
            };
            // A server that has had enough may close.
            if frames.request("GET", &path, USER_TOKEN, "", b"").await.is_err() {
                break;
            }
            n_asked += 1;
        }
        open.push(frames);
        if open.len() > 20 {
            open.remove(random.random_range(0..20));
        }
        convoy.admin().get("/api/v1/namespaces/default").await?.expect(200)?;
        assert_eq!(convoy.client(None).get("/livez").await?.text(), "ok");
    }
    until_in_flight(&convoy, |it| it == 1).await?;
    let after = convoy.resident_kib()?;
    // One user has four slots of sixteen: that many answers at most, whatever it asks for.
    assert!(after < before + 256 * 1024, "seed {seed}: from {before} to {after} KiB");
    assert!(convoy.exited()?.is_none(), "{}", convoy.log_tail());
    assert!(!convoy.log().contains("panicked"), "{}", convoy.log_tail());
    tools::report(&format!(
        "unread: {n_asked} answers on {rounds} connections, seed {seed}: nobody else waited"
    ));
    Ok(())
}
