//! Whether a tree is an object of a type, as Go's decoder sees it: types, unknown fields, `null`.
//!
//! The result is what a typed round trip would leave: fields that the release does not know are gone and reported,
//! `null` is gone, quantities and times are in their canonical form. Nothing else is lost: numbers and texts stay.
//!
//! **Guarantees.** Complaints have the words of upstream's decoder. Fields of other releases stay where the stored
//! object has them already (a patch does not name what it does not know).
//! Deliberately not here: whether values make sense (the rules of a kind, [`crate::custom`] for those of users), and what
//! is missing ([`crate::default`]).
//! Start at [`check`]; [`strict_errors`] puts complaints into the order of the text.

mod decode;
mod go_name;
mod quantity;
mod scalar;
mod strict;
#[cfg(test)]
mod tests;
mod unstructured;

pub use quantity::{canonical as canonical_quantity, nanos as quantity_nanos};
pub use strict::strict_errors;

use crate::{
    Value,
    model::{Schema, TypeId},
};

/// At most this many unknown or duplicate fields are reported, as upstream.
pub const MAX_REPORTED: usize = 100;

/// A tree that is an object of its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The object, without the fields that the release does not know.
    pub value: Value,
    /// The paths of those fields, such as `spec.ports[0].nope`, in alphabetical order and at most [`MAX_REPORTED`].
    pub unknown: Vec<String>,
}

/// A value does not have the type that it must have. The words are those of Go's decoder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(String);

/// Whose words a complaint has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Words {
    /// Of the decoder of JSON texts.
    Json,
    /// Of upstream's converter of trees.
    Unstructured,
}

/// What to do about unknown and duplicate fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Refuse the request.
    Strict,
    /// Tell the client.
    #[default]
    Warn,
    /// Drop them silently.
    Ignore,
}

impl FieldValidation {
    /// The value of the query parameter; nothing means `Warn`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Strict" => Some(Self::Strict),
            "" | "Warn" => Some(Self::Warn),
            "Ignore" => Some(Self::Ignore),
            _ => None,
        }
    }

    /// What [`FieldValidation::parse`] accepts, as upstream lists it.
    pub const SUPPORTED: [&'static str; 4] = ["", "Ignore", "Strict", "Warn"];
}

/// Reads a tree as an object of the type.
pub fn check(schema: &Schema, ty: TypeId, value: Value) -> Result<Checked, DecodeError> {
    decode::decode(schema, ty, value, None, Words::Json)
}

/// Reads a tree that was made from a stored one by a patch: fields of other releases stay as they are in `old`.
pub fn check_patched(schema: &Schema, ty: TypeId, value: Value, old: &Value) -> Result<Checked, DecodeError> {
    decode::decode(schema, ty, value, Some(old), Words::Json)
}

/// The same for a tree that was made by a strategic merge patch, which upstream's converter of trees reads.
pub fn check_merged(schema: &Schema, ty: TypeId, value: Value, old: &Value) -> Result<Checked, DecodeError> {
    decode::decode(schema, ty, value, Some(old), Words::Unstructured)
}

/// Whether Go reads the text as a duration: `1h30m`.
pub(crate) fn is_go_duration(text: &str) -> bool {
    scalar::duration(text).is_ok()
}

/// `unknown field "spec.nope"`
pub fn unknown_field(path: &str) -> String {
    format!("unknown field {}", meta::field::quote(path))
}

/// `duplicate field "spec.nope"`
pub fn duplicate_field(path: &str) -> String {
    format!("duplicate field {}", meta::field::quote(path))
}

/// What a client is told that asked for [`FieldValidation::Strict`].
pub fn strict_message(errors: &[String]) -> String {
    format!("strict decoding error: {}", errors.join(", "))
}
