//! How long a client may take to read an answer. Answers that nobody reads would keep their memory and their slot for ever.
//!
//! Responsible for: when an answer, or its next piece, must have been taken.
//! Deliberately not here: what happens then (`listen`).

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For the whole answer.
    Whole(Duration),
    /// From one piece to the next, for answers that last by their nature. Time without anything to send does not count.
    Piece(Duration),
}

/// When the time for an answer is over. Shared by its body and by whoever ends it.
#[derive(Debug, Default)]
pub(crate) struct Limit(Mutex<Option<Instant>>);

impl Limit {
    /// There is an answer from now on.
    pub(crate) fn begin(&self, patience: Option<Patience>) {
        match patience {
            Some(Patience::Whole(time) | Patience::Piece(time)) => self.within(time),
            None => self.clear(),
        }
    }

    /// Something was handed over: the next piece has this much time to be asked for.
    pub(crate) fn within(&self, time: Duration) {
        *self.0.lock() = Some(Instant::now() + time);
    }

    /// Nobody is waited for.
    pub(crate) fn clear(&self) {
        *self.0.lock() = None;
    }

    /// When it is over, if it is limited now.
    pub(crate) fn at(&self) -> Option<Instant> {
        *self.0.lock()
    }
}
