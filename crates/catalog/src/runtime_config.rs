//! `--runtime-config`: which API versions and resources a server switches on or off.
//!
//! Precedence, as in kube-apiserver: the defaults of the release, then `api/all`, `api/ga`, `api/beta`, `api/alpha` in
//! this order, then single versions, then single resources. Whether a group and a version exist is known to the
//! catalog alone, which asks for that with [`RuntimeConfig::named_versions`].

use std::{
    collections::{BTreeMap, btree_map::Entry},
    str::FromStr,
};

use meta::GroupVersion;

/// The parsed flag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig {
    /// What is said of all versions of a stability, in the order in which it applies.
    stabilities: BTreeMap<Stability, bool>,
    versions: BTreeMap<GroupVersion, bool>,
    resources: BTreeMap<(GroupVersion, String), bool>,
}

/// Why a `--runtime-config` cannot be used. The texts are kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// A key that is not `api/…`, `group/version` or `group/version/resource`.
    #[error("runtime-config invalid key {0}")]
    Key(String),
    /// A key of three parts whose last one is not lower-case.
    #[error(
        "invalid key {key}: group/version/resource and resource is always lowercase plural, not {resource:?}"
    )]
    ResourceCase {
        /// The whole key.
        key: String,
        /// Its last part.
        resource: String,
    },
    /// `api/…` with something other than `true` or `false`.
    #[error("invalid value {key}={value}")]
    StabilityValue {
        /// The key.
        key: String,
        /// What it was set to.
        value: String,
    },
    /// A version or resource with something that is not a boolean.
    #[error("invalid value of {key}: {value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Value {
        /// The key.
        key: String,
        /// What it was set to.
        value: String,
    },
    /// Everything off and nothing on.
    #[error("invalid key with only api/all=false")]
    NothingLeft,
    /// Groups that do not exist.
    #[error("unknown api groups {}", .0.join(","))]
    UnknownGroups(Vec<String>),
    /// A version that the group does not have.
    #[error("group version {0} that has not been registered")]
    UnknownVersion(GroupVersion),
    /// A resource of our own that the servers cannot do without, switched off by name.
    #[error(
        "invalid value {key}=false: convoy needs {version} {resource} itself, and serves it in every release"
    )]
    AlwaysOn {
        /// The key as it would be written.
        key: String,
        /// The version,
        version: GroupVersion,
        /// and the resource that stay on.
        resource: String,
    },
}

impl RuntimeConfig {
    /// Reads `key=value,…`. A key without a value means `true`. Of a key that comes twice the last one counts.
    pub fn parse(text: &str) -> Result<Self, RuntimeConfigError> {
        let mut entries = BTreeMap::new();
        for entry in text.split(',').filter(|it| !it.is_empty()) {
            let (key, value) = entry.split_once('=').unwrap_or((entry, ""));
            entries.insert(key.trim(), value.trim());
        }
        if entries.len() == 1 && entries.get("api/all") == Some(&"false") {
            return Err(RuntimeConfigError::NothingLeft);
        }
        let mut config = Self::default();
        for (key, value) in entries {
            config.set(key, value)?;
        }
        Ok(config)
    }

    /// The groups and versions that the flag names, each once, in order.
    pub fn named_versions(&self) -> impl Iterator<Item = &GroupVersion> {
        let mut named: Vec<_> = self.versions.keys().chain(self.resources.keys().map(|(it, _)| it)).collect();
        named.sort();
        named.dedup();
        named.into_iter()
    }

    /// The key that switches a resource off by its name or by that of its version, if there is one.
    pub fn switched_off_by_name(&self, version: &GroupVersion, resource: &str) -> Option<String> {
        let by_resource = self.resources.get(&(version.clone(), resource.to_owned())) == Some(&false);
        let by_version = self.versions.get(version) == Some(&false);
        match (by_version, by_resource) {
            (_, true) => Some(format!("{version}/{resource}")),
            (true, false) => Some(version.to_string()),
            (false, false) => None,
        }
    }

