//! The in-memory store against the suite and the model.

mod fault;
mod memory;
