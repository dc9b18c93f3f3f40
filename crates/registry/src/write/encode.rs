//! From the client's version to the stored one, where they differ.
//!
//! **Flow.** [`Registry::pass_through_storage`] shows an object the version in which it will be stored before anybody
//! looks at what changed, as upstream's go through an internal one: it decides what an update cannot touch, and fills in
//! what only it can say. [`Registry::encode`] makes the bytes.
//! Deliberately not here: how versions differ; that is [`crate::convert`].

use bytes::Bytes;
use cache::Item;
use fleet::Encoding;
use meta::{GroupVersion, Status, Value, object};
use schema::keep;

use crate::{Registry, Target, serve};

/// Bytes to store, and what proves that this is the version to store them in.
pub(crate) struct Encoded {
    pub(super) bytes: Bytes,
    pub(super) encoding: Encoding,
}

impl Registry {
    /// Makes of the new state of an object in the client's version what it will be when it is read again.
    pub(super) fn pass_through_storage(
        &self,
        target: &Target,
        new: &mut Value,
        old: Option<&Item>,
    ) -> Result<(), Status> {
        if target.kind.custom.is_some() {
            // Definitions say what happens on the way, when it happens.
            return Ok(());
        }
        let converter = target.kind.converter();
        let (client, stored) = (target.group_version.to_string(), self.encoding(target)?.version);
        if converter.is_relabelled(&client, stored.as_str()) {
            converter.tidy(new);
            return Ok(());
        }
        let mut object = converter.convert(std::mem::take(new), stored.as_str());
        let old = old.map(|it| converter.convert(serve::stored_tree(it), stored.as_str()));
        let has_status = target.kind.has_status(&target.group_version.version);
        match (&old, target.subresource.as_str()) {
            (Some(old), "status") => copy(&mut object, old, "spec"),
            (Some(old), "") if has_status => copy(&mut object, old, "status"),
            (None, _) if has_status && !target.kind.strategy.keeps_status_on_create => {
                object::as_map_mut(&mut object).remove("status");
            }
            _ => {}
        }
        *new = converter.convert(object, &client);
        Ok(())
    }

    /// The bytes to store. Fields of the old state that this release does not know, and that the client's version
    /// therefore may not even be able to hold, are kept.
    pub(crate) fn encode(
        &self,
        target: &Target,
        object: &Value,
        old: Option<&Item>,
    ) -> Result<Encoded, Status> {
        let encoding = self.encoding(target)?;
        let version = encoding.version.as_str();
        let converter = target.kind.converter();
        if object::api_version(object) == version {
            return Ok(Encoded { bytes: schema::json::encode_stored(object), encoding });
        }
        let mut stored = converter.convert(object.clone(), version);
        if let Some(old) = old.filter(|_| !converter.is_relabelled(object::api_version(object), version)) {
            let old_stored = converter.convert(serve::stored_tree(old), version);
            if serve::tree(target, old) == *object {
                // Nothing changed as far as the client can see, so nothing may change that it cannot see.
                stored = old_stored;
            } else if let Some((schema, ty)) = self.typed_in(target, version) {
                keep::keep_unknown(schema, ty, &mut stored, &old_stored);
            }
        }
        Ok(Encoded { bytes: schema::json::encode_stored(&stored), encoding })
    }

    fn typed_in(
        &self,
        target: &Target,
        version: &str,
    ) -> Option<(&schema::model::Schema, schema::model::TypeId)> {
        let GroupVersion { group, version } = GroupVersion::parse(version)?;
        let schemas = self.kinds.schemas();
        let ty = schemas.kind(&group, version.as_str(), &target.kind.definition.kind)?;
        Some((schemas.schema(), ty))
    }
}

fn copy(new: &mut Value, old: &Value, field: &str) {
    let map = object::as_map_mut(new);
    match old.get(field) {
        Some(value) => map.insert(field.to_owned(), value.clone()),
        None => map.remove(field),
    };
}
