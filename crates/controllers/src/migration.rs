//! Stored objects are rewritten in the version that all servers agree on, and that is proven.
//!
//! # Flow
//! Somebody makes a StorageVersionMigration, of either kind; mostly the trigger does. The migrator takes it through its
//! phases: do all servers agree ([`plan`]), is the definition frozen ([`definition`]), rewrite, look at everything again
//! ([`engine`]), narrow `status.storedVersions`. Everything that must be remembered stands in the status ([`state`]).
//!
//! # Guarantees
//! - `Succeeded` means that every object was looked at after the last one was rewritten, under one agreement, and found
//!   to be stored as wanted; how it is known is named in the status.
//! - `status.storedVersions` loses a version only after that. A run that fails or is aborted leaves it as it was.
//! - One object that cannot be rewritten never holds up the others, and is named.
//! - It can be cut off anywhere. Whoever goes on reads the status, and asks whether the agreement is still the same.
//!
//! Deliberately not here: who may write what; the server decides that.

pub mod api;
mod cancel;
mod definition;
pub mod engine;
mod migrator;
mod pace;
mod plan;
pub(crate) mod request;
mod state;

pub use cancel::{cancel, thaw};
pub(crate) use migrator::{run, served};
pub(crate) use plan::CANCELLED;
pub use request::annotation;
pub use state::{Failed, Phase, Progress, Proof, Run};
