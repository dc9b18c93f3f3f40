//! Patches: changing an object by a description of the change. Start at [`apply`].
//!
//! JSON patch (RFC 6902) and merge patch (RFC 7396) behave as the library behind kube-apiserver, oddities included.
//! Strategic merge patches need to know what the object looks like: [`apply_typed`].
//! Deliberately not here: whether the result is a good object, and server-side apply ([`crate::apply`]).

mod json_patch;
mod merge_patch;
pub mod strategic;
#[cfg(test)]
mod tests;

use meta::{Details, Reason, Status};

use crate::{
    Value, json,
    model::{Schema, TypeId},
};

/// At most this many operations in one JSON patch.
pub const MAX_OPERATIONS: usize = 10_000;

/// At most this many bytes are copied by the `copy` operations of one JSON patch.
pub const MAX_COPIED_BYTES: usize = 3 << 20;

/// The kind of a patch, as its media type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/json-patch+json`
    Json,
    /// `application/merge-patch+json`
    Merge,
    /// `application/strategic-merge-patch+json`
    Strategic,
    /// `application/apply-patch+yaml`
    Apply,
}

impl PatchKind {
    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// Why a patch was not applied. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The body is no patch of its kind: 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object: 422. The text is for logs; upstream keeps it from clients.
    #[error("{0}")]
    Rejected(String),
    /// The patch cannot be carried out on objects of this type: 500, as upstream.
    #[error("{0}")]
    Failed(String),
    /// There are more than [`MAX_OPERATIONS`]: 413.
    #[error("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {0}")]
    TooManyOperations(usize),
    /// Applying it would take too much time, memory or depth: 413.
    #[error("{0}")]
    TooExpensive(&'static str),
    /// Patches of this kind are not understood: 415.
    #[error("patches of this kind are not supported")]
    Unsupported(PatchKind),
}

impl PatchError {
    /// What clients are told.
    pub fn status(&self) -> Status {
        match self {
            Self::Malformed(text) => Status::bad_request(text),
            Self::Rejected(_) => {
                let message = "the server rejected our request due to an error in our request";
                let mut status = Status::failure(422, Reason::Invalid, message);
                status.details = Some(Box::new(Details::default()));
                status
            }
            Self::Failed(text) => Status::failure(500, Reason::Unknown, text),
            Self::TooManyOperations(_) | Self::TooExpensive(_) => Status::too_large(self.to_string()),
            Self::Unsupported(_) => {
                let understood = [PatchKind::Json, PatchKind::Merge, PatchKind::Apply];
                Status::unsupported_media_type(&understood.map(PatchKind::media_type))
            }
        }
    }
}

/// The object as the patch wants it, where nothing is known about its type.
pub fn apply(kind: PatchKind, body: &[u8], original: &Value) -> Result<Value, PatchError> {
    apply_typed(kind, body, original, None)
}

/// The object as the patch wants it. Without a type, strategic merge patches are not understood.
pub fn apply_typed(
    kind: PatchKind,
    body: &[u8],
    original: &Value,
    ty: Option<(&Schema, TypeId)>,
) -> Result<Value, PatchError> {
    match (kind, ty) {
        (PatchKind::Json, _) => json_patch::apply(&decode(body)?, original),
        (PatchKind::Merge, _) => merge_patch::apply(&decode(body)?, original),
        (PatchKind::Strategic, Some((schema, ty))) => strategic::apply(schema, ty, &decode(body)?, original),
        (PatchKind::Strategic, None) | (PatchKind::Apply, _) => Err(PatchError::Unsupported(kind)),
    }
}

/// A strategic merge patch as upstream shows it in a refusal: a tree as Go prints it.
pub fn shown(body: &[u8]) -> String {
    decode(body).map(|it| crate::go_text::plain(&it)).unwrap_or_default()
}

fn decode(body: &[u8]) -> Result<Value, PatchError> {
    json::parse(body, json::Limits::REQUEST).map_err(|error| match error {
        json::ParseError::TooManyValues => PatchError::TooExpensive("the patch has too many values"),
        error => PatchError::Malformed(format!("error decoding patch: {error}")),
    })
}
