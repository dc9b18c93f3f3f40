//! Checkers for what clients saw: pure, told everything, doing nothing.
//!
//! [`durability`] judges writes across crashes, [`watch`] judges watchers, [`linearizable`] what clients of one object
//! were told, [`routing`] what they were denied, [`encoding`] and [`migration`] what was stored. All are tested with histories that must fail: a checker
//! that accepts everything proves nothing.

pub mod durability;
pub mod encoding;
pub mod linearizable;
pub mod migration;
pub mod routing;
pub mod watch;
