//! What the servers of one cluster have agreed on: here, the version each resource is stored in.
//!
//! Responsible for decisions over records: pure planning, no I/O.
//! Deliberately not here: HTTP, objects, and the reading and writing of the records themselves.
//! Start reading at [`encoding`].
#![warn(missing_docs)]

pub mod encoding;

pub use encoding::{Encoding, Encodings};
