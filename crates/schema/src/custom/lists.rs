//! Elements of lists that must differ and do not.

use std::collections::HashSet;

use meta::{FieldError, field::FieldProblem};

use super::node::Node;
use crate::{Map, Value, json, model::ListKind};

/// At most this many complaints.
const MAX_ERRORS: usize = 100;

/// Everything that is twice in a set, or has the keys of another element.
pub fn duplicates(node: &Node, value: &Value) -> Vec<FieldError> {
    let mut finder = Finder { path: String::new(), errors: Vec::new() };
    finder.value(node, value);
    finder.errors
}

struct Finder {
    path: String,
    errors: Vec<FieldError>,
}

impl Finder {
    fn value(&mut self, node: &Node, value: &Value) {
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(child) = node.child(name) {
                        let step = match (node.property(name), self.path.is_empty()) {
                            (Some(_), true) => name.clone(),
                            (Some(_), false) => format!(".{name}"),
                            (None, _) => format!("[{name}]"),
                        };
                        self.inside(&step, child, value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(kind) = &node.list {
                    self.list(node, kind, items);
                }
                let Some(inner) = &node.items else { return };
                for (index, item) in items.iter().enumerate() {
                    self.inside(&format!("[{index}]"), inner, item);
                }
            }
            _ => {}
        }
    }

    fn inside(&mut self, step: &str, node: &Node, value: &Value) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        let end = self.path.len();
        self.path.push_str(step);
        self.value(node, value);
        self.path.truncate(end);
    }

    fn list(&mut self, node: &Node, kind: &ListKind, items: &[Value]) {
        let mut seen = HashSet::new();
        for (index, item) in items.iter().enumerate() {
            let Some(identity) = identity(node, kind, item) else { continue };
            let shown = String::from_utf8_lossy(&json::to_vec(&identity)).into_owned();
            if !seen.insert(shown.clone()) && self.errors.len() < MAX_ERRORS {
                self.errors.push(FieldError {
                    field: format!("{}[{index}]", self.path),
                    problem: FieldProblem::Duplicate,
                    shown: Some(shown),
                    detail: String::new(),
                });
            }
        }
    }
}

/// What tells an element apart from the others.
pub(super) fn identity(node: &Node, kind: &ListKind, item: &Value) -> Option<Value> {
    match kind {
        ListKind::Atomic => None,
        ListKind::Set => Some(item.clone()),
        ListKind::Map(keys) => {
            let map = item.as_object()?;
            let inner = node.items.as_deref();
            let default =
                |key: &str| inner.and_then(|it| it.property(key)).and_then(|it| it.default.as_deref());
            let pairs = keys.iter().filter_map(|key| {
                let value = map.get(&**key).or_else(|| default(key))?;
                Some((key.as_ref().to_owned(), value.clone()))
            });
            Some(Value::Object(pairs.collect::<Map>()))
        }
    }
}
