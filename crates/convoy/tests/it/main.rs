//! The binary as its users meet it: real clients, real stores, real kills.
//!
//! Each test starts its own server process on its own directories. What needs a tool that the machine
//! lacks says so and passes; `cargo xtask test` fetches the tools. Deliberately not here: anything that
//! a test inside a library crate can show.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails here")]

mod fixture;

mod authorization;
mod bench;
mod cli;
mod controllers;
mod copies;
mod durability;
mod earlier_builds;
mod embedding;
mod fleet;
mod fleet_commands;
mod fleet_processes;
mod foreign_clients;
mod hostile;
mod keys;
mod kube_client;
mod kubectl;
mod large_collection;
mod limits;
mod manifests;
mod migration;
mod mixed_versions;
mod nothing_lost;
mod quick_start;
mod robustness;
mod running;
mod up;
mod watch_soak;
mod webhooks;
