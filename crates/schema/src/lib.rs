//! What happens to an object between its bytes and its meaning: reading and writing JSON, what a schema says of it,
//! patches, and server-side apply.
//!
//! Pure: no async, no I/O, no clock, and everything is bounded, because all of it works on what strangers send.
//! Deliberately not here: what a resource is called and how it is stored.
//! Start reading at [`json`], [`model`], [`check`], [`patch`] and [`apply`]; [`custom`] is what users define.
#![warn(missing_docs)]

pub mod apply;
pub mod check;
pub mod convert;
pub mod custom;
pub mod default;
mod go_text;
pub mod json;
pub mod keep;
pub mod model;
pub mod patch;
pub mod protobuf;
pub mod prune;
pub mod yaml;

/// A JSON tree.
pub type Value = serde_json::Value;

/// A JSON object.
pub type Map = serde_json::Map<String, Value>;