    /// Whether to serve a resource in a version, given what default flags would do.
    pub fn serves(&self, version: &GroupVersion, resource: &str, by_default: bool) -> bool {
        let mut on = by_default;
        for (stability, value) in &self.stabilities {
            if stability.matches(version.version.as_str()) {
                on = *value;
            }
        }
        if let Some(value) = self.versions.get(version) {
            on = *value;
        }
        let of_resource = self.resources.iter().find(|((it, name), _)| it == version && name == resource);
        of_resource.map_or(on, |(_, value)| *value)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), RuntimeConfigError> {
        if let Ok(stability) = key.parse() {
            let value = value.parse().map_err(|_| RuntimeConfigError::StabilityValue {
                key: key.to_owned(),
                value: value.to_owned(),
            })?;
            self.stabilities.insert(stability, value);
            return Ok(());
        }
        let value = || {
            parse_bool(value)
                .ok_or_else(|| RuntimeConfigError::Value { key: key.to_owned(), value: value.to_owned() })
        };
        match key.split('/').collect::<Vec<_>>()[..] {
            // The core group has three spellings; `api/v1` and `v1` are the old ones.
            ["v1"] | ["api", "v1"] => set_once(self.versions.entry(GroupVersion::new("", "v1")), value()?),
            [group, version] => set_once(self.versions.entry(GroupVersion::new(group, version)), value()?),
            [_, _, resource] if resource.to_lowercase() != resource => {
                return Err(RuntimeConfigError::ResourceCase {
                    key: key.to_owned(),
                    resource: resource.to_owned(),
                });
            }
            [group, version, resource] => {
                let group = if (group, version) == ("api", "v1") { "" } else { group };
                let key = (GroupVersion::new(group, version), resource.to_owned());
                set_once(self.resources.entry(key), value()?);
            }
            _ => return Err(RuntimeConfigError::Key(key.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for RuntimeConfig {
    type Err = RuntimeConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// The booleans that Go's flags accept; an absent value is `true`.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Two spellings of one version: the safer one wins, whatever their order.
fn set_once<K: Ord>(entry: Entry<'_, K, bool>, value: bool) {
    entry.and_modify(|it| *it &= value).or_insert(value);
}

/// The versions that one `api/…` key speaks of, in the order in which the keys apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    All,
    Ga,
    Beta,
    Alpha,
}

impl FromStr for Stability {
    type Err = ();

    fn from_str(key: &str) -> Result<Self, ()> {
        match key {
            "api/all" => Ok(Self::All),
            "api/ga" => Ok(Self::Ga),
            "api/beta" => Ok(Self::Beta),
            "api/alpha" => Ok(Self::Alpha),
            _ => Err(()),
        }
    }
}

impl Stability {
    fn matches(self, version: &str) -> bool {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let Some(rest) = version.strip_prefix('v') else { return self == Self::All };
        let has_marker = |marker| {
            rest.split_once(marker).is_some_and(|(major, minor)| is_number(major) && is_number(minor))
        };
        match self {
            Self::All => true,
            Self::Ga => is_number(rest),
            Self::Beta => has_marker("beta"),
            Self::Alpha => has_marker("alpha"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(config: &str, version: &str, resource: &str, by_default: bool) -> bool {
        let version = GroupVersion::parse(version).unwrap();
        RuntimeConfig::parse(config).unwrap().serves(&version, resource, by_default)
    }

    #[test]
    fn the_more_specific_key_wins() {
        assert!(serves("", "apps/v1", "deployments", true));
        assert!(!serves("", "resource.k8s.io/v1beta1", "deviceclasses", false));
        assert!(serves("api/all=true", "resource.k8s.io/v1beta1", "deviceclasses", false));
        assert!(!serves("api/all=true,api/beta=false", "resource.k8s.io/v1beta1", "deviceclasses", false));
        assert!(serves("api/beta=false,a/v1beta1=true", "a/v1beta1", "things", false));
        assert!(!serves("a/v1beta1=true,a/v1beta1/things=false", "a/v1beta1", "things", false));
        assert!(serves("a/v1beta1=true,a/v1beta1/things=false", "a/v1beta1", "others", false));
        assert!(serves("a/v1alpha1/things=true", "a/v1alpha1", "things", false));
        assert!(!serves("api/ga=false,apps/v1=true", "batch/v1", "jobs", true));
    }

    #[test]
    fn stabilities_match_as_upstream_does() {
        for (key, version, matches) in [
            ("api/ga", "v1", true),
            ("api/ga", "v10", true),
            ("api/ga", "v1beta1", false),
            ("api/beta", "v2beta2", true),
            ("api/beta", "vbeta1", false),
            ("api/beta", "v1beta", false),
            ("api/alpha", "v1alpha3", true),
            ("api/alpha", "v1", false),
            ("api/all", "whatever", true),
            ("api/ga", "whatever", false),
        ] {
            assert_eq!(key.parse::<Stability>().unwrap().matches(version), matches, "{key} {version}");
        }
    }

    #[test]
    fn the_core_group_can_be_written_in_three_ways() {
        for config in ["v1=false", "/v1=false", "api/v1=false"] {
            assert!(!serves(config, "v1", "pods", true), "{config}");
        }
        assert!(!serves("/v1/pods=0", "v1", "pods", true));
        assert!(serves("/v1/pods=0", "v1", "nodes", true));
        assert!(!serves("v1=true,/v1=false", "v1", "pods", true));
    }

    #[test]
    fn spaces_empty_entries_and_go_booleans_are_accepted() {
        assert!(serves(" a/v1beta1 = T ,,", "a/v1beta1", "things", false));
        assert!(serves("a/v1beta1", "a/v1beta1", "things", false));
        assert!(!serves("a/v1=true,a/v1=F", "a/v1", "things", true));
    }

    #[test]
    fn what_cannot_be_read_is_refused_in_upstreams_words() {
        for (config, text) in [
            ("api/all=false", "invalid key with only api/all=false"),
            ("api/all=yes", "invalid value api/all=yes"),
            ("api/beta", "invalid value api/beta="),
            ("apps", "runtime-config invalid key apps"),
            ("a/b/c/d=true", "runtime-config invalid key a/b/c/d"),
            (
                "apps/v1=maybe",
                r#"invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax"#,
            ),
            (
                "apps/v1/Deployments=true",
                "invalid key apps/v1/Deployments: group/version/resource and resource is always lowercase plural, not \"Deployments\"",
            ),
        ] {
            assert_eq!(RuntimeConfig::parse(config).unwrap_err().to_string(), text);
        }
    }
}
