//! In which version a resource is written, from what the servers say. Pure.
//!
//! # Guarantees
//! - There is agreement only if every endpoint has answered, all announce the same storage version hash, and nothing
//!   else that is known (the definition of a custom resource, the StorageVersion object) says otherwise.
//! - The epoch is another number whenever one of these was another one: the version, the definition's uid and
//!   `status.storedVersions`, the StorageVersion's epoch or resourceVersion, an endpoint or its hash. Other edits of a
//!   definition, such as of a description, do not count.
//!
//! # Assumptions
//! - A flip there and back is seen because the version in between is in `storedVersions` afterwards. It is hidden here if
//!   that version was in there before; the freeze of the definition forbids both flips, and the prune requires the
//!   generation that the definition had when the last look began (`definition.rs`). Built-in resources flip only with the
//!   server; where there are StorageVersion objects that is seen, elsewhere only if somebody asks while the servers differ.
//! - A server announces no hash while the storage version is not served. Then the definition alone counts, and how far
//!   the servers have followed it is not known.

use std::collections::BTreeSet;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use meta::GroupResource;
use sha2::{Digest, Sha256};

/// What is known of a resource.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    /// By the name of each endpoint: what it serves, or why that is not known.
    pub(super) endpoints: Vec<(String, Result<Option<Offer>, String>)>,
    /// Of a custom resource, where it may be read.
    pub(super) definition: Result<Option<Definition>, String>,
    /// Where there are such objects.
    pub(super) storage: Result<Option<Storage>, String>,
}

/// How one API server serves a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// The preferred version first.
    pub(super) versions: Vec<Offered>,
    /// What it announces, in all versions; there should be one at most.
    pub(super) hashes: BTreeSet<String>,
}

/// A resource in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) is_namespaced: bool,
    pub(super) verbs: Vec<String>,
    /// Its status can be patched by itself.
    pub(super) has_status: bool,
}

/// What matters of a CustomResourceDefinition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) uid: String,
    /// The version that is written.
    pub(super) storage: String,
    /// Those that may be stored.
    pub(super) stored: Vec<String>,
}

/// What matters of a StorageVersion object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Storage {
    /// What all write, if it is the same.
    pub(super) common: Option<String>,
    /// Each server and what it writes.
    pub(super) servers: Vec<(String, String)>,
    /// Another text after every change.
    pub(super) mark: String,
}

/// What follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Agreed {
        /// Such as `example.com/v1`.
        version: String,
        epoch: i64,
        /// One for each endpoint.
        offers: Vec<Offer>,
    },
    /// The servers say different things.
    Apart(String),
    /// The same, but a definition says what all of them will write when they have heard of it.
    Following(String),
    /// Not all has been said that is needed.
    Silent(String),
    /// Every server was asked, and none has it.
    Absent,
}

/// The whole decision.
pub(super) fn decide(resource: &GroupResource, facts: Facts) -> Standing {
    let is_defined = matches!(facts.definition, Ok(Some(_)));
    match weigh(resource, facts) {
        Standing::Apart(why) if is_defined => Standing::Following(why),
        standing => standing,
    }
}

fn weigh(resource: &GroupResource, facts: Facts) -> Standing {
    let offers = match offers(resource, &facts) {
        Ok(offers) => offers,
        Err(standing) => return standing,
    };
    let (definition, storage) = match (facts.definition, facts.storage) {
        (Ok(definition), Ok(storage)) => (definition, storage),
        (Err(why), _) => {
            return Standing::Silent(format!("the definition of {resource} cannot be read: {why}"));
        }
        (_, Err(why)) => {
            return Standing::Silent(format!("the StorageVersion of {resource} cannot be read: {why}"));
        }
    };
    match version(resource, &offers, definition.as_ref(), storage.as_ref()) {
        Ok(version) => {
            let epoch = epoch(&version, &offers, definition.as_ref(), storage.as_ref());
            Standing::Agreed { version, epoch, offers: offers.into_iter().map(|(_, it)| it).collect() }
        }
        Err(standing) => standing,
    }
}

