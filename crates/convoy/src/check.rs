//! `convoy check`: whether a step is safe, before it is taken.
//!
//! Deliberately not here: counting (`census`), and what a release can read (`catalog`).

mod states;

use std::collections::BTreeMap;

use catalog::{Catalog, FeatureGates, RuntimeConfig};
use clap::Args;
use fleet::stored::{Census, Undecodable, undecodable};
use meta::{GroupResource, Release, StorageVersion};
use serde_json::{Value, json};
use server::census::{CensusView, ResourceCensus, UNKNOWN};
use station::View;
use store::SystemClock;

use crate::{
    census,
    cli::say,
    cluster::{self, Cluster, ClusterFlags},
    failure::{Exit, Failure},
    flags::parse_release,
    output::{Output, thousands},
    status,
};

/// The flags of `convoy check`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("step").required(true).args(["to", "drop"])))]
pub struct CheckFlags {
    /// Whether servers of this release could take part
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    to: Option<Release>,

    /// Whether a version of a custom resource can be dropped: VERSION.RESOURCE, such as v1alpha1.widgets.example.com
    #[arg(long, value_name = "VERSION.RESOURCE")]
    drop: Option<String>,

    #[command(flatten)]
    cluster: ClusterFlags,

    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Nothing stands in the way.
    pub is_safe: bool,
    /// What stands in the way, with the remedy; or what was found to be fine.
    pub reasons: Vec<String>,
}

/// Says whether the step is safe.
pub fn run(flags: &CheckFlags) -> Result<(), Failure> {
    let (found, evidence) = cluster::block_on(async {
        let cluster = flags.cluster.open().await.map_err(unknown)?;
        let census = census::read(&cluster).await.map_err(unknown)?;
        // A cluster that is not ours says nothing about what its servers agreed on.
        let view = match census.evidence.as_str() {
            "ApiInference" => View {
                server: None,
                cluster: None,
                members: Vec::new(),
                refused: Vec::new(),
                resources: Vec::new(),
            },
            _ => status::read(&cluster).await.map_err(unknown)?,
        };
        let found = match (&flags.to, &flags.drop) {
            (Some(release), _) => match &cluster {
                Cluster::Running(client) if census.evidence == "ApiInference" => {
                    by_states(*release, client).await?
                }
                _ => to(*release, &census, &view)?,
            },
            (None, Some(name)) => drop_version(name, &census, &view)?,
            (None, None) => return Err(Failure::usage("--to or --drop is needed")),
        };
        Ok((found, census.evidence))
    })?;
    let text = flags.output.document(&document(&found, &evidence)).unwrap_or_else(|| {
        let head = if found.is_safe { "Safe" } else { "Not safe" };
        format!("{head} (evidence: {evidence})\n{}\n", found.reasons.join("\n"))
    });
    say(&text);
    if found.is_safe {
        return Ok(());
    }
    Err(Failure::unsafe_to("the step is not safe"))
}

/// What `-o json` shows; docs/api-fields.md lists its fields.
pub fn document(found: &Found, evidence: &str) -> Value {
    json!({"safe": found.is_safe, "reasons": found.reasons, "evidence": evidence})
}

/// What cannot be asked cannot be told.
fn unknown(failure: Failure) -> Failure {
    failure.unknown()
}

/// The same of a cluster that is not ours.
async fn by_states(release: Release, client: &kube::Client) -> Result<Found, Failure> {
    let list = cluster::request(client, "GET", states::STATES, None).await;
    states::to(release, &catalog(release)?, &list.map_err(unknown)?, SystemClock::shared().now())
}

fn catalog(release: Release) -> Result<Catalog, Failure> {
    let gates = FeatureGates::defaults(release);
    Catalog::new(release, &RuntimeConfig::default(), &gates).map_err(|it| Failure::because(&it))
}

