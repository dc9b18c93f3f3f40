//! Whoever acts on old knowledge does no harm: a removal that was decided on earlier is carried out only if its reasons
//! still hold, and so is a create.
//!
//! Servers here are held up at the worst moment: in the middle of a deletion that others finish and begin anew. What the
//! store went through is judged by [`testkit::history::removal`] in the end. Start at [`scene`]; [`gate`] is what holds
//! servers up. Deliberately not here: faults at random ([`crate::robustness`]).

mod definitions;
mod gate;
mod namespaces;
mod owners;
mod processes;
pub mod scene;
