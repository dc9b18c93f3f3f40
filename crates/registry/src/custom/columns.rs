//! The columns that a definition gives its objects: paths into them.

use jiff::Timestamp;
use meta::{Value, object};
use schema::custom::json_path::JsonPath;
use serde::Deserialize;
use serde_json::json;

use super::Custom;
use crate::table;

/// A column as a definition writes it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ColumnSpec {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    format: String,
    description: String,
    priority: i32,
    json_path: String,
}

/// A column ready to be filled.
#[derive(Clone, Debug)]
pub(crate) struct Printed {
    spec: ColumnSpec,
    /// `None` for a path that is none: its cells stay empty.
    path: Option<JsonPath>,
}

pub(crate) fn compile(specs: &[ColumnSpec]) -> Vec<Printed> {
    specs.iter().map(|it| Printed { spec: it.clone(), path: JsonPath::parse(&it.json_path).ok() }).collect()
}

/// The columns of a version: what they are called, and the cells of one object.
pub(crate) struct CustomColumns<'a>(&'a [Printed]);

impl<'a> CustomColumns<'a> {
    pub(crate) fn of(custom: &'a Custom, version: &str) -> Self {
        Self(custom.version(version).map_or(&[], |it| it.columns.as_slice()))
    }

    pub(crate) fn definitions(&self) -> Vec<Value> {
        let mut definitions = vec![table::name_column()];
        if self.0.is_empty() {
            definitions.push(table::created_column("Age"));
        }
        definitions.extend(self.0.iter().map(|Printed { spec, .. }| {
            let description = match spec.description.as_str() {
                "" => format!("Custom resource definition column (in JSONPath format): {}", spec.json_path),
                description => description.to_owned(),
            };
            json!({
                "name": spec.name,
                "type": spec.kind,
                "format": spec.format,
                "description": description,
                "priority": spec.priority,
            })
        }));
        definitions
    }

    pub(crate) fn cells(&self, value: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells = vec![Value::from(object::name(value))];
        if self.0.is_empty() {
            cells.push(Value::from(table::age(object::meta_text(value, "creationTimestamp"), now)));
        }
        cells.extend(self.0.iter().map(|it| it.cell(value, now)));
        cells
    }
}

impl Printed {
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(found) = self.path.as_ref().and_then(|it| it.find(object).into_iter().next()) else {
            return Value::Null;
        };
        match (self.spec.kind.as_str(), found) {
            (_, Value::Null) => Value::Null,
            ("string", Value::String(text)) => Value::from(text.as_str()),
            ("string", other) => Value::from(other.to_string()),
            ("integer", Value::Number(number)) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => json!(whole),
                // As Go: what is behind the point is cut off.
                (None, Some(number)) => {
                    format!("{:.0}", number.trunc()).parse::<i64>().map_or(Value::Null, Value::from)
                }
                (None, None) => Value::Null,
            },
            ("number", Value::Number(number)) => json!(number.as_f64()),
            ("boolean", Value::Bool(value)) => json!(value),
            ("date", Value::String(text)) => match meta::time::parse_time(text) {
                Some(_) => Value::from(table::age(text, now)),
                None => Value::from("<invalid>"),
            },
            _ => Value::Null,
        }
    }
}
