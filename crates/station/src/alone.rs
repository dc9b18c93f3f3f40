//! Stations without servers around them, on a store that can fail for one of its holders: for tests.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use crate::{
    Config, Resource, Station, Surroundings,
    config::{Notice, Occasion},
};
use fleet::{
    ClusterId, Identity, Incarnation, Offer,
    cluster::{Agreement, Guarantee, Wanted},
    custom::Definition,
    member::Other,
    stored::Census,
};
use futures_util::future::BoxFuture;
use meta::{GroupResource, Release, StorageVersion, Value};
use store::{
    Clock, Key, SharedClock, SharedStore, SystemClock,
    fault::{FaultStore, Faults},
    memory::MemoryStore,
};

pub(crate) const LEASE: Duration = Duration::from_millis(600);

/// A server of which nothing is there but its station.
pub(crate) struct Nothing;

impl Surroundings for Nothing {
    fn census(&self) -> BoxFuture<'_, Result<Census, String>> {
        Box::pin(std::future::ready(Ok(Census::new())))
    }

    fn probe(&self, _: String) -> BoxFuture<'_, Other> {
        Box::pin(std::future::ready(Other::Silent))
    }

    fn definitions(&self) -> Vec<(GroupResource, Definition)> {
        Vec::new()
    }

    fn definition(&self, _: &GroupResource) -> Option<Definition> {
        None
    }

    fn definition_key(&self, resource: &GroupResource) -> Key {
        Key::new(format!("/registry/definitions/{resource}"))
    }

    fn custom_prefix(&self, resource: &GroupResource) -> String {
        format!("/registry/{resource}/")
    }

    fn mirrored(&self, _: &str, _: Option<&Arc<Value>>, _: Occasion) {}

    fn gate_opened(&self, _: &GroupResource, _: Duration) {}

    fn agreed(&self, _: &GroupResource, _: Duration) {}

    fn fence_retried(&self, _: &GroupResource) {}

    fn noticed(&self, _: &Notice) {}
}

/// Time as it is, and as much more as a test wants.
#[derive(Default)]
pub(crate) struct Leaping {
    real: SystemClock,
    ahead: parking_lot::Mutex<Duration>,
}

impl Leaping {
    pub(crate) fn leap(&self, duration: Duration) {
        *self.ahead.lock() += duration;
    }
}

impl Clock for Leaping {
    fn now(&self) -> jiff::Timestamp {
        self.real.now()
    }

    fn monotonic(&self) -> Duration {
        self.real.monotonic() + *self.ahead.lock()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.real.sleep(duration)
    }
}

/// One store for several stations.
pub(crate) struct Ground {
    pub(crate) store: SharedStore,
    /// The stations'; the store has the real time.
    pub(crate) clock: Arc<Leaping>,
    guarantee: Guarantee,
}

impl Ground {
    pub(crate) fn new(guarantee: Guarantee) -> Self {
        let store = SharedStore::new(MemoryStore::new(SystemClock::shared()));
        Self { store, clock: Arc::default(), guarantee }
    }

    /// A station that has not started, and what makes its store fail.
    pub(crate) fn station(&self, name: &str) -> (Station, Faults) {
        let clock: SharedClock = self.clock.clone();
        let (store, faults) = FaultStore::new(self.store.clone(), Arc::clone(&clock));
        (Station::new(config(name, self.guarantee), SharedStore::new(store), clock), faults)
    }

    /// Lets it run until the test ends.
    pub(crate) fn start(station: &Station) {
        station.start(Arc::new(Nothing), |_, task| {
            tokio::spawn(task);
        });
    }
}

/// Who a station is, and how it takes part.
pub(crate) fn config(name: &str, guarantee: Guarantee) -> Config {
    let version = StorageVersion::new("v1");
    Config {
        identity: Identity::new(name),
        incarnation: Incarnation::new(name),
        fresh_cluster: ClusterId::new(name),
        release: Release::v1(36),
        emulated: Release::v1(36),
        min_compatible: Release::v1(35),
        peer_address: None,
        features: BTreeMap::from([(fleet::member::FEATURE.to_owned(), true)]),
        resources: vec![Resource {
            record: things(),
            preferred: version.clone(),
            decodable: vec![version.clone()],
            served: vec![version],
            prefix: "/registry/things/".to_owned(),
        }],
        offer: Arc::new(Offer::default()),
        wanted: Wanted { agreement: Some(Agreement::Vote), guarantee: Some(guarantee) },
        lease: LEASE,
        settle: Duration::ZERO,
        allowed: Vec::new(),
        is_exclusive: false,
        collects: true,
        mirrors: "/registry/storageversions/".to_owned(),
    }
}

pub(crate) fn things() -> GroupResource {
    GroupResource::new("", "things")
}
