//! Who may say that somebody is gone.

use fleet::{
    ClusterId, FenceRecord, MemberRecord, Members,
    agree::Report,
    cluster::{self, Agreement, Guarantee, Modes, Wanted},
    record,
};
use meta::StorageVersion;
use store::{MemoryStore, Revision, SharedStore, SystemClock};

use super::*;
use crate::{
    Life, Role, Station,
    alone::{Nothing, config, things},
};

/// A record with the entries of two members.
fn reported(members: &[MemberRecord], now: Timestamp) -> FenceRecord {
    let (resource, members) = (things(), Members::of(members.iter().cloned()));
    let mut fence: Option<FenceRecord> = None;
    for member in members.iter() {
        let version = StorageVersion::new("v1");
        let report = Report {
            identity: member.identity.clone(),
            incarnation: member.incarnation.clone(),
            preferred: version.clone(),
            decodable: vec![version.clone()],
            served: vec![version],
            votes: true,
        };
        let facts = Facts {
            resource: &resource,
            fence: fence.as_ref(),
            members: &members,
            agreement: Agreement::Vote,
            settle: Duration::ZERO,
            now,
            revision: Revision::new(1),
        };
        fence = Some(agree::plan(&facts, Some(&report)).unwrap().record);
    }
    fence.unwrap()
}

/// A server that has lost its lease, and does not know it yet, sees no members: it must not take all entries for those of
/// departed servers. One that is a member collects what another has left.
#[tokio::test]
async fn only_a_member_says_who_is_none() {
    for (is_member, n_left) in [(true, 1), (false, 2)] {
        let clock = SystemClock::shared();
        let store = SharedStore::new(MemoryStore::new(clock.clone()));
        let (a, b) = (
            config("a", Guarantee::Strict).member(None, clock.now()),
            config("b", Guarantee::Strict).member(None, clock.now()),
        );
        let Ok(Modes::Record(modes)) = cluster::check_modes(None, Wanted::default(), &ClusterId::new("a"))
        else {
            panic!()
        };
        let (own, fence) = (keys::member(&a.identity), keys::fence(&things()));
        let written = reported(&[a.clone(), b], clock.now());
        let txn = Txn::new()
            .put(&keys::cluster(), record::write(&keys::cluster(), &modes).unwrap())
            .put(&keys::joined(), r#"{"format":1}"#.into())
            .put(&own, record::write(&own, &a).unwrap())
            .put(&fence, record::write(&fence, &written).unwrap());
        let joined = store.commit(txn).await.unwrap();
        if !is_member {
            store.commit(Txn::new().delete(&own)).await.unwrap();
        }
        let station = Station::new(config("a", Guarantee::Strict), store.clone(), clock);
        station.start(Arc::new(Nothing), |role, task| {
            if role == Role::Plain("fleet records") {
                tokio::spawn(task);
            }
        });
        station.inner.loaded().await;
        station.inner.set_life(Life::Member(joined));
        station.inner.collect_all().await;
        let entry = store.get(&fence).await.unwrap().unwrap();
        let left: FenceRecord = record::read(&fence, &entry.value).unwrap();
        assert_eq!(left.entries.len(), n_left, "{is_member}: {left:?}");
    }
}