/// Whether a release can read what is stored, and what the servers write now.
pub fn to(release: Release, census: &CensusView, view: &View) -> Result<Found, Failure> {
    let catalog = catalog(release)?;
    let mut decodable: BTreeMap<GroupResource, Vec<StorageVersion>> = BTreeMap::new();
    for definition in catalog.definitions().iter().filter(|it| it.is_stored()) {
        let versions = definition.decodable.iter().map(|it| StorageVersion::new(it.to_string()));
        decodable.entry(definition.record.clone()).or_default().extend(versions);
    }
    let mut reasons: Vec<String> = defined(release, &catalog, census);
    let not_told =
        |it: &&Undecodable| reasons.iter().all(|reason| !reason.contains(&it.resource.to_string()));
    let unreadable = undecodable(&counted(census), &decodable, &[], release);
    let unreadable: Vec<String> = unreadable.iter().filter(not_told).map(ToString::to_string).collect();
    reasons.extend(unreadable);
    for resource in view.resources.iter().filter(|it| !it.custom) {
        let Some(readable) = decodable.get(&resource.resource.as_str().into()) else { continue };
        let Some(written) = &resource.selected_version else { continue };
        let is_readable = readable.iter().any(|it| it.as_str() == written);
        let is_told = reasons.iter().any(|it| it.contains(&format!("of {} ", resource.resource)));
        if !is_readable && !is_told {
            reasons.push(format!(
                "{} is written as {written}, which release {release} cannot read: upgrade one minor release at a \
                 time, or back",
                resource.resource
            ));
        }
    }
    let is_safe = reasons.is_empty();
    if is_safe {
        let is_served =
            |it: &&ResourceCensus| it.custom || decodable.contains_key(&it.resource.as_str().into());
        let n: u64 = census.resources.iter().filter(is_served).map(|it| it.objects).sum();
        reasons.push(format!(
            "release {release} can read all {} objects of the resources that it serves, and what is written now",
            thousands(n)
        ));
    }
    for resource in census.resources.iter().filter(|it| it.objects > 0 && !it.custom) {
        if !decodable.contains_key(&resource.resource.as_str().into()) {
            reasons.push(format!(
                "{} objects of {} stay stored, but release {release} does not serve them",
                thousands(resource.objects),
                resource.resource
            ));
        }
    }
    for resource in &census.resources {
        if let Some(n) = resource.versions.get(UNKNOWN) {
            reasons.push(format!(
                "{} objects of {} are damaged: no release can read them",
                thousands(*n),
                resource.resource
            ));
        }
    }
    let unknown = census
        .unknown
        .iter()
        .map(|(place, n)| format!("{} keys below {place} are of no resource that is known", thousands(*n)));
    reasons.extend(unknown);
    Ok(Found { is_safe, reasons })
}

/// Definitions of what the release has built in: its servers do not become ready beside them.
fn defined(release: Release, catalog: &Catalog, census: &CensusView) -> Vec<String> {
    let is_built_in = |it: &&ResourceCensus| {
        let resource: GroupResource = it.resource.as_str().into();
        it.custom && catalog.definition(&resource.group, &resource.resource).is_some()
    };
    let found = census.resources.iter().filter(is_built_in);
    let defined =
        found.map(|it| fleet::member::JoinError::Defined { resource: it.resource.as_str().into(), release });
    defined.map(|it| it.to_string()).collect()
}

/// Whether nothing is stored in a version of a custom resource, and nothing will be.
fn drop_version(name: &str, census: &CensusView, view: &View) -> Result<Found, Failure> {
    let (version, resource) = name
        .split_once('.')
        .filter(|(version, resource)| !version.is_empty() && resource.contains('.'))
        .ok_or_else(|| {
            Failure::usage(format!("{name:?} is not VERSION.RESOURCE, such as v1alpha1.widgets.example.com"))
        })?;
    let counted = census.resources.iter().find(|it| it.resource == resource);
    let counted = counted
        .ok_or_else(|| Failure { exit: Exit::Unknown, message: format!("nothing is known of {resource}") })?;
    if !counted.custom {
        return Err(Failure::usage(format!(
            "{resource} is built in: its versions go with releases; see --to"
        )));
    }
    let (mut is_safe, verdict) = census::verdict(counted, version);
    let mut reasons = vec![verdict];
    let agreed = view.resources.iter().find(|it| it.resource == resource);
    if let Some(agreed) = agreed.filter(|it| it.common_encoding_version.is_none()) {
        is_safe = false;
        reasons.push(format!("the servers do not agree on what they write: {}", agreed.message));
    }
    Ok(Found { is_safe, reasons })
}