/// What the servers write, as far as they say, and what a definition lists: each version once.
pub(super) fn all_written(resource: &GroupResource, facts: &Facts) -> Vec<String> {
    let mut versions = BTreeSet::new();
    for offer in facts.endpoints.iter().filter_map(|(_, said)| said.as_ref().ok()?.as_ref()) {
        for offered in &offer.versions {
            let version = written(&resource.group, &offered.version);
            if offer.hashes.contains(&storage_version_hash(&version, &offered.kind)) {
                versions.insert(version);
            }
        }
    }
    if let Ok(Some(definition)) = &facts.definition {
        versions.extend(definition.stored.iter().map(|it| written(&resource.group, it)));
    }
    if let Ok(Some(storage)) = &facts.storage {
        versions.extend(storage.servers.iter().map(|(_, version)| version.clone()));
    }
    versions.into_iter().collect()
}

/// By which clients see that the encoding of a resource has changed. As kube-apiserver makes it.
pub(super) fn storage_version_hash(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let digest = Sha256::digest(format!("{group}/{version}/{kind}"));
    BASE64_STANDARD.encode(&digest[..8])
}

impl Offer {
    /// How objects are reached: in the version wanted (such as `example.com/v1`) if that can be, else in the preferred
    /// one. If none can, what is missing.
    pub(super) fn reach(
        &self,
        resource: &GroupResource,
        wanted: &str,
    ) -> Result<&Offered, Vec<&'static str>> {
        const NEEDED: [&str; 2] = ["list", "patch"];
        let lacks = |it: &Offered| -> Vec<&'static str> {
            NEEDED.into_iter().filter(|verb| !it.verbs.iter().any(|it| it == verb)).collect()
        };
        let mut able = self.versions.iter().filter(|it| lacks(it).is_empty());
        let first = able.clone().next();
        let best = able.find(|it| written(&resource.group, &it.version) == wanted).or(first);
        best.ok_or_else(|| self.versions.first().map_or(NEEDED.to_vec(), lacks))
    }
}

/// What each endpoint offers, if all do.
fn offers(resource: &GroupResource, facts: &Facts) -> Result<Vec<(String, Offer)>, Standing> {
    if facts.endpoints.is_empty() {
        return Err(Standing::Silent("there is no API server to ask".to_owned()));
    }
    let (mut offers, mut lacking) = (Vec::new(), None);
    for (name, said) in &facts.endpoints {
        match said {
            Err(why) => {
                return Err(Standing::Silent(format!(
                    "the API server {name} does not say what it serves: {why}"
                )));
            }
            Ok(None) => lacking = Some(name),
            Ok(Some(offer)) => offers.push((name.clone(), offer.clone())),
        }
    }
    match (lacking, offers.is_empty()) {
        (None, _) => Ok(offers),
        // It is on its way in or out.
        (Some(_), true) if !matches!(facts.definition, Ok(None)) => {
            Err(Standing::Silent(format!("no API server serves {resource}, and it may be defined")))
        }
        (Some(_), true) => Err(Standing::Absent),
        (Some(name), false) => {
            Err(Standing::Apart(format!("the API server {name} does not serve {resource}, another one does")))
        }
    }
}

fn version(
    resource: &GroupResource,
    offers: &[(String, Offer)],
    definition: Option<&Definition>,
    storage: Option<&Storage>,
) -> Result<String, Standing> {
    let announced = announced(resource, offers)?;
    let defined = definition.map(|it| written(&resource.group, &it.storage));
    let told = storage.map(common).transpose()?.flatten();
    if let (Some(defined), Some(told)) = (&defined, &told)
        && defined != told
    {
        return Err(Standing::Apart(format!(
            "{resource} is defined to be stored in {defined}, the servers write {told}"
        )));
    }
    let kind =
        offers.iter().flat_map(|(_, it)| &it.versions).map(|it| it.kind.as_str()).next().unwrap_or_default();
    match (defined.or(told), announced) {
        (Some(version), Some(hash)) if storage_version_hash(&version, kind) != hash => {
            let (name, _) = &offers[0];
            let other = named(resource, kind, &hash);
            Err(Standing::Apart(format!(
                "the API server {name} writes {resource} in {other}, and not yet in {version}"
            )))
        }
        (Some(version), _) => Ok(version),
        (None, Some(hash)) => recognise(resource, kind, &hash).ok_or_else(|| {
            Standing::Silent(format!(
                "the storage version hash {hash} of {resource} is of no version that is known"
            ))
        }),
        (None, None) => {
            Err(Standing::Silent(format!("no API server says in which version {resource} is stored")))
        }
    }
}

