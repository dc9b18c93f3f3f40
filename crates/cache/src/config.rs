//! What a cache is told when it starts, and the errors of its operations.

use std::time::Duration;

use store::{Key, ReadError, Revision};

use crate::{Unread, Unreadable};

/// One kind of objects: where they are, and which of their fields can be selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionSpec {
    /// Where the objects are, such as `/registry/configmaps/`. Ends in `/`, and no collection's prefix
    /// begins with another's.
    pub prefix: String,
    /// Whether keys continue with `namespace/name` or just with `name`.
    pub namespaced: bool,
    /// Selectable fields beyond `metadata.name` and `metadata.namespace`.
    pub fields: Vec<FieldSpec>,
    /// The versions that can be read, as they stand in `apiVersion`; empty if all can.
    pub versions: Vec<String>,
}

impl CollectionSpec {
    /// A collection without further selectable fields.
    pub fn new(prefix: impl Into<String>, namespaced: bool) -> Self {
        Self { prefix: prefix.into(), namespaced, fields: Vec::new(), versions: Vec::new() }
    }
}

/// A field that can be selected by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// What selectors call it, such as `status.phase`.
    pub name: String,
    /// Where it is, from the top of the object: names of objects' fields. Arrays are not entered.
    pub path: Vec<String>,
}

impl FieldSpec {
    /// A field whose name is its path, as in `status.phase`.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let path = name.split('.').map(str::to_owned).collect();
        Self { name, path }
    }

    /// A field that is not where its name says.
    pub fn at(name: impl Into<String>, path: &[&str]) -> Self {
        Self { name: name.into(), path: path.iter().map(|it| (*it).to_owned()).collect() }
    }
}

/// Bounds and times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheConfig {
    /// Everything under this prefix is watched.
    pub root: String,
    /// How many changes a collection remembers for watchers.
    pub history_events: usize,
    /// How many bytes the remembered changes of a collection may take.
    pub history_bytes: usize,
    /// How many entries are listed at once.
    pub page: usize,
    /// How long a consistent read waits for the store, and then for the cache.
    pub timeout: Duration,
    /// The first pause before watching again after an interruption; doubles up to `backoff_max`.
    pub backoff: Duration,
    /// The longest pause before watching again.
    pub backoff_max: Duration,
    /// How long the watch may be interrupted before the cache calls itself unhealthy.
    pub grace: Duration,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            root: "/registry/".to_owned(),
            history_events: 4096,
            history_bytes: 16 << 20,
            page: 500,
            timeout: Duration::from_secs(10),
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            grace: Duration::from_secs(15),
        }
    }
}

/// Why a cache did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A collection's prefix is malformed, outside the root, or overlaps another's.
    #[error("the prefix {prefix:?} cannot be cached: {why}")]
    BadPrefix {
        /// The prefix.
        prefix: String,
        /// What is wrong with it.
        why: String,
    },
    /// The objects could not be listed.
    #[error("the objects could not be listed")]
    List(#[from] ReadError),
}

/// Why a collection was not added to a running cache.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The prefix is malformed, outside the root, taken, or overlaps another's.
    #[error("the prefix {prefix:?} cannot be cached: {why}")]
    BadPrefix {
        /// The prefix.
        prefix: String,
        /// What is wrong with it.
        why: String,
    },
    /// The cache has failed or was stopped.
    #[error("the cache does not follow its store: {0}")]
    NotLive(String),
    /// It was removed before it was there, or another one is loaded for its prefix instead.
    #[error("the collection is not wanted any more")]
    Unwanted,
}

/// The collection was replaced or removed, or is not loaded yet: whoever has it asks for the kind again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the collection is closed")]
pub struct Closed;

/// Why an object cannot be told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GetError {
    /// The collection does not answer.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// There is a value that cannot be served.
    #[error("{0}")]
    Undecodable(Unreadable),
}

/// Why a watch does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchError {
    /// The collection does not answer.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// What happened since is not remembered.
    #[error(transparent)]
    Expired(#[from] Expired),
}

/// Values that cannot be served stand among what is asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{n_keys} stored values cannot be served")]
pub struct Undecodable {
    /// The first of them, in key order.
    pub first: Vec<(Key, Unread)>,
    /// How many there are.
    pub n_keys: usize,
}

/// The cache has not come as far as the wanted revision in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache has come only as far as revision {current}")]
pub struct Behind {
    /// How far the cache has come.
    pub current: Revision,
}

/// Changes after the wanted revision are not remembered any more: list again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("changes are remembered only after revision {oldest}")]
pub struct Expired {
    /// The oldest revision that can be watched from.
    pub oldest: Revision,
}
