//! What users define: the schema of a custom resource, and what it says of an object.
//!
//! **Flow.** A schema in OpenAPI's words is checked when it is stored ([`structural_errors`]) and compiled when it is
//! first used ([`Node::compile`]). An object that comes in is pruned ([`prune`](mod@prune)), filled in ([`fill`](mod@fill)) and
//! validated ([`validate`](mod@validate)); apply sees the schema as a [`crate::model::Schema`] ([`types_of`]).
//!
//! Deliberately not here: built-in kinds, whose types are a table of their own and whose objects go through
//! [`crate::check`]; the definition around the schema; and rules in CEL, which are kept as data and not enforced.

mod fill;
mod format;
pub mod json_path;
mod lists;
mod node;
mod pattern;
pub mod prune;
mod structural;
#[cfg(test)]
mod tests;
mod types;
mod validate;

pub use fill::{drop_nulls, fill};
pub use lists::duplicates;
pub use node::{Kind, Node};
pub use prune::prune;
pub use structural::{check_selectable, structural_errors};
pub use types::types_of;
pub use validate::{validate, validate_changed};
