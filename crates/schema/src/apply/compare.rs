//! What differs between two states of an object, in terms of fields that managers own.

use std::collections::BTreeMap;

use super::{
    path::PathElement,
    set::{FieldSet, Node},
    shape::{Chosen, ListShape, MapShape, Ty, shape},
};
use crate::{Value, model::Schema};

/// What differs. No field is in two of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Only in the first.
    pub removed: FieldSet,
    /// In both, but not the same.
    pub modified: FieldSet,
    /// Only in the second.
    pub added: FieldSet,
}

impl Comparison {
    /// Leaves fields, and all below them, out of account.
    pub(super) fn without(mut self, ignored: &FieldSet) -> Self {
        if !ignored.is_empty() {
            self.removed = self.removed.recursive_difference(ignored);
            self.modified = self.modified.recursive_difference(ignored);
            self.added = self.added.recursive_difference(ignored);
        }
        self
    }

    /// What the second sets.
    pub(super) fn changed(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

/// Compares two states of an object.
pub(super) fn compare(schema: &Schema, ty: Ty, before: &Value, after: &Value) -> Comparison {
    // What is applied again is the same, and looking at it once is enough.
    if before == after {
        return Comparison::default();
    }
    let Diff { removed, modified, added } = Walk { schema }.place(ty, Some(before), Some(after));
    Comparison { removed: removed.below, modified: modified.below, added: added.below }
}

#[derive(Default)]
struct Diff {
    removed: Node,
    modified: Node,
    added: Node,
}

impl Diff {
    fn leaf(before: Option<&Value>, after: Option<&Value>) -> Self {
        let mut diff = Self::default();
        match (before, after) {
            (None, _) => diff.added.is_member = true,
            (Some(_), None) => diff.removed.is_member = true,
            (Some(before), Some(after)) => diff.modified.is_member = before != after,
        }
        diff
    }

    /// Puts what differs below a step, which is only made if something does.
    fn put(&mut self, step: impl Fn() -> PathElement, diff: Self) {
        let Self { removed, modified, added } = diff;
        for (into, node) in
            [(&mut self.removed, removed), (&mut self.modified, modified), (&mut self.added, added)]
        {
            if node.is_member || !node.below.is_empty() {
                into.below.add(step(), node);
            }
        }
    }

    fn join(&mut self, other: &Self) {
        for (into, node) in [
            (&mut self.removed, &other.removed),
            (&mut self.modified, &other.modified),
            (&mut self.added, &other.added),
        ] {
            into.is_member |= node.is_member;
            into.below = into.below.union(&node.below);
        }
    }
}

struct Walk<'a> {
    schema: &'a Schema,
}

impl<'a> Walk<'a> {
    fn place(&self, ty: Ty, before: Option<&Value>, after: Option<&Value>) -> Diff {
        let shape = shape(self.schema, ty);
        let (Some(left), Some(right)) = (shape.choose(before), shape.choose(after)) else {
            return Diff::leaf(before, after);
        };
        let mut other = None;
        let chosen = if after.is_none() {
            left
        } else {
            if before.is_some() && !left.is_same_as(&right) {
                other = Some(self.chosen(&left, before, after).0);
            }
            right
        };
        let (mut diff, is_leaf) = self.chosen(&chosen, before, after);
        if let Some(other) = other {
            diff.join(&other);
        }
        if !is_leaf {
            diff.added.is_member |= before.is_none();
            diff.removed.is_member |= before.is_some() && after.is_none();
        }
        diff
    }

    /// What differs, and whether the place counts as one.
    fn chosen(&self, chosen: &Chosen<'a>, before: Option<&Value>, after: Option<&Value>) -> (Diff, bool) {
        match chosen {
            Chosen::Scalar(_) => (Diff::leaf(before, after), true),
            Chosen::List(list) => {
                let old = before.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let new = after.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                if list.is_atomic() || (old.is_empty() && new.is_empty()) {
                    return (Diff::leaf(before, after), true);
                }
                (self.list(list, old, new), false)
            }
            Chosen::Map(map) => {
                let old = before.and_then(Value::as_object).filter(|it| !it.is_empty());
                let new = after.and_then(Value::as_object).filter(|it| !it.is_empty());
                if map.is_atomic || (old.is_none() && new.is_none()) {
                    return (Diff::leaf(before, after), true);
                }
                (self.map(map, old, new), false)
            }
        }
    }

    fn map(&self, map: &MapShape<'_>, old: Option<&crate::Map>, new: Option<&crate::Map>) -> Diff {
        let mut diff = Diff::default();
        for (name, before) in old.into_iter().flatten() {
            let after = new.and_then(|it| it.get(name));
            diff.put(|| PathElement::field(name), self.place(map.found(name), Some(before), after));
        }
        for (name, after) in new.into_iter().flatten() {
            if old.is_none_or(|it| !it.contains_key(name)) {
                diff.put(|| PathElement::field(name), self.place(map.found(name), None, Some(after)));
            }
        }
        diff
    }

    fn list(&self, list: &ListShape<'_>, old: &[Value], new: &[Value]) -> Diff {
        let mut elements: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            if let Ok(step) = list.step(self.schema, item) {
                elements.entry(step).or_default().0.push(item);
            }
        }
        for item in new {
            if let Ok(step) = list.step(self.schema, item) {
                elements.entry(step).or_default().1.push(item);
            }
        }
        let mut diff = Diff::default();
        for (step, (old, new)) in elements {
            diff.put(|| step.clone(), self.element(list, &old, &new));
        }
        diff
    }

    /// Elements that are there several times under one key count as one leaf.
    fn element(&self, list: &ListShape<'_>, old: &[&Value], new: &[&Value]) -> Diff {
        let mut diff = Diff::default();
        match (old, new) {
            ([] | [_], [] | [_]) => {
                return self.place(list.element, old.first().copied(), new.first().copied());
            }
            ([_, _, ..], [_, _, ..]) => diff.modified.is_member = old != new,
            ([_, _, ..], _) => {
                if let Some(after) = new.first() {
                    diff = self.place(list.element, None, Some(after));
                }
                diff.removed.is_member = true;
            }
            (_, [_, _, ..]) => {
                if let Some(before) = old.first() {
                    diff = self.place(list.element, Some(before), None);
                }
                diff.added.is_member = true;
            }
        }
        diff
    }
}
