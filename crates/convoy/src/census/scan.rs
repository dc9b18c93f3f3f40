//! Counts what is in a store by reading every key of it.
//!
//! Only the `apiVersion` of a value is looked at, in JSON or in the envelope that kube-apiserver puts around protobuf. A
//! value without one is counted as `Unknown`: it is there, and nobody should believe otherwise. One that is encrypted is
//! counted by the provider and the key.

use std::collections::BTreeMap;

use catalog::{Catalog, FeatureGates, RuntimeConfig};
use meta::{GroupResource, Release, Value};
use serde::Deserialize;
use server::census::{CensusView, ResourceCensus, UNKNOWN};
use station::{follow, view};
use store::{Range, ReadAt, SharedStore, Store};

/// Keys that are read at once.
const PAGE: usize = 1_000;

const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// How values begin that are encrypted.
pub(super) const SEALED: &[u8] = b"k8s:enc:";

/// The part of a value that matters.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "apiVersion")]
    api_version: Option<String>,
}

/// Where the objects of a resource are.
pub(super) struct Place {
    pub(super) prefix: String,
    pub(super) resource: GroupResource,
    definition: Option<Value>,
}

/// The census as of one revision.
pub(super) async fn scan(store: &SharedStore) -> Result<CensusView, String> {
    let listed = follow::list(store, DEFINITIONS, ReadAt::Latest).await;
    let (definitions, revision) = listed.map_err(|it| it.to_string())?;
    let mut places: Vec<Place> = built_in()?;
    places.extend(definitions.iter().filter_map(|it| defined(&it.value)));
    // The longest prefix is the most special one.
    places.sort_by_key(|it| std::cmp::Reverse(it.prefix.len()));
    let mut counts: BTreeMap<GroupResource, BTreeMap<String, u64>> =
        places.iter().map(|it| (it.resource.clone(), BTreeMap::new())).collect();
    let mut unknown: BTreeMap<String, u64> = BTreeMap::new();
    let mut range = Range::prefix("/registry/");
    loop {
        let page = store.list(&range, ReadAt::Revision(revision), PAGE).await.map_err(|it| it.to_string())?;
        for entry in &page.entries {
            let key = entry.key.as_str();
            let Some(place) = places.iter().find(|it| key.starts_with(&it.prefix)) else {
                *unknown.entry(directory(key)).or_default() += 1;
                continue;
            };
            let version = version_of(&entry.value).unwrap_or_else(|| UNKNOWN.to_owned());
            *counts.entry(place.resource.clone()).or_default().entry(version).or_default() += 1;
        }
        match page.entries.last() {
            Some(last) if page.remaining > 0 => range = range.after(&last.key),
            _ => break,
        }
    }
    let written = written(store).await?;
    let resources = counts.into_iter().map(|(resource, versions)| {
        let definition =
            places.iter().find(|it| it.resource == resource).and_then(|it| it.definition.as_ref());
        let mut counted = ResourceCensus::of(&resource, versions);
        counted.written = written.get(&counted.resource).cloned();
        match definition {
            Some(definition) => counted.defined_by(definition),
            None => counted,
        }
    });
    Ok(CensusView { evidence: "StoreScan".to_owned(), resources: resources.collect(), unknown })
}

/// The version that a stored value says it is in.
pub(super) fn version_of(value: &[u8]) -> Option<String> {
    if let Some(envelope) = value.strip_prefix(b"k8s\0") {
        // Of the envelope the first field is the type, and of that the first one the version.
        let text = first_field(first_field(envelope)?)?;
        return String::from_utf8(text.to_vec()).ok().filter(|it| !it.is_empty());
    }
    if let Some(sealed) = value.strip_prefix(SEALED) {
        // k8s:enc:PROVIDER:v1:KEY:...
        let head: Vec<&[u8]> = sealed.splitn(4, |it| *it == b':').take(3).collect();
        let text = |at: usize| head.get(at).map(|it| String::from_utf8_lossy(it).into_owned());
        return Some(format!("encrypted ({}, key {})", text(0)?, text(2)?));
    }
    let head: Head = serde_json::from_slice(value).ok()?;
    head.api_version
}

/// What is in the first field of a protobuf message, if that is number 1 and has a length of its own.
fn first_field(message: &[u8]) -> Option<&[u8]> {
    let mut rest = message.strip_prefix(&[0x0a])?;
    let mut length = 0_usize;
    for shift in [0, 7, 14, 21] {
        let (byte, behind) = rest.split_first()?;
        rest = behind;
        length |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return rest.get(..length);
        }
    }
    None
}

/// What the servers of this store agreed to write, by resource.
async fn written(store: &SharedStore) -> Result<BTreeMap<String, String>, String> {
    let now = store::SystemClock::shared().now();
    let view = view::read(store, now).await?;
    Ok(view.resources.into_iter().filter_map(|it| Some((it.resource, it.selected_version?))).collect())
}

/// Every resource of every release that is known.
pub(super) fn built_in() -> Result<Vec<Place>, String> {
    let mut places: Vec<Place> = Vec::new();
    let all = RuntimeConfig::parse("api/all=true").map_err(|it| it.to_string())?;
    for release in (catalog::FIRST_RELEASE.minor..=catalog::LAST_RELEASE.minor).map(Release::v1) {
        let catalog =
            Catalog::new(release, &all, &FeatureGates::defaults(release)).map_err(|it| it.to_string())?;
        for definition in catalog.definitions() {
            let Some(prefix) = &definition.key_prefix else { continue };
            if places.iter().all(|it| it.prefix != **prefix) {
                let (prefix, resource) = (prefix.to_string(), definition.record.clone());
                places.push(Place { prefix, resource, definition: None });
            }
        }
    }
    Ok(places)
}

fn defined(value: &[u8]) -> Option<Place> {
    let definition: Value = serde_json::from_slice(value).ok()?;
    let group = definition.pointer("/spec/group")?.as_str()?;
    let plural = definition.pointer("/spec/names/plural")?.as_str()?;
    let resource = GroupResource::new(group, plural);
    Some(Place { prefix: custom_prefix(&resource), resource, definition: Some(definition) })
}

/// Where the objects of a custom resource are.
pub(super) fn custom_prefix(resource: &GroupResource) -> String {
    format!("/registry/{}/{}/", resource.group, resource.resource)
}

/// `/registry/ships/` of `/registry/ships/default/enterprise`.
fn directory(key: &str) -> String {
    let parts: Vec<&str> = key.split('/').take(3).collect();
    format!("{}/", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_every_form() {
        let protobuf = b"k8s\0\x0a\x0d\x0a\x07apps/v1\x12\x02Abcd";
        assert_eq!(version_of(protobuf).as_deref(), Some("apps/v1"));
        assert_eq!(version_of(br#"{"kind": "A", "apiVersion": "b/v1"}"#).as_deref(), Some("b/v1"));
        let sealed = version_of(b"k8s:enc:aescbc:v1:key2:\xff\xfe");
        assert_eq!(sealed.as_deref(), Some("encrypted (aescbc, key key2)"));
        for broken in [&b"k8s\0"[..], b"k8s\0\x0a\x7f", b"k8s\0\x0a\x02\x0a\x05", b"{", b"", b"k8s:enc:"] {
            assert_eq!(version_of(broken), None, "{broken:?}");
        }
    }
}
