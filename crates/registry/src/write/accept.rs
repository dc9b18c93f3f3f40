//! From what a client sent to an object that may be stored: the schema's part of a write.
//!
//! **Flow.** Types are checked and unknown fields dropped ([`accept`], [`accept_patched`]), fields that hold nothing
//! are left out, defaults and what is always written are filled in. After everything else [`complete`]
//! does the latter for what other steps have added.
//! Kinds without a schema pass as they are.

use bytes::Bytes;
use meta::{FieldError, GroupKind, Status, Value};
use schema::{
    check::{self, FieldValidation},
    json, keep,
    model::{Schema, TypeId},
    patch::{self, PatchKind},
    prune,
};

use super::{
    Patch,
    decode::{self, BodyKind},
};

/// An object as a client sent it.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The tree.
    pub value: Value,
    /// What it was read from.
    pub source: Source,
}

/// What a tree was read from: it tells in which order fields stood, and which were there twice.
#[derive(Clone, Debug)]
pub enum Source {
    /// Something without text of its own.
    Tree,
    /// JSON.
    Json {
        /// As it was sent.
        text: Bytes,
        /// A field is there twice.
        has_duplicates: bool,
    },
    /// YAML.
    Yaml {
        /// As it was sent.
        text: Bytes,
        /// The complaint about a key that is there twice.
        duplicate: Option<String>,
    },
}

impl From<Value> for Sent {
    fn from(value: Value) -> Self {
        Self { value, source: Source::Tree }
    }
}

impl Source {
    pub(crate) fn text(&self) -> Option<&Bytes> {
        match self {
            Self::Tree => None,
            Self::Json { text, .. } | Self::Yaml { text, .. } => Some(text),
        }
    }
}

/// What objects look like; `None` for kinds of which nothing is known.
pub(super) type Typed<'a> = Option<(&'a Schema, TypeId)>;

/// An object that fits its schema.
pub(crate) struct Accepted {
    pub(crate) object: Value,
    /// Unknown and duplicate fields, if the client wants to be warned.
    pub(crate) warnings: Vec<String>,
}

/// A whole object: for create and update. 400 if it does not fit.
pub(crate) fn accept(
    want: BodyKind<'_>,
    validation: FieldValidation,
    sent: Sent,
) -> Result<Accepted, Status> {
    let Sent { mut value, source } = sent;
    if value.is_null() {
        // To Go this is an object in which nothing is set.
        value = Value::Object(meta::Map::new());
    }
    if let Some(text) = source.text() {
        decode::check_head(want, &value, text)?;
    }
    let object = decode::as_kind(want, value)?;
    let Some(ty) = want.type_id() else {
        return Ok(Accepted { object, warnings: Vec::new() });
    };
    let schema = want.schemas.schema();
    let checked = check::check(schema, ty, object).map_err(|it| decode::refused(want, &it.to_string()))?;
    let unknown = || checked.unknown.iter().map(|it| check::unknown_field(it));
    let found: Vec<String> = match source {
        _ if validation == FieldValidation::Ignore => Vec::new(),
        Source::Json { has_duplicates, .. } if checked.unknown.is_empty() && !has_duplicates => Vec::new(),
        Source::Json { text, .. } => check::strict_errors(schema, ty, &text),
        Source::Yaml { duplicate, .. } => duplicate.into_iter().chain(unknown()).collect(),
        Source::Tree => unknown().collect(),
    };
    if validation == FieldValidation::Strict && !found.is_empty() {
        return Err(decode::refused(want, &check::strict_message(&found)));
    }
    Ok(Accepted { object: settle(want, ty, checked.value), warnings: found })
}

