//! A server that slept while the others moved on, and wakes up in the middle of a write.

use std::time::Duration;

use serde_json::{Value, json};
use store::fault::Cut;
use testkit::tools;

use super::{
    ground::{CLASSES, CLASSES_RECORD, Ground, MAPS, NEW, OLD, Ship, ask_with, class, eventually, map},
    on_both_stores,
};

on_both_stores!(what_a_sleeper_writes_when_it_wakes_is_refused_or_in_the_agreed_version);

/// How many clusters sleep at the same time in the long form: most of it is waiting for leases.
const BESIDE: usize = 6;

/// Soak: 1,000 rounds with a lease of one second, or 20 with the default one (`CONVOY_SOAK_LEASE=10s`).
async fn what_a_sleeper_writes_when_it_wakes_is_refused_or_in_the_agreed_version(ground: Ground) {
    let rounds = tools::rounds(2);
    let n_clusters = if tools::is_soak() { BESIDE.min(rounds) } else { 1 };
    let mut clusters = vec![ground];
    for n in 1..n_clusters {
        clusters.push(clusters[0].another(n).await);
    }
    let work = clusters.into_iter().map(|ground| {
        tokio::spawn(async move {
            let history = ground.history().await;
            let rounds = rounds.div_ceil(n_clusters);
            let mut n_void = 0;
            for round in 0..rounds {
                n_void += usize::from(sleep_and_wake(&ground, round).await == Round::Void);
            }
            let judged = history.judge(&[]).await;
            assert!(judged.n_moves > 2, "{judged:?}");
            n_void
        })
    });
    let mut n_void = 0;
    for cluster in work.collect::<Vec<_>>() {
        n_void += cluster.await.unwrap();
    }
    let void = "were void: a lease ended before its holder was put to sleep";
    tools::report(&format!("{n_void} of {rounds} rounds {void}"));
    assert!(n_void <= 1 + rounds / 20, "{n_void} of {rounds} rounds proved nothing");
}

/// How long a server works on a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What may pass between falling asleep and noticing that, and the other way round.
const LATE: Duration = Duration::from_secs(2);

#[derive(PartialEq)]
enum Round {
    Proved,
    /// The sleeper had lost its lease by itself, so that the others had moved on, and was back when it was put to sleep.
    Void,
}

async fn sleep_and_wake(ground: &Ground, round: usize) -> Round {
    let lease = std::env::var("CONVOY_SOAK_LEASE").unwrap_or_else(|_| "1s".to_owned());
    let lease = format!("--member-lease-duration={lease}");
    let flags = [lease.as_str(), "--departure-settle-time=0s"];
    // Both store the old version, because one of them prefers it.
    let sleeper = ground.launch_with("sleeper", 34, &flags).await;
    let awake = ground.launch_with("awake", 34, &flags).await;
    eventually("both store the old version", async || {
        awake.common(CLASSES_RECORD).await.as_deref() == Some(OLD)
    })
    .await;
    awake.server.stop().await;
    let awake = ground.launch_with("awake", 36, &flags).await;
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let (mine, theirs) = (format!("mine-{round}"), format!("held-{round}"));
    let mut with_finalizer = class(&theirs);
    with_finalizer["metadata"]["finalizers"] = held["metadata"]["finalizers"].clone();
    // On a busy machine a lease of a second may end by itself; it joins again then.
    eventually("the sleeper can write", async || {
        let (code, answer) = sleeper.ask("POST", CLASSES, with_finalizer.clone()).await;
        assert!(matches!(code, 201 | 409 | 503), "{code} {answer}");
        code != 503
    })
    .await;

    // It has decided everything about these two writes when it falls asleep.
    if round.is_multiple_of(2) {
        sleeper.faults.pause_at_next_commit();
    } else {
        sleeper.faults.pause();
    }
    let (client, again) = (sleeper.server.client(), sleeper.server.client());
    let object = class(&mine);
    let began = tokio::time::Instant::now();
    let put = tokio::spawn(async move { super::ground::ask(&client, "POST", CLASSES, object).await });
    sleeper.faults.wait_until_paused().await;
    let path = format!("{CLASSES}/{theirs}");
    let mark = tokio::spawn({
        let path = path.clone();
        async move { super::ground::ask(&again, "DELETE", &path, Value::Null).await }
    });
    let asleep = sleeper.server.status().server.unwrap().identity;
    let is_member = || awake.server.status().members.iter().any(|it| it.identity == asleep);
    let is_void = awake.common(CLASSES_RECORD).await.as_deref() == Some(NEW) && is_member();
    eventually("the others have moved on", async || {
        awake.common(CLASSES_RECORD).await.as_deref() == Some(NEW)
    })
    .await;
    // Asleep it cannot join again: whoever moved on did so because it was gone.
    assert!(is_void || !is_member(), "{:?}", awake.server.status().members);
    let slept = began.elapsed();
    sleeper.faults.resume();
    for (what, write) in [("put", put), ("mark", mark)] {
        let (code, answer) = write.await.unwrap();
        let awake_for = began.elapsed().saturating_sub(slept);
        // A request has its time; what sleeps longer has none left when it wakes.
        let is_late = code == 504 && slept + LATE > REQUEST_TIMEOUT;
        let times = format!("after {slept:?} asleep and {awake_for:?} awake");
        assert!(matches!(code, 200..=202 | 503) || is_late, "{what}: {code} {answer} {times}");
    }
    // And whatever it writes next.
    let (code, answer) = sleeper.ask("POST", CLASSES, class(&format!("next-{round}"))).await;
    assert!(matches!(code, 201 | 503), "{code} {answer}");
    for name in [&mine, &format!("next-{round}")] {
        if let Some(version) = ground.stored_version(&format!("/registry/deviceclasses/{name}")).await {
            assert_eq!(version, NEW, "{name}");
        }
    }
    let is_marked = awake.get(&path).await["metadata"]["deletionTimestamp"].is_string();
    if is_marked {
        let version = ground.stored_version(&format!("/registry/deviceclasses/{theirs}")).await;
        assert_eq!(version.as_deref(), Some(NEW));
    }
    back_to_the_old_version(ground, sleeper, awake, &flags).await;
    if is_void { Round::Void } else { Round::Proved }
}

