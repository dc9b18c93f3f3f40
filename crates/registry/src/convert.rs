//! Objects of one kind in another version than the one they came in.
//!
//! **Flow.** Most versions of a kind have the same shape, which the types tell: then only `apiVersion` changes. Where a
//! version is different, a *spoke*, code of the kind leads from it to the *hub*, the shape that all others have, and
//! back. In the end the object is brought into the form that Go writes in its new version.
//! **Guarantees.** Every conversion succeeds, on whatever stands in an object, and loses nothing that the other version
//! can hold or upstream keeps in annotations.
//! Deliberately not here: which versions a release can read (the cache refuses the others), and defaults.

mod autoscaling;
mod discovery;
mod events;
mod resource;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use catalog::{Definition, Schemas};
use meta::{GroupVersion, Map, Value, object};
use schema::{convert, model::TypeId};

/// How the versions of one kind become each other.
#[derive(Clone, Debug)]
pub struct Converter {
    schemas: Schemas,
    hub: Option<&'static Hub>,
    /// All versions that are known, as they stand in `apiVersion`, with their types.
    versions: Vec<(Arc<str>, TypeId)>,
    /// Which of them have the same shape.
    same: Vec<(Arc<str>, Arc<str>)>,
}

/// The versions of a kind that differ by more than their name.
#[derive(Debug)]
struct Hub {
    /// The version whose shape all versions have that are no spokes.
    version: &'static str,
    spokes: &'static [Spoke],
    /// What upstream takes out of every object, in whatever version it came.
    tidy: Option<fn(&mut Map)>,
}

/// A version of a kind with a shape of its own.
struct Spoke {
    version: &'static str,
    to_hub: fn(&mut Map, &Schemas),
    from_hub: fn(&mut Map),
}

impl std::fmt::Debug for Spoke {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.version)
    }
}

/// A kind by its group and name.
fn hub(group: &str, kind: &str) -> Option<&'static Hub> {
    match (group, kind) {
        ("autoscaling", "HorizontalPodAutoscaler") => Some(&autoscaling::HUB),
        ("" | "events.k8s.io", "Event") => Some(&events::HUB),
        ("discovery.k8s.io", "EndpointSlice") => Some(&discovery::HUB),
        ("resource.k8s.io", "ResourceClaim") => Some(&resource::CLAIM),
        ("resource.k8s.io", "ResourceClaimTemplate") => Some(&resource::TEMPLATE),
        ("resource.k8s.io", "ResourceSlice") => Some(&resource::SLICE),
        _ => None,
    }
}

impl Converter {
    /// For a kind and all its versions that a release can read or serves.
    pub fn new(schemas: &Schemas, definition: &Definition) -> Self {
        let own =
            definition.versions.iter().map(|it| GroupVersion::new(definition.group.clone(), it.as_str()));
        let mut versions: Vec<(Arc<str>, TypeId)> = Vec::new();
        for GroupVersion { group, version } in definition.decodable.iter().cloned().chain(own) {
            let Some(ty) = schemas.kind(&group, version.as_str(), &definition.kind) else { continue };
            let name: Arc<str> = GroupVersion { group, version }.to_string().into();
            if versions.iter().all(|(it, _)| *it != name) {
                versions.push((name, ty));
            }
        }
        let mut same = Vec::new();
        for (one, one_type) in &versions {
            let others = versions.iter().filter(|(it, _)| it != one);
            let others = others.filter(|(_, it)| convert::is_same_shape(schemas.schema(), *one_type, *it));
            same.extend(others.map(|(it, _)| (one.clone(), it.clone())));
        }
        Self { schemas: schemas.clone(), hub: hub(&definition.group, &definition.kind), versions, same }
    }

    /// All versions of which something is known, as they stand in `apiVersion`, with their types.
    pub fn versions(&self) -> &[(Arc<str>, TypeId)] {
        &self.versions
    }

    /// Whether an object in the one version becomes one in the other by saying so. Also true of versions of which
    /// nothing is known.
    pub fn is_relabelled(&self, from: &str, to: &str) -> bool {
        let is_known = |name: &str| self.versions.iter().any(|(it, _)| **it == *name);
        from == to
            || !is_known(from)
            || !is_known(to)
            || self.same.iter().any(|(one, other)| **one == *from && **other == *to)
    }

    /// The object in another version.
    #[must_use]
    pub fn convert(&self, mut object: Value, to: &str) -> Value {
        let from = object::api_version(&object).to_owned();
        let map = object::as_map_mut(&mut object);
        if self.is_relabelled(&from, to) {
            map.insert("apiVersion".to_owned(), Value::from(to));
            return object;
        }
        if let Some(spoke) = self.spoke(&from) {
            (spoke.to_hub)(map, &self.schemas);
        }
        if let Some(spoke) = self.spoke(to) {
            (spoke.from_hub)(map);
        }
        map.insert("apiVersion".to_owned(), Value::from(to));
        if let Some((_, ty)) = self.versions.iter().find(|(it, _)| **it == *to) {
            convert::fit(self.schemas.schema(), *ty, &mut object);
        }
        object
    }

    /// The object in the version that columns and other readers of single fields are written for.
    #[must_use]
    pub fn to_hub(&self, object: &Value) -> Option<Value> {
        let hub = self.hub?;
        self.spoke(object::api_version(object))?;
        Some(self.convert(object.clone(), hub.version))
    }

    /// Takes out what upstream lets no object of the kind have.
    pub(crate) fn tidy(&self, object: &mut Value) {
        if let Some(tidy) = self.hub.and_then(|it| it.tidy) {
            tidy(object::as_map_mut(object));
        }
    }

    fn spoke(&self, version: &str) -> Option<&'static Spoke> {
        self.hub?.spokes.iter().find(|it| it.version == version)
    }
}
