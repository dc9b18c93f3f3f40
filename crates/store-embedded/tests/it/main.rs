//! The embedded store as its users see it.

mod conforms;
mod crash;
mod reopen;
mod snapshot;
mod support;
