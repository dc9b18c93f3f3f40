//! The store's counter of commits. Not a `resourceVersion`: that is what clients see and must not compute with.

use std::fmt;

/// The position of a commit in the store's history. Grows by every commit that changes something,
/// is shared by all changes of one transaction, and is never used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before any write.
    pub const ZERO: Revision = Revision(0);

    /// Wraps a number that came from a store, a disk or a wire.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number, for a disk or a wire.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision right after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The revision right before this one; zero has none and stays.
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
