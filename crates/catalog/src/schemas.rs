//! What the objects of the built-in kinds look like in one release.
//!
//! Responsible for turning the shipped table of types into a [`Schema`], and for finding the type of a kind in it.
//! Deliberately not here: what is done with a schema (that is the `schema` crate), and which kinds are served.
//! Start at [`Schemas::new`]; the table is described in `read.rs`.

mod build;
mod read;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use meta::Release;
use schema::model::{Schema, TypeId};

/// The shipped table.
pub(crate) const TABLE: &str = include_str!("../data/schemas.txt");

/// Kinds that belong to no group: every group and version understands them.
const META: &str = "meta.k8s.io/v1";

/// The types of all built-in kinds, as one release knows them.
#[derive(Clone, Debug)]
pub struct Schemas {
    schema: Arc<Schema>,
    /// By `group/version/kind`.
    kinds: Arc<HashMap<String, TypeId>>,
}

impl Schemas {
    /// As this release has them: fields of other releases are there, but not [known](schema::model::Field::is_known).
    pub fn new(release: Release) -> Self {
        let table = read::parse(TABLE).expect("the shipped table of types must be readable");
        let (schema, kinds) =
            build::build(&table, release).expect("the shipped table of types must be complete");
        Self { schema: Arc::new(schema), kinds: Arc::new(kinds) }
    }

    /// All types.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The type of a kind, of its list, or of the options that a request brings. Whether this release serves the kind
    /// is another question.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<TypeId> {
        let own = self.kinds.get(&format!("{group}/{version}/{kind}"));
        own.or_else(|| self.kinds.get(&format!("{META}/{kind}"))).copied()
    }
}
