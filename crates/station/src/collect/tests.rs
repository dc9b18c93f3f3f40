//! Who may say that somebody is gone.

use std::collections::BTreeMap;

use fleet::{
    FenceRecord, Incarnation, MemberRecord, Members,
    agree::Report,
    cluster::{self, Agreement, Modes, Wanted},
    custom::Definition,
    member::FEATURE,
    record,
    stored::Census,
};
use futures_util::future::BoxFuture;
use meta::{Release, StorageVersion};
use store::{Key, MemoryStore, Revision, SharedStore, SystemClock};

use super::*;
use crate::{Config, Life, Resource, Station, Surroundings};

/// A server of which nobody wants anything.
struct Nobody;

impl Surroundings for Nobody {
    fn census(&self) -> BoxFuture<'_, Result<Census, String>> {
        Box::pin(async { Ok(Census::default()) })
    }
    fn probe(&self, _: String) -> BoxFuture<'_, Option<(Identity, Incarnation)>> {
        Box::pin(async { None })
    }
    fn definitions(&self) -> Vec<(GroupResource, Definition)> {
        Vec::new()
    }
    fn definition(&self, _: &GroupResource) -> Option<Definition> {
        None
    }
    fn definition_key(&self, resource: &GroupResource) -> Key {
        Key::new(format!("/definitions/{resource}"))
    }
    fn custom_prefix(&self, resource: &GroupResource) -> String {
        format!("/registry/{resource}/")
    }
    fn mirrored(&self, _: &str, _: Option<&Arc<Value>>, _: Occasion) {}
    fn gate_opened(&self, _: &GroupResource, _: Duration) {}
    fn fence_retried(&self, _: &GroupResource) {}
    fn noticed(&self, _: &Notice) {}
}

fn things() -> GroupResource {
    GroupResource::new("example.com", "things")
}

fn config(name: &str) -> Config {
    let version = StorageVersion::new("example.com/v1");
    let resource = Resource {
        record: things(),
        preferred: version.clone(),
        decodable: vec![version.clone()],
        served: vec![version],
        prefix: "/registry/things/".to_owned(),
    };
    Config {
        identity: Identity::new(name),
        incarnation: Incarnation::new("1"),
        release: Release::v1(36),
        emulated: Release::v1(36),
        min_compatible: Release::v1(35),
        peer_address: None,
        features: BTreeMap::from([(FEATURE.to_owned(), true)]),
        resources: vec![resource],
        offer: Arc::default(),
        wanted: Wanted::default(),
        lease: Duration::from_secs(10),
        settle: Duration::ZERO,
        allowed: Vec::new(),
        is_exclusive: false,
        collects: true,
        mirrors: "/registry/storageversions/".to_owned(),
    }
}

/// A record with the entries of two members.
fn reported(members: &[MemberRecord], now: Timestamp) -> FenceRecord {
    let (resource, members) = (things(), Members::of(members.iter().cloned()));
    let mut fence: Option<FenceRecord> = None;
    for member in members.iter() {
        let version = StorageVersion::new("example.com/v1");
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
        let (a, b) = (config("a").member(clock.now()), config("b").member(clock.now()));
        let Ok(Modes::Record(modes)) = cluster::check_modes(None, Wanted::default()) else { panic!() };
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
        let station = Station::new(config("a"), store.clone(), clock);
        station.start(Arc::new(Nobody), |name, task| {
            if name == "fleet records" {
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
