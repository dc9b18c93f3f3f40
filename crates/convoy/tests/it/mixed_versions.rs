//! Servers of different releases and settings as processes on one etcd: each answers for all of them.
//!
//! [`stories`] are the scenarios PP and AD of the specification, [`strangers`] those who pretend to be servers, [`roll`]
//! is a cluster that changes its release, and back, behind a balancer while clients of all kinds use all that it has.
//! Deliberately not here: what servers in one process can show ([`crate::fleet::proxy`]).

mod fleet;
mod hands;
mod load;
mod roll;
mod stories;
mod strangers;
mod verdict;
mod watchers;
