//! `FieldsV1`: the form in which sets of fields stand in managedFields.
//!
//! `{"f:data":{".":{},"f:k":{}}}` holds `.data` and `.data.k`. Steps of a kind that does not exist yet are dropped, as
//! upstream does; anything else that is no step makes the whole unreadable.

use super::{
    path::{PathElement, StepError},
    set::{FieldSet, Node},
};
use crate::{Map, Value};

/// Deeper sets are not read: no object is.
const MAX_DEPTH: usize = 260;

/// Why a set cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error decoding set: {0}")]
pub struct FieldsError(String);

impl FieldSet {
    /// Writes `FieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.to_map(false))
    }

    /// Reads `FieldsV1`.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, FieldsError> {
        let Value::Object(map) = fields else {
            return Err(FieldsError(format!("expect {{ or n, but found {}", crate::json::type_name(fields))));
        };
        read(map, 0).map(|(set, _)| set)
    }

    fn to_map(&self, is_member: bool) -> Map {
        let own = (is_member && !self.is_empty()).then(|| (".".to_owned(), Value::Object(Map::new())));
        let below = self.nodes.iter().map(|(step, node)| {
            let Node { is_member, below } = node;
            (step.encode(), Value::Object(below.to_map(*is_member)))
        });
        own.into_iter().chain(below).collect()
    }
}

/// What is below, and whether the place itself is a member.
fn read(map: &Map, depth: usize) -> Result<(FieldSet, bool), FieldsError> {
    if depth > MAX_DEPTH {
        return Err(FieldsError("exceeded max depth".to_owned()));
    }
    let mut set = FieldSet::new();
    let mut is_member = false;
    for (text, below) in map {
        if text == "." {
            is_member = true;
            continue;
        }
        let step = match PathElement::decode(text) {
            Ok(step) => step,
            Err(StepError::Unknown) => continue,
            Err(error @ StepError::Malformed) => return Err(FieldsError(format!("{error}: {text}"))),
        };
        let node = match below {
            Value::Object(map) => {
                let (below, is_member) = read(map, depth + 1)?;
                Node { is_member, below }
            }
            Value::Null => Node { is_member: true, below: FieldSet::new() },
            other => {
                return Err(FieldsError(format!(
                    "expect {{ or n, but found {}",
                    crate::json::type_name(other)
                )));
            }
        };
        set.add(step, node);
    }
    let is_member = is_member || set.is_empty();
    Ok((set, is_member))
}
