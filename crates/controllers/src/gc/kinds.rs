//! What discovery says, as the garbage collector needs it: where objects of a kind are found, and what to watch. Pure.

use std::collections::{BTreeMap, HashMap};

use meta::GroupResource;

use crate::api::Collection;
use crate::discovery::Served;

/// Where objects of a kind are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    group: String,
    version: String,
    resource: String,
    pub(super) is_namespaced: bool,
}

impl Place {
    /// The group and plural name of the resource.
    pub(super) fn resource(&self) -> GroupResource {
        GroupResource::new(self.group.as_str(), self.resource.as_str())
    }

    /// All objects in this namespace, or all of them if it is empty.
    pub(super) fn collection(&self, namespace: &str) -> Collection {
        let Self { group, version, resource, is_namespaced } = self;
        if *is_namespaced && !namespace.is_empty() {
            Collection::namespaced(group, version, namespace, resource)
        } else {
            Collection::cluster(group, version, resource)
        }
    }
}

/// Everything that is served.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    /// By `apiVersion` and kind.
    places: HashMap<(String, String), Place>,
    /// By group and resource.
    watched: BTreeMap<(String, String), Served>,
}

impl Kinds {
    pub(super) fn of(served: Vec<Served>) -> Self {
        let mut kinds = Self::default();
        for it in served {
            if it.can("get") {
                let key = (it.api_version(), it.kind.clone());
                kinds.places.entry(key).or_insert_with(|| place(&it));
            }
            if is_watched(&it) {
                // The preferred version comes first.
                kinds.watched.entry((it.group.clone(), it.resource.clone())).or_insert(it);
            }
        }
        kinds
    }

    pub(super) fn place(&self, api_version: &str, kind: &str) -> Option<&Place> {
        self.places.get(&(api_version.to_owned(), kind.to_owned()))
    }

    pub(super) fn watched(&self) -> &BTreeMap<(String, String), Served> {
        &self.watched
    }

    /// Where dependents of an owner can be.
    pub(super) fn places_of_dependents(&self, owner_is_namespaced: bool) -> impl Iterator<Item = Place> + '_ {
        self.watched.values().map(place).filter(move |it| it.is_namespaced || !owner_is_namespaced)
    }
}

fn place(served: &Served) -> Place {
    Place {
        group: served.group.clone(),
        version: served.version.clone(),
        resource: served.resource.clone(),
        is_namespaced: served.is_namespaced,
    }
}

/// Events own nothing and are owned by nothing, and there are many.
fn is_watched(served: &Served) -> bool {
    let is_event =
        matches!((served.group.as_str(), served.resource.as_str()), ("" | "events.k8s.io", "events"));
    !is_event && ["delete", "list", "watch"].iter().all(|it| served.can(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_a_place_and_the_preferred_one_is_watched() {
        let all = ["delete", "get", "list", "watch"];
        let kinds = Kinds::of(vec![
            Served::new("v1", "namespaces", "Namespace", false, &all),
            Served::new("v1", "events", "Event", true, &all),
            Served::new("v1", "bindings", "Binding", true, &["create"]),
            Served::new("example.org/v2", "widgets", "Widget", true, &all),
            Served::new("example.org/v1", "widgets", "Widget", true, &all),
        ]);
        let watched: Vec<String> = kinds.watched().values().map(Served::api_version).collect();
        assert_eq!(watched, ["v1", "example.org/v2"]);
        assert_eq!(kinds.place("example.org/v1", "Widget").unwrap().version, "v1");
        assert!(!kinds.place("v1", "Namespace").unwrap().is_namespaced);
        assert_eq!(kinds.place("v1", "Binding"), None);
        assert_eq!(kinds.place("v1", "Widget"), None);
        let n_places = |is_namespaced| kinds.places_of_dependents(is_namespaced).count();
        assert_eq!((n_places(true), n_places(false)), (1, 2));
    }
}
