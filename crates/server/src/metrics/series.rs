//! The series that every request adds to, found without making strings.
//!
//! The registry's own families hash owned label sets, so finding a series would cost nine allocations per request.
//! Here a request is looked up by a hash of borrowed text, and only a new series makes strings.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::RwLock;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::{BYTES, MAX_REQUEST_SERIES, SECONDS, labels};

/// What a request is counted under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestKey<'a> {
    /// As upstream reports it: `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`, ….
    pub verb: &'a str,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// The API group; empty for core and for paths that are not resources.
    pub group: &'a str,
    /// The API version.
    pub version: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// The subresource, or for a path that is no resource the path's first part.
    pub subresource: &'a str,
    /// `resource`, `namespace`, `cluster`, or empty.
    pub scope: &'a str,
    /// The code of the answer.
    pub code: u16,
}

/// The verbs that upstream reports; anything else comes from a hostile client.
const VERBS: [&str; 15] = [
    "APPLY",
    "CONNECT",
    "DELETE",
    "DELETECOLLECTION",
    "GET",
    "HEAD",
    "LIST",
    "OPTIONS",
    "PATCH",
    "POST",
    "PROXY",
    "PUT",
    "TRACE",
    "WATCH",
    "WATCHLIST",
];

const SHARDS: usize = 16;

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug)]
pub(super) struct RequestSeries {
    total: Family<labels::Request, Counter>,
    duration: Histograms<labels::RequestDuration>,
    sizes: Histograms<labels::LongRunning>,
    hasher: RandomState,
    shards: [RwLock<HashMap<u64, Vec<Series>>>; SHARDS],
    known: AtomicUsize,
}

#[derive(Debug)]
struct Series {
    labels: labels::Request,
    total: Counter,
    duration: Histogram,
    sizes: Option<Histogram>,
}

impl RequestSeries {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let total = Family::default();
        let duration: Histograms<_> = Family::new_with_constructor(|| Histogram::new(SECONDS));
        let sizes: Histograms<_> = Family::new_with_constructor(|| Histogram::new(BYTES));
        registry.register(
            "apiserver_request",
            "Requests, per what they asked for and how they were answered",
            total.clone(),
        );
        registry.register("apiserver_request_duration_seconds", "Time of requests", duration.clone());
        registry.register("apiserver_response_sizes", "Sizes of answers to reads, in bytes", sizes.clone());
        Self {
            total,
            duration,
            sizes,
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| RwLock::default()),
            known: AtomicUsize::new(0),
        }
    }

    pub(super) fn done(&self, key: &RequestKey<'_>, took: Duration, response_bytes: Option<u64>) {
        let key = bounded(*key);
        let hash = self.hasher.hash_one(key);
        let shard = &self.shards[usize::try_from(hash % 16).expect("a number below 16 must fit")];
        if let Some(series) = shard.read().get(&hash).and_then(|it| find(it, &key)) {
            return series.add(took, response_bytes);
        }
        if self.known.load(Ordering::Relaxed) >= MAX_REQUEST_SERIES {
            return self.add_unnamed(&key, took, response_bytes);
        }
        let mut shard = shard.write();
        let bucket = shard.entry(hash).or_default();
        if find(bucket, &key).is_none() {
            self.known.fetch_add(1, Ordering::Relaxed);
            bucket.push(self.make(&key));
        }
        find(bucket, &key).expect("a series just made must be found").add(took, response_bytes);
    }

    /// Counts what there are too many kinds of under verb and code alone.
    fn add_unnamed(&self, key: &RequestKey<'_>, took: Duration, response_bytes: Option<u64>) {
        let key = RequestKey { group: "", version: "", resource: "", subresource: "", scope: "", ..*key };
        self.make(&key).add(took, response_bytes);
    }

    fn make(&self, key: &RequestKey<'_>) -> Series {
        let is_read = matches!(key.verb, "GET" | "LIST");
        Series {
            labels: labels::Request::new(key),
            total: self.total.get_or_create_owned(&labels::Request::new(key)),
            duration: self.duration.get_or_create_owned(&labels::RequestDuration::new(key)),
            sizes: is_read.then(|| self.sizes.get_or_create_owned(&labels::LongRunning::new(key))),
        }
    }
}

impl Series {
    fn add(&self, took: Duration, response_bytes: Option<u64>) {
        self.total.inc();
        self.duration.observe(took.as_secs_f64());
        if let (Some(sizes), Some(bytes)) = (&self.sizes, response_bytes) {
            #[expect(clippy::cast_precision_loss, reason = "sizes above 2^53 do not occur")]
            sizes.observe(bytes as f64);
        }
    }
}

/// Hostile verbs and codes are folded into one.
fn bounded(key: RequestKey<'_>) -> RequestKey<'_> {
    let verb = if VERBS.contains(&key.verb) { key.verb } else { "OTHER" };
    RequestKey { verb, ..key }
}

fn find<'a>(bucket: &'a [Series], key: &RequestKey<'_>) -> Option<&'a Series> {
    bucket.iter().find(|it| {
        let labels = &it.labels;
        labels.code == key.code
            && labels.verb == key.verb
            && labels.resource == key.resource
            && labels.group == key.group
            && labels.version == key.version
            && labels.subresource == key.subresource
            && labels.scope == key.scope
            && (labels.dry_run == "All") == key.dry_run
    })
}