/// What a patch made of an old object. 422 if it does not fit.
pub(crate) fn accept_patched(
    want: BodyKind<'_>,
    validation: FieldValidation,
    patch: &Patch,
    mut patched: Value,
    old: &Value,
) -> Result<Accepted, Status> {
    let Some(ty) = want.type_id() else {
        return Ok(Accepted { object: decode::as_kind(want, patched)?, warnings: Vec::new() });
    };
    let schema = want.schemas.schema();
    let is_strategic = patch.kind == PatchKind::Strategic;
    // Built only to be shown: upstream shows the patch where it merged trees, and the result where it merged texts.
    let refused = |patched: &Value, why: &str| {
        let shown = match is_strategic {
            true => patch::shown(&patch.body),
            false => String::from_utf8_lossy(&json::to_vec(patched)).into_owned(),
        };
        Status::invalid(&GroupKind::new("", ""), "", FieldError::invalid("patch", &shown, why))
    };
    if is_strategic {
        // The result is an object of the old one's Go type, whatever the patch calls it.
        decode::keep_kind(&mut patched, old);
    } else if let Some(why) = decode::unreadable_kind(want, &patched) {
        return Err(refused(&patched, &why));
    }
    let check = if is_strategic { check::check_merged } else { check::check_patched };
    let checked = match check(schema, ty, patched.clone(), old) {
        Ok(checked) => checked,
        Err(error) => return Err(refused(&patched, &error.to_string())),
    };
    let mut found = Vec::new();
    if validation != FieldValidation::Ignore {
        let report = json::parse_report(&patch.body, json::Limits::REQUEST);
        let duplicates = report.map(|it| it.duplicates).unwrap_or_default();
        found.extend(duplicates.iter().map(|it| check::duplicate_field(it)));
        found.extend(checked.unknown.iter().map(|it| check::unknown_field(it)));
    }
    if validation == FieldValidation::Strict && !found.is_empty() {
        return Err(refused(&patched, &check::strict_message(&found)));
    }
    let object = decode::as_kind(want, checked.value)?;
    Ok(Accepted { object: settle(want, ty, object), warnings: found })
}

/// What applying a configuration made of an old object. Apply has its own words for fields that it does not know.
pub(crate) fn accept_applied(
    want: BodyKind<'_>,
    applied: Value,
    old: Option<&Value>,
) -> Result<Value, Status> {
    let object = decode::as_kind(want, applied)?;
    let Some(ty) = want.type_id() else { return Ok(object) };
    let schema = want.schemas.schema();
    let checked = match old {
        Some(old) => check::check_patched(schema, ty, object, old),
        None => check::check(schema, ty, object),
    };
    let checked = checked.map_err(|it| decode::refused(want, &it.to_string()))?;
    Ok(settle(want, ty, checked.value))
}

/// What admission made of an object. 500 if it does not fit: that is not the client's fault.
pub(super) fn accept_mutated(
    want: BodyKind<'_>,
    object: Value,
    old: Option<&Value>,
) -> Result<Value, Status> {
    let object = decode::as_kind(want, object)?;
    let Some(ty) = want.type_id() else { return Ok(object) };
    let schema = want.schemas.schema();
    let checked = match old {
        Some(old) => check::check_patched(schema, ty, object, old),
        None => check::check(schema, ty, object),
    };
    let checked = checked.map_err(|it| Status::internal(it.to_string()))?;
    Ok(settle(want, ty, checked.value))
}

/// Gives back to the new state of an object what this release does not know and its client could not send.
pub(super) fn keep_unknown(typed: Typed<'_>, new: &mut Value, old: &Value) {
    if let Some((schema, ty)) = typed {
        keep::keep_unknown(schema, ty, new, old);
    }
}

/// Adds what is always written, before the object is stored.
pub(super) fn complete(typed: Typed<'_>, object: &mut Value) {
    if let Some((schema, ty)) = typed {
        prune::fill_always(schema, ty, object);
    }
}

fn settle(want: BodyKind<'_>, ty: TypeId, mut object: Value) -> Value {
    let schema = want.schemas.schema();
    prune::drop_empty(schema, ty, &mut object);
    want.defaults.fill(schema, ty, &mut object);
    // Now already, because the next steps compare it with what is stored.
    prune::fill_always(schema, ty, &mut object);
    object
}
