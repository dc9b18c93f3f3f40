//! Forgetting history from time to time, by one of all servers on one etcd.
//!
//! # Flow
//! Every server looks at one key once per interval. If nobody wrote it since the last look, the server writes
//! it, on the condition that it is still the same; whoever succeeds forgets everything before the previous
//! write. That write is at least one interval old, so at least one interval of history stays.
//!
//! # Guarantees
//! A revision is never forgotten earlier than an interval after it was the newest, whatever the clocks say:
//! each server only waits on its own monotonic time.

use std::time::Duration;

use bytes::Bytes;
use store::{CommitError, Entry, Key, ReadError, Revision, SharedClock, Store, Txn};

use crate::EtcdStore;

const MARK: &str = "/convoy/compaction";

/// What one look led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Another server was here within the interval.
    Others,
    /// History before this revision was forgotten.
    Forgot(Revision),
    /// The first mark was set.
    Began,
}

impl EtcdStore {
    /// Forgets history that is older than `interval`, about every `interval`, until dropped. Any number of
    /// servers may run it; one of them does the work. Zero means never.
    pub async fn compact_every(&self, interval: Duration) {
        run(self, &self.inner.client.clock, interval).await;
    }
}

async fn run(store: &impl Store, clock: &SharedClock, interval: Duration) {
    if interval.is_zero() {
        return std::future::pending().await;
    }
    let mark = Key::new(MARK);
    let mut seen = Seen::Unknown;
    loop {
        match look(store, &mark, &mut seen).await {
            Ok(Look::Forgot(before)) => tracing::info!(%before, "forgot the store's history"),
            Ok(Look::Others | Look::Began) => {}
            Err(error) => tracing::warn!("could not forget the store's history: {error}"),
        }
        clock.sleep(interval).await;
    }
}

/// What the mark was at the last look.
enum Seen {
    Unknown,
    Known(Option<Revision>),
}

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

async fn look(store: &impl Store, mark: &Key, seen: &mut Seen) -> Result<Look, LookError> {
    let found = store.get(mark).await?.map(|it| it.modified);
    if !matches!(seen, Seen::Known(before) if *before == found) {
        *seen = Seen::Known(found);
        return Ok(Look::Others);
    }
    let txn = Txn::new().put(mark, Bytes::new());
    let txn = match found {
        Some(revision) => txn.require_at(mark, revision),
        None => txn.require_absent(mark),
    };
    // If the outcome stays unknown the next look finds a mark it does not know, and waits.
    let written = match store.commit(txn).await {
        Ok(written) => written,
        Err(CommitError::Unmet { current, .. }) => {
            let now: Option<&Entry> = current.first().and_then(Option::as_ref);
            *seen = Seen::Known(now.map(|it| it.modified));
            return Ok(Look::Others);
        }
        Err(error) => return Err(error.into()),
    };
    *seen = Seen::Known(Some(written));
    match found {
        Some(before) => {
            store.compact(before).await?;
            Ok(Look::Forgot(before))
        }
        None => Ok(Look::Began),
    }
}

#[cfg(test)]
mod tests {
    use store::{MemoryStore, ReadAt, SystemClock};

    use super::*;

    fn mark() -> Key {
        Key::new(MARK)
    }

    #[tokio::test]
    async fn history_is_kept_for_one_interval() {
        let store = MemoryStore::new(SystemClock::shared());
        let mut seen = Seen::Unknown;
        assert_eq!(look(&store, &mark(), &mut seen).await.unwrap(), Look::Others);
        assert_eq!(look(&store, &mark(), &mut seen).await.unwrap(), Look::Began);
        let began = store.current().await.unwrap();
        let kept = store.commit(Txn::new().put(&"/a".into(), Bytes::new())).await.unwrap();
        assert_eq!(look(&store, &mark(), &mut seen).await.unwrap(), Look::Forgot(began));
        let range = store::Range::prefix("/");
        assert!(store.list(&range, ReadAt::Revision(kept), 10).await.is_ok());
        let gone = store.list(&range, ReadAt::Revision(began.previous()), 10).await;
        assert!(matches!(gone, Err(ReadError::Compacted { .. })), "{gone:?}");
    }

    #[tokio::test]
    async fn one_of_two_servers_does_the_work() {
        let store = MemoryStore::new(SystemClock::shared());
        let (mut one, mut two) = (Seen::Unknown, Seen::Unknown);
        let mut work = [0, 0];
        for _ in 0..20 {
            for (n, seen) in [&mut one, &mut two].into_iter().enumerate() {
                if look(&store, &mark(), seen).await.unwrap() != Look::Others {
                    work[n] += 1;
                }
            }
        }
        assert!(work.iter().sum::<usize>() <= 20, "{work:?}");
        assert!(work.iter().sum::<usize>() >= 9, "{work:?}");
    }
}
