//! How a station becomes a member, and remains one.

use std::time::Duration;

use fleet::{
    cluster::{Agreement, ClusterRecord, Guarantee},
    keys, record,
};
use store::{Clock, CommitError, Store, Txn, fault::Cut};

use crate::{
    Life,
    alone::{Ground, LEASE, things},
};

/// A record whose write was done without an answer hangs on a lease that nobody knows any more.
#[tokio::test]
async fn a_server_that_was_not_told_that_it_had_joined_stays_a_member() {
    let ground = Ground::new(Guarantee::Strict);
    // How the cluster agrees is there already, so that the next write is the one that joins.
    let (first, _) = ground.station("first");
    Ground::start(&first);
    first.joined().await;
    let (second, faults) = ground.station("second");
    faults.cut_next_commit(Cut::AnswerLost);
    Ground::start(&second);
    second.joined().await;
    let until = ground.clock.monotonic() + LEASE * 4;
    while ground.clock.monotonic() < until {
        assert!(second.is_member(), "{:?}", second.life());
        let (members, _) = first.members();
        assert_eq!(members.iter().count(), 2, "the others must see it all the time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whoever decided to join by what was recorded does not join a cluster that agrees in another way by then.
#[tokio::test]
async fn modes_that_change_while_a_server_joins_are_noticed() {
    let ground = Ground::new(Guarantee::Strict);
    let (first, _) = ground.station("first");
    Ground::start(&first);
    first.joined().await;
    first.leave().await;
    let (second, faults) = ground.station("second");
    faults.pause_at_next_commit();
    Ground::start(&second);
    faults.wait_until_paused().await;
    let key = keys::cluster();
    let entry = ground.store.get(&key).await.unwrap().unwrap();
    let mut cluster: ClusterRecord = record::read(&key, &entry.value).unwrap();
    cluster.agreement = Agreement::Report;
    let bytes = record::write(&key, &cluster).unwrap();
    ground.store.commit(Txn::new().put(&key, bytes)).await.unwrap();
    faults.resume();
    let why = second.joined_or_refused().await.unwrap_err();
    assert!(why.contains("report") && why.contains("vote"), "{why}");
    assert!(matches!(second.life(), Life::Refused(_)));
}

/// Where the guarantee is loose nothing in the store stops a write by what was selected long ago.
#[tokio::test]
async fn without_a_fence_nobody_writes_by_what_it_heard_long_ago() {
    let ground = Ground::new(Guarantee::Loose);
    let (station, faults) = ground.station("only");
    Ground::start(&station);
    station.until(|it| it.health().is_ok()).await;
    let encoding = station.encoding(&things()).unwrap();
    assert_eq!(encoding.fence.map(|it| it.key().clone()), Some(keys::cluster()));
    tokio::time::sleep(LEASE).await;
    assert!(station.encoding(&things()).is_ok(), "it has heard since that nothing else was selected");
    // Like a process that is stopped: it knows nothing new when it wakes up, and thinks that it is a member.
    faults.pause();
    ground.clock.leap(Duration::from_secs(31));
    let refused = station.encoding(&things()).unwrap_err().to_string();
    assert!(refused.contains("it is not known whether another version was selected"), "{refused}");
    faults.resume();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while station.encoding(&things()).is_err() {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", station.life());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A put of a server that slept while the cluster became strict has something to fail on.
#[tokio::test]
async fn without_a_fence_a_put_requires_that_there_is_none() {
    let ground = Ground::new(Guarantee::Loose);
    let (station, faults) = ground.station("only");
    Ground::start(&station);
    station.until(|it| it.health().is_ok()).await;
    let encoding = station.encoding(&things()).unwrap();
    faults.pause();
    let key = keys::cluster();
    let entry = ground.store.get(&key).await.unwrap().unwrap();
    let mut cluster: ClusterRecord = record::read(&key, &entry.value).unwrap();
    cluster.guarantee = Guarantee::Strict;
    let bytes = record::write(&key, &cluster).unwrap();
    ground.store.commit(Txn::new().put(&key, bytes)).await.unwrap();
    let put = Txn::new().require(encoding.fence.unwrap()).put(&"/registry/things/a".into(), "{}".into());
    let refused = ground.store.commit(put).await.unwrap_err();
    let CommitError::Unmet { current, revision, .. } = refused else { panic!("{refused}") };
    faults.resume();
    station.after_failed_put(&things(), current[0].as_ref(), revision).await.unwrap();
    let encoding = station.encoding(&things()).unwrap();
    assert_eq!(encoding.fence.unwrap().key(), &keys::fence(&things()), "from now on it is fenced");
}

/// A server that stops is not told to stay because others write what it cannot read.
#[tokio::test]
async fn whoever_leaves_is_not_told_to_withdraw() {
    let ground = Ground::new(Guarantee::Strict);
    let (station, _) = ground.station("only");
    Ground::start(&station);
    station.joined().await;
    station.inner.orders.send_replace(super::Order::Leave);
    station.inner.withdraw("it cannot read what is written".to_owned());
    let mut life = station.inner.life.subscribe();
    let left = life.wait_for(|it| *it == Life::Left);
    tokio::time::timeout(Duration::from_secs(20), left).await.expect("it must leave").unwrap();
}
