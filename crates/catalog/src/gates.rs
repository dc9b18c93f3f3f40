//! Feature gates: the table of those this project knows, and `--feature-gates`.
//!
//! Listed are our own coordination gates, the gates that decide about a subresource, and those that upstream wants set
//! for resources that are off by default (we serve these as soon as `--runtime-config` asks; the gate is only
//! recorded). What a gate does is decided where it is asked for; here is only whether it is on.

use meta::Release;

use crate::runtime_config::parse_bool;

/// A feature that can be switched on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as upstream names and documents them")]
pub enum Gate {
    AllowUnsafeMalformedObjectDeletion,
    ApiServerIdentity,
    ClusterTrustBundle,
    CoordinatedLeaderElection,
    DraDeviceTaintRules,
    DraDeviceTaints,
    DynamicResourceAllocation,
    GenericWorkload,
    InPlacePodVerticalScaling,
    MultiCidrServiceAllocator,
    MutatingAdmissionPolicy,
    PodCertificateRequest,
    StorageVersionApi,
    StorageVersionHash,
    StorageVersionMigrator,
    UnknownVersionInteroperabilityProxy,
    VolumeAttributesClass,
}

/// How mature a feature is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Stage {
    Alpha,
    Beta,
    Ga,
}

/// What holds for a gate from a release on, until the next entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateSpec {
    /// The first release for which this holds.
    pub since: Release,
    /// How mature the feature is.
    pub stage: Stage,
    /// Whether it is on if nobody says otherwise.
    pub default: bool,
    /// Whether it can no longer be set to anything else.
    pub locked: bool,
}

/// Why `--feature-gates` cannot be used. The texts are kube-apiserver's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// A name that is not in the table.
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    /// A name without `=`.
    #[error("missing bool value for {0}")]
    NoValue(String),
    /// A value that is not a boolean.
    #[error("invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax")]
    Value {
        /// The gate.
        name: String,
        /// What it was set to.
        value: String,
    },
    /// A feature that can no longer be switched.
    #[error("cannot set feature gate {name} to {value}, feature is locked to {default}")]
    Locked {
        /// The gate.
        name: &'static str,
        /// What it was set to.
        value: bool,
        /// What it is.
        default: bool,
    },
    /// A feature that the emulated release does not have yet.
    #[error("cannot set feature gate {name} to {value}, feature is PreAlpha at emulated version {release}")]
    TooNew {
        /// The gate.
        name: &'static str,
        /// What it was set to.
        value: bool,
        /// The emulated release.
        release: Release,
    },
}

/// Every gate with its name and life. To add a gate: a variant above, an entry here in the order of the variants,
/// oldest release first. A test checks both orders.
const TABLE: &[(Gate, &str, &[GateSpec])] = &[
    (Gate::AllowUnsafeMalformedObjectDeletion, "AllowUnsafeMalformedObjectDeletion", &[alpha(32)]),
    (Gate::ApiServerIdentity, "APIServerIdentity", &[alpha(20), beta(26).on()]),
    (Gate::ClusterTrustBundle, "ClusterTrustBundle", &[alpha(27), beta(33)]),
    (Gate::CoordinatedLeaderElection, "CoordinatedLeaderElection", &[alpha(31), beta(33)]),
    (Gate::DraDeviceTaintRules, "DRADeviceTaintRules", &[alpha(35), beta(36)]),
    (Gate::DraDeviceTaints, "DRADeviceTaints", &[alpha(33), beta(36).on()]),
    (
        Gate::DynamicResourceAllocation,
        "DynamicResourceAllocation",
        &[alpha(26), beta(32), ga(34), ga(35).locked()],
    ),
    (Gate::GenericWorkload, "GenericWorkload", &[alpha(35)]),
    (
        Gate::InPlacePodVerticalScaling,
        "InPlacePodVerticalScaling",
        &[alpha(27), beta(33).on(), ga(35).locked()],
    ),
    (
        Gate::MultiCidrServiceAllocator,
        "MultiCIDRServiceAllocator",
        &[alpha(27), beta(31), ga(33), ga(34).locked()],
    ),
    (Gate::MutatingAdmissionPolicy, "MutatingAdmissionPolicy", &[alpha(32), beta(34), ga(36)]),
    (Gate::PodCertificateRequest, "PodCertificateRequest", &[alpha(34), beta(35)]),
    // On, unlike upstream's: without it servers of different releases could not share a store.
    (Gate::StorageVersionApi, "StorageVersionAPI", &[alpha(20).on()]),
    (Gate::StorageVersionHash, "StorageVersionHash", &[beta(15).on()]),
    (Gate::StorageVersionMigrator, "StorageVersionMigrator", &[alpha(30), beta(35)]),
    // On, unlike upstream's before 1.36: without it a request that only another release can answer would be denied.
    (
        Gate::UnknownVersionInteroperabilityProxy,
        "UnknownVersionInteroperabilityProxy",
        &[alpha(28).on(), beta(36).on()],
    ),
    (Gate::VolumeAttributesClass, "VolumeAttributesClass", &[alpha(29), beta(31), ga(34), ga(36).locked()]),
];

