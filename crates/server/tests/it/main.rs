//! The whole chain in one process on the in-memory store: no sockets, no TLS.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod admission;
mod apply;
mod bombs;
mod conversion;
mod custom;
mod defaults;
mod deletion;
mod edges;
mod harness;
mod large;
mod lists;
mod migrations;
mod pods;
mod protobuf;
mod recorded;
mod replay;
mod requests;
mod rights;
mod scale;
mod schemas;
mod shapes;
mod versions;
mod watches;
mod writes;
mod yaml;
