//! Steps of a path into an object, as managers own them: a field, an element by its keys, by its value, by its place.
//!
//! Order, equality and both texts (`k:{"name":"x"}` in managedFields, `[name="x"]` in messages) are upstream's.

use std::{cmp::Ordering, fmt, sync::Arc};

use crate::{Value, go_text, json};

/// A key or a value inside a step may be this large.
const LIMITS: json::Limits = json::Limits { max_bytes: 64 << 10, max_depth: 16, max_memory: 4 << 20 };

/// One step from an object to a part of it.
#[derive(Clone, Debug)]
pub enum PathElement {
    /// The field of this name. Sets of fields are copied often, and share the names.
    Field(Arc<str>),
    /// The element of a list whose fields are these, sorted by name.
    Key(Vec<(String, Value)>),
    /// The element of a set.
    Value(Value),
    /// The element at this place. Never made by this server: lists without keys are owned as a whole.
    Index(i64),
}

/// Why a step cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// A kind of step that does not exist yet. Upstream skips it.
    #[error("unknown path element type")]
    Unknown,
    /// It is no step.
    #[error("malformed path element")]
    Malformed,
}

impl PathElement {
    /// A field.
    pub fn field(name: impl AsRef<str>) -> Self {
        Self::Field(Arc::from(name.as_ref()))
    }

    /// An element by its keys, given in any order.
    pub fn key(mut keys: Vec<(String, Value)>) -> Self {
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        Self::Key(keys)
    }

    /// Reads `f:name`, `k:{…}`, `v:…` or `i:0`.
    pub fn decode(text: &str) -> Result<Self, StepError> {
        let (kind, rest) = text.split_at_checked(2).ok_or(StepError::Malformed)?;
        if !kind.ends_with(':') {
            return Err(StepError::Malformed);
        }
        let parse = || json::parse(rest.as_bytes(), LIMITS).map_err(|_| StepError::Malformed);
        match kind {
            "f:" => Ok(Self::field(rest)),
            "v:" => Ok(Self::Value(parse()?)),
            "i:" => rest.parse().map(Self::Index).map_err(|_| StepError::Malformed),
            "k:" => match parse()? {
                Value::Object(map) => Ok(Self::Key(map.into_iter().collect())),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                    Err(StepError::Malformed)
                }
            },
            _ => Err(StepError::Unknown),
        }
    }

    /// Writes what [`PathElement::decode`] reads.
    pub fn encode(&self) -> String {
        let text = |value: &Value| String::from_utf8_lossy(&json::to_vec(value)).into_owned();
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let fields: Vec<_> =
                    keys.iter().map(|(name, it)| format!("{}:{}", go_text::quote(name), text(it))).collect();
                format!("k:{{{}}}", fields.join(","))
            }
            Self::Value(value) => format!("v:{}", text(value)),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// `.data.k`, `.spec.ports[containerPort=80,protocol="TCP"]`
pub fn display(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let fields: Vec<_> = keys.iter().map(|(name, it)| format!("{name}={}", shown(it))).collect();
                write!(f, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl Ord for PathElement {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => {
                let both = a.iter().zip(b).map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare(x, y)));
                both.fold(Ordering::Equal, Ordering::then).then_with(|| a.len().cmp(&b.len()))
            }
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for PathElement {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PathElement {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PathElement {}

impl PathElement {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => go_text::plain(value),
        Value::String(text) => go_text::quote(text),
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) => {
            let fields: Vec<_> = map.iter().map(|(name, it)| format!("{name}={}", shown(it))).collect();
            format!("{{{}}}", fields.join(";"))
        }
    }
}

/// A total order of values: numbers, texts, truth values, lists, objects, null.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (x.as_i64(), y.as_i64()) {
            (Some(x), Some(y)) => x.cmp(&y),
            // A float that is an integer does not exist (`json::parse` makes it one), so no two kinds are ever equal.
            _ => x.as_f64().unwrap_or_default().total_cmp(&y.as_f64().unwrap_or_default()),
        },
        (Value::String(x), Value::String(y)) => x.cmp(y),
        (Value::Bool(x), Value::Bool(y)) => x.cmp(y),
        (Value::Array(x), Value::Array(y)) => {
            let both = x.iter().zip(y).map(|(x, y)| compare(x, y));
            both.fold(Ordering::Equal, Ordering::then).then_with(|| x.len().cmp(&y.len()))
        }
        (Value::Object(x), Value::Object(y)) => {
            let both = x.iter().zip(y).map(|((a, x), (b, y))| a.cmp(b).then_with(|| compare(x, y)));
            both.fold(Ordering::Equal, Ordering::then).then_with(|| x.len().cmp(&y.len()))
        }
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}
