//! Who owns what: `metadata.managedFields`, read and written.
//!
//! An entry is identified by manager, operation and subresource, and by the version it was written in, unless the
//! manager applies: who applies has one entry in whatever version.

use std::{cmp::Ordering, collections::BTreeMap};

use super::set::FieldSet;
use crate::{Map, Value, go_text};

/// More than this many updaters are not kept apart: the oldest are merged.
pub const MAX_UPDATERS: usize = 10;

/// Who the oldest updates are attributed to when there are too many.
const ANCIENT: &str = "ancient-changes";

/// More entries than this are not read. Upstream has no limit, but no honest object comes near.
const MAX_ENTRIES: usize = 1000;

/// How a manager came to own something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// By server-side apply.
    Apply,
    /// By any other write.
    Update,
}

/// Who wrote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ManagerId {
    /// The name of the client.
    pub manager: String,
    /// How.
    pub operation: Operation,
    /// In which version; empty for those who apply.
    pub api_version: String,
    /// Through which subresource.
    pub subresource: String,
}

/// What one manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The fields.
    pub set: FieldSet,
    /// The version that the fields are named in.
    pub api_version: String,
    /// When that changed last.
    pub time: Option<String>,
}

/// What all managers own.
pub type Managers = BTreeMap<ManagerId, Owned>;

/// Why managedFields cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManagersError(String);

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

impl ManagerId {
    /// The identity of who writes now.
    pub fn new(manager: &str, operation: Operation, api_version: &str, subresource: &str) -> Self {
        let manager = if manager.is_empty() { "unknown" } else { manager };
        let api_version = match operation {
            Operation::Apply => "",
            Operation::Update => api_version,
        };
        Self {
            manager: manager.to_owned(),
            operation,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    /// How conflicts name it.
    pub fn describe(&self) -> String {
        let mut text = go_text::quote(&self.manager);
        if !self.subresource.is_empty() {
            text = format!("{text} with subresource {}", go_text::quote(&self.subresource));
        }
        match self.operation {
            Operation::Apply => text,
            Operation::Update => format!("{text} using {}", self.api_version),
        }
    }

    fn key(&self) -> (&str, Operation, &str, &str) {
        let Self { manager, operation, api_version, subresource } = self;
        (manager, *operation, api_version, subresource)
    }
}

impl Ord for ManagerId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ManagerId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Reads managedFields.
pub fn decode(entries: Option<&Value>) -> Result<Managers, ManagersError> {
    let entries = match entries {
        None | Some(Value::Null) => return Ok(Managers::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(ManagersError("managedFields must be a list".to_owned())),
    };
    if entries.len() > MAX_ENTRIES {
        return Err(ManagersError(format!("more than {MAX_ENTRIES} managed fields entries")));
    }
    entries.iter().enumerate().map(|(index, entry)| decode_entry(index, entry)).collect()
}

/// Writes managedFields in upstream's order; nothing if nobody owns anything.
pub fn encode(managers: &Managers) -> Option<Value> {
    let mut entries: Vec<_> = managers.iter().collect();
    entries.sort_by(|(a, x), (b, y)| {
        a.operation
            .cmp(&b.operation)
            .then_with(|| seconds(x.time.as_deref()).cmp(&seconds(y.time.as_deref())))
            .then_with(|| a.manager.cmp(&b.manager))
            .then_with(|| x.api_version.cmp(&y.api_version))
            .then_with(|| a.subresource.cmp(&b.subresource))
    });
    let entries: Vec<Value> = entries.into_iter().map(|(id, owned)| encode_entry(id, owned)).collect();
    (!entries.is_empty()).then_some(Value::Array(entries))
}

/// Whether a client wants to forget who owns what: an empty list, or one empty entry.
pub(super) fn is_reset(entries: Option<&Value>) -> bool {
    match entries.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.is_null() || only.as_object().is_some_and(is_blank),
        Some(_) | None => false,
    }
}

/// Merges the oldest updates into one entry per version until there are few enough.
pub(super) fn cap_updaters(managers: &mut Managers) {
    let mut updaters: Vec<(i64, ManagerId)> = managers
        .iter()
        .filter(|(id, _)| id.operation == Operation::Update)
        .map(|(id, owned)| (seconds(owned.time.as_deref()), id.clone()))
        .collect();
    updaters.sort();
    let mut n_updaters = updaters.len();
    let mut firsts: BTreeMap<String, ManagerId> = BTreeMap::new();
    for (_, id) in updaters {
        if n_updaters <= MAX_UPDATERS {
            return;
        }
        let Some(version) = managers.get(&id).map(|it| it.api_version.clone()) else { continue };
        let Some(first) = firsts.get(&version) else {
            firsts.insert(version, id);
            continue;
        };
        let bucket = ManagerId::new(ANCIENT, Operation::Update, &version, "");
        if !managers.contains_key(&bucket)
            && let Some(owned) = managers.remove(first)
        {
            managers.insert(bucket.clone(), owned);
        }
        let Some(newer) = managers.remove(&id) else { continue };
        if let Some(owned) = managers.get_mut(&bucket) {
            owned.set = owned.set.union(&newer.set);
            owned.time = newer.time;
        } else {
            managers.insert(bucket, newer);
        }
        n_updaters -= 1;
    }
}

fn decode_entry(index: usize, entry: &Value) -> Result<(ManagerId, Owned), ManagersError> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
    let operation = match text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err(ManagersError("operation must be `Apply` or `Update`".to_owned())),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(ManagersError("apiVersion must not be empty".to_owned()));
    }
    match text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(ManagersError(format!("missing fieldsType in managed fields entry {index}"))),
        other => {
            return Err(ManagersError(format!(
                "invalid fieldsType {} in managed fields entry {index}",
                go_text::quote(other)
            )));
        }
    }
    let set = match entry.get("fieldsV1") {
        None | Some(Value::Null) => FieldSet::new(),
        Some(fields) => FieldSet::from_fields_v1(fields).map_err(|it| ManagersError(it.to_string()))?,
    };
    let id_version = match operation {
        Operation::Apply => "",
        Operation::Update => api_version,
    };
    let id = ManagerId {
        manager: text("manager").to_owned(),
        operation,
        api_version: id_version.to_owned(),
        subresource: text("subresource").to_owned(),
    };
    let time = entry.get("time").and_then(Value::as_str).map(str::to_owned);
    Ok((id, Owned { set, api_version: api_version.to_owned(), time }))
}

fn encode_entry(id: &ManagerId, owned: &Owned) -> Value {
    let mut entry = Map::new();
    let mut put = |field: &str, value: Value| entry.insert(field.to_owned(), value);
    if !id.manager.is_empty() {
        put("manager", Value::from(id.manager.as_str()));
    }
    put("operation", Value::from(id.operation.name()));
    put("apiVersion", Value::from(owned.api_version.as_str()));
    if let Some(time) = &owned.time {
        put("time", Value::from(time.as_str()));
    }
    put("fieldsType", Value::from("FieldsV1"));
    put("fieldsV1", owned.set.to_fields_v1());
    if !id.subresource.is_empty() {
        put("subresource", Value::from(id.subresource.as_str()));
    }
    Value::Object(entry)
}

fn is_blank(entry: &Map) -> bool {
    entry.values().all(|it| it.is_null() || it.as_str() == Some(""))
}

fn seconds(time: Option<&str>) -> i64 {
    time.and_then(meta::time::parse_time).map_or(0, |it| it.as_second())
}
