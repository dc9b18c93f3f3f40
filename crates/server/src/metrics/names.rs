//! Names that become labels though somebody chose them: of custom resources and of webhooks.
//!
//! Upstream shows them too, but whoever defines things and removes them again could make series without end. So only so
//! many different names are ever shown; later ones are counted together.

use std::collections::HashSet;

use parking_lot::RwLock;

use super::RequestKey;

/// The most names. The built-in resources, groups, versions and kinds are a few hundred.
pub(super) const MAX_NAMES: usize = 4_000;

/// Longer names cannot be stored.
const MAX_LENGTH: usize = 253;

/// What later names are called.
const OTHER: &str = "other";

/// The names that were shown so far.
#[derive(Debug, Default)]
pub(super) struct Names(RwLock<HashSet<String>>);

impl Names {
    /// The name as it is shown.
    pub(super) fn shown<'a>(&self, name: &'a str) -> &'a str {
        if name.is_empty() || self.0.read().contains(name) {
            return name;
        }
        let mut names = self.0.write();
        if names.len() >= MAX_NAMES || name.len() > MAX_LENGTH {
            return OTHER;
        }
        names.insert(name.to_owned());
        name
    }

    /// The same for everything that a definition says.
    pub(super) fn of_request<'a>(&self, key: &RequestKey<'a>) -> RequestKey<'a> {
        RequestKey {
            group: self.shown(key.group),
            version: self.shown(key.version),
            resource: self.shown(key.resource),
            ..*key
        }
    }
}