/// So that the next round can move again.
async fn back_to_the_old_version(ground: &Ground, sleeper: Ship, awake: Ship, flags: &[&str]) {
    sleeper.server.stop().await;
    awake.server.stop().await;
    let one = ground.launch_with("awake", 34, flags).await;
    eventually("it votes for the old version", async || {
        one.common(CLASSES_RECORD).await.as_deref() == Some(OLD)
    })
    .await;
    one.server.stop().await;
}

/// An answer of the store that gets lost leaves nothing undone or done twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_whose_answer_is_lost_is_found_out() {
    let ground = Ground::embedded();
    let history = ground.history().await;
    let (one, two) = (ground.launch("one", 36).await, ground.launch("two", 36).await);
    for round in 0..10 {
        two.faults.cut(if round % 2 == 0 { Cut::AnswerLost } else { Cut::Unsent });
        tokio::time::sleep(Duration::from_millis(50)).await;
        two.faults.heal();
        eventually("it is a member that can write", async || {
            let (code, _) = two.ask("POST", CLASSES, class(&format!("c{round}"))).await;
            matches!(code, 201 | 409)
        })
        .await;
    }
    assert_eq!(one.common(CLASSES_RECORD).await.as_deref(), Some(NEW));
    history.judge(&[]).await;
}

/// Found by the robustness suite: a write whose outcome was unknown was tried once more, found its own traces, and was
/// refused because of them (409, 404) though it had happened; a patch that adds something was applied twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answer_is_lost_is_neither_refused_nor_done_twice() {
    let ground = Ground::embedded();
    let ship = ground.launch("one", 36).await;
    let mut n_found = 0;
    for round in 0..5 {
        let path = format!("{MAPS}/m{round}");
        let mut object = ship.expect(201, "POST", MAPS, map(&format!("m{round}"))).await;
        object["data"] = json!({"list": "put"});
        let append = json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]},
            {"op": "test", "path": "/data/list", "value": "put"},
            {"op": "replace", "path": "/data/list", "value": "patched"}]);
        let writes = [("PUT", object), ("PATCH", append), ("DELETE", Value::Null)];
        for (method, body) in writes {
            ship.faults.cut_next_commit(Cut::AnswerLost);
            let json_patch = [("content-type", "application/json-patch+json")];
            let headers = if method == "PATCH" { &json_patch[..] } else { &[] };
            let (code, _, answer) = ask_with(&ship.server.client(), method, &path, headers, body).await;
            ship.faults.heal();
            // The server itself writes now and then, and may be the one whose answer is lost.
            assert!(matches!(code, 200 | 504), "{method}: {code} {answer}");
            n_found += usize::from(code == 200);
            let now = ship.get(&path).await;
            let (data, is_deleted) = (&now["data"]["list"], now["metadata"]["deletionTimestamp"].is_string());
            let expected = if method == "PUT" { "put" } else { "patched" };
            assert!(data == expected && is_deleted == (method == "DELETE"), "{method}: {now}");
        }
    }
    assert!(n_found > 10, "what became of it is found out: {n_found}");
}
