//! The cache in front of an in-memory store, also through a bad connection.

mod failures;
mod memory;
mod reads;
mod storm;
mod support;
mod watches;
