//! When a request may be sent again, and why that does no harm.
//!
//! client-go and everything built on it sends a request again by itself when the answer is 429 or 5xx and carries
//! `Retry-After`, whatever the request was. So that header is a statement: *nothing happened*. Whoever wants to make it
//! must say why it is true; where the outcome of a write is not known there is nothing to say, and so no header.

/// After how many seconds a request may be sent again. There are three ways to come by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter {
    seconds: u32,
}

/// Proof that a write did not happen and will not happen: an error after which its maker knows that.
pub trait DidNotHappen {}

impl RetryAfter {
    /// The request was refused before anything was done.
    pub fn not_begun(seconds: u32) -> Self {
        Self { seconds }
    }

    /// Whatever failed only reads, and nothing was written before it.
    pub fn only_read(seconds: u32) -> Self {
        Self { seconds }
    }

    /// Something was to be written, and that did not happen.
    pub fn proven(seconds: u32, _proof: &impl DidNotHappen) -> Self {
        Self { seconds }
    }

    pub(crate) fn seconds(self) -> u32 {
        self.seconds
    }
}
