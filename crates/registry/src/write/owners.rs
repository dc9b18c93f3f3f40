//! Who owns which field of what is written: `metadata.managedFields`, for every write, and apply.
//!
//! What ownership means and how it moves is in `schema::apply`; here is what it needs to know of a kind: its types, its
//! versions, and which fields a write cannot change.

#[cfg(test)]
mod tests;

use catalog::Schemas;
use meta::{GroupVersion, Status, Value, object};
use schema::apply::{self, FieldSet, Request, TypeRef, Versions};

use crate::{Registry, Target, WriteOptions, strategy::Special};

/// Whether a new state says already who owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Whoever writes owns what changed.
    Tracked,
    /// The same, but it was written through `scale`.
    Scaled,
    /// The object was made by apply.
    Settled,
}

/// The versions of one kind.
struct KindVersions<'a> {
    target: &'a Target,
    schemas: &'a Schemas,
}

impl Versions for KindVersions<'_> {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let definition = &self.target.kind.definition;
        let GroupVersion { group, version } = GroupVersion::parse(api_version)?;
        if let Some(custom) = &self.target.kind.custom {
            let (schema, ty) =
                custom.types(version.as_str(), self.schemas).filter(|_| definition.group == group)?;
            return Some(TypeRef { schema, ty });
        }
        let is_known = definition.decodable.iter().any(|it| it.group == group && it.version == version)
            || (definition.group == group && definition.versions.contains(&version));
        let ty = self.schemas.kind(&group, version.as_str(), &definition.kind).filter(|_| is_known)?;
        Some(TypeRef { schema: self.schemas.schema(), ty })
    }

    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String> {
        Ok(self.target.kind.converter().convert(object.clone(), api_version))
    }
}

/// The one version of a kind that is answered and never stored.
struct OneVersion<'a> {
    group_version: &'a GroupVersion,
    of: TypeRef<'a>,
}

impl Versions for OneVersion<'_> {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let is_own = GroupVersion::parse(api_version).is_some_and(|it| it == *self.group_version);
        is_own.then_some(TypeRef { schema: self.of.schema, ty: self.of.ty })
    }

    fn convert(&self, object: &Value, _: &str) -> Result<Value, String> {
        Ok(object.clone())
    }
}

impl Registry {
    /// Says in a new object who owns it.
    pub(super) fn own_new(&self, target: &Target, options: &WriteOptions<'_>, new: &mut Value) {
        let Some(nothing) = self.blank(target) else { return forget(new) };
        self.own_changed(target, options, new, &nothing);
    }

    /// Who owns an object that is answered and not stored: its `managedFields`.
    pub fn owners_of(&self, target: &Target, options: &WriteOptions<'_>, object: &Value) -> Option<Value> {
        let mut owned = object.clone();
        self.own_new(target, options, &mut owned);
        object::metadata_mut(&mut owned).remove("managedFields")
    }

    /// The same for an object of a kind of its own that was sent to a subresource.
    pub fn owners_of_sent(
        &self,
        group_version: &GroupVersion,
        kind: &str,
        subresource: &str,
        options: &WriteOptions<'_>,
        object: &Value,
    ) -> Option<Value> {
        let schemas = self.kinds.schemas();
        let ty = schemas.kind(&group_version.group, group_version.version.as_str(), kind)?;
        let api_version = group_version.to_string();
        let named = |mut object: Value| {
            let map = object::as_map_mut(&mut object);
            map.insert("apiVersion".to_owned(), Value::from(api_version.as_str()));
            map.insert("kind".to_owned(), Value::from(kind));
            object
        };
        let mut owned = named(object.clone());
        let nothing = named(apply::blank(schemas.schema(), ty));
        let versions = OneVersion { group_version, of: TypeRef { schema: schemas.schema(), ty } };
        let request = Request {
            versions: &versions,
            api_version: &api_version,
            subresource,
            manager: options.manager,
            ignored: &FieldSet::new(),
            now: &meta::time::format_time(self.clock.now()),
        };
        apply::update(&request, &nothing, &mut owned).ok()?;
        object::metadata_mut(&mut owned).remove("managedFields")
    }

