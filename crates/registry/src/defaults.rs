//! What the API fills in where an object of a built-in kind does not say it: `restartPolicy: Always`.
//!
//! Called for every structure of an object, outer before inner, with the name of its type (`core.v1.Container`), in the
//! version that the client speaks. A field is filled in only where the emulated release has it and nothing is set.
//! Deliberately not here: constants that upstream declares in the published schema (the catalog's table has them, and
//! OpenAPI shows them), what a kind decides when an object is created (`strategy`), and CustomResourceDefinitions.
//! Start at [`Defaults::fill`]; there is one module per corner of the API.

mod cluster;
mod devices;
mod image;
mod network;
mod pod;
mod resources;
mod storage;
#[cfg(test)]
mod tests;
mod workloads;

use jiff::Timestamp;
use meta::{Map, Release, Value};
use schema::{
    default,
    model::{ObjectType, Schema, TypeId},
};

/// The defaults of one release at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    release: Release,
    now: Timestamp,
}

impl Defaults {
    /// As this release has them; some devices carry the time at which they were first seen.
    pub fn new(release: Release, now: Timestamp) -> Self {
        Self { release, now }
    }

    /// Fills in an object from which empty fields were taken away.
    pub fn fill(self, schema: &Schema, ty: TypeId, object: &mut Value) {
        default::fill_with(schema, ty, object, &mut |ty, map| self.structure(ty, map));
    }

    fn structure(self, ty: &ObjectType, map: &mut Map) {
        let Some(name) = ty.name.strip_prefix("io.k8s.api.") else {
            return self.aggregated(ty, map);
        };
        let Some((group, name)) = name.split_once('.') else { return };
        let mut structure = Structure { ty, map };
        match group {
            "core" => {
                pod::fill(name, &mut structure);
                network::fill_core(name, &mut structure);
                storage::fill_core(name, &mut structure);
                workloads::fill_core(name, &mut structure);
                cluster::fill_core(name, &mut structure);
            }
            "apps" => workloads::fill_apps(name, self.release, &mut structure),
            "batch" => workloads::fill_batch(name, &mut structure),
            "autoscaling" => workloads::fill_autoscaling(name, &mut structure),
            "networking" | "discovery" => network::fill(name, &mut structure),
            "storage" => storage::fill(name, &mut structure),
            "resource" => devices::fill(name, self.now, &mut structure),
            "admissionregistration"
            | "authentication"
            | "certificates"
            | "flowcontrol"
            | "rbac"
            | "scheduling" => cluster::fill(group, name, &mut structure),
            _ => {}
        }
    }

    fn aggregated(self, ty: &ObjectType, map: &mut Map) {
        if ty.name.starts_with("io.k8s.kube-aggregator.") && ty.short_name() == "ServiceReference" {
            Structure { ty, map }.set("port", 443);
        }
    }
}

/// One structure of an object, and its type.
struct Structure<'a> {
    ty: &'a ObjectType,
    map: &'a mut Map,
}

impl Structure<'_> {
    /// Fills in a field, if this release has it and nothing is set.
    fn set(&mut self, field: &str, value: impl Into<Value>) {
        if self.is_unset(field) {
            self.map.insert(field.to_owned(), value.into());
        }
    }

    /// The same with an empty object.
    fn set_empty(&mut self, field: &str) {
        self.set(field, Map::new());
    }

    /// Whether this release has the field, and it holds nothing. Fields that are always written may hold a zero.
    fn is_unset(&self, field: &str) -> bool {
        let Some(known) = self.ty.field(field).filter(|it| it.is_known) else { return false };
        match self.map.get(field) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => !known.is_pointer && text.is_empty(),
            Some(Value::Number(number)) => !known.is_pointer && number.as_i64() == Some(0),
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Bool(_) | Value::Object(_)) => false,
        }
    }

    fn text(&self, field: &str) -> &str {
        text(self.map, field)
    }

    /// An object within this one, if it is there.
    fn child(&mut self, field: &str) -> Option<&mut Map> {
        self.map.get_mut(field)?.as_object_mut()
    }

    /// An object within this one; it is made if it is not there. `None` if something else is.
    fn made(&mut self, field: &str) -> Option<&mut Map> {
        self.set_empty(field);
        self.child(field)
    }
}

/// A text within an object; empty if there is none.
fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Fills in a field that every release has, if nothing is set.
fn put(map: &mut Map, field: &str, value: impl Into<Value>) {
    if map.get(field).is_none_or(Value::is_null) {
        map.insert(field.to_owned(), value.into());
    }
}

/// The objects in a list within an object.
fn each<'a>(map: &'a mut Map, field: &str) -> impl Iterator<Item = &'a mut Map> {
    let items = map.get_mut(field).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default();
    items.iter_mut().filter_map(Value::as_object_mut)
}

/// Adds the entries of another map whose keys are not there yet.
fn complete(map: &mut Map, more: &Map) {
    for (key, value) in more {
        if !map.contains_key(key) {
            map.insert(key.clone(), value.clone());
        }
    }
}
