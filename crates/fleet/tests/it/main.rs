//! Servers that agree, driven step by step: stories that people can read, and a model that tries every order.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "tests may, and print their figures")]

mod explore;
mod model;
mod removals;
mod stories;
mod world;
