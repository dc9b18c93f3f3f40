//! From the client's tree to an object of the kind.

use bytes::Bytes;
use catalog::Schemas;
use meta::{GroupVersion, Status, Value, object, validate};
use schema::model::TypeId;

use crate::{Defaults, Target};

/// What a body must be: a kind in a version. Not always that of the path: a Scale, an Eviction.
#[derive(Clone, Copy)]
pub struct BodyKind<'a> {
    /// The group and version.
    pub group_version: &'a GroupVersion,
    /// The kind.
    pub kind: &'a str,
    /// Which other kinds there are, for the words in which those are refused.
    pub schemas: &'a Schemas,
    /// What is filled in where it says nothing.
    pub defaults: Defaults,
}

impl<'a> BodyKind<'a> {
    /// An object of the target's own kind.
    pub(crate) fn of(target: &'a Target, schemas: &'a Schemas, defaults: Defaults) -> Self {
        Self { group_version: &target.group_version, kind: &target.kind.definition.kind, schemas, defaults }
    }

    pub(crate) fn type_id(&self) -> Option<TypeId> {
        let GroupVersion { group, version } = self.group_version;
        self.schemas.kind(group, version.as_str(), self.kind)
    }
}

/// The body as an object of the kind, or 400 in upstream's words. Missing `apiVersion` and `kind` are filled in.
pub(crate) fn as_kind(want: BodyKind<'_>, mut body: Value) -> Result<Value, Status> {
    if !body.is_object() {
        let kind = want.kind;
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind})"
        )));
    }
    let kind = match object::kind(&body) {
        "" => want.kind.to_owned(),
        kind => kind.to_owned(),
    };
    let api_version = match object::api_version(&body) {
        "" => want.group_version.to_string(),
        api_version => api_version.to_owned(),
    };
    let parsed = GroupVersion::parse(&api_version);
    let sent = parsed.as_ref().unwrap_or(want.group_version);
    if kind != want.kind || sent != want.group_version {
        return Err(wrong_kind(want, &kind, sent));
    }
    if let Err(why) = validate::metadata_shape(&body) {
        return Err(refused(want, &why));
    }
    let map = object::as_map_mut(&mut body);
    map.insert("kind".to_owned(), Value::from(kind));
    map.insert("apiVersion".to_owned(), Value::from(api_version));
    object::metadata_mut(&mut body);
    Ok(body)
}

/// Upstream reads what the body says that it is, then converts it, and then compares versions.
fn wrong_kind(want: BodyKind<'_>, kind: &str, sent: &GroupVersion) -> Status {
    let version = sent.version.as_str();
    let Some(why) = inconvertible(want, kind, sent) else {
        let expected = want.group_version;
        return Status::bad_request(format!(
            "the API version in the data ({sent}) does not match the expected API version ({expected})"
        ));
    };
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {}: {why}", want.kind))
}

/// Why what was sent cannot become what is wanted; `None` if it is another version of the same kind.
fn inconvertible(want: BodyKind<'_>, kind: &str, sent: &GroupVersion) -> Option<String> {
    let version = sent.version.as_str();
    if want.schemas.kind(&sent.group, version, kind).is_none() {
        let (api_version, scheme) = (sent.to_string(), "pkg/api/legacyscheme/scheme.go:30");
        return Some(format!(
            "no kind {kind:?} is registered for version {api_version:?} in scheme {scheme:?}"
        ));
    }
    let package = go_package(&want.group_version.group);
    let is_same = kind == want.kind;
    (!is_same)
        .then(|| format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", want.kind))
}

/// Why the result of a patch is no object of the wanted kind, if so.
pub(crate) fn unreadable_kind(want: BodyKind<'_>, patched: &Value) -> Option<String> {
    if let Some(why) = unreadable_head(patched) {
        return Some(why);
    }
    let kind = Some(object::kind(patched)).filter(|it| !it.is_empty()).unwrap_or(want.kind);
    let sent = GroupVersion::parse(object::api_version(patched)).filter(|it| !it.version.as_str().is_empty());
    let sent = sent.as_ref().unwrap_or(want.group_version);
    if (kind, sent) == (want.kind, want.group_version) { None } else { inconvertible(want, kind, sent) }
}

/// Kind and version are those of the old object, if they are texts at all.
pub(crate) fn keep_kind(patched: &mut Value, old: &Value) {
    let Value::Object(map) = patched else { return };
    for field in ["apiVersion", "kind"] {
        if matches!(map.get(field), None | Some(Value::String(_) | Value::Null))
            && let Some(own) = old.get(field)
        {
            map.insert(field.to_owned(), own.clone());
        }
    }
}

/// What upstream calls the type of the target's objects, or of something that belongs to them: `core.PodList`.
pub fn go_type(target: &Target, suffix: &str) -> String {
    format!("{}.{}{suffix}", go_package(&target.kind.definition.group), target.kind.definition.kind)
}

/// Where upstream keeps the types of a group that belong to no version.
fn go_package(group: &str) -> &str {
    match group {
        "" | "events.k8s.io" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    }
}

/// Whether kind and version of a body can be read at all, or 400 in the words of upstream's first look at it.
pub(crate) fn check_head(want: BodyKind<'_>, body: &Value, text: &[u8]) -> Result<(), Status> {
    unreadable_head(body).map_or(Ok(()), |why| {
        let (kind, shown) = (want.kind, schema::json::summary(text));
        Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({shown})"
        )))
    })
}

/// Why kind and version of a body cannot be read, if so.
pub fn unreadable_head(body: &Value) -> Option<String> {
    const HEAD: &str = "type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                        \"json:\\\"kind,omitempty\\\"\" }";
    let complain = |what: &Value, place: String| {
        let what = schema::json::type_name(what);
        Some(format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go {place}"
        ))
    };
    let map = match body {
        Value::Object(map) => map,
        // To Go this is an object in which nothing is set.
        Value::Null => return None,
        other => return complain(other, format!("value of {HEAD}")),
    };
    for field in ["apiVersion", "kind"] {
        match map.get(field) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return complain(other, format!("struct field .{field} of type string")),
        }
    }
    let api_version = object::api_version(body);
    let is_odd = !api_version.is_empty() && GroupVersion::parse(api_version).is_none();
    is_odd.then(|| format!("unexpected GroupVersion string: {api_version}"))
}

/// 400: the body is of the right kind, but cannot be read.
pub(crate) fn refused(want: BodyKind<'_>, why: &str) -> Status {
    let (version, kind) = (want.group_version.version.as_str(), want.kind);
    Status::bad_request(format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// The text of an object that was not committed, or is gone.
pub(crate) fn to_text(object: &Value) -> Bytes {
    Bytes::from(schema::json::to_vec(object))
}
