//! How records become bytes: JSON with a format number, bounded, with unknown fields kept.
//!
//! A record of a newer format is never rewritten: [`read`] refuses it, so whoever wants to change it must know it.
//! Within a format, fields may be added; an older server hands back those it does not know.

use bytes::Bytes;
use meta::{Map, Value};
use serde::{Serialize, de::DeserializeOwned};
use store::Key;

/// The format of all records that this release writes.
pub const FORMAT: u32 = 1;

/// Larger records are not ours: a store value may have 1.5 MB, and a record with its mirror must fit beside others.
pub const MAX_BYTES: usize = 512 * 1024;

/// Fields that this release does not know, kept for the release that does.
pub type Unknown = Map;

/// Something kept below `/convoy/`.
pub trait Record: Serialize + DeserializeOwned {
    /// Whether counts and lengths are within bounds and the parts fit together; else what does not.
    fn check(&self) -> Result<(), String>;
}

/// A record that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Made by a newer release in a format this one does not know.
    #[error("{key} has format {format}, this release knows formats up to {FORMAT}")]
    Newer {
        /// Where.
        key: Key,
        /// Its format.
        format: u64,
    },
    /// Not a record, or out of bounds.
    #[error("{key} is not a valid record: {what}")]
    Malformed {
        /// Where.
        key: Key,
        /// What is wrong.
        what: String,
    },
}

/// Reads a record.
pub fn read<R: Record>(key: &Key, bytes: &[u8]) -> Result<R, RecordError> {
    let malformed = |what: String| RecordError::Malformed { key: key.clone(), what };
    if bytes.len() > MAX_BYTES {
        return Err(malformed(format!("{} bytes are more than {MAX_BYTES}", bytes.len())));
    }
    let tree: Value = serde_json::from_slice(bytes).map_err(|it| malformed(it.to_string()))?;
    match tree.get("format").and_then(Value::as_u64) {
        None => return Err(malformed("no format".to_owned())),
        Some(format) if format > u64::from(FORMAT) => {
            return Err(RecordError::Newer { key: key.clone(), format });
        }
        Some(_) => {}
    }
    let record: R = serde_json::from_value(tree).map_err(|it| malformed(it.to_string()))?;
    record.check().map_err(malformed)?;
    Ok(record)
}

/// Writes a record. Equal records become equal bytes.
pub fn write<R: Record>(key: &Key, record: &R) -> Result<Bytes, RecordError> {
    let malformed = |what: String| RecordError::Malformed { key: key.clone(), what };
    record.check().map_err(malformed)?;
    let bytes = serde_json::to_vec(record).map_err(|it| malformed(it.to_string()))?;
    if bytes.len() > MAX_BYTES {
        return Err(malformed(format!("{} bytes are more than {MAX_BYTES}", bytes.len())));
    }
    Ok(bytes.into())
}

/// Checks that `n` things called `what` are not more than `most`.
pub(crate) fn bounded(what: &str, n: usize, most: usize) -> Result<(), String> {
    if n <= most { Ok(()) } else { Err(format!("{n} {what} are more than {most}")) }
}
