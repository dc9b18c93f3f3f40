//! What happens to `metadata` in a write: names, stamps, what clients cannot change, and validation, where the rules
//! of the kind join in so that one answer says everything.

use std::collections::BTreeSet;

use jiff::Timestamp;
use meta::{FieldError, Reason, Status, Value, object, validate};
use rand::RngExt;
use uuid::Uuid;

use crate::{Target, custom, resource_version, rules};

/// Upstream's alphabet for generated names: no vowels, no look-alikes.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
const MAX_GENERATED: usize = 63 - SUFFIX;

/// The namespace of the path and of the body are the same, or the body has none. What stands there for a kind that
/// has none is dropped, as upstream does.
pub(crate) fn settle_namespace(target: &Target, object: &mut Value) -> Result<(), Status> {
    let own = object::namespace(object);
    if !target.kind.is_namespaced() {
        object::metadata_mut(object).remove("namespace");
    } else if own.is_empty() {
        let namespace = Value::from(target.namespace.clone());
        object::metadata_mut(object).insert("namespace".to_owned(), namespace);
    } else if own != target.namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    Ok(())
}

/// The name of the path and of the body are the same.
pub(crate) fn check_name(target: &Target, object: &Value) -> Result<(), Status> {
    let own = object::name(object);
    if own.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if own != target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({own}) does not match the name on the URL ({})",
            target.name
        )));
    }
    Ok(())
}

/// Owners that are there twice, word for word, stay once, and the client is told.
pub(crate) fn drop_repeated_owners(object: &mut Value, is_admitted: bool) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut repeated: Vec<String> = Vec::new();
    let mut uids: BTreeSet<String> = BTreeSet::new();
    for owner in std::mem::take(owners) {
        let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        // Only who has the uid of another can be the same: comparing all with all would take too long.
        if uids.insert(uid.clone()) || !kept.contains(&owner) {
            kept.push(owner);
        } else {
            repeated.push(uid);
        }
    }
    *owners = kept;
    let when = if is_admitted { " after mutating admission happens" } else { "" };
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}

/// What only the server decides about a new object.
pub(crate) fn stamp_new(object: &mut Value, now: Timestamp) {
    let metadata = object::metadata_mut(object);
    for field in ["resourceVersion", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), Value::from(Uuid::new_v4().to_string()));
    metadata.insert("creationTimestamp".to_owned(), Value::from(meta::time::format_time(now)));
}

/// 500, as upstream, for a new object that says at which state it is.
pub(crate) fn check_unversioned(resource_version: &str) -> Result<(), Status> {
    match resource_version.parse::<u64>() {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => {
            let why = "resourceVersion should not be set on objects to be created";
            Err(Status::failure(500, Reason::Unknown, why))
        }
    }
}

/// The prefix, if the server is to make up the name.
pub(crate) fn generated_name(object: &Value) -> Option<String> {
    let prefix = object::meta_text(object, "generateName");
    (object::name(object).is_empty() && !prefix.is_empty()).then(|| prefix.to_owned())
}

/// The prefix and five random characters.
pub(crate) fn random_name(prefix: &str) -> String {
    let mut name: String = prefix.chars().take(MAX_GENERATED).collect();
    let mut rng = rand::rng();
    name.extend((0..SUFFIX).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())])));
    name
}

pub(crate) fn set_name(object: &mut Value, name: &str) {
    object::metadata_mut(object).insert("name".to_owned(), Value::from(name));
}

/// 422 if a new object is wrong.
pub(crate) fn validate_new(target: &Target, object: &Value) -> Result<(), Status> {
    let rule = validate::name_rule(&target.kind.definition.group, &target.kind.definition.resource);
    let mut errors = validate::validate_object_meta(object, target.kind.is_namespaced(), rule);
    errors.0.extend(rules::validate_new(target.into(), object).0);
    custom::accept::validate_new(target, object, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors.into_status(&target.kind.group_kind, object::name(object)))
    }
}

