//! Checkers for what clients saw: pure, told everything, doing nothing.
//!
//! [`durability`] judges writes across crashes, [`watch`] judges watchers. Both are tested with
//! histories that must fail: a checker that accepts everything proves nothing.

pub mod durability;
pub mod encoding;
pub mod watch;