    /// Says in the new state of an object who owns what.
    pub(super) fn own_changed(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        new: &mut Value,
        old: &Value,
    ) {
        let result = self.with_request(target, options, |request| apply::update(request, old, new));
        if let Err(error) = result {
            // As upstream: the write goes on, and owners stay what they were.
            tracing::warn!(%error, resource = %target.kind.resource, "the owners of fields could not be updated");
            match old.get("metadata").and_then(|it| it.get("managedFields")).cloned() {
                Some(owners) => {
                    object::metadata_mut(new).insert("managedFields".to_owned(), owners);
                }
                None => forget(new),
            }
        }
    }

    /// Says in the new state of a workload who owns its replicas, after its scale was written.
    pub(super) fn own_scaled(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        new: &mut Value,
        old: &Value,
    ) {
        let scale = Target { subresource: "scale".to_owned(), ..target.clone() };
        self.own_changed(&scale, options, new, old);
        // Upstream looks for the time in the Scale's version, and never finds one.
        let entries = object::metadata_mut(new).get_mut("managedFields").and_then(Value::as_array_mut);
        for entry in entries.into_iter().flatten().filter(|it| it["subresource"] == "scale") {
            object::as_map_mut(entry).remove("time");
        }
        apply::sort_entries(new);
    }

    /// The object as a configuration wants it, with its owners.
    pub(super) fn applied(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        config: &Value,
        force: bool,
        old: Option<&Value>,
    ) -> Result<Value, Status> {
        let nothing;
        let live = if let Some(old) = old {
            old
        } else {
            let mut head = Value::default();
            name_kind(target, &mut head);
            object::metadata_mut(&mut head);
            nothing = head;
            &nothing
        };
        self.with_request(target, options, |request| apply::apply(request, live, config, force))
            .map_err(|it| it.status())
    }

    /// The type of the target's objects in the client's version.
    pub(super) fn type_of(&self, target: &Target) -> Option<schema::model::TypeId> {
        let GroupVersion { group, version } = &target.group_version;
        self.kinds.schemas().kind(group, version.as_str(), &target.kind.definition.kind)
    }

    /// An object of the target's kind in which nothing is set.
    fn blank(&self, target: &Target) -> Option<Value> {
        let (schema, ty) = self.typed(target)?;
        let mut nothing = apply::blank(schema, ty);
        name_kind(target, &mut nothing);
        Some(nothing)
    }

    fn with_request<T>(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        write: impl FnOnce(&Request<'_>) -> T,
    ) -> T {
        let versions = KindVersions { target, schemas: self.kinds.schemas() };
        write(&Request {
            versions: &versions,
            api_version: &target.group_version.to_string(),
            subresource: &target.subresource,
            manager: options.manager,
            ignored: &out_of_reach(target),
            now: &meta::time::format_time(self.clock.now()),
        })
    }
}

/// What a write through this path cannot change.
fn out_of_reach(target: &Target) -> FieldSet {
    if target.subresource == "status" {
        return FieldSet::of_fields(&[&["spec"]]);
    }
    let mut fields: Vec<&[&str]> = Vec::new();
    if target.kind.has_status(&target.group_version.version) {
        fields.push(&["status"]);
    }
    if target.kind.strategy.special == Special::Namespace && target.subresource.is_empty() {
        // The server's own finalizer.
        fields.push(&["spec", "finalizers"]);
    }
    FieldSet::of_fields(&fields)
}

fn forget(new: &mut Value) {
    object::metadata_mut(new).remove("managedFields");
}

fn name_kind(target: &Target, object: &mut Value) {
    let map = object::as_map_mut(object);
    map.insert("apiVersion".to_owned(), Value::from(target.group_version.to_string()));
    map.insert("kind".to_owned(), Value::from(&*target.kind.definition.kind));
}
