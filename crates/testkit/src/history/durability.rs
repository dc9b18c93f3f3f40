//! Nothing acknowledged is lost, nothing appears that nobody wrote, resourceVersions never go back.
//!
//! # Flow
//! One writer per key calls [`Durability::begin`] before and [`Durability::end`] after each write; after
//! a crash somebody lists everything and calls [`Durability::observe`].
//!
//! # Guarantees
//! An accepted history has an order of writes in which each acknowledged one happened, each refused
//! one did not, and each one of unknown outcome happened once or not at all.
//!
//! # Assumptions
//! A key has one writer at a time; a value is written at most once (values are unique).

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

/// What was seen of one stored object: its value and its resourceVersion.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub value: String,
    pub revision: u64,
}

/// What a writer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Put(String),
    Delete,
}

/// What the writer learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done; a put says at which resourceVersion.
    Acknowledged(Option<u64>),
    /// Certainly not done (409, 404, 422, 429 …).
    Refused,
    /// The connection broke, a time-out, a 5xx: it may have happened.
    Unknown,
}

/// A write under way.
#[derive(Debug)]
#[must_use]
pub struct Pending {
    key: String,
    write: Write,
    /// The newest resourceVersion that anybody had been told of when this write began.
    floor: u64,
}

/// What must not happen.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Violation {
    #[error("{key}: expected one of {possible:?}, found {found:?}")]
    Wrong { key: String, possible: Vec<Option<Seen>>, found: Option<Seen> },
    #[error("{key} exists with {found:?}, but nobody wrote that key")]
    Phantom { key: String, found: Seen },
    #[error("{key}: written at {revision} after {floor} had been acknowledged")]
    WentBack { key: String, revision: u64, floor: u64 },
    #[error("{key}: revision {revision} was given to two writes")]
    UsedTwice { key: String, revision: u64 },
    #[error("a list at {revision} after {floor} had been acknowledged")]
    OldList { revision: u64, floor: u64 },
}

/// Everything known about the writes so far.
#[derive(Debug, Default)]
pub struct Durability {
    keys: BTreeMap<String, BTreeSet<State>>,
    used: BTreeSet<u64>,
    newest: u64,
    acknowledged: usize,
    unknown: usize,
    /// Servers may write an object anew as it is, in another version.
    is_migrated: bool,
}

/// One state a key may be in; the revision of an unacknowledged write is not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Absent,
    At(Seen),
    Somewhere { value: String, after: u64 },
}

impl Durability {
    /// For clusters that migrate what they store: an object may have a newer resourceVersion than its last write gave it.
    pub fn with_migrations() -> Self {
        Self { is_migrated: true, ..Self::default() }
    }

    /// A write is about to be sent.
    pub fn begin(&mut self, key: &str, write: Write) -> Pending {
        self.keys.entry(key.to_owned()).or_insert_with(|| BTreeSet::from([State::Absent]));
        Pending { key: key.to_owned(), write, floor: self.newest }
    }

    /// Its outcome.
    pub fn end(&mut self, pending: Pending, outcome: Outcome) -> Result<(), Violation> {
        let Pending { key, write, floor } = pending;
        match outcome {
            Outcome::Refused => Ok(()),
            Outcome::Unknown => {
                self.unknown += 1;
                let state = match write {
                    Write::Put(value) => State::Somewhere { value, after: floor },
                    Write::Delete => State::Absent,
                };
                self.keys.entry(key).or_default().insert(state);
                Ok(())
            }
            Outcome::Acknowledged(revision) => {
                self.acknowledged += 1;
                if let Some(revision) = revision {
                    self.advance(&key, revision, floor)?;
                }
                let state = match (write, revision) {
                    (Write::Delete, _) => State::Absent,
                    (Write::Put(value), Some(revision)) => State::At(Seen { value, revision }),
                    (Write::Put(value), None) => State::Somewhere { value, after: floor },
                };
                self.keys.insert(key, BTreeSet::from([state]));
                Ok(())
            }
        }
    }

