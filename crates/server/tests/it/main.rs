//! The whole chain in one process on the in-memory store: no sockets, no TLS.

mod apply;
mod deletion;
mod harness;
mod lists;
mod requests;
mod rights;
mod shapes;
mod watches;
mod writes;
