//! Server-side apply: who owns which field of an object, and merging what several owners want.
//!
//! Works as upstream's `structured-merge-diff` and `managedfields`, on trees and the structural [`crate::model`], for
//! built-in and custom kinds alike. Two entry points, both pure:
//! [`update`] for every write that brings a whole new state (create, put, patch), and [`apply()`] for configurations.
//! Deliberately not here: reading and writing objects, defaults and validation; nothing of that changes who owns what.
//!
//! Reading order: [`path`] and [`set`] (what can be owned), [`shape`] (how the schema looks from here), [`typed`],
//! [`compare`], [`merge`], [`remove`] and [`reconcile`] (walks over objects), [`managers`] (managedFields), [`engine`]
//! (who owns what after a write), [`manage`] (the entry points).

mod compare;
mod conflict;
mod engine;
mod fields_v1;
mod last_applied;
mod manage;
mod managers;
mod merge;
mod path;
mod reconcile;
mod remove;
mod set;
mod shape;
#[cfg(test)]
mod tests;
mod typed;

pub use compare::Comparison;
pub use conflict::{ApplyError, Conflict};
pub use engine::{TypeRef, Versions};
pub use fields_v1::FieldsError;
pub use manage::{Request, apply, blank, keep_times, sort_entries, update};
pub use managers::{MAX_UPDATERS, ManagerId, Managers, ManagersError, Operation, Owned, decode, encode};
pub use path::{PathElement, StepError, display};
pub use set::FieldSet;
