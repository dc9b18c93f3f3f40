//! Sets of fields: what one manager owns of an object.
//!
//! A tree of steps. A step is a member (the field itself is owned), or leads to members (parts of it are), or both.
//! There are no empty branches, so two sets with the same members are equal. The text form (`FieldsV1`) is in
//! [`super::fields_v1`].

use std::collections::{BTreeMap, btree_map::Entry};

use super::path::PathElement;
use crate::model::{Schema, TypeId};

/// A set of fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(super) nodes: BTreeMap<PathElement, Node>,
}

/// What a set knows about one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    /// The place itself is in the set.
    pub is_member: bool,
    /// What is in the set below it.
    pub below: FieldSet,
}

impl FieldSet {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The fields of these names below each other: `["metadata", "name"]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::new();
        for path in paths {
            let path: Vec<_> = path.iter().map(|it| PathElement::field(*it)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a place, not those above it. The whole object is nobody's.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => self.nodes.entry(last.clone()).or_default().is_member = true,
            [first, rest @ ..] => self.nodes.entry(first.clone()).or_default().below.insert(rest),
        }
    }

    /// Adds what is known about a step.
    pub(super) fn add(&mut self, step: PathElement, node: Node) {
        match self.nodes.entry(step) {
            Entry::Vacant(place) => {
                place.insert(node);
            }
            Entry::Occupied(mut place) => {
                let known = place.get_mut();
                known.is_member |= node.is_member;
                known.below = known.below.union(&node.below);
            }
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many places there are.
    pub fn len(&self) -> usize {
        self.nodes.values().map(|it| usize::from(it.is_member) + it.below.len()).sum()
    }

    /// Whether the place is in it.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.nodes.get(first).is_some_and(|it| it.below.contains(rest)),
        }
    }

    pub(super) fn has(&self, step: &PathElement) -> bool {
        self.nodes.get(step).is_some_and(|it| it.is_member)
    }

    /// What is in it below a step, if anything.
    pub(super) fn below(&self, step: &PathElement) -> Option<&Self> {
        self.nodes.get(step).map(|it| &it.below).filter(|it| !it.is_empty())
    }

    /// Whether all of it is in the other.
    pub fn is_subset_of(&self, other: &Self) -> bool {
        self.nodes.iter().all(|(step, ours)| {
            other.nodes.get(step).is_some_and(|theirs| {
                (theirs.is_member || !ours.is_member) && ours.below.is_subset_of(&theirs.below)
            })
        })
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut nodes = self.nodes.clone();
        for (step, theirs) in &other.nodes {
            match nodes.entry(step.clone()) {
                Entry::Vacant(place) => {
                    place.insert(theirs.clone());
                }
                Entry::Occupied(mut place) => {
                    let ours = place.get_mut();
                    ours.is_member |= theirs.is_member;
                    ours.below = ours.below.union(&theirs.below);
                }
            }
        }
        Self { nodes }
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| {
            let theirs = theirs?;
            Some(Node {
                is_member: ours.is_member && theirs.is_member,
                below: ours.below.intersection(&theirs.below),
            })
        })
    }

    /// What is in this, but not in the other. Places below a removed one stay.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| match theirs {
            None => Some(ours.clone()),
            Some(theirs) => Some(Node {
                is_member: ours.is_member && !theirs.is_member,
                below: ours.below.difference(&theirs.below),
            }),
        })
    }

    /// What is neither in the other nor below a place that is.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |ours, theirs| match theirs {
            None => Some(ours.clone()),
            Some(theirs) if theirs.is_member => None,
            Some(theirs) => Some(Node {
                is_member: ours.is_member,
                below: ours.below.recursive_difference(&theirs.below),
            }),
        })
    }

    /// The places with nothing below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|(step, node)| {
            let is_member = node.is_member && node.below.is_empty();
            (step.clone(), Node { is_member, below: node.below.leaves() })
        });
        Self { nodes: nodes.collect() }
    }

    /// All places: those at a level first, then those below, as upstream lists them.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    /// With every field that the schema names and that leads to members: a field that is named can be removed when
    /// all of it goes, an element of a map cannot.
    #[must_use]
    pub(super) fn with_named_fields(&self, schema: &Schema, ty: super::shape::Ty) -> Self {
        use super::shape::{Shape, shape};
        let shape = shape(schema, ty);
        let nodes = self.nodes.iter().map(|(step, node)| {
            let (is_named, below_ty) = match (step, &shape) {
                (PathElement::Field(name), Shape { map: Some(map), .. }) => {
                    (map.named(name).is_some(), Some(map.found(name)))
                }
                (PathElement::Key(_), Shape { list: Some(list), .. }) => (false, Some(list.element)),
                _ => (false, None),
            };
            let below = match below_ty {
                Some(ty) => node.below.with_named_fields(schema, ty),
                None => node.below.clone(),
            };
            let is_member = node.is_member || (is_named && !node.below.is_empty());
            (step.clone(), Node { is_member, below })
        });
        Self { nodes: nodes.collect() }
    }

    /// [`FieldSet::with_named_fields`] for an object of a declared type.
    #[must_use]
    pub fn with_fields_named_by(&self, schema: &Schema, ty: TypeId) -> Self {
        self.with_named_fields(schema, super::shape::Ty::Declared(ty))
    }

    fn combine(&self, other: &Self, combine: impl Fn(&Node, Option<&Node>) -> Option<Node>) -> Self {
        let nodes = self.nodes.iter().filter_map(|(step, ours)| {
            let node = combine(ours, other.nodes.get(step))?;
            (node.is_member || !node.below.is_empty()).then(|| (step.clone(), node))
        });
        Self { nodes: nodes.collect() }
    }

    fn collect_paths(&self, above: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        for (step, _) in self.nodes.iter().filter(|(_, it)| it.is_member) {
            paths.push(above.iter().chain([step]).cloned().collect());
        }
        for (step, node) in &self.nodes {
            above.push(step.clone());
            node.below.collect_paths(above, paths);
            above.pop();
        }
    }
}
