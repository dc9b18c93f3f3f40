//! What the judge of removals wants to know of a stored object, and where objects are kept.

use serde_json::Value;

pub(super) const NAMESPACES: &str = "/registry/namespaces/";
/// What holds a definition until its objects are gone.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";

/// One stored object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) uid: String,
    pub(super) name: String,
    /// Empty if its kind is not in namespaces.
    pub(super) namespace: String,
    /// The uid of its namespace when it was made, if that was there.
    pub(super) home: Option<String>,
    pub(super) is_deleting: bool,
    pub(super) finalizers: Vec<String>,
    /// What it must not go before, if it is a namespace or a definition.
    pub(super) guards: Option<Place>,
    /// The uids of its owners.
    pub(super) owners: Vec<String>,
    /// When it was prepared, in seconds.
    pub(super) created: Option<i64>,
    /// What a client wrote.
    pub(super) value: Option<String>,
}

/// What can hold objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Namespace(String),
    /// By its name, `plural.group`.
    Definition(String),
}

impl Object {
    /// `None` for what is no object.
    pub(super) fn read(key: &str, value: &[u8]) -> Option<Self> {
        let object: Value = serde_json::from_slice(value).ok()?;
        let metadata = &object["metadata"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let texts = |it: &Value| it.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let uid = text(&metadata["uid"]);
        if uid.is_empty() {
            return None;
        }
        Some(Self {
            uid,
            name: text(&metadata["name"]),
            namespace: text(&metadata["namespace"]),
            home: None,
            is_deleting: !metadata["deletionTimestamp"].is_null(),
            finalizers: texts(&metadata["finalizers"]),
            guards: guards(key, &object),
            owners: owners.map(|it| text(&it["uid"])).collect(),
            created: metadata["creationTimestamp"].as_str().and_then(seconds),
            value: metadata["annotations"][super::VALUE].as_str().map(str::to_owned),
        })
    }

    pub(super) fn places(&self, key: &str) -> Vec<Place> {
        let namespace = (!self.namespace.is_empty()).then(|| Place::Namespace(self.namespace.clone()));
        let definition = definition_key(key).map(|it| Place::Definition(it[DEFINITIONS.len()..].to_owned()));
        namespace.into_iter().chain(definition).collect()
    }
}

pub(super) fn is_definition(key: &str) -> bool {
    key.starts_with(DEFINITIONS)
}

/// A namespace is held by its `spec.finalizers`; a definition by its own one, once it is Established.
fn guards(key: &str, object: &Value) -> Option<Place> {
    let has_any =
        |list: &Value, is_it: &dyn Fn(&Value) -> bool| list.as_array()?.iter().any(is_it).then_some(());
    if let Some(name) = key.strip_prefix(NAMESPACES) {
        has_any(&object["spec"]["finalizers"], &|_| true)?;
        return Some(Place::Namespace(name.to_owned()));
    }
    let name = key.strip_prefix(DEFINITIONS)?;
    has_any(&object["metadata"]["finalizers"], &|it| it == CLEANUP)?;
    has_any(&object["status"]["conditions"], &|it| it["type"] == "Established" && it["status"] == "True")?;
    Some(Place::Definition(name.to_owned()))
}

/// Where the definition of an object with this key would be: `/registry/GROUP/PLURAL/…`, and groups have dots.
pub(super) fn definition_key(key: &str) -> Option<String> {
    let mut parts = key.strip_prefix("/registry/")?.split('/');
    let (group, plural) = (parts.next()?, parts.next()?);
    (group.contains('.') && parts.next().is_some()).then(|| format!("{DEFINITIONS}{plural}.{group}"))
}

/// Seconds of a time such as `2026-11-18T01:02:03Z`, counted from a day that does not matter.
fn seconds(text: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    // The days of the civil calendar, with years that begin in March.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[test]
fn seconds_are_counted_across_months_and_years() {
    let gap = |a: &str, b: &str| seconds(b).unwrap() - seconds(a).unwrap();
    assert_eq!(gap("2026-11-18T01:02:03Z", "2026-11-18T01:02:04Z"), 1);
    assert_eq!(gap("2026-12-31T23:59:59Z", "2027-01-01T00:00:00Z"), 1);
    assert_eq!(gap("2028-02-28T00:00:00Z", "2028-03-01T00:00:00Z"), 2 * 86_400);
    assert_eq!(gap("2027-02-28T00:00:00Z", "2027-03-01T00:00:00Z"), 86_400);
    assert_eq!(seconds("soon"), None);
}
