//! Remembers which cluster answered and how far it was, and notices when that goes back: after a restore
//! without a raised revision, or when an endpoint belongs to another cluster. Then everything held in memory
//! may be wrong, so the store refuses all further work until the process starts anew.
//!
//! Not noticed here: a restored store that was written past the old revision before anybody asked; see `history`.

use std::fmt;

use parking_lot::Mutex;
use store::Revision;

use crate::{convert::revision, proto::ResponseHeader};

/// What was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WentBack {
    pub(crate) seen: Revision,
    pub(crate) now: Revision,
    is_other_cluster: bool,
}

impl fmt::Display for WentBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seen, now, is_other_cluster } = self;
        if *is_other_cluster {
            write!(
                f,
                "another etcd cluster answers than before (revision {now}, seen {seen}); restart the server"
            )
        } else {
            write!(
                f,
                "etcd's revision went back from {seen} to {now}: \
                 it was replaced or restored; restart the server"
            )
        }
    }
}

/// How an answer's revision may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// It is not older than what was known when the request was sent.
    Linearizable(Sent),
    /// The member may lag behind.
    Local,
}

/// What was known when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent(Revision);

#[derive(Debug, Default)]
pub(crate) struct Guard {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cluster: Option<u64>,
    newest: Revision,
    went_back: Option<WentBack>,
}

impl Guard {
    /// Whether there may be another request, and what its answer must not be older than.
    pub(crate) fn before_request(&self) -> Result<Sent, WentBack> {
        let state = self.state.lock();
        match state.went_back {
            Some(went_back) => Err(went_back),
            None => Ok(Sent(state.newest)),
        }
    }

    /// The newest revision that any answer showed.
    pub(crate) fn newest(&self) -> Revision {
        self.state.lock().newest
    }

    /// Looks at an answer.
    pub(crate) fn answered(
        &self,
        header: &ResponseHeader,
        freshness: Freshness,
    ) -> Result<Revision, WentBack> {
        let now = revision(header.revision);
        let mut state = self.state.lock();
        let cluster = *state.cluster.get_or_insert(header.cluster_id);
        let is_other_cluster = cluster != header.cluster_id;
        let is_older = matches!(freshness, Freshness::Linearizable(Sent(before)) if now < before);
        if is_other_cluster || is_older {
            let found = WentBack { seen: state.newest, now, is_other_cluster };
            let first = *state.went_back.get_or_insert(found);
            tracing::error!("{first}");
            return Err(first);
        }
        state.newest = state.newest.max(now);
        match state.went_back {
            Some(went_back) => Err(went_back),
            None => Ok(now),
        }
    }
}

impl Guard {
    /// Something that was found at `seen` was never there: it is another history. Ends everything as well.
    pub(crate) fn is_another_history(&self, seen: Revision, now: Revision) -> WentBack {
        let mut state = self.state.lock();
        let found = WentBack { seen, now, is_other_cluster: false };
        let first = *state.went_back.get_or_insert(found);
        tracing::error!("{first}");
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id, revision }
    }

    #[test]
    fn an_answer_older_than_its_request_ends_everything() {
        let guard = Guard::default();
        let sent = guard.before_request().unwrap();
        guard.answered(&header(1, 10), Freshness::Linearizable(sent)).unwrap();
        let sent = guard.before_request().unwrap();
        let found = guard.answered(&header(1, 7), Freshness::Linearizable(sent)).unwrap_err();
        assert_eq!((found.seen, found.now), (Revision::new(10), Revision::new(7)));
        assert_eq!(guard.before_request(), Err(found));
        assert_eq!(guard.answered(&header(1, 11), Freshness::Local), Err(found));
    }

    #[test]
    fn answers_may_overtake_each_other_and_members_may_lag() {
        let guard = Guard::default();
        let early = guard.before_request().unwrap();
        let late = guard.before_request().unwrap();
        guard.answered(&header(1, 10), Freshness::Linearizable(late)).unwrap();
        guard.answered(&header(1, 7), Freshness::Linearizable(early)).unwrap();
        guard.answered(&header(1, 5), Freshness::Local).unwrap();
        assert!(guard.before_request().is_ok());
    }

    #[test]
    fn another_cluster_ends_everything() {
        let guard = Guard::default();
        guard.answered(&header(1, 10), Freshness::Local).unwrap();
        let found = guard.answered(&header(2, 20), Freshness::Local).unwrap_err();
        assert!(found.to_string().contains("another etcd cluster"));
        assert!(guard.before_request().is_err());
    }
}