    /// A consistent list of everything, taken while no write is under way.
    pub fn observe(&mut self, revision: u64, found: &BTreeMap<String, Seen>) -> Result<(), Violation> {
        if revision < self.newest {
            return Err(Violation::OldList { revision, floor: self.newest });
        }
        self.newest = revision;
        for (key, seen) in found {
            if !self.keys.contains_key(key) {
                return Err(Violation::Phantom { key: key.clone(), found: seen.clone() });
            }
        }
        let keys: Vec<String> = self.keys.keys().cloned().collect();
        keys.iter().try_for_each(|key| self.observe_one(key, found.get(key)))
    }

    /// One key as it is now, while its writer waits. What was possible becomes what is.
    pub fn observe_one(&mut self, key: &str, found: Option<&Seen>) -> Result<(), Violation> {
        let possible = self.keys.entry(key.to_owned()).or_insert_with(|| BTreeSet::from([State::Absent]));
        let is_migrated = self.is_migrated;
        if !possible.iter().any(|it| it.allows(found, is_migrated)) {
            let possible = possible.iter().map(State::seen).collect();
            return Err(Violation::Wrong { key: key.to_owned(), possible, found: found.cloned() });
        }
        let state = found.cloned().map_or(State::Absent, State::At);
        *possible = BTreeSet::from([state]);
        Ok(())
    }

