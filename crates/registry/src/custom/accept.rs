//! The schema's part of a write of a custom object: what upstream's decoder does for kinds without Go types.

use meta::{FieldError, FieldErrors, GroupKind, GroupVersion, Status, Value, object};
use schema::{
    check::{self, FieldValidation},
    custom::{duplicates, fill, prune, validate, validate_changed},
    json,
    model::{Schema, TypeId},
};

use super::{Custom, Shape, embedded};
use crate::{
    Patch, Registry, Target,
    write::{
        accept::{self, Accepted, Sent, Source},
        decode,
    },
};

/// A custom object that fits its schema, and the fields that went: `unknown field …`, `duplicate field …`.
struct Shaped {
    object: Value,
    found: Vec<String>,
}

impl Registry {
    /// A whole object of the target's kind. 400 if it does not fit.
    pub(crate) fn accept_sent(
        &self,
        target: &Target,
        validation: FieldValidation,
        sent: Sent,
    ) -> Result<Accepted, Status> {
        let want = self.body_kind(target);
        let Some(custom) = &target.kind.custom else { return accept::accept(want, validation, sent) };
        let Sent { value, source } = sent;
        if let Some(text) = source.text() {
            decode::check_head(want, &value, text)?;
        }
        check_head(target, &value, source.text().map(|it| &**it))?;
        let shaped = shape(target, custom, self.typed(target), value);
        let mut shaped = shaped.map_err(|it| decode::refused(want, &it))?;
        let twice = match source {
            Source::Json { text, has_duplicates: true } => duplicated(&text),
            Source::Yaml { duplicate, .. } => duplicate.into_iter().collect(),
            Source::Json { .. } | Source::Tree => Vec::new(),
        };
        shaped.found.splice(0..0, twice);
        shaped.judged(validation, |found| decode::refused(want, found))
    }

    /// What a patch made of an old object. 422 if it does not fit.
    pub(crate) fn accept_patched(
        &self,
        target: &Target,
        validation: FieldValidation,
        patch: &Patch,
        patched: Value,
        old: &Value,
    ) -> Result<Accepted, Status> {
        let Some(custom) = &target.kind.custom else {
            return accept::accept_patched(self.body_kind(target), validation, patch, patched, old);
        };
        check_head(target, &patched, None)?;
        let whole = String::from_utf8_lossy(&json::to_vec(&patched)).into_owned();
        let refused = |why: &str| {
            Status::invalid(&GroupKind::new("", ""), "", FieldError::invalid("patch", &whole, why))
        };
        let shaped = shape(target, custom, self.typed(target), patched);
        let mut shaped = shaped.map_err(|it| refused(&it))?;
        shaped.found.splice(0..0, duplicated(&patch.body));
        shaped.judged(validation, refused)
    }

    /// What applying a configuration made of an old object.
    pub(crate) fn accept_applied(
        &self,
        target: &Target,
        applied: Value,
        old: Option<&Value>,
    ) -> Result<Value, Status> {
        let want = self.body_kind(target);
        let Some(custom) = &target.kind.custom else { return accept::accept_applied(want, applied, old) };
        let object = decode::as_kind(want, applied)?;
        let shaped = shape(target, custom, self.typed(target), object);
        shaped.map(|it| it.object).map_err(|it| decode::refused(want, &it))
    }
}

impl Shaped {
    /// What happens about fields that went, as the client wants it.
    fn judged(
        self,
        validation: FieldValidation,
        refused: impl Fn(&str) -> Status,
    ) -> Result<Accepted, Status> {
        let Self { object, found } = self;
        match validation {
            FieldValidation::Strict if !found.is_empty() => Err(refused(&check::strict_message(&found))),
            FieldValidation::Ignore => Ok(Accepted { object, warnings: Vec::new() }),
            FieldValidation::Strict | FieldValidation::Warn => Ok(Accepted { object, warnings: found }),
        }
    }
}

fn duplicated(text: &[u8]) -> Vec<String> {
    let report = json::parse_report(text, json::Limits::REQUEST);
    let duplicates = report.map(|it| it.duplicates).unwrap_or_default();
    duplicates.iter().map(|it| check::duplicate_field(it)).collect()
}

