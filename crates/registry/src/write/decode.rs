//! From the client's tree to an object of the kind, and from there to stored text.

use bytes::Bytes;
use meta::{GroupVersion, Status, StorageVersion, Value, object, validate};

use crate::Target;

/// The body as an object of the target's kind, or 400 in upstream's words. Missing `apiVersion` and `kind` are filled in.
pub(crate) fn as_kind(target: &Target, mut body: Value) -> Result<Value, Status> {
    let want = &target.kind.definition.kind;
    if !body.is_object() {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {want})"
        )));
    }
    let kind = match object::kind(&body) {
        "" => want.to_string(),
        kind => kind.to_owned(),
    };
    let api_version = match object::api_version(&body) {
        "" => target.group_version.to_string(),
        api_version => api_version.to_owned(),
    };
    let version = &target.group_version.version;
    let refuse = |why: String| Err(refused_as(target, &kind, &why));
    if kind != **want {
        let group = &target.group_version.group;
        let package = if group.is_empty() { "core" } else { group.split('.').next().unwrap_or_default() };
        return refuse(format!("converting ({version}.{kind}) to ({package}.{want}): unknown conversion"));
    }
    let parsed = GroupVersion::parse(&api_version);
    if parsed.as_ref() != Some(&target.group_version) {
        let scheme = "pkg/api/legacyscheme/scheme.go:30";
        return refuse(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme {scheme:?}"
        ));
    }
    if let Err(why) = validate::metadata_shape(&body) {
        return refuse(why);
    }
    let map = object::as_map_mut(&mut body);
    map.insert("kind".to_owned(), Value::from(kind));
    map.insert("apiVersion".to_owned(), Value::from(api_version));
    object::metadata_mut(&mut body);
    Ok(body)
}

/// Whether kind and version of a body can be read at all, or 400 in the words of upstream's first look at it.
pub(crate) fn check_head(target: &Target, body: &Value, text: &[u8]) -> Result<(), Status> {
    const HEAD: &str = "type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                        \"json:\\\"kind,omitempty\\\"\" }";
    let refuse = |what: &Value, place: String| {
        let want = &target.kind.definition.kind;
        let what = schema::json::type_name(what);
        let shown = schema::json::summary(text);
        Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {want}): couldn't get version/kind; json parse \
             error: json: cannot unmarshal {what} into Go {place} ({shown})"
        )))
    };
    let Value::Object(map) = body else { return refuse(body, format!("value of {HEAD}")) };
    for field in ["apiVersion", "kind"] {
        match map.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return refuse(other, format!("struct field .{field} of type string")),
        }
    }
    Ok(())
}

/// 400: the body is of the right kind, but cannot be read.
pub(crate) fn refused(target: &Target, why: &str) -> Status {
    refused_as(target, &target.kind.definition.kind, why)
}

fn refused_as(target: &Target, kind: &str, why: &str) -> Status {
    let (version, want) = (&target.group_version.version, &target.kind.definition.kind);
    Status::bad_request(format!(
        "{kind} in version {:?} cannot be handled as a {want}: {why}",
        version.as_str()
    ))
}

/// The bytes to store.
pub(crate) fn to_storage(object: &Value, version: &StorageVersion) -> Bytes {
    if object::api_version(object) == version.as_str() {
        return schema::json::encode_stored(object);
    }
    let mut stored = object.clone();
    object::as_map_mut(&mut stored).insert("apiVersion".to_owned(), Value::from(version.as_str()));
    schema::json::encode_stored(&stored)
}

/// The text of an object that was not committed, or is gone.
pub(crate) fn to_text(object: &Value) -> Bytes {
    Bytes::from(schema::json::to_vec(object))
}