/// 422 if a changed object is wrong.
pub(crate) fn validate_changed(target: &Target, new: &Value, old: &Value) -> Result<(), Status> {
    let mut errors = validate::validate_object_meta_update(new, old);
    let rule = validate::name_rule(&target.kind.definition.group, &target.kind.definition.resource);
    let own = validate::validate_object_meta(new, target.kind.is_namespaced(), rule);
    // An object that got in under older rules can still be changed.
    let before = validate::validate_object_meta(old, target.kind.is_namespaced(), rule);
    errors.0.extend(own.0.into_iter().filter(|it| !before.0.contains(it)));
    errors.0.extend(rules::validate_changed(target.into(), new, old).0);
    custom::accept::validate_update(target, new, old, &mut errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors.into_status(&target.kind.group_kind, object::name(new)))
    }
}

/// What a PUT must agree with: the uid and, where given, the resourceVersion of what is there.
pub(crate) fn check_put(target: &Target, object: &Value, old: Option<&Value>) -> Result<Value, Status> {
    let resource = &target.kind.resource;
    let wanted = object::resource_version(object);
    let Some(old) = old else {
        let can_create = target.kind.strategy.can_create_on_update && target.subresource.is_empty();
        if !can_create {
            return Err(Status::not_found(resource, &target.name));
        }
        if !matches!(wanted, "" | "0") {
            return Err(Status::modified(resource, &target.name));
        }
        return Ok(object.clone());
    };
    check_uid(target, object, old)?;
    resource_version::check_own(wanted)?;
    if matches!(wanted, "" | "0") {
        if !target.kind.strategy.can_update_unconditionally {
            let error = FieldError::invalid_shown(
                "metadata.resourceVersion",
                "0".to_owned(),
                "must be specified for an update",
            );
            // Upstream names the resource, not the kind, in this one answer.
            let kind = meta::GroupKind::new(resource.group.clone(), resource.resource.clone());
            return Err(Status::invalid(&kind, &target.name, error));
        }
    } else if wanted != object::resource_version(old) {
        return Err(Status::modified(resource, &target.name));
    }
    Ok(object.clone())
}

/// What a patch result must agree with.
pub(crate) fn check_patched(target: &Target, object: &Value, old: &Value) -> Result<(), Status> {
    check_uid(target, object, old)?;
    let wanted = object::resource_version(object);
    resource_version::check_own(wanted)?;
    if !wanted.is_empty() && wanted != object::resource_version(old) {
        return Err(Status::modified(&target.kind.resource, &target.name));
    }
    Ok(())
}

fn check_uid(target: &Target, object: &Value, old: &Value) -> Result<(), Status> {
    let (wanted, is) = (object::uid(object), object::uid(old));
    if wanted.is_empty() || wanted == is {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
         UID in precondition: {wanted}, UID in object meta: {is}",
        target.key()
    );
    Err(Status::conflict(&target.kind.resource, &target.name, &why))
}

/// What an update cannot change comes from the old object.
pub(crate) fn carry_over(new: &mut Value, old: &Value) {
    let fields =
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"];
    let kept: Vec<_> =
        fields.iter().map(|it| (*it, old.get("metadata").and_then(|meta| meta.get(*it)).cloned())).collect();
    let generation = old.get("metadata").and_then(|it| it.get("generation")).is_none();
    let metadata = object::metadata_mut(new);
    metadata.remove("selfLink");
    for (field, value) in kept {
        match value {
            Some(value) => metadata.insert(field.to_owned(), value),
            None => metadata.remove(field),
        };
    }
    if generation {
        metadata.remove("generation");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_fit_and_differ() {
        let long = "x".repeat(300);
        assert_eq!(random_name(&long).len(), 63);
        assert_ne!(random_name("a-"), random_name("a-"));
        assert!(random_name("a-").starts_with("a-"));
    }
}