/// The one hash that all endpoints announce.
fn announced(resource: &GroupResource, offers: &[(String, Offer)]) -> Result<Option<String>, Standing> {
    let text = |offer: &Offer| {
        let kind = offer.versions.first().map_or("", |it| it.kind.as_str());
        let names: Vec<String> = offer.hashes.iter().map(|it| named(resource, kind, it)).collect();
        if names.is_empty() { "a version that it does not tell".to_owned() } else { names.join(" and ") }
    };
    let (first_name, first) = &offers[0];
    if let Some((name, other)) = offers.iter().find(|(_, it)| it.hashes != first.hashes) {
        return Err(Standing::Apart(format!(
            "the API server {first_name} writes {resource} in {}, {name} in {}",
            text(first),
            text(other)
        )));
    }
    match first.hashes.len() {
        0 | 1 => Ok(first.hashes.first().cloned()),
        // A server writes one version at a time: it changed while its documents were read, one after the other.
        _ => Err(Standing::Silent(format!(
            "the API server {first_name} changes how it writes {resource}: it says {}",
            text(first)
        ))),
    }
}

fn common(storage: &Storage) -> Result<Option<String>, Standing> {
    let Storage { common, servers, .. } = storage;
    if common.is_some() || servers.is_empty() {
        return Ok(common.clone());
    }
    let each: Vec<String> = servers.iter().map(|(id, version)| format!("{id} writes {version}")).collect();
    Err(Standing::Apart(format!("the API servers write different versions: {}", each.join(", "))))
}

/// The version if it is known, else the hash.
fn named(resource: &GroupResource, kind: &str, hash: &str) -> String {
    recognise(resource, kind, hash).unwrap_or_else(|| format!("the version with hash {hash}"))
}

/// Which version has this hash. All that are usual are tried, as a built-in resource can be stored in one that is not
/// served any more, or, such as events, in that of another group.
fn recognise(resource: &GroupResource, kind: &str, hash: &str) -> Option<String> {
    let stable = (1..=3).map(|major| format!("v{major}"));
    let earlier = (1..=3).flat_map(|major| {
        ["alpha", "beta"]
            .into_iter()
            .flat_map(move |stage| (1..=9).map(move |it| format!("v{major}{stage}{it}")))
    });
    let names: Vec<String> = stable.chain(earlier).collect();
    let groups = [&*resource.group, "", "events.k8s.io"];
    let all = groups.into_iter().flat_map(|group| names.iter().map(move |it| written(group, it)));
    all.into_iter().find(|it| storage_version_hash(it, kind) == hash)
}

/// See the guarantees above. 63 bits.
fn epoch(
    version: &str,
    offers: &[(String, Offer)],
    definition: Option<&Definition>,
    storage: Option<&Storage>,
) -> i64 {
    let mut facts = vec![format!("version {version}")];
    if let Some(Definition { uid, stored, .. }) = definition {
        facts.push(format!("definition {uid} {stored:?}"));
    }
    if let Some(Storage { mark, .. }) = storage {
        facts.push(format!("storage {mark}"));
    }
    facts.extend(offers.iter().map(|(name, it)| format!("endpoint {name:?} {:?}", it.hashes)));
    let digest = Sha256::digest(facts.join("\n"));
    let (first, _) = digest.split_first_chunk().expect("a digest must be longer than a number");
    i64::from_be_bytes(*first) & i64::MAX
}

fn written(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

#[cfg(test)]
mod tests;
