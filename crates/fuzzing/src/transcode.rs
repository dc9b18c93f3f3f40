//! Protobuf, with the types of all built-in kinds.

use std::sync::LazyLock;

use catalog::Schemas;
use meta::Release;
use schema::{json, model::TypeId, protobuf};

/// A constant, made once: reading the table for every input would take all the time there is.
static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| Schemas::new(Release::v1(36)));

/// An object in its envelope, or frames of a watch: what is read can be written, and read again.
pub(crate) fn protobuf(data: &[u8]) {
    if let Ok(Some(frame)) = protobuf::decode_watch_frame(data) {
        let again = protobuf::encode_watch_frame(&frame.event, frame.object);
        let decoded = protobuf::decode_watch_frame(&again).expect("an own frame must be readable");
        let decoded = decoded.expect("an own frame must be complete");
        assert_eq!((&decoded.event, decoded.object), (&frame.event, frame.object));
    }
    let Ok(value) = protobuf::decode_object(data, &find, SCHEMAS.schema()) else { return };
    let text = |name: &str| value.get(name).and_then(|it| it.as_str()).unwrap_or_default();
    let Some(ty) = find(text("apiVersion"), text("kind")) else { return };
    let bytes = protobuf::encode_object(&value, SCHEMAS.schema(), ty);
    if bytes.len() <= json::Limits::REQUEST.max_bytes {
        let again = protobuf::decode_object(&bytes, &find, SCHEMAS.schema());
        assert_eq!(again.as_ref(), Ok(&value));
    }
}

fn find(api_version: &str, kind: &str) -> Option<TypeId> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    SCHEMAS.kind(group, version, kind)
}
