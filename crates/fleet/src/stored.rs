//! Whether a server can read everything that is stored of the resources it serves (G6).
//!
//! The counts come from the census; this is only the verdict, in words an operator can act on.
//! Deliberately not here: what is *selected* but not stored; [`crate::member::join`] looks at that.

use std::{collections::BTreeMap, fmt, str::FromStr};

use meta::{GroupResource, Release, StorageVersion};

/// How many objects are stored in each version, by resource.
pub type Census = BTreeMap<GroupResource, BTreeMap<StorageVersion, u64>>;

/// `--allow-undecodable RESOURCE/VERSION`, such as `deviceclasses.resource.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Allowed {
    /// The resource.
    pub resource: GroupResource,
    /// The version, without the group.
    pub version: String,
}

/// Objects that stand in the way of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Undecodable {
    /// Of this resource,
    pub resource: GroupResource,
    /// in this version,
    pub version: StorageVersion,
    /// so many,
    pub count: u64,
    /// cannot be read by this release.
    pub release: Release,
}

/// Everything that this server cannot read, of the resources in `decodable`; what is allowed is left out.
/// Stored objects of resources that the server does not know do not hold it back.
pub fn undecodable(
    census: &Census,
    decodable: &BTreeMap<GroupResource, Vec<StorageVersion>>,
    allowed: &[Allowed],
    release: Release,
) -> Vec<Undecodable> {
    let mut found = Vec::new();
    for (resource, readable) in decodable {
        for (version, count) in census.get(resource).into_iter().flatten() {
            let permitted = || allowed.iter().any(|it| it.covers(resource, version));
            if *count > 0 && !readable.contains(version) && !permitted() {
                let (resource, version) = (resource.clone(), version.clone());
                found.push(Undecodable { resource, version, count: *count, release });
            }
        }
    }
    found
}

/// What is stored of resources that this server does not know: worth a warning, no reason to stay away.
pub fn unknown_resources<'a>(
    census: &'a Census,
    known: &'a BTreeMap<GroupResource, Vec<StorageVersion>>,
) -> impl Iterator<Item = &'a GroupResource> {
    let is_stored = |counts: &BTreeMap<StorageVersion, u64>| counts.values().any(|it| *it > 0);
    census.iter().filter(move |(it, counts)| !known.contains_key(it) && is_stored(counts)).map(|(it, _)| it)
}

impl Allowed {
    /// Whether this lets objects of `resource` in `version` stay unreadable.
    pub fn covers(&self, resource: &GroupResource, version: &StorageVersion) -> bool {
        self.resource == *resource && self.version == bare(version)
    }
}

impl fmt::Display for Undecodable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, version, count, release } = self;
        let (objects, are) = if *count == 1 { ("object", "is") } else { ("objects", "are") };
        write!(
            f,
            "{count} {objects} of {resource} {are} stored as {version}, which release {release} cannot read: start \
             a release that reads {version} and go on one minor release at a time, so that they are migrated on the \
             way, or start this one with --allow-undecodable {resource}/{} and leave them unreadable",
            bare(version)
        )
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.resource, self.version)
    }
}

impl FromStr for Allowed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((resource, version))
                if !resource.is_empty() && !version.is_empty() && !version.contains('/') =>
            {
                Ok(Self { resource: resource.into(), version: version.to_owned() })
            }
            _ => Err(format!("{text:?} is not RESOURCE/VERSION, such as deployments.apps/v1beta1")),
        }
    }
}

/// `apps/v1` without its group.
fn bare(version: &StorageVersion) -> &str {
    let text = version.as_str();
    text.rsplit_once('/').map_or(text, |(_, version)| version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classes() -> GroupResource {
        GroupResource::new("resource.k8s.io", "deviceclasses")
    }

    fn census(counts: &[(&str, u64)]) -> Census {
        let counts = counts.iter().map(|(it, n)| (StorageVersion::new(*it), *n)).collect();
        Census::from([(classes(), counts)])
    }

    fn reads(versions: &[&str]) -> BTreeMap<GroupResource, Vec<StorageVersion>> {
        BTreeMap::from([(classes(), versions.iter().map(|it| StorageVersion::new(*it)).collect())])
    }

    #[test]
    fn what_cannot_be_read_is_named_with_its_remedy() {
        let census = census(&[("resource.k8s.io/v1", 3), ("resource.k8s.io/v1beta1", 7)]);
        let found = undecodable(&census, &reads(&["resource.k8s.io/v1beta1"]), &[], Release::v1(33));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            only.to_string(),
            "3 objects of deviceclasses.resource.k8s.io are stored as resource.k8s.io/v1, which release 1.33 \
             cannot read: start a release that reads resource.k8s.io/v1 and go on one minor release at a time, so \
             that they are migrated on the way, or start this one with --allow-undecodable \
             deviceclasses.resource.k8s.io/v1 and leave them unreadable"
        );
    }

    #[test]
    fn a_version_of_which_nothing_is_stored_stands_in_nobodys_way() {
        let census = census(&[("resource.k8s.io/v1", 0)]);
        assert!(undecodable(&census, &reads(&["resource.k8s.io/v1beta1"]), &[], Release::v1(33)).is_empty());
    }

    #[test]
    fn unknown_resources_are_named_and_hold_nobody_back() {
        let census = census(&[("resource.k8s.io/v1", 3)]);
        let known = BTreeMap::new();
        assert!(undecodable(&census, &known, &[], Release::v1(33)).is_empty());
        assert_eq!(unknown_resources(&census, &known).collect::<Vec<_>>(), [&classes()]);
    }

    #[test]
    fn an_operator_may_leave_objects_unreadable() {
        let census = census(&[("resource.k8s.io/v1", 3), ("resource.k8s.io/v1beta2", 1)]);
        let allowed: Allowed = "deviceclasses.resource.k8s.io/v1".parse().unwrap();
        assert_eq!(allowed.to_string(), "deviceclasses.resource.k8s.io/v1");
        let reads = reads(&["resource.k8s.io/v1beta1"]);
        let found = undecodable(&census, &reads, std::slice::from_ref(&allowed), Release::v1(33));
        let [only] = &found[..] else { panic!("{found:?}") };
        assert_eq!(only.version.as_str(), "resource.k8s.io/v1beta2");
        assert!(only.to_string().starts_with("1 object of deviceclasses.resource.k8s.io is stored as"));
        for wrong in ["", "pods", "/v1", "pods/", "deployments.apps/apps/v1"] {
            assert!(wrong.parse::<Allowed>().is_err(), "{wrong}");
        }
    }
}
