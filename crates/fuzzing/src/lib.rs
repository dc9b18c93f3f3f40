//! What the fuzzers call: one function per target, each of which takes any bytes and must not panic.
//!
//! The functions assert more than survival: what was accepted is written, read again and compared. They live here and
//! not in `fuzz/`, so that the checked-in corpus replays on a stable toolchain (`tests/it`).
//! Deliberately not here: the fuzzers themselves; see `fuzz/`.
//! Start reading at [`targets`].

pub mod targets;

mod conversion;
mod encoding;
mod identity;
mod objects;
mod ownership;
mod request;
mod transcode;
mod vocabulary;

pub use targets::TARGETS;
