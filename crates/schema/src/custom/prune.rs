//! Takes away what a schema does not list.
//!
//! What is kept where everything is kept follows upstream to the letter. A list that keeps everything keeps it in its
//! elements, too, and in lists among these; an object that keeps everything does not hand that down, neither to the
//! fields it lists nor to those its `additionalProperties` speak of. `additionalProperties: true` and `false` keep names
//! and scalars, and empty the objects below.
//! Deliberately not here: `metadata`, whose fields are the same for all kinds; whoever calls this checks them.

use super::node::{Additional, Node};
use crate::{Map, Value, check::MAX_REPORTED};

/// Removes fields that are not listed; the answer is their paths, such as `spec.list[0].nope`, in alphabetical order.
/// Beyond [`MAX_REPORTED`] fields go without being named.
pub fn prune(node: &Node, value: &mut Value) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), found: Vec::new() };
    pruner.value(Some(node), false, value);
    pruner.found.sort();
    pruner.found
}

/// Whether there is anything that [`prune`] would take away.
pub fn is_pruned(node: &Node, value: &Value) -> bool {
    let mut copy = value.clone();
    prune(node, &mut copy);
    copy == *value
}

struct Pruner {
    path: String,
    found: Vec<String>,
}

impl Pruner {
    /// `keeps_all` where the list around the value keeps everything.
    fn value(&mut self, node: Option<&Node>, keeps_all: bool, value: &mut Value) {
        let keeps_all = keeps_all || node.is_some_and(|it| it.keeps_unknown);
        match value {
            Value::Object(map) => match node {
                Some(node) => self.object(node, keeps_all, map),
                None if keeps_all => {}
                None => self.clear(map),
            },
            Value::Array(items) => {
                let inner = node.and_then(|it| it.items.as_deref());
                if inner.is_none() && keeps_all {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    let end = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.value(inner, keeps_all, item);
                    self.path.truncate(end);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, node: &Node, keeps_all: bool, map: &mut Map) {
        map.retain(|name, value| {
            if node.has_own(name) {
                return true;
            }
            let end = self.enter(name);
            let is_kept = match (node.property(name), &node.additional) {
                (Some(property), _) => {
                    self.value(Some(property), false, value);
                    true
                }
                (None, Some(Additional::Of(inner))) => {
                    self.value(Some(inner), false, value);
                    true
                }
                (None, Some(Additional::Anything | Additional::Nothing)) => {
                    self.value(None, false, value);
                    true
                }
                (None, None) => keeps_all,
            };
            if !is_kept {
                self.report();
            }
            self.path.truncate(end);
            is_kept
        });
    }

    fn clear(&mut self, map: &mut Map) {
        for name in map.keys() {
            let end = self.enter(name);
            self.report();
            self.path.truncate(end);
        }
        map.clear();
    }

    fn report(&mut self) {
        if self.found.len() < MAX_REPORTED {
            self.found.push(self.path.clone());
        }
    }

    fn enter(&mut self, name: &str) -> usize {
        let end = self.path.len();
        if end > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        end
    }
}
