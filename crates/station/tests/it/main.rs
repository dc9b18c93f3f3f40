//! A station on a store of its own, without a server around it.

mod ground;
mod members;
