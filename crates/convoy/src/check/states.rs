//! Whether a release could read what is stored in a cluster that does not show its store: its StorageStates say in which
//! versions objects may be stored (KEP-2343).
//!
//! Deliberately not here: who keeps them up to date; that is the trigger, in `convoy controllers`.

use std::collections::BTreeMap;

use catalog::{Catalog, discovery::storage_version_hash};
use jiff::{SignedDuration, Timestamp};
use meta::{GroupResource, Release, Value, time};

use super::Found;
use crate::failure::{Exit, Failure};

/// Where they are.
pub(super) const STATES: &str = "/apis/migration.k8s.io/v1alpha1/storagestates";

/// What is older says nothing any more, as KEP-2343 has it.
const STALE: SignedDuration = SignedDuration::from_mins(10);

/// Stands for versions that nobody knows.
const UNKNOWN: &str = "Unknown";

/// What the states say about a release. States that kube-storage-version-migrator made have hashes only.
pub(super) fn to(
    release: Release,
    catalog: &Catalog,
    states: &Value,
    now: Timestamp,
) -> Result<Found, Failure> {
    let mut readable: BTreeMap<GroupResource, Vec<String>> = BTreeMap::new();
    for definition in catalog.definitions().iter().filter(|it| it.is_stored()) {
        let hashes = definition.decodable.iter().map(|it| storage_version_hash(it, &definition.kind));
        readable.entry(definition.record.clone()).or_default().extend(hashes);
    }
    let (mut reasons, mut n_known) = (Vec::new(), 0);
    for state in states["items"].as_array().into_iter().flatten() {
        let text = |path: &str| state.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = GroupResource::new(text("/spec/resource/group"), text("/spec/resource/resource"));
        let Some(readable) = readable.get(&resource) else { continue };
        n_known += 1;
        let beat = time::parse_time(text("/status/lastHeartbeatTime"));
        if beat.is_none_or(|it| it + STALE < now) {
            let since =
                beat.map_or_else(|| "ever".to_owned(), |it| format!("since {}", time::format_time(it)));
            let message = format!(
                "nobody has looked {since} at how {resource} is stored: run `convoy controllers` beside the cluster, and ask \
                 again"
            );
            return Err(Failure { exit: Exit::Unknown, message });
        }
        let hashes = texts(&state["status"]["persistedStorageVersionHashes"]);
        let names = texts(&state["status"]["persistedVersions"]);
        if hashes.is_empty() || hashes.contains(&UNKNOWN) {
            reasons.push(format!(
                "it is not known in which version objects of {resource} are stored: run `convoy migrate {resource}`"
            ));
        }
        for (n, hash) in hashes.iter().enumerate() {
            if *hash != UNKNOWN && !readable.iter().any(|it| it == hash) {
                let version = names.get(n).copied().unwrap_or(hash);
                reasons.push(format!(
                    "objects of {resource} may be stored as {version}, which release {release} cannot read: run \
                     `convoy migrate {resource}` where another version is written"
                ));
            }
        }
    }
    if n_known == 0 {
        let message = "what is stored cannot be told: there are no StorageStates; run `convoy controllers` beside the \
                       cluster, or name its etcd";
        return Err(Failure { exit: Exit::Unknown, message: message.to_owned() });
    }
    let is_safe = reasons.is_empty();
    if is_safe {
        reasons.push(format!(
            "release {release} can read every version in which objects of {n_known} built-in resources may be stored"
        ));
    }
    Ok(Found { is_safe, reasons })
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

#[cfg(test)]
mod tests {
    use catalog::{FeatureGates, RuntimeConfig};
    use meta::GroupVersion;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-11-16T12:00:00Z";

    fn check(hashes: &[&str]) -> Result<Found, Failure> {
        check_seen(hashes, "2026-11-16T11:55:00Z")
    }

    fn check_seen(hashes: &[&str], beat: &str) -> Result<Found, Failure> {
        let release = Release::v1(36);
        let gates = FeatureGates::defaults(release);
        let catalog = Catalog::new(release, &RuntimeConfig::default(), &gates).unwrap();
        let states = json!({"items": [
            {"spec": {"resource": {"group": "resource.k8s.io", "resource": "deviceclasses"}},
                "status": {"persistedStorageVersionHashes": hashes, "persistedVersions": hashes,
                    "lastHeartbeatTime": beat}},
            // What a release does not serve it need not read.
            {"spec": {"resource": {"group": "example.com", "resource": "widgets"}},
                "status": {"persistedStorageVersionHashes": [UNKNOWN]}},
        ]});
        to(release, &catalog, &states, NOW.parse().unwrap())
    }

    /// B9, B18.
    #[test]
    fn what_nobody_has_looked_at_for_long_says_nothing() {
        let hash = storage_version_hash(&GroupVersion::parse("resource.k8s.io/v1").unwrap(), "DeviceClass");
        for beat in ["2026-11-16T11:49:00Z", ""] {
            let failure = check_seen(&[&hash], beat).map(drop).unwrap_err();
            assert_eq!(failure.exit, Exit::Unknown, "{beat}");
            assert!(failure.message.contains("deviceclasses.resource.k8s.io"), "{}", failure.message);
        }
    }

    /// B4, B5, B20, T17.
    #[test]
    fn every_version_that_may_be_stored_must_be_readable_and_known() {
        let hash = |version: &str| {
            storage_version_hash(
                &GroupVersion::parse(&format!("resource.k8s.io/{version}")).unwrap(),
                "DeviceClass",
            )
        };
        let (old, new, never) = (hash("v1beta2"), hash("v1"), hash("v9"));
        let is_safe = |hashes: &[&str]| check(hashes).map_err(|it| it.message).unwrap().is_safe;
        assert!(is_safe(&[&new]));
        assert!(is_safe(&[&old, &new]), "no migration has to be waited for");
        assert!(!is_safe(&[&new, &never]));
        assert!(!is_safe(&[UNKNOWN, &new]));
        assert!(!is_safe(&[]), "Unknown is the default");
        let found = check(&[&never]).map_err(|it| it.message).unwrap();
        assert!(found.reasons[0].contains("which release 1.36 cannot read"), "{found:?}");
    }

    #[test]
    fn without_states_nothing_can_be_told() {
        let release = Release::v1(36);
        let gates = FeatureGates::defaults(release);
        let catalog = Catalog::new(release, &RuntimeConfig::default(), &gates).unwrap();
        let none = to(release, &catalog, &json!({"items": []}), NOW.parse().unwrap());
        assert_eq!(none.map(drop).unwrap_err().exit, Exit::Unknown);
    }
}
