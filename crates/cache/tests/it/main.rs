//! The cache in front of an in-memory store, also through a bad connection.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests may, and print their figures")]

mod failures;
mod memory;
mod open;
mod reads;
mod storm;
mod support;
mod watches;
