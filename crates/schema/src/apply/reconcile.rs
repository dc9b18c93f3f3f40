//! What managers own, after the schema has changed under them.
//!
//! Who owned parts of what is now one atomic field owns the field. The other direction needs nothing: who owned the
//! whole keeps owning the whole.

use super::{
    path::PathElement,
    set::{FieldSet, Node},
    shape::{Ty, shape},
};
use crate::model::Schema;

/// The set as it would be, had the schema always been what it is.
pub(super) fn reconcile(schema: &Schema, ty: Ty, set: &FieldSet) -> FieldSet {
    children(schema, ty, set)
}

fn place(schema: &Schema, ty: Ty, node: &Node) -> Node {
    let whole = || Node { is_member: true, below: FieldSet::new() };
    let is_leaf = node.is_member && node.below.is_empty();
    let shape = shape(schema, ty);
    if let Some(map) = &shape.map {
        if map.is_deduced() || is_leaf {
            return node.clone();
        }
        if map.is_atomic {
            return whole();
        }
    } else if let Some(list) = &shape.list {
        if is_leaf {
            return node.clone();
        }
        if list.is_atomic() {
            return whole();
        }
    } else {
        return node.clone();
    }
    Node { is_member: node.is_member, below: children(schema, ty, &node.below) }
}

fn children(schema: &Schema, ty: Ty, set: &FieldSet) -> FieldSet {
    let shape = shape(schema, ty);
    let nodes = set.nodes.iter().map(|(step, node)| {
        let ty = match (step, &shape.map, &shape.list) {
            (PathElement::Field(name), Some(map), _) => Some(map.found(name)),
            (_, None, Some(list)) => Some(list.element),
            _ => None,
        };
        let node = ty.map_or_else(|| node.clone(), |ty| place(schema, ty, node));
        (step.clone(), node)
    });
    FieldSet { nodes: nodes.collect() }
}
