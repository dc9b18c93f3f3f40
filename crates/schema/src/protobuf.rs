//! Objects in Kubernetes' protobuf form, to and from JSON trees, driven by the field numbers of a [`Schema`].
//!
//! Responsible for: the `k8s\0` envelope, the frames of a watch, and what Go's types do on the way between both forms:
//! a zero that is not behind a pointer is no value, a `Time` has whole seconds, bytes are base64.
//! What the schema does not know is skipped, in both directions. Fields of other releases are written, so that what is
//! stored can be seen, and not read, because clients cannot add them.
//! Deliberately not here: which form a client asks for, and which kinds there are.
//! Start at [`decode_object`] and [`encode_object`]. Everything is bounded: [`Limits::REQUEST`] and [`MAX_DEPTH`].

mod any;
mod decode;
mod encode;
mod list;
mod scalar;
#[cfg(test)]
mod tests;
mod wire;

pub use list::ListEncoder;

use crate::{
    Map, Value,
    json::Limits,
    model::{Schema, TypeId},
};
use decode::Decoder;
use encode::Encoder;
use wire::{Payload, Reader};

/// What every object in protobuf begins with.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// Messages inside each other.
pub const MAX_DEPTH: usize = 100;

/// Finds the type of an `apiVersion` and `kind`; both are empty where the envelope does not say.
pub type Lookup<'a> = &'a dyn Fn(&str, &str) -> Option<TypeId>;

/// Why bytes are not accepted. The words are upstream's where clients can see them there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// There is nothing.
    #[error("empty data")]
    Empty,
    /// There is nothing behind the prefix.
    #[error("empty body")]
    EmptyBody,
    /// The prefix is missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotProtobuf,
    /// It ends in the middle of a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A number has too many bytes.
    #[error("proto: integer overflow")]
    Overflow,
    /// A field has no number, or a form that is not in use.
    #[error("proto: illegal tag {number} (wire type {wire})")]
    IllegalTag {
        /// The number of the field.
        number: u64,
        /// How its value is said to be written.
        wire: u8,
    },
    /// A field is written in a form that its type does not have.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongWireType {
        /// The name of the field in JSON.
        field: String,
        /// How its value is written.
        wire: u8,
    },
    /// A field has a value that JSON could not say.
    #[error("proto: field {0} has no valid value")]
    Value(String),
    /// There is no such kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    NotRegistered {
        /// As the envelope has it.
        api_version: String,
        /// As the envelope has it.
        kind: String,
    },
    /// Too many messages inside each other.
    #[error("exceeded max depth")]
    TooDeep,
    /// Too many bytes, or too many values.
    #[error("limit is {0}")]
    TooLarge(usize),
}

/// What the envelope says about the object in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// `apps/v1`
    pub api_version: String,
    /// `Deployment`
    pub kind: String,
    /// The message of the kind.
    pub raw: &'a [u8],
}

/// Opens the envelope.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, ProtobufError> {
    let rest = match bytes.strip_prefix(&MAGIC) {
        Some([]) => return Err(ProtobufError::EmptyBody),
        Some(rest) => rest,
        None if bytes.is_empty() => return Err(ProtobufError::Empty),
        None => return Err(ProtobufError::NotProtobuf),
    };
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(rest);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Bytes(type_meta)) => {
                let mut reader = Reader::new(type_meta);
                while let Some((number, payload)) = reader.field()? {
                    match (number, payload) {
                        (1, payload) => envelope.api_version = payload.text("apiVersion")?.to_owned(),
                        (2, payload) => envelope.kind = payload.text("kind")?.to_owned(),
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(raw)) => envelope.raw = raw,
            _ => {}
        }
    }
    Ok(envelope)
}

/// Reads an object in its envelope.
pub fn decode_object(bytes: &[u8], lookup: Lookup<'_>, schema: &Schema) -> Result<Value, ProtobufError> {
    let limits = Limits::REQUEST;
    if bytes.len() > limits.max_bytes {
        return Err(ProtobufError::TooLarge(limits.max_bytes));
    }
    Decoder::new(schema, lookup, limits.max_memory).enveloped(bytes, 0)
}

/// Writes an object of this type in its envelope. What the type does not know is left out.
pub fn encode_object(value: &Value, schema: &Schema, ty: TypeId) -> Vec<u8> {
    let mut encoder = Encoder::new(schema);
    encoder.enveloped(value, ty);
    encoder.finish()
}

/// One frame of a watch: a length and a `WatchEvent` around an object in its envelope.
pub fn encode_watch_frame(event: &str, object: &[u8]) -> Vec<u8> {
    let schema = Schema::new();
    let mut encoder = Encoder::new(&schema);
    let start = encoder.mark();
    encoder.bytes(1, object);
    encoder.delimit(2, start);
    encoder.bytes(1, event.as_bytes());
    let message = encoder.finish();
    let length = u32::try_from(message.len()).expect("an object must be smaller than 4 GiB");
    let mut frame = Vec::with_capacity(message.len() + 4);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

/// An event of a watch, as it was framed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchFrame<'a> {
    /// `ADDED`
    pub event: String,
    /// An object in its envelope.
    pub object: &'a [u8],
    /// How many bytes the frame has.
    pub length: usize,
}

/// The first frame of a watch, or nothing if it is not complete yet.
pub fn decode_watch_frame(bytes: &[u8]) -> Result<Option<WatchFrame<'_>>, ProtobufError> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| ProtobufError::Overflow)?;
    if length > Limits::STORED.max_bytes {
        return Err(ProtobufError::TooLarge(Limits::STORED.max_bytes));
    }
    let Some(message) = rest.get(..length) else { return Ok(None) };
    let mut frame = WatchFrame { event: String::new(), object: &[], length: length + 4 };
    let mut reader = Reader::new(message);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, payload) => payload.text("type")?.clone_into(&mut frame.event),
            (2, Payload::Bytes(extension)) => frame.object = any::raw(extension)?,
            _ => {}
        }
    }
    Ok(Some(frame))
}
