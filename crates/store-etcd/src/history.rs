//! Which history of etcd this is: a random value in etcd that every server changes when it starts, and that every
//! transaction compares.
//!
//! Revisions prove nothing once etcd was restored from a backup without raising them: it reaches the same numbers again, by
//! other changes. A server that slept meanwhile would find the revisions that it requires, and write on what was never
//! agreed on. Servers start after a restore, so the value is another one then, and nothing is carried out.
//!
//! # Flow
//! [`EtcdStore::begin_history`] writes a new value, which names those before it. [`History::guard`] adds the comparison to
//! a transaction, and [`History::look`] judges a value that differs: if it was written after this store had last found its
//! own, and names it, another server has started and all is well; otherwise this store's own was never there, or so many
//! servers have started that nobody can tell.
//! Deliberately not here: a revision that goes back, which `guard` notices.

use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use store::{CommitError, Key, Revision, Store, Txn};

use crate::{
    config::ConnectError,
    convert::revision,
    layout::Layout,
    proto::{
        Compare, KeyValue, RangeRequest, RequestOp, ResponseOp, TxnRequest,
        compare::{Result as Relation, Target, TargetUnion},
        request_op::Request as Op,
        response_op::Response as Done,
    },
    store::EtcdStore,
};

const KEY: &str = "/convoy/history";

/// A value names so many of those before it, by so many characters: every transaction carries it.
const MOST_BEFORE: usize = 32;
const SHORT: usize = 8;

/// What this store knows of the value; nothing if it has not begun a history.
#[derive(Debug, Default)]
pub(crate) struct History(Mutex<Option<Known>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    value: Bytes,
    /// The newest revision at which etcd is known to have held it.
    found_at: Revision,
}

/// The value as it is stored.
#[derive(Debug, Deserialize, Serialize)]
struct Chapter {
    format: u32,
    nonce: String,
    /// The beginnings of those before it, newest first.
    #[serde(default)]
    before: Vec<String>,
}

impl Chapter {
    /// The one that follows what is stored.
    fn after(last: Option<&[u8]>, nonce: &str) -> Self {
        let last: Option<Self> = last.and_then(|it| serde_json::from_slice(it).ok());
        let before = last.into_iter().flat_map(|it| [it.short()].into_iter().chain(it.before));
        Self { format: 1, nonce: nonce.to_owned(), before: before.take(MOST_BEFORE).collect() }
    }

    /// Whether the other one was stored before this one.
    fn follows(&self, other: &Self) -> bool {
        self.before.contains(&other.short())
    }

    fn short(&self) -> String {
        self.nonce.chars().take(SHORT).collect()
    }
}

/// What a value that was found means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It is the one that was known.
    Same,
    /// Another server has started since: go on with the new one.
    Newer,
    /// It was written when the known one should have been there, or after others than the known one: this is another
    /// history.
    Other { written: Revision, known: Revision },
}

