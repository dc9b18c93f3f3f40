//! What a create, update, patch, delete, get, list or watch *does*: everything but HTTP.
//!
//! Responsible for the steps of every verb, for the behaviour that is special to a kind, and for turning store
//! and cache outcomes into answers in the API's own words ([`meta::Status`]).
//! Deliberately not here: HTTP, authentication and authorization, engines.
//! Start reading at [`write`](mod@write); each verb reads as a list of steps.

pub mod census;
pub mod continue_token;
pub mod convert;
pub mod custom;
pub mod defaults;
pub mod delete;
pub mod events;
pub mod fields;
mod grounds;
pub mod kind;
pub mod limits;
pub mod list;
mod list_options;
pub mod outcome;
pub mod pod;
pub mod read;
pub mod resource_version;
pub mod rewrite;
mod rules;
pub mod scale;
pub mod serve;
pub mod strategy;
pub mod table;
pub mod target;
mod tile;
pub mod unenforced;
pub mod unserved;
pub mod watch;
pub mod write;

use std::{sync::Arc, time::Duration};

use cache::Cache;
use station::Station;
use store::{SharedClock, SharedStore};

pub use defaults::Defaults;
pub use delete::{DeleteOptions, Deleted, Preconditions};
pub use grounds::is_outdated;
pub use kind::{Kind, Kinds};
pub use list::{ListOptions, ListPage, Listed};
pub use outcome::Written;
pub use rules::check_leads_elsewhere;
pub use target::Target;
pub use watch::{Line, WatchEvent, WatchOptions, WatchStream};
pub use write::accept::{Sent, Source};
pub use write::admit::{Admit, Anything, Basis};
pub use write::decode::go_type;
pub use write::decode::unreadable_head;
pub use write::{Patch, WriteOptions};

/// All verbs on all kinds, over one store and its cache.
pub struct Registry {
    pub(crate) kinds: Arc<Kinds>,
    pub(crate) installer: Arc<custom::Installer>,
    pub(crate) store: SharedStore,
    pub(crate) cache: Cache,
    /// Says in which version objects are stored, and what proves it.
    pub(crate) station: Station,
    pub(crate) clock: SharedClock,
    pub(crate) config: RegistryConfig,
    pub(crate) event_leases: events::EventLeases,
    pub(crate) webhooks: Arc<dyn custom::Webhooks>,
}

/// Settings of the registry.
#[derive(Clone, Debug)]
pub struct RegistryConfig {
    /// How long Events are kept.
    pub event_ttl: Duration,
    /// Policies and quotas may be created though nothing enforces them.
    pub allow_unenforced_policies: bool,
    /// Nothing is made in namespaces that are not there or go away, and some namespaces stay.
    pub namespace_lifecycle: bool,
}

impl Registry {
    /// Over a store and the cache in front of it.
    pub fn new(
        kinds: Kinds,
        store: SharedStore,
        cache: Cache,
        station: Station,
        clock: SharedClock,
        config: RegistryConfig,
    ) -> Self {
        let event_leases = events::EventLeases::new(config.event_ttl);
        let webhooks = Arc::new(custom::NoWebhooks);
        let kinds = Arc::new(kinds);
        let installer = Arc::new(custom::Installer {
            kinds: Arc::clone(&kinds),
            cache: cache.clone(),
            clock: clock.clone(),
            awaited: parking_lot::Mutex::default(),
        });
        Self { kinds, installer, store, cache, station, clock, config, event_leases, webhooks }
    }

    /// The same, with a way to call conversion webhooks.
    #[must_use]
    pub fn with_webhooks(mut self, webhooks: Arc<dyn custom::Webhooks>) -> Self {
        self.webhooks = webhooks;
        self
    }

    /// The kinds that can be asked for.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The cache that reads are served from.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// This server's place among the others.
    pub fn station(&self) -> &Station {
        &self.station
    }

    /// The clock of this server.
    pub fn clock(&self) -> &SharedClock {
        &self.clock
    }
}
