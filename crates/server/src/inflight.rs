//! How many requests are worked on at a time, of all users and of each.
//!
//! Responsible for: two counters with two limits, for requests that change something and for those that do not; and the
//! part of each that one user can have ([`Payer`] says who counts as one).
//! Deliberately not here: which requests are exempt (long-running ones, and those of `system:masters`), and the
//! 429 that a refusal becomes.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;

use crate::payer::Payer;

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
    users: Users,
}

impl InFlightLimits {
    /// The most of each at a time; 0 is no limit.
    pub fn new(read_only: usize, mutating: usize) -> Self {
        let limit = |most| Arc::new(Limit { most, now: AtomicUsize::new(0), users: Users::default() });
        Self { read_only: limit(read_only), mutating: limit(mutating) }
    }

    /// Lets a request in, if there is room and whoever it is of has not had a fair part of it; it leaves when the guard is
    /// dropped.
    pub fn try_acquire(&self, kind: RequestKind, payer: &Payer) -> Option<InFlightGuard> {
        let mut guard = self.acquire(kind);
        if guard.limit.most == 0 {
            return Some(guard);
        }
        // Counted first and taken back if too many: two that come at once may both be refused, never both let in.
        let fits = guard.limit.now.load(Ordering::Acquire) <= guard.limit.most;
        if !fits {
            return None;
        }
        for (at, (name, part)) in payer.parts().enumerate() {
            guard.counted[at] = Some(guard.limit.users.enter(name, part.of(guard.limit.most))?);
        }
        Some(guard)
    }

    /// Lets a request in that is exempt from the limits, but counts.
    pub fn acquire(&self, kind: RequestKind) -> InFlightGuard {
        let limit = Arc::clone(self.limit(kind));
        limit.now.fetch_add(1, Ordering::AcqRel);
        InFlightGuard { limit, counted: [None, None] }
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
pub struct InFlightGuard {
    limit: Arc<Limit>,
    /// Under each name of whoever it is of.
    counted: [Option<Counted>; 2],
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.limit.now.fetch_sub(1, Ordering::AcqRel);
    }
}

/// How many requests of each user there are. Only those that have some are kept.
#[derive(Debug, Default)]
struct Users {
    hasher: RandomState,
    // Several, so that requests do not wait for each other.
    shards: Arc<[Shard; 16]>,
}

type Shard = Mutex<HashMap<Arc<str>, usize>>;

impl Users {
    /// Counts a request of this user, unless there are `most` already.
    fn enter(&self, user: &Arc<str>, most: usize) -> Option<Counted> {
        let at = usize::try_from(self.hasher.hash_one(user) % 16).expect("a number below 16 must fit");
        let mut shard = self.shards[at].lock();
        let n = shard.entry(Arc::clone(user)).or_default();
        if *n >= most {
            return None;
        }
        *n += 1;
        Some(Counted { name: Arc::clone(user), at, shards: Arc::clone(&self.shards) })
    }
}

/// One request, under one name.
#[derive(Debug)]
struct Counted {
    name: Arc<str>,
    at: usize,
    shards: Arc<[Shard; 16]>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut shard = self.shards[self.at].lock();
        if let Some(n) = shard.get_mut(&self.name) {
            *n -= 1;
            if *n == 0 {
                shard.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> Payer {
        Payer::named(name)
    }

    #[test]
    fn each_kind_has_its_own_limit_and_room_comes_back() {
        let limits = InFlightLimits::new(2, 1);
        let read = |user: &str| limits.try_acquire(RequestKind::ReadOnly, &Payer::named(user));
        let (one, two) = (read("a"), read("b"));
        assert!(one.is_some() && two.is_some());
        assert!(read("c").is_none());
        assert!(limits.try_acquire(RequestKind::Mutating, &user("a")).is_some());
        drop(one);
        assert_eq!(limits.count(RequestKind::ReadOnly), 1);
        assert!(read("c").is_some());
    }

    #[test]
    fn zero_is_no_limit_and_the_exempt_are_let_in_anyway() {
        let limits = InFlightLimits::new(0, 1);
        let many: Vec<_> =
            (0..1_000).map(|_| limits.try_acquire(RequestKind::ReadOnly, &user("a"))).collect();
        assert!(many.iter().all(Option::is_some));
        let _exempt = (limits.acquire(RequestKind::Mutating), limits.acquire(RequestKind::Mutating));
        assert_eq!(limits.count(RequestKind::Mutating), 2);
    }

    /// One user took all slots, and everybody else got 429.
    #[test]
    fn one_user_leaves_three_quarters_to_others() {
        let limits = InFlightLimits::new(400, 200);
        for (kind, share) in [(RequestKind::ReadOnly, 100), (RequestKind::Mutating, 50)] {
            let mut held: Vec<_> =
                (0..share).map(|_| limits.try_acquire(kind, &user("greedy")).unwrap()).collect();
            assert!(limits.try_acquire(kind, &user("greedy")).is_none());
            assert!(limits.try_acquire(kind, &user("modest")).is_some());
            held.pop();
            assert!(limits.try_acquire(kind, &user("greedy")).is_some());
            drop(held);
            assert!(limits.limit(kind).users.shards.iter().all(|it| it.lock().is_empty()));
        }
    }

    /// Whoever may make ServiceAccounts made four of them, and had everything.
    #[test]
    fn the_accounts_of_one_namespace_leave_half_to_others() {
        let limits = InFlightLimits::new(400, 200);
        let take = |name: &str| limits.try_acquire(RequestKind::Mutating, &user(name));
        let account = |n: usize| format!("system:serviceaccount:dev:x{}", n % 4);
        let held: Vec<_> = (0..100).map(|n| take(&account(n)).unwrap()).collect();
        assert!(take(&account(0)).is_none() && take("system:serviceaccount:dev:x5").is_none());
        assert!(take("system:serviceaccount:prod:x0").is_some() && take("alice").is_some());
        assert_eq!(limits.count(RequestKind::Mutating), 100);
        drop(held);
        let alone: Vec<_> = (0..50).map(|_| take(&account(1)).unwrap()).collect();
        assert!(take(&account(1)).is_none() && take(&account(2)).is_some());
        drop(alone);
        assert!(limits.mutating.users.shards.iter().all(|it| it.lock().is_empty()));
    }

    #[test]
    fn the_limit_holds_under_contention() {
        let limits = InFlightLimits::new(3, 0);
        let number = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let name = format!("u{}", number.fetch_add(1, Ordering::Relaxed));
                        if let Some(guard) = limits.try_acquire(RequestKind::ReadOnly, &user(&name)) {
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
