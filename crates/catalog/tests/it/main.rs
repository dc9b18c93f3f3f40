//! The catalog against the facts about Kubernetes, release by release.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail")]

mod facts;
mod flags;
mod objects;
mod properties;
mod protobuf;