    /// What the writer of this key may send as the current state; `None` while there is doubt.
    pub fn certain(&self, key: &str) -> Option<Option<Seen>> {
        let Some(possible) = self.keys.get(key) else { return Some(None) };
        match possible.iter().collect::<Vec<_>>().as_slice() {
            [State::Absent] => Some(None),
            [State::At(seen)] => Some(Some(seen.clone())),
            _ => None,
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    pub fn unknown(&self) -> usize {
        self.unknown
    }

    fn advance(&mut self, key: &str, revision: u64, floor: u64) -> Result<(), Violation> {
        if revision <= floor {
            return Err(Violation::WentBack { key: key.to_owned(), revision, floor });
        }
        if !self.used.insert(revision) {
            return Err(Violation::UsedTwice { key: key.to_owned(), revision });
        }
        self.newest = self.newest.max(revision);
        Ok(())
    }
}

impl State {
    fn allows(&self, found: Option<&Seen>, is_migrated: bool) -> bool {
        match (self, found) {
            (State::Absent, None) => true,
            (State::At(seen), Some(found)) if is_migrated => {
                seen.value == found.value && found.revision >= seen.revision
            }
            (State::At(seen), Some(found)) => seen == found,
            (State::Somewhere { value, after }, Some(found)) => {
                value == &found.value && found.revision > *after
            }
            (State::Absent, Some(_)) | (State::At(_) | State::Somewhere { .. }, None) => false,
        }
    }

    fn seen(&self) -> Option<Seen> {
        match self {
            State::Absent => None,
            State::At(seen) => Some(seen.clone()),
            State::Somewhere { value, after } => Some(Seen { value: value.clone(), revision: *after }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(history: &mut Durability, key: &str, value: &str, outcome: Outcome) -> Result<(), Violation> {
        let pending = history.begin(key, Write::Put(value.to_owned()));
        history.end(pending, outcome)
    }

    fn list(items: &[(&str, &str, u64)]) -> BTreeMap<String, Seen> {
        let seen = |value: &str, revision| Seen { value: value.to_owned(), revision };
        items.iter().map(|(key, value, revision)| ((*key).to_owned(), seen(value, *revision))).collect()
    }

    fn acknowledged(revision: u64) -> Outcome {
        Outcome::Acknowledged(Some(revision))
    }

    #[test]
    fn acknowledged_writes_must_be_there() {
        let mut history = Durability::default();
        put(&mut history, "a", "1", acknowledged(5)).unwrap();
        history.observe(5, &list(&[("a", "1", 5)])).unwrap();
        let lost = history.observe(6, &list(&[]));
        assert!(matches!(lost, Err(Violation::Wrong { .. })), "{lost:?}");
    }

    #[test]
    fn an_older_value_is_a_lost_write() {
        let mut history = Durability::default();
        put(&mut history, "a", "1", acknowledged(5)).unwrap();
        put(&mut history, "a", "2", acknowledged(6)).unwrap();
        let old = history.observe(6, &list(&[("a", "1", 5)]));
        assert!(matches!(old, Err(Violation::Wrong { .. })), "{old:?}");
    }

    #[test]
    fn unknown_writes_may_go_either_way_but_not_both() {
        let begin = || {
            let mut history = Durability::default();
            put(&mut history, "a", "1", acknowledged(5)).unwrap();
            put(&mut history, "a", "2", Outcome::Unknown).unwrap();
            history
        };
        begin().observe(7, &list(&[("a", "1", 5)])).unwrap();
        let mut history = begin();
        history.observe(7, &list(&[("a", "2", 6)])).unwrap();
        let back = history.observe(7, &list(&[("a", "1", 5)]));
        assert!(matches!(back, Err(Violation::Wrong { .. })), "{back:?}");
        assert!(begin().observe(7, &list(&[("a", "3", 6)])).is_err());
    }

    #[test]
    fn refused_writes_must_not_appear() {
        let mut history = Durability::default();
        put(&mut history, "a", "1", Outcome::Refused).unwrap();
        assert!(history.observe(9, &list(&[("a", "1", 5)])).is_err());
    }

    #[test]
    fn keys_nobody_wrote_are_phantoms() {
        let mut history = Durability::default();
        let phantom = history.observe(9, &list(&[("ghost", "1", 5)]));
        assert!(matches!(phantom, Err(Violation::Phantom { .. })), "{phantom:?}");
    }

    #[test]
    fn deleted_objects_stay_deleted() {
        let mut history = Durability::default();
        put(&mut history, "a", "1", acknowledged(5)).unwrap();
        let pending = history.begin("a", Write::Delete);
        history.end(pending, Outcome::Acknowledged(None)).unwrap();
        assert!(history.observe(9, &list(&[("a", "1", 5)])).is_err());
    }

    #[test]
    fn what_is_migrated_may_be_newer_but_not_other() {
        let found = |value: &str, revision| {
            BTreeMap::from([("a".to_owned(), Seen { value: value.to_owned(), revision })])
        };
        for (value, revision, is_right) in [("1", 5, true), ("1", 7, true), ("1", 4, false), ("2", 7, false)]
        {
            let mut history = Durability::with_migrations();
            put(&mut history, "a", "1", acknowledged(5)).unwrap();
            assert_eq!(history.observe(9, &found(value, revision)).is_ok(), is_right, "{value} {revision}");
        }
        let mut history = Durability::default();
        put(&mut history, "a", "1", acknowledged(5)).unwrap();
        assert!(history.observe(9, &found("1", 7)).is_err());
    }

    #[test]
    fn resource_versions_never_go_back() {
        let mut history = Durability::default();
        put(&mut history, "a", "1", acknowledged(5)).unwrap();
        assert!(matches!(put(&mut history, "b", "1", acknowledged(4)), Err(Violation::WentBack { .. })));
        assert!(matches!(history.observe(4, &list(&[])), Err(Violation::OldList { .. })));
    }

    #[test]
    fn concurrent_writes_may_be_acknowledged_in_any_order_but_share_no_revision() {
        let mut history = Durability::default();
        let first = history.begin("a", Write::Put("1".to_owned()));
        let second = history.begin("b", Write::Put("1".to_owned()));
        let third = history.begin("c", Write::Put("1".to_owned()));
        history.end(second, acknowledged(7)).unwrap();
        history.end(first, acknowledged(6)).unwrap();
        assert!(matches!(history.end(third, acknowledged(7)), Err(Violation::UsedTwice { .. })));
    }
}