/// What the target must be able to read. What is damaged keeps no server of any release from becoming ready.
fn counted(census: &CensusView) -> Census {
    let versions = |it: &BTreeMap<String, u64>| {
        let said = it.iter().filter(|(version, _)| *version != UNKNOWN);
        said.map(|(version, n)| (StorageVersion::new(version.as_str()), *n)).collect()
    };
    census.resources.iter().map(|it| (it.resource.as_str().into(), versions(&it.versions))).collect()
}

#[cfg(test)]
mod tests {
    use server::census::ResourceCensus;

    use super::*;

    fn census(resource: &str, custom: bool, versions: &[(&str, u64)], written: &str) -> CensusView {
        let versions = versions.iter().map(|(it, n)| ((*it).to_owned(), *n)).collect();
        let resource = ResourceCensus {
            custom,
            written: Some(written.to_owned()),
            ..ResourceCensus::of(&resource.into(), versions)
        };
        CensusView { evidence: "StoreScan".to_owned(), resources: vec![resource], unknown: BTreeMap::new() }
    }

    fn nobody() -> View {
        View { server: None, cluster: None, members: Vec::new(), refused: Vec::new(), resources: Vec::new() }
    }

    #[test]
    fn a_release_must_read_what_is_stored() {
        let classes = "deviceclasses.resource.k8s.io";
        let old = census(classes, false, &[("resource.k8s.io/v1beta2", 2)], "resource.k8s.io/v1beta2");
        let found = to(Release::v1(36), &old, &nobody()).map_err(|it| it.message).unwrap();
        assert!(found.is_safe, "{found:?}");
        let far = census("deployments.apps", false, &[("apps/v9", 1)], "apps/v9");
        let found = to(Release::v1(36), &far, &nobody()).map_err(|it| it.message).unwrap();
        assert!(!found.is_safe);
        assert!(
            found.reasons[0].starts_with("1 object of deployments.apps is stored as apps/v9"),
            "{found:?}"
        );
    }

    #[test]
    fn a_definition_of_what_the_release_has_built_in_is_not_safe() {
        let classes = "deviceclasses.resource.k8s.io";
        let defined = census(classes, true, &[("resource.k8s.io/v9", 2)], "resource.k8s.io/v9");
        let found = to(Release::v1(36), &defined, &nobody()).map_err(|it| it.message).unwrap();
        assert!(!found.is_safe);
        let [only] = &found.reasons[..] else { panic!("{found:?}") };
        assert!(
            only.starts_with(&format!("the CustomResourceDefinition {classes} stands in the way")),
            "{only}"
        );
        // A release that does not have it serves the definition as it always did.
        let found = to(Release::v1(33), &defined, &nobody()).map_err(|it| it.message).unwrap();
        assert!(found.is_safe, "{found:?}");
        // Of which nothing is stored.
        let empty = census(classes, true, &[], "resource.k8s.io/v1");
        assert!(!to(Release::v1(36), &empty, &nobody()).map_err(|it| it.message).unwrap().is_safe);
    }

    #[test]
    fn a_version_is_named_with_its_resource() {
        let widgets = census("widgets.example.com", true, &[("example.com/v1", 3)], "example.com/v1");
        let check = |name: &str| drop_version(name, &widgets, &nobody());
        assert_eq!(check("v1alpha1.widgets.example.com").map(|it| it.is_safe).ok(), Some(true));
        assert_eq!(check("v1.widgets.example.com").map(|it| it.is_safe).ok(), Some(false));
        assert_eq!(check("v1.ships.example.com").map(drop).unwrap_err().exit, Exit::Unknown);
        for wrong in ["v1", "v1.", "v1.pods", ".x.y"] {
            assert_eq!(check(wrong).map(drop).unwrap_err().exit, Exit::Usage, "{wrong}");
        }
    }
}
