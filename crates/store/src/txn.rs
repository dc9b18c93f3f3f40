//! What a transaction asks for: requirements and changes. How a store carries it out is not here.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::{CommitError, Key, LeaseId, Revision};

/// All of `changes`, or none: they happen only if everything in `require` holds at that moment.
#[derive(Clone, Debug, Default)]
pub struct Txn {
    /// What must hold, each about one key.
    pub require: Vec<Require>,
    /// What happens then. At most one change a key.
    pub changes: Vec<Change>,
}

/// One condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Require {
    /// The key does not exist.
    Absent(Key),
    /// The key exists and was last written at this revision.
    At(Key, Revision),
}

/// One change of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Write the value; with a lease the key goes when the lease does.
    Put(Key, Bytes, Option<LeaseId>),
    /// Remove the key; nothing happens if there is none.
    Delete(Key),
}

impl Txn {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a put without a lease.
    #[must_use]
    pub fn put(mut self, key: &Key, value: Bytes) -> Self {
        self.changes.push(Change::Put(key.clone(), value, None));
        self
    }

    /// Adds a put whose key goes when `lease` does.
    #[must_use]
    pub fn put_leased(mut self, key: &Key, value: Bytes, lease: LeaseId) -> Self {
        self.changes.push(Change::Put(key.clone(), value, Some(lease)));
        self
    }

    /// Adds a removal.
    #[must_use]
    pub fn delete(mut self, key: &Key) -> Self {
        self.changes.push(Change::Delete(key.clone()));
        self
    }

    /// Requires that the key does not exist.
    #[must_use]
    pub fn require_absent(mut self, key: &Key) -> Self {
        self.require.push(Require::Absent(key.clone()));
        self
    }

    /// Requires that the key was last written at `revision`.
    #[must_use]
    pub fn require_at(mut self, key: &Key, revision: Revision) -> Self {
        self.require.push(Require::At(key.clone(), revision));
        self
    }

    /// Adds a requirement made elsewhere, such as a fence.
    #[must_use]
    pub fn require(mut self, requirement: Require) -> Self {
        self.require.push(requirement);
        self
    }

    /// Whether every store may carry it out: no key is empty and none changes twice.
    pub fn check(&self) -> Result<(), CommitError> {
        let mut changed = BTreeSet::new();
        for change in &self.changes {
            if !changed.insert(change.key()) {
                return Err(CommitError::Rejected(format!("key {} changes twice", change.key())));
            }
        }
        let mut keys = self.changes.iter().map(Change::key).chain(self.require.iter().map(Require::key));
        if keys.any(|it| it.as_str().is_empty()) {
            return Err(CommitError::Rejected("a key is empty".into()));
        }
        Ok(())
    }
}

impl Require {
    /// The key the requirement is about.
    pub fn key(&self) -> &Key {
        match self {
            Require::Absent(key) | Require::At(key, _) => key,
        }
    }

    /// Whether the requirement holds for a key that was last written at `modified`, or is absent.
    pub fn holds(&self, modified: Option<Revision>) -> bool {
        match self {
            Require::Absent(_) => modified.is_none(),
            Require::At(_, revision) => modified == Some(*revision),
        }
    }
}

impl Change {
    /// The key that changes.
    pub fn key(&self) -> &Key {
        match self {
            Change::Put(key, _, _) | Change::Delete(key) => key,
        }
    }
}