/// Brings what a client sent, or a patch made, into shape. `Err` says why it cannot be read, without naming the kind.
fn shape(
    target: &Target,
    custom: &Custom,
    typed: Option<(&Schema, TypeId)>,
    mut object: Value,
) -> Result<Shaped, String> {
    let mut unknown = metadata(typed, &mut object)?;
    if let Some(Shape { root, .. }) = custom.shape(target.group_version.version.as_str()) {
        unknown.extend(prune(root, &mut object));
        fill(root, &mut object);
        unknown.extend(embedded::shape(typed, root, &mut object)?);
    }
    unknown.sort();
    let found = unknown.iter().take(check::MAX_REPORTED).map(|it| check::unknown_field(it)).collect();
    Ok(Shaped { object, found })
}

/// Whether the body says of which kind and version it is, as upstream wants it for kinds that it has no types for.
fn check_head(target: &Target, body: &Value, text: Option<&[u8]>) -> Result<(), Status> {
    if !body.is_object() {
        let want = &target.kind.definition.kind;
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {want})"
        )));
    }
    if object::kind(body).is_empty() {
        let shown = match text {
            Some(text) => String::from_utf8_lossy(text).into_owned(),
            None => body.to_string(),
        };
        return Err(Status::bad_request(format!("Object 'Kind' is missing in '{shown}'")));
    }
    let wanted = &target.group_version;
    let is = object::api_version(body);
    if GroupVersion::parse(is).as_ref() != Some(wanted) {
        return Err(Status::bad_request(format!(
            "the API version in the data ({is}) does not match the expected API version ({wanted})"
        )));
    }
    let (kind, want) = (object::kind(body), &target.kind.definition.kind);
    if kind != &**want {
        let error = FieldError::invalid("kind", kind, format!("must be {want}"));
        return Err(Status::invalid(&target.kind.group_kind, object::name(body), error));
    }
    Ok(())
}

/// The metadata, which is the same for all kinds: its types are checked, and what is unknown goes.
pub(super) fn metadata(typed: Option<(&Schema, TypeId)>, object: &mut Value) -> Result<Vec<String>, String> {
    let Some((schema, ty)) = typed else { return Ok(Vec::new()) };
    let Some(field) = schema.object(ty).and_then(|it| it.field("metadata")) else { return Ok(Vec::new()) };
    let own = object::as_map_mut(object).remove("metadata").filter(|it| !it.is_null());
    let own = own.unwrap_or_else(|| Value::Object(meta::Map::new()));
    let shown = own.to_string();
    let checked = check::check(schema, field.ty, own)
        .map_err(|it| format!("metadata: Invalid value: {shown}: {it}"))?;
    let mut metadata = checked.value;
    schema::prune::drop_empty(schema, field.ty, &mut metadata);
    object::as_map_mut(object).insert("metadata".to_owned(), metadata);
    Ok(checked.unknown.iter().map(|it| format!("metadata.{it}")).collect())
}

/// What the schema has against a new object.
pub(crate) fn validate_new(target: &Target, object: &Value, errors: &mut FieldErrors) {
    let Some((custom, Shape { root, .. })) = shape_of(target) else { return };
    validate(root, object, "").into_iter().for_each(|it| errors.push(it));
    embedded::validate(root, object, errors);
    duplicates(root, object).into_iter().for_each(|it| errors.push(it));
    super::scale::validate(custom, target, object, errors);
}

/// What the schema has against the new state of an object. Only what changed can be wrong.
pub(crate) fn validate_update(target: &Target, new: &Value, old: &Value, errors: &mut FieldErrors) {
    let Some((custom, Shape { root, .. })) = shape_of(target) else { return };
    if target.subresource == "status" {
        let (status, before) = (new.get("status"), old.get("status").unwrap_or(&Value::Null));
        if let (Some(node), Some(status)) = (root.property("status"), status) {
            validate_changed(node, status, before, "status").into_iter().for_each(|it| errors.push(it));
        }
    } else {
        validate_changed(root, new, old, "").into_iter().for_each(|it| errors.push(it));
        embedded::validate(root, new, errors);
    }
    let doubled = duplicates(root, new);
    // An object that had elements twice before the schema forbade it can still be changed.
    if !doubled.is_empty() && duplicates(root, old).is_empty() {
        doubled.into_iter().for_each(|it| errors.push(it));
    }
    super::scale::validate(custom, target, new, errors);
}

fn shape_of(target: &Target) -> Option<(&Custom, &Shape)> {
    let custom = target.kind.custom.as_deref()?;
    Some((custom, custom.shape(target.group_version.version.as_str())?))
}
