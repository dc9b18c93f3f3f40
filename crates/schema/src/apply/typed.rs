//! Whether a configuration fits the schema, and which fields it names.

use super::{
    path::PathElement,
    set::{FieldSet, Node},
    shape::{Chosen, ListShape, MapShape, ScalarShape, Ty, shape},
};
use crate::{Map, Value, go_text, model::Schema};

/// More complaints than this help nobody.
const MAX_COMPLAINTS: usize = 50;

/// What is wrong with a configuration, in upstream's words; nothing if it is empty.
pub(super) fn complaints(schema: &Schema, ty: Ty, value: &Value) -> Vec<String> {
    let mut check = Check { schema, is_live: false, path: String::new(), complaints: Vec::new() };
    check.place(ty, value);
    check.complaints
}

/// What is wrong with an object that is there. It may have fields of other releases, and elements twice.
pub(super) fn live_complaints(schema: &Schema, ty: Ty, value: &Value) -> Vec<String> {
    let mut check = Check { schema, is_live: true, path: String::new(), complaints: Vec::new() };
    check.place(ty, value);
    check.complaints
}

/// Several complaints in one text.
pub(super) fn join(complaints: &[String]) -> String {
    match complaints {
        [only] => only.clone(),
        many => many.iter().fold("errors:".to_owned(), |text, it| format!("{text}\n  {it}")),
    }
}

/// The fields that a value names: leaves, elements of lists, entries of maps, and what is there but empty.
pub(super) fn field_set(schema: &Schema, ty: Ty, value: &Value) -> FieldSet {
    node(schema, ty, value).below
}

/// The lists and maps that a value names, but puts nothing into.
pub(super) fn empty_places(schema: &Schema, ty: Ty, value: &Value) -> FieldSet {
    let mut below = FieldSet::new();
    let mut put = |step: PathElement, ty: Ty, value: &Value| {
        let is_member =
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
        let node = Node { is_member, below: empty_places(schema, ty, value) };
        if node.is_member || !node.below.is_empty() {
            below.nodes.insert(step, node);
        }
    };
    match (shape(schema, ty).choose(Some(value)), value) {
        (Some(Chosen::Map(map)), Value::Object(fields)) if !map.is_atomic => {
            fields.iter().for_each(|(name, value)| put(PathElement::field(name), map.found(name), value));
        }
        (Some(Chosen::List(list)), Value::Array(items)) if !list.is_atomic() => {
            for item in items {
                if let Ok(step) = list.step(schema, item) {
                    put(step, list.element, item);
                }
            }
        }
        _ => {}
    }
    below
}

struct Check<'a> {
    schema: &'a Schema,
    is_live: bool,
    path: String,
    complaints: Vec<String>,
}

impl Check<'_> {
    fn complain(&mut self, path: &str, why: &str) {
        if self.complaints.len() < MAX_COMPLAINTS {
            let at = format!("{}{path}", self.path);
            self.complaints.push(if at.is_empty() { why.to_owned() } else { format!("{at}: {why}") });
        }
    }

    fn below(&mut self, step: &PathElement, ty: Ty, value: &Value) {
        let length = self.path.len();
        self.path.push_str(&step.to_string());
        self.place(ty, value);
        self.path.truncate(length);
    }

    fn field(&mut self, name: &str, ty: Ty, value: &Value) {
        let length = self.path.len();
        self.path.push('.');
        self.path.push_str(name);
        self.place(ty, value);
        self.path.truncate(length);
    }

    fn place(&mut self, ty: Ty, value: &Value) {
        match shape(self.schema, ty).choose(Some(value)) {
            None => {}
            Some(Chosen::Scalar(scalar)) => {
                if let Some(why) = misfit(scalar, value) {
                    self.complain("", &why);
                }
            }
            Some(Chosen::Map(map)) => match value {
                Value::Null => {}
                Value::Object(fields) => self.map(&map, fields),
                other => self.complain("", &format!("expected map, got &{{{}}}", go_text::plain(other))),
            },
            Some(Chosen::List(list)) => match value {
                Value::Null => {}
                Value::Array(items) => self.list(&list, items),
                other => self.complain("", &format!("expected list, got &{{{}}}", go_text::plain(other))),
            },
        }
    }

    fn map(&mut self, map: &MapShape<'_>, fields: &Map) {
        for (name, value) in fields {
            match map.child(name) {
                _ if self.is_live => self.field(name, map.found(name), value),
                Some(ty) => self.field(name, ty, value),
                None => {
                    // Upstream stops at the first field that it does not know.
                    self.complain(&format!(".{name}"), "field not declared in schema");
                    return;
                }
            }
        }
    }

    fn list(&mut self, list: &ListShape<'_>, items: &[Value]) {
        let mut seen = std::collections::BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = if list.is_atomic() {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match list.step(self.schema, item) {
                    Ok(step) => step,
                    Err(why) => return self.complain("", &format!("element {index}: {why}")),
                }
            };
            if !seen.insert(step.clone()) && !self.is_live {
                self.complain("", &format!("duplicate entries for key {step}"));
            }
            self.below(&step, list.element, item);
        }
    }
}

fn misfit(scalar: ScalarShape, value: &Value) -> Option<String> {
    let fits = match scalar {
        ScalarShape::Text => value.is_string(),
        ScalarShape::Number => value.is_number(),
        ScalarShape::Bool => value.is_boolean(),
        ScalarShape::Any => value.is_string() || value.is_number() || value.is_boolean(),
    };
    if fits || value.is_null() {
        return None;
    }
    Some(match scalar {
        ScalarShape::Text => {
            format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_text::syntax(value))
        }
        ScalarShape::Number => {
            format!("expected numeric (int or float), got {}", go_text::type_name(value))
        }
        ScalarShape::Bool => format!("expected boolean, got &{{{}}}", go_text::plain(value)),
        ScalarShape::Any => format!("expected any scalar, got &{{{}}}", go_text::plain(value)),
    })
}

fn node(schema: &Schema, ty: Ty, value: &Value) -> Node {
    let leaf = Node { is_member: true, below: FieldSet::new() };
    match shape(schema, ty).choose(Some(value)) {
        None | Some(Chosen::Scalar(_)) => leaf,
        Some(Chosen::List(list)) if list.is_atomic() => leaf,
        Some(Chosen::Map(map)) if map.is_atomic => leaf,
        Some(Chosen::List(list)) => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            Node { is_member: false, below: elements(schema, &list, items) }
        }
        Some(Chosen::Map(map)) => {
            let mut below = FieldSet::new();
            for (name, value) in value.as_object().into_iter().flatten() {
                let mut node = node(schema, map.found(name), value);
                let is_bare = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                node.is_member |= is_bare || map.named(name).is_none();
                if node.is_member || !node.below.is_empty() {
                    below.nodes.insert(PathElement::field(name), node);
                }
            }
            Node { is_member: false, below }
        }
    }
}

/// Elements that are there twice are owned as a whole.
fn elements(schema: &Schema, list: &ListShape<'_>, items: &[Value]) -> FieldSet {
    let mut below = FieldSet::new();
    let mut seen = std::collections::BTreeSet::new();
    for item in items {
        let Ok(step) = list.step(schema, item) else { continue };
        let mut node = node(schema, list.element, item);
        node.is_member = true;
        if !seen.insert(step.clone()) {
            node.below = FieldSet::new();
        }
        below.nodes.insert(step, node);
    }
    below
}
