//! Checkers for what clients saw: pure, told everything, doing nothing.
//!
//! [`durability`] judges writes across crashes, [`watch`] judges watchers, [`linearizable`] what clients of one object
//! were told, [`routing`] what they were denied, [`encoding`] and [`migration`] what was stored, [`removal`] what was
//! removed and what was made without a reason. All are tested with histories that must fail: a checker that accepts
//! everything proves nothing.

pub mod durability;
pub mod encoding;
pub mod linearizable;
pub mod migration;
pub mod removal;
pub mod routing;
pub mod watch;
