//! The store on a real etcd: the contract, crashes, cuts, clusters, certificates, prefixes.
//! Each test starts its own etcd; without one every test fails, unless `CONVOY_SKIP_ETCD=1`.
#![allow(clippy::unwrap_used, reason = "tests; the exemption does not reach their support functions")]

mod cluster;
mod conformance;
mod crash;
mod history;
mod large;
mod limited;
mod network;
mod prefix;
mod proxy;
mod restore;
mod support;
mod tls;
