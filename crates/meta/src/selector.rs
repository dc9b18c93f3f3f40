//! Label and field selectors: parsing, with upstream's grammar and error texts, and matching.
//!
//! Deliberately not here: which fields of a kind can be selected; that is a fact of the kind.

pub mod field;
pub mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;

/// More text than this is not parsed at all. No client writes selectors of this size.
pub const MAX_SELECTOR_BYTES: usize = 64 * 1024;

/// A selector that cannot be understood. The text is what clients are told, with code 400.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It does not follow the grammar, or a key or value is not acceptable.
    #[error("{0}")]
    Malformed(String),
    /// It is longer than [`MAX_SELECTOR_BYTES`].
    #[error("selector is too long: {0} bytes, at most {MAX_SELECTOR_BYTES} are accepted")]
    TooLong(usize),
}

fn check_length(text: &str) -> Result<(), SelectorError> {
    if text.len() > MAX_SELECTOR_BYTES { Err(SelectorError::TooLong(text.len())) } else { Ok(()) }
}
