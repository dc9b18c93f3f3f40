//! A cached object as the client asked for it. In the stored version it is handed out as it is, in one of the same
//! shape it gets another head, and only otherwise it is converted.

use bytes::{BufMut, Bytes, BytesMut};
use cache::Item;
use meta::{GroupVersion, Value, object};

use crate::Target;

/// The whole object in the client's version.
pub(crate) fn object(target: &Target, item: &Item) -> Bytes {
    if is_stored_as(target, item) { item.text().clone() } else { in_version(target, item, item.text()) }
}

/// The object as a tree in the client's version.
pub(crate) fn tree(target: &Target, item: &Item) -> Value {
    let stored = stored_tree(item);
    if is_stored_as(target, item) {
        return stored;
    }
    target.kind.converter().convert(stored, &target.group_version.to_string())
}

/// The object as a tree in the version in which it is stored.
pub(crate) fn stored_tree(item: &Item) -> Value {
    parse(item.text())
}

/// A text of the item, maybe with another resourceVersion, in the client's version, which is not the stored one.
pub(crate) fn in_version(target: &Target, item: &Item, text: &[u8]) -> Bytes {
    if is_spliced(target, item) {
        let head = head(&target.group_version, &target.kind.definition.kind);
        let body = &text[item.text().len() - item.body().len()..];
        return [head.as_bytes(), body].concat().into();
    }
    let converted = target.kind.converter().convert(parse(text), &target.group_version.to_string());
    Bytes::from(schema::json::to_vec(&converted))
}

/// The object as it stands in a list: without `apiVersion` and `kind`, unless a user defined it.
pub(crate) fn put_in_list(target: &Target, item: &Item, out: &mut BytesMut) {
    if target.kind.custom.is_some() {
        out.put_slice(&object(target, item));
        return;
    }
    if is_spliced(target, item) {
        out.put_u8(b'{');
        out.put_slice(&item.body());
        return;
    }
    let mut tree = tree(target, item);
    let map = object::as_map_mut(&mut tree);
    map.remove("apiVersion");
    map.remove("kind");
    out.put_slice(&schema::json::to_vec(&tree));
}

/// `{"apiVersion":"apps/v1","kind":"Deployment",`
pub(crate) fn head(group_version: &GroupVersion, kind: &str) -> String {
    format!("{{\"apiVersion\":\"{group_version}\",\"kind\":\"{kind}\",")
}

/// Whether the object has the same shape in the client's version as where it is stored.
pub(crate) fn is_spliced(target: &Target, item: &Item) -> bool {
    is_stored_as(target, item)
        || target
            .kind
            .converter()
            .is_relabelled(item.storage_version().as_str(), &target.group_version.to_string())
}

pub(crate) fn is_stored_as(target: &Target, item: &Item) -> bool {
    let GroupVersion { group, version } = &target.group_version;
    let stored = item.storage_version().as_str();
    match stored.split_once('/') {
        None => group.is_empty() && stored == version.as_str(),
        Some((stored_group, stored_version)) => {
            **group == *stored_group && version.as_str() == stored_version
        }
    }
}

fn parse(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("a cached object must be valid JSON")
}
