//! How many requests are worked on at a time.
//!
//! Responsible for: two counters with two limits, for requests that change something and for those that do not.
//! Deliberately not here: which requests are exempt (long-running ones, and those of `system:masters`), and the
//! 429 that a refusal becomes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// What upstream answers, with `Retry-After: 1`.
pub const REFUSAL: &str = "too many requests, please try again later";

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// get, list, watch.
    ReadOnly,
    /// Everything else.
    Mutating,
}

impl RequestKind {
    /// The verbs as they stand in attributes: `get`, `list`, `watch`, `create`, ….
    pub fn of_verb(verb: &str) -> Self {
        if matches!(verb, "get" | "list" | "watch" | "proxy" | "head" | "options") {
            Self::ReadOnly
        } else {
            Self::Mutating
        }
    }

    /// The label of the metric.
    pub fn label(self) -> &'static str {
        match self {
            Self::ReadOnly => "readOnly",
            Self::Mutating => "mutating",
        }
    }
}

/// The two limits.
#[derive(Clone, Debug)]
pub struct InFlightLimits {
    read_only: Arc<Limit>,
    mutating: Arc<Limit>,
}

#[derive(Debug)]
struct Limit {
    most: usize,
    now: AtomicUsize,
}

impl InFlightLimits {
    /// The most of each at a time; 0 is no limit.
    pub fn new(read_only: usize, mutating: usize) -> Self {
        let limit = |most| Arc::new(Limit { most, now: AtomicUsize::new(0) });
        Self { read_only: limit(read_only), mutating: limit(mutating) }
    }

    /// Lets a request in, if there is room; it leaves when the guard is dropped.
    pub fn try_acquire(&self, kind: RequestKind) -> Option<InFlightGuard> {
        let guard = self.acquire(kind);
        // Counted first and taken back if too many: two that come at once may both be refused, never both let in.
        let limit = &guard.0;
        let fits = limit.most == 0 || limit.now.load(Ordering::Acquire) <= limit.most;
        fits.then_some(guard)
    }

    /// Lets a request in that is exempt from the limits, but counts.
    pub fn acquire(&self, kind: RequestKind) -> InFlightGuard {
        let limit = self.limit(kind);
        limit.now.fetch_add(1, Ordering::AcqRel);
        InFlightGuard(Arc::clone(limit))
    }

    /// How many there are.
    pub fn count(&self, kind: RequestKind) -> usize {
        self.limit(kind).now.load(Ordering::Relaxed)
    }

    fn limit(&self, kind: RequestKind) -> &Arc<Limit> {
        match kind {
            RequestKind::ReadOnly => &self.read_only,
            RequestKind::Mutating => &self.mutating,
        }
    }
}

/// One request that was let in.
#[derive(Debug)]
pub struct InFlightGuard(Arc<Limit>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_own_limit_and_room_comes_back() {
        let limits = InFlightLimits::new(2, 1);
        let (one, two) =
            (limits.try_acquire(RequestKind::ReadOnly), limits.try_acquire(RequestKind::ReadOnly));
        assert!(one.is_some() && two.is_some());
        assert!(limits.try_acquire(RequestKind::ReadOnly).is_none());
        assert!(limits.try_acquire(RequestKind::Mutating).is_some());
        drop(one);
        assert_eq!(limits.count(RequestKind::ReadOnly), 1);
        assert!(limits.try_acquire(RequestKind::ReadOnly).is_some());
    }

    #[test]
    fn zero_is_no_limit_and_the_exempt_are_let_in_anyway() {
        let limits = InFlightLimits::new(0, 1);
        let many: Vec<_> = (0..1_000).map(|_| limits.try_acquire(RequestKind::ReadOnly)).collect();
        assert!(many.iter().all(Option::is_some));
        let _exempt = (limits.acquire(RequestKind::Mutating), limits.acquire(RequestKind::Mutating));
        assert_eq!(limits.count(RequestKind::Mutating), 2);
    }

    #[test]
    fn the_limit_holds_under_contention() {
        let limits = InFlightLimits::new(3, 0);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        if let Some(guard) = limits.try_acquire(RequestKind::ReadOnly) {
                            most.fetch_add(1, Ordering::SeqCst);
                            assert!(most.load(Ordering::SeqCst) <= 3);
                            most.fetch_sub(1, Ordering::SeqCst);
                            drop(guard);
                        }
                    }
                });
            }
        });
        assert_eq!(limits.count(RequestKind::ReadOnly), 0);
    }
}
