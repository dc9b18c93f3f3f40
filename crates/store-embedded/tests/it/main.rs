//! The embedded store as its users see it.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking; clippy only knows test functions")]

mod conforms;
mod crash;
mod reopen;
mod snapshot;
mod support;