impl Gate {
    /// Every gate, in order of name.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(gate, ..)| *gate)
    }

    /// The gate of that name.
    pub fn parse(name: &str) -> Option<Self> {
        TABLE.iter().find(|(_, it, _)| *it == name).map(|(gate, ..)| *gate)
    }

    /// The name as it stands in `--feature-gates`.
    pub fn name(self) -> &'static str {
        self.entry().1
    }

    /// What holds for the gate in a release; `None` before the feature existed.
    pub fn spec(self, release: Release) -> Option<&'static GateSpec> {
        self.entry().2.iter().rev().find(|it| it.since <= release)
    }

    fn entry(self) -> &'static (Self, &'static str, &'static [GateSpec]) {
        TABLE.iter().find(|(gate, ..)| *gate == self).expect("the table must hold every gate")
    }
}

/// Which features are on in one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    release: Release,
    /// The gates that are on.
    on: Vec<Gate>,
}

impl FeatureGates {
    /// What a release has on without any flag.
    pub fn defaults(release: Release) -> Self {
        Self::resolve(release, |_, spec| spec.default)
    }

    /// Reads `Name=bool,…`; `AllAlpha` and `AllBeta` set what is not named.
    pub fn parse(text: &str, release: Release) -> Result<Self, GateError> {
        let mut all = [None; 2];
        let mut named: Vec<(Gate, bool)> = Vec::new();
        for entry in text.split(',').filter(|it| !it.is_empty()) {
            let (name, value) =
                entry.split_once('=').ok_or_else(|| GateError::NoValue(entry.trim().into()))?;
            let (name, value) = (name.trim(), value.trim());
            let value = parse_bool(value)
                .filter(|_| !value.is_empty())
                .ok_or_else(|| GateError::Value { name: name.to_owned(), value: value.to_owned() })?;
            match name {
                "AllAlpha" => all[0] = Some(value),
                "AllBeta" => all[1] = Some(value),
                _ => named.push((check(name, value, release)?, value)),
            }
        }
        let named = |gate| named.iter().rev().find(|(it, _)| *it == gate).map(|(_, value)| *value);
        Ok(Self::resolve(release, |gate, spec| {
            let unnamed = match spec.stage {
                Stage::Alpha => all[0],
                Stage::Beta => all[1],
                Stage::Ga => None,
            };
            named(gate).or(unnamed).unwrap_or(spec.default)
        }))
    }

    /// Whether a feature is on.
    pub fn enabled(&self, gate: Gate) -> bool {
        self.on.contains(&gate)
    }

    /// Every gate that the release has, with its stage and whether it is on.
    pub fn iter(&self) -> impl Iterator<Item = (Gate, Stage, bool)> {
        Gate::all().filter_map(|gate| {
            let spec = gate.spec(self.release)?;
            Some((gate, spec.stage, self.enabled(gate)))
        })
    }

    fn resolve(release: Release, is_on: impl Fn(Gate, &GateSpec) -> bool) -> Self {
        let on =
            Gate::all().filter(|gate| gate.spec(release).is_some_and(|spec| is_on(*gate, spec))).collect();
        Self { release, on }
    }
}

fn check(name: &str, value: bool, release: Release) -> Result<Gate, GateError> {
    let gate = Gate::parse(name).ok_or_else(|| GateError::Unknown(name.to_owned()))?;
    let name = gate.name();
    match gate.spec(release) {
        None => Err(GateError::TooNew { name, value, release }),
        Some(GateSpec { locked: true, default, .. }) if *default != value => {
            Err(GateError::Locked { name, value, default: *default })
        }
        Some(_) => Ok(gate),
    }
}

