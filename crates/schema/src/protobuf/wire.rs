//! Fields as protobuf writes them: a tag, and one of four forms of value.

use super::ProtobufError;

/// Reads field after field. Skipping one costs nothing, whatever is in it.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

/// The value of a field, not yet interpreted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field, if there is one.
    pub(super) fn field(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire) = (tag >> 3, tag.to_le_bytes()[0] & 7);
        let illegal = ProtobufError::IllegalTag { number, wire };
        let number = match u32::try_from(number) {
            Ok(number) if 0 < number && number < 1 << 29 => number,
            Ok(_) | Err(_) => return Err(illegal),
        };
        let payload = match wire {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(*self.take(8)?.first_chunk().ok_or(ProtobufError::Truncated)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtobufError::Truncated)?;
                Payload::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Payload::Fixed32
            }
            // Groups, which nobody writes any more.
            _ => return Err(illegal),
        };
        Ok(Some((number, payload)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for (at, byte) in self.rest.iter().enumerate() {
            if at == 10 {
                return Err(ProtobufError::Overflow);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[at + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { ProtobufError::Truncated } else { ProtobufError::Overflow })
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'a> Payload<'a> {
    pub(super) fn number(self, field: &str) -> Result<u64, ProtobufError> {
        match self {
            Self::Varint(number) => Ok(number),
            Self::Fixed64(_) | Self::Bytes(_) | Self::Fixed32 => Err(self.wrong(field)),
        }
    }

    pub(super) fn bytes(self, field: &str) -> Result<&'a [u8], ProtobufError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) | Self::Fixed64(_) | Self::Fixed32 => Err(self.wrong(field)),
        }
    }

    pub(super) fn text(self, field: &str) -> Result<&'a str, ProtobufError> {
        str::from_utf8(self.bytes(field)?).map_err(|_| ProtobufError::Value(field.to_owned()))
    }

    pub(super) fn wrong(self, field: &str) -> ProtobufError {
        let wire = match self {
            Self::Varint(_) => 0,
            Self::Fixed64(_) => 1,
            Self::Bytes(_) => 2,
            Self::Fixed32 => 5,
        };
        let mut chars = field.chars();
        let field = chars.next().map(|it| it.to_uppercase().chain(chars).collect()).unwrap_or_default();
        ProtobufError::WrongWireType { field, wire }
    }
}
