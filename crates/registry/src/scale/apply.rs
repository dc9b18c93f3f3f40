//! Who owns the replicas of a workload, seen from its scale and back.
//!
//! Applying a Scale works on the scale alone: whoever owns the workload's `spec.replicas` owns the scale's for that
//! time, and what comes out is carried back. What somebody lost there is lost in the workload.

use catalog::Schemas;
use meta::{GroupVersion, Value, object};
use schema::apply::{
    self, FieldSet, ManagerId, Managers, Operation, Owned, PathElement, Request, TypeRef, Versions,
};

const SCALE: &str = "autoscaling/v1";

/// The one version of a scale.
pub(super) struct ScaleVersions<'a> {
    schemas: &'a Schemas,
    /// Nothing is out of reach.
    ignored: FieldSet,
}

impl<'a> ScaleVersions<'a> {
    pub(super) fn new(schemas: &'a Schemas) -> Self {
        Self { schemas, ignored: FieldSet::new() }
    }

    pub(super) fn request(&'a self, manager: &'a str, now: &'a str) -> Request<'a> {
        let ignored = &self.ignored;
        Request { versions: self, api_version: SCALE, subresource: "scale", manager, ignored, now }
    }
}

impl Versions for ScaleVersions<'_> {
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>> {
        let GroupVersion { group, version } =
            GroupVersion::parse(api_version).filter(|_| api_version == SCALE)?;
        let ty = self.schemas.kind(&group, version.as_str(), "Scale")?;
        Some(TypeRef { schema: self.schemas.schema(), ty })
    }

    fn convert(&self, object: &Value, _: &str) -> Result<Value, String> {
        Ok(object.clone())
    }
}

/// The owners of the workload's replicas, as owners of those of its scale.
pub(super) fn to_scale(workload: &Value, version: &str) -> Managers {
    let owners = owners(workload).into_iter().filter(|(_, it)| owns_replicas(it, version));
    owners.map(|(id, owned)| (in_version(&id, SCALE), replicas(SCALE, owned.time))).collect()
}

/// Carries ownership from the scale back to the workload.
pub(super) fn to_workload(workload: &mut Value, scale: &Value, version: &str) {
    let mut left = owners(scale);
    let mut managers = Managers::new();
    for (id, mut owned) in owners(workload) {
        let is_kept = !owns_replicas(&owned, version) || left.remove(&in_version(&id, SCALE)).is_some();
        if !is_kept {
            owned.set = owned.set.difference(&replicas(version, None).set);
        }
        if !owned.set.is_empty() {
            managers.insert(id, owned);
        }
    }
    for (id, owned) in left {
        if owns_replicas(&owned, SCALE) {
            managers.insert(in_version(&id, version), replicas(version, owned.time));
        }
    }
    if let Some(entries) = apply::encode(&managers) {
        object::metadata_mut(workload).insert("managedFields".to_owned(), entries);
    }
}

fn owners(object: &Value) -> Managers {
    let entries = object.get("metadata").and_then(|it| it.get("managedFields"));
    apply::decode(entries).unwrap_or_default()
}

fn owns_replicas(owned: &Owned, version: &str) -> bool {
    owned.api_version == version
        && owned.set.contains(&[PathElement::field("spec"), PathElement::field("replicas")])
}

fn replicas(version: &str, time: Option<String>) -> Owned {
    Owned { set: FieldSet::of_fields(&[&["spec", "replicas"]]), api_version: version.to_owned(), time }
}

fn in_version(id: &ManagerId, version: &str) -> ManagerId {
    let api_version = if id.operation == Operation::Apply { String::new() } else { version.to_owned() };
    ManagerId { api_version, ..id.clone() }
}
