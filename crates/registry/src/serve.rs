//! A cached object as the client asked for it. In the stored version it is handed out as it is, otherwise it gets
//! another head.

use bytes::{BufMut, Bytes, BytesMut};
use cache::Item;
use meta::{GroupVersion, Value};

use crate::Target;

/// The whole object in the client's version.
pub(crate) fn object(target: &Target, item: &Item) -> Bytes {
    if is_stored_as(target, item) {
        return item.text().clone();
    }
    let head = head(&target.group_version, &target.kind.definition.kind);
    let mut out = BytesMut::with_capacity(head.len() + item.body().len());
    out.put_slice(head.as_bytes());
    out.put_slice(&item.body());
    out.freeze()
}

/// The object as a tree in the client's version.
pub(crate) fn tree(target: &Target, item: &Item) -> Value {
    serde_json::from_slice(&object(target, item)).expect("a cached object must be valid JSON")
}

/// `{"apiVersion":"apps/v1","kind":"Deployment",`
pub(crate) fn head(group_version: &GroupVersion, kind: &str) -> String {
    format!("{{\"apiVersion\":\"{group_version}\",\"kind\":\"{kind}\",")
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