const fn alpha(minor: u16) -> GateSpec {
    GateSpec { since: Release::v1(minor), stage: Stage::Alpha, default: false, locked: false }
}

const fn beta(minor: u16) -> GateSpec {
    GateSpec { since: Release::v1(minor), stage: Stage::Beta, default: false, locked: false }
}

const fn ga(minor: u16) -> GateSpec {
    GateSpec { since: Release::v1(minor), stage: Stage::Ga, default: true, locked: false }
}

impl GateSpec {
    const fn on(mut self) -> Self {
        self.default = true;
        self
    }

    const fn locked(mut self) -> Self {
        self.locked = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        assert!(TABLE.is_sorted_by(|(a, ..), (b, ..)| a < b));
        assert!(TABLE.is_sorted_by(|(_, a, _), (_, b, _)| a.to_lowercase() < b.to_lowercase()));
        for (_, name, specs) in TABLE {
            assert!(specs.is_sorted_by(|a, b| a.since < b.since), "{name}");
        }
        assert_eq!(Gate::all().last(), Some(Gate::VolumeAttributesClass), "every variant is in the table");
    }

    #[test]
    fn defaults_follow_the_release() {
        for (minor, gate, on) in [
            (35, Gate::UnknownVersionInteroperabilityProxy, true),
            (36, Gate::UnknownVersionInteroperabilityProxy, true),
            (32, Gate::CoordinatedLeaderElection, false),
            (32, Gate::InPlacePodVerticalScaling, false),
            (33, Gate::InPlacePodVerticalScaling, true),
            (30, Gate::StorageVersionHash, true),
            (36, Gate::StorageVersionApi, true),
            (30, Gate::GenericWorkload, false),
        ] {
            assert_eq!(
                FeatureGates::defaults(Release::v1(minor)).enabled(gate),
                on,
                "{} {minor}",
                gate.name()
            );
        }
    }

    #[test]
    fn a_named_gate_wins_over_the_general_ones() {
        let gates =
            FeatureGates::parse("AllAlpha=true, AllBeta=false,StorageVersionAPI=0", Release::v1(36)).unwrap();
        assert!(gates.enabled(Gate::GenericWorkload));
        assert!(!gates.enabled(Gate::StorageVersionApi));
        assert!(!gates.enabled(Gate::ApiServerIdentity));
        assert!(gates.enabled(Gate::DynamicResourceAllocation), "what is GA stays");
        assert!(
            !FeatureGates::parse("AllAlpha=true", Release::v1(30)).unwrap().enabled(Gate::GenericWorkload)
        );
    }

    #[test]
    fn the_last_setting_of_a_gate_counts() {
        let gates =
            FeatureGates::parse("StorageVersionAPI=false,StorageVersionAPI=true", Release::v1(36)).unwrap();
        assert!(gates.enabled(Gate::StorageVersionApi));
    }

    #[test]
    fn what_cannot_be_set_is_refused_in_upstreams_words() {
        for (text, minor, error) in [
            ("Nonsense=true", 36, "unrecognized feature gate: Nonsense"),
            ("StorageVersionAPI", 36, "missing bool value for StorageVersionAPI"),
            (
                "StorageVersionAPI=",
                36,
                r#"invalid value of StorageVersionAPI=, err: strconv.ParseBool: parsing "": invalid syntax"#,
            ),
            (
                "StorageVersionAPI=on",
                36,
                r#"invalid value of StorageVersionAPI=on, err: strconv.ParseBool: parsing "on": invalid syntax"#,
            ),
            (
                "DynamicResourceAllocation=false",
                36,
                "cannot set feature gate DynamicResourceAllocation to false, feature is locked to true",
            ),
            (
                "GenericWorkload=true",
                33,
                "cannot set feature gate GenericWorkload to true, feature is PreAlpha at emulated version 1.33",
            ),
        ] {
            assert_eq!(FeatureGates::parse(text, Release::v1(minor)).unwrap_err().to_string(), error);
        }
        assert!(FeatureGates::parse("DynamicResourceAllocation=true,", Release::v1(36)).is_ok());
        assert!(FeatureGates::parse("", Release::v1(30)).is_ok());
    }
}