impl EtcdStore {
    /// Gives etcd's history another value, `nonce`, which must be random. Called by every server when it starts.
    pub async fn begin_history(&self, nonce: &str) -> Result<(), ConnectError> {
        let failed = |it: &dyn std::fmt::Display| ConnectError::Unreachable(it.to_string());
        let key = Key::new(KEY);
        loop {
            let entry = self.get(&key).await.map_err(|it| failed(&it))?;
            let value = Chapter::after(entry.as_ref().map(|it| &*it.value), nonce);
            let value = Bytes::from(serde_json::to_vec(&value).map_err(|it| failed(&it))?);
            let txn = match entry {
                Some(entry) => Txn::new().require_at(&key, entry.modified),
                None => Txn::new().require_absent(&key),
            };
            match self.commit(txn.put(&key, value.clone())).await {
                Ok(found_at) => {
                    *self.inner.history.0.lock() = Some(Known { value, found_at });
                    return Ok(());
                }
                // Another server starts at this moment.
                Err(CommitError::Unmet { .. }) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
    }
}

impl History {
    /// Has a transaction compare the value, and read it should anything not hold.
    pub(crate) fn guard(&self, layout: &Layout, ask: &mut TxnRequest) -> Option<Known> {
        let known = self.0.lock().clone()?;
        let key = place(layout)?;
        ask.compare.push(Compare {
            result: Relation::Equal.into(),
            target: Target::Value.into(),
            key: key.clone(),
            target_union: Some(TargetUnion::Value(known.value.clone())),
        });
        let read = Op::RequestRange(RangeRequest { key, limit: 1, ..Default::default() });
        ask.failure.push(RequestOp { request: Some(read) });
        Some(known)
    }

    /// Where the value is read on its own, to learn the current revision with it.
    pub(crate) fn place(&self, layout: &Layout) -> Option<Bytes> {
        self.0.lock().as_ref().and_then(|_| place(layout))
    }

    /// Takes note that the value was there at a revision.
    pub(crate) fn hold(&self, known: Option<&Known>, at: Revision) {
        let mut now = self.0.lock();
        if let (Some(known), Some(now)) = (known, now.as_mut())
            && known.value == now.value
        {
            now.found_at = now.found_at.max(at);
        }
    }

    /// The last answer of a transaction that was not carried out, which [`History::guard`] asked for.
    pub(crate) fn look_at(&self, known: &Known, answers: &mut Vec<ResponseOp>, at: Revision) -> Found {
        let found = match answers.pop().and_then(|it| it.response) {
            Some(Done::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        };
        self.look(known, found.as_ref(), at)
    }

    /// Compares what was found at a revision with what was known when it was asked for.
    pub(crate) fn look(&self, known: &Known, found: Option<&KeyValue>, at: Revision) -> Found {
        let (value, written) = match found {
            Some(it) => (it.value.clone(), revision(it.mod_revision)),
            // Nobody removes it, but a backup from before the first server may lack it.
            None => (Bytes::new(), Revision::ZERO),
        };
        let verdict = judge(known, &value, written);
        let mut now = self.0.lock();
        let is_news = now.as_ref().is_some_and(|it| it.found_at < at);
        if verdict != (Found::Other { written, known: known.found_at }) && is_news {
            *now = Some(Known { value: Bytes::copy_from_slice(&value), found_at: at });
        }
        verdict
    }

    /// What is known now.
    pub(crate) fn known(&self) -> Option<Known> {
        self.0.lock().clone()
    }
}

fn judge(known: &Known, value: &[u8], written: Revision) -> Found {
    if known.value == value {
        Found::Same
    } else if written > known.found_at && names(value, &known.value) {
        Found::Newer
    } else {
        Found::Other { written, known: known.found_at }
    }
}

/// Whether a value names the other one among those before it.
fn names(value: &[u8], other: &[u8]) -> bool {
    let read = |it: &[u8]| serde_json::from_slice::<Chapter>(it).ok();
    read(value).zip(read(other)).is_some_and(|(value, other)| value.follows(&other))
}

fn place(layout: &Layout) -> Option<Bytes> {
    layout.outward(&Key::new(KEY))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(value: &Bytes, written: i64) -> KeyValue {
        KeyValue { value: value.clone(), mod_revision: written, ..Default::default() }
    }

    /// Values that follow one another.
    fn values<const N: usize>(nonces: [&str; N]) -> [Bytes; N] {
        let mut last: Option<Bytes> = None;
        nonces.map(|nonce| {
            let next = serde_json::to_vec(&Chapter::after(last.as_deref(), nonce)).unwrap();
            last.insert(Bytes::from(next)).clone()
        })
    }

    #[test]
    fn a_value_from_before_the_known_one_is_another_history() {
        let [a, b] = values(["a", "b"]);
        let known = Known { value: a.clone(), found_at: Revision::new(10) };
        assert_eq!(judge(&known, &a, Revision::new(3)), Found::Same);
        assert_eq!(judge(&known, &b, Revision::new(11)), Found::Newer);
        for written in [0, 3, 10] {
            let written = Revision::new(written);
            let other = Found::Other { written, known: Revision::new(10) };
            assert_eq!(judge(&known, &b, written), other);
        }
    }

    /// A backup from before the known value was restored, two servers have started since, and etcd has come past the
    /// revision at which the known value was found.
    #[test]
    fn a_later_value_that_does_not_know_the_known_one_is_another_history() {
        let [first, a] = values(["first", "a"]);
        let [_, b, c] = values(["first", "b", "c"]);
        let known = Known { value: a, found_at: Revision::new(10) };
        for value in [b, c] {
            let other = Found::Other { written: Revision::new(20), known: Revision::new(10) };
            assert_eq!(judge(&known, &value, Revision::new(20)), other);
        }
        assert!(matches!(judge(&known, &first, Revision::new(20)), Found::Other { .. }));
        assert!(matches!(judge(&known, b"", Revision::new(20)), Found::Other { .. }));
    }

    #[test]
    fn a_value_names_a_bounded_number_of_others() {
        let names: Vec<String> = (0..300).map(|it| it.to_string()).collect();
        let last = names.iter().fold(None::<Vec<u8>>, |last, nonce| {
            serde_json::to_vec(&Chapter::after(last.as_deref(), nonce)).ok()
        });
        let last: Chapter = serde_json::from_slice(&last.unwrap()).unwrap();
        assert_eq!((last.nonce.as_str(), last.before.len()), ("299", MOST_BEFORE));
        assert_eq!(last.before[0], "298");
    }

    #[test]
    fn what_is_known_only_grows() {
        let [a, b] = values(["a", "b"]);
        let known = Known { value: a.clone(), found_at: Revision::new(10) };
        let history = History(Mutex::new(Some(known.clone())));
        history.hold(Some(&known), Revision::new(20));
        assert_eq!(history.look(&known, Some(&value(&b, 30)), Revision::new(35)), Found::Newer);
        let newer = Known { value: b, found_at: Revision::new(35) };
        assert_eq!(history.known(), Some(newer.clone()));
        // An answer that was overtaken by another one.
        history.hold(Some(&known), Revision::new(99));
        assert_eq!(history.look(&known, Some(&value(&a, 1)), Revision::new(25)), Found::Same);
        assert_eq!(history.known(), Some(newer));
    }
}
