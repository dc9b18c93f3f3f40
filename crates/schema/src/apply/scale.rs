//! Ownership of a workload seen through its `scale`: only who owns the number of replicas shows there.

use super::{
    managers::{ManagerId, Managers, Owned},
    path::PathElement,
    set::FieldSet,
};

const SCALE_VERSION: &str = "autoscaling/v1";

/// The owners of the replicas as they show in a Scale. `replicas` is their path in an object of a version; none if
/// the version is not known.
pub fn to_scale(parent: &Managers, replicas: &dyn Fn(&str) -> Option<Vec<PathElement>>) -> Managers {
    parent
        .iter()
        .filter(|(_, owned)| replicas(&owned.api_version).is_some_and(|path| owned.set.contains(&path)))
        .map(|(id, owned)| {
            let owned = Owned {
                set: scale_replicas(),
                api_version: SCALE_VERSION.to_owned(),
                time: owned.time.clone(),
            };
            (id.clone(), owned)
        })
        .collect()
}

/// The owners of a workload after its Scale was written: whoever owns the replicas in the Scale owns them here.
pub fn from_scale(
    parent: &Managers,
    scale: &Managers,
    api_version: &str,
    replicas: &dyn Fn(&str) -> Option<Vec<PathElement>>,
) -> Managers {
    let mut owners = Managers::new();
    for (id, owned) in parent {
        let Some(path) = replicas(&owned.api_version) else { continue };
        let mut owned = owned.clone();
        if owned.set.contains(&path) && !scale.keys().any(|it| is_same(it, id)) {
            owned.set = owned.set.difference(&one(&path));
        }
        if !owned.set.is_empty() {
            owners.insert(id.clone(), owned);
        }
    }
    let Some(path) = replicas(api_version) else { return owners };
    for (id, owned) in scale {
        let is_kept = parent
            .iter()
            .filter(|(it, _)| is_same(it, id))
            .any(|(_, it)| replicas(&it.api_version).is_some_and(|path| it.set.contains(&path)));
        if is_kept || owned.set.intersection(&scale_replicas()).is_empty() {
            continue;
        }
        // Upstream looks for the time under the Scale's version, where it never is.
        let time = parent.get(id).and_then(|it| it.time.clone());
        let id = ManagerId::new(&id.manager, id.operation, api_version, &id.subresource);
        let set = owners.get(&id).map_or_else(|| one(&path), |it| it.set.union(&one(&path)));
        owners.insert(id, Owned { set, api_version: api_version.to_owned(), time });
    }
    owners
}

/// The same writer, in whatever version.
fn is_same(a: &ManagerId, b: &ManagerId) -> bool {
    (&a.manager, a.operation, &a.subresource) == (&b.manager, b.operation, &b.subresource)
}

fn scale_replicas() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}

fn one(path: &[PathElement]) -> FieldSet {
    let mut set = FieldSet::new();
    set.insert(path);
    set
}
