//! How far the cache has come, and whether it still follows the store. Shared by everything in one cache.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use store::{Revision, SharedClock};
use tokio::sync::watch;

use crate::Behind;

/// Written by the feed only.
pub(crate) struct Progress {
    /// Everything up to here is in the collections. Also in `state`; here it is cheap to read.
    applied: AtomicU64,
    state: watch::Sender<State>,
    clock: SharedClock,
}

#[derive(Clone, Debug)]
struct State {
    applied: Revision,
    failed: Option<Arc<str>>,
    /// Since when the watch is interrupted, and why.
    interrupted: Option<(Duration, Arc<str>)>,
}

impl Progress {
    pub(crate) fn new(clock: SharedClock) -> Self {
        let state = State { applied: Revision::ZERO, failed: None, interrupted: None };
        Self { applied: AtomicU64::new(0), state: watch::Sender::new(state), clock }
    }

    pub(crate) fn applied(&self) -> Revision {
        Revision::new(self.applied.load(Ordering::Acquire))
    }

    /// Everything up to `revision` is in the collections now. Never goes back.
    pub(crate) fn publish(&self, revision: Revision) {
        self.applied.fetch_max(revision.get(), Ordering::AcqRel);
        self.state.send_if_modified(|it| {
            let is_news = revision > it.applied;
            it.applied = it.applied.max(revision);
            is_news
        });
    }

    /// For good: what is in memory cannot be trusted, or does not move any more. The first reason stays.
    pub(crate) fn fail(&self, why: &str) {
        self.state.send_modify(|it| {
            it.failed.get_or_insert_with(|| why.into());
        });
    }

    pub(crate) fn interrupt(&self, why: &str) {
        let now = self.clock.monotonic();
        self.state.send_modify(|it| {
            let since = it.interrupted.as_ref().map_or(now, |(since, _)| *since);
            it.interrupted = Some((since, why.into()));
        });
    }

    pub(crate) fn resume(&self) {
        self.state.send_if_modified(|it| it.interrupted.take().is_some());
    }

    pub(crate) fn health(&self, grace: Duration) -> Result<(), String> {
        let state = self.state.borrow().clone();
        if let Some(why) = state.failed {
            return Err(why.to_string());
        }
        let Some((since, why)) = state.interrupted else { return Ok(()) };
        let duration = self.clock.monotonic().saturating_sub(since);
        if duration <= grace {
            return Ok(());
        }
        Err(format!("the watch of the store has been interrupted for {} s: {why}", duration.as_secs()))
    }

    /// The reason, once the cache has failed.
    pub(crate) async fn failed(&self) -> String {
        let mut state = self.state.subscribe();
        let failed = state.wait_for(|it| it.failed.is_some()).await;
        let failed = failed.expect("the sender must live: self holds it");
        failed.failed.as_deref().unwrap_or_default().to_owned()
    }

    pub(crate) async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<(), Behind> {
        let mut state = self.state.subscribe();
        let reached = state.wait_for(|it| it.applied >= revision || it.failed.is_some());
        let is_live = tokio::select! {
            biased;
            reached = reached => reached.expect("the sender must live: self holds it").failed.is_none(),
            () = self.clock.sleep(timeout) => false,
        };
        if is_live { Ok(()) } else { Err(Behind { current: self.applied() }) }
    }
}
