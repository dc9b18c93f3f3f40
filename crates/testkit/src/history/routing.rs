//! Judges G2: nobody is told that a resource is not there while the record of a member that offers it is.
//!
//! It is fed every change of the store, and asked about a 404 with the store's revisions before the question and after
//! the answer. Deliberately not here: whether that member can be reached; if it cannot, 503 is the answer.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::migration::Change;

const MEMBERS: &str = "/convoy/members/";

/// Who offered one resource, and when.
#[derive(Debug)]
pub struct Routing {
    /// Group, version and resource.
    need: [&'static str; 3],
    capable: BTreeSet<String>,
    /// How many offered it from a revision on.
    counts: BTreeMap<u64, usize>,
}

impl Routing {
    pub fn new(need: [&'static str; 3]) -> Self {
        Self { need, capable: BTreeSet::new(), counts: BTreeMap::new() }
    }

    /// All changes of one revision.
    pub fn see(&mut self, revision: u64, changes: &[Change<'_>]) {
        for (key, value) in changes {
            let Some(identity) = key.strip_prefix(MEMBERS) else { continue };
            if value.is_some_and(|it| self.offers(it)) {
                self.capable.insert(identity.to_owned());
            } else {
                self.capable.remove(identity);
            }
            self.counts.insert(revision, self.capable.len());
        }
    }

    /// Whether at every revision between these somebody offered it.
    pub fn was_offered(&self, from: u64, to: u64) -> bool {
        let before = self.counts.range(..=from).next_back().is_some_and(|(_, it)| *it > 0);
        before && self.counts.range(from..=to.max(from)).all(|(_, it)| *it > 0)
    }

    fn offers(&self, record: &[u8]) -> bool {
        let [group, version, resource] = self.need;
        let record: Value = serde_json::from_slice(record).unwrap_or_default();
        !record["offer"][group]["versions"][version][resource].is_null()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_404_is_wrong_only_if_there_was_always_somebody() {
        let with = json!({"offer": {"batch": {"versions": {"v1": {"jobs": {"kind": "Job"}}}}}}).to_string();
        let without = json!({"offer": {"apps": {"versions": {}}}}).to_string();
        let (with, without) = (Some(with.as_bytes()), Some(without.as_bytes()));
        let mut routing = Routing::new(["batch", "v1", "jobs"]);
        routing.see(3, &[("/convoy/members/c", without)]);
        routing.see(5, &[("/convoy/members/a", with)]);
        routing.see(7, &[("/registry/x", with)]);
        routing.see(8, &[("/convoy/members/b", with)]);
        routing.see(9, &[("/convoy/members/a", None)]);
        routing.see(12, &[("/convoy/members/b", None)]);
        routing.see(15, &[("/convoy/members/b", with)]);
        let cases = [((4, 4), false), ((4, 6), false), ((5, 5), true), ((6, 11), true), ((6, 12), false)];
        let late = [((12, 14), false), ((13, 16), false), ((15, 15), true), ((20, 30), true)];
        for ((from, to), was_offered) in cases.into_iter().chain(late) {
            assert_eq!(routing.was_offered(from, to), was_offered, "{from} to {to}");
        }
    }
}
