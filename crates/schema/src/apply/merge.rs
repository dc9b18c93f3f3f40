//! Puts a configuration into an object: its leaves win, lists are merged by key, nothing is removed.
//!
//! Elements come in the configuration's order; those that only the object has keep their place among the elements
//! that both have. This is upstream's interleaving.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    path::PathElement,
    shape::{Chosen, ListShape, MapShape, Ty, shape},
};
use crate::{Map, Value, model::Schema};

/// The object with the configuration in it.
pub(super) fn merge(schema: &Schema, ty: Ty, object: &Value, config: &Value) -> Value {
    Walk { schema }.place(ty, Some(object), Some(config)).unwrap_or(Value::Null)
}

struct Walk<'a> {
    schema: &'a Schema,
}

impl Walk<'_> {
    fn place(&self, ty: Ty, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
        let leaf = || new.or(old).cloned();
        let shape = shape(self.schema, ty);
        match shape.choose(new.or(old))? {
            Chosen::Scalar(_) => leaf(),
            Chosen::List(list) => {
                let (olds, news) = (items(old), items(new));
                if list.is_atomic() || (olds.is_empty() && news.is_empty()) {
                    return leaf();
                }
                let merged = self.list(&list, olds, news);
                (!merged.is_empty()).then_some(Value::Array(merged))
            }
            Chosen::Map(map) => {
                let (olds, news) = (fields(old), fields(new));
                if map.is_atomic || (olds.is_none() && news.is_none()) {
                    return leaf();
                }
                let merged = self.map(&map, olds, news);
                (!merged.is_empty()).then_some(Value::Object(merged))
            }
        }
    }

    fn map(&self, map: &MapShape<'_>, olds: Option<&Map>, news: Option<&Map>) -> Map {
        let mut merged = Map::new();
        for (name, old) in olds.into_iter().flatten() {
            let new = news.and_then(|it| it.get(name));
            if let Some(value) = self.place(map.found(name), Some(old), new) {
                merged.insert(name.clone(), value);
            }
        }
        for (name, new) in news.into_iter().flatten() {
            if olds.is_none_or(|it| !it.contains_key(name))
                && let Some(value) = self.place(map.found(name), None, Some(new))
            {
                merged.insert(name.clone(), value);
            }
        }
        merged
    }

    fn list(&self, list: &ListShape<'_>, olds: &[Value], news: &[Value]) -> Vec<Value> {
        let old = Index::new(self.schema, list, olds);
        let new = Index::new(self.schema, list, news);
        let mut shared = new.order.iter().map(|(step, _)| step).filter(|it| old.values.contains_key(it));
        let mut next_shared = shared.next();
        let mut taken = BTreeSet::new();
        let mut merged = Vec::with_capacity(olds.len().max(news.len()));
        let (mut at_old, mut at_new) = (0, 0);
        while at_old < old.order.len() || at_new < new.order.len() {
            if let Some((step, item)) = old.order.get(at_old) {
                let candidate = new.order.get(at_new).map(|(it, _)| it);
                if !new.values.contains_key(step) {
                    merged.extend(self.place(list.element, Some(item), None));
                    at_old += 1;
                    continue;
                }
                if candidate == Some(step) {
                    at_old += 1;
                } else if candidate.is_some() && next_shared.is_some_and(|it| it != step) {
                    // Both have it, but its turn comes later.
                    at_old += 1;
                    continue;
                } else if taken.contains(step) {
                    at_old += 1;
                }
            }
            let Some((step, item)) = new.order.get(at_new) else { continue };
            taken.insert(step);
            let before = old.values.get(step).copied().flatten();
            merged.extend(self.place(list.element, before, Some(item)));
            at_new += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
        merged
    }
}

/// The elements of a list by what they are called.
struct Index<'a> {
    order: Vec<(PathElement, &'a Value)>,
    /// Nothing, where several elements have one name: they are not merged, but replaced.
    values: BTreeMap<PathElement, Option<&'a Value>>,
}

impl<'a> Index<'a> {
    fn new(schema: &Schema, list: &ListShape<'_>, items: &'a [Value]) -> Self {
        let mut index = Self { order: Vec::with_capacity(items.len()), values: BTreeMap::new() };
        for item in items {
            let Ok(step) = list.step(schema, item) else { continue };
            index.values.entry(step.clone()).and_modify(|it| *it = None).or_insert(Some(item));
            index.order.push((step, item));
        }
        index
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_object).filter(|it| !it.is_empty())
}
