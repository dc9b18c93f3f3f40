//! Load on an API server, whoever's it is, and what its clients notice.
//!
//! [`wire`] is a bare HTTP/1.1 client, because a comfortable one would use up the cores that the server is measured on.
//! Deliberately not here: kubeconfigs, processes, tables, and what a figure should be.

pub mod closed_loop;
pub mod fanout;
pub mod wire;

use std::io;

/// Why a load could not be put on a server.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The connection failed.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// What came back is not HTTP, or ended too early.
    #[error("{0}")]
    Protocol(String),
    /// The server answered, but with another status.
    #[error("{what} was answered with {status}")]
    Refused {
        /// What was asked.
        what: String,
        /// The status.
        status: u16,
    },
    /// A worker panicked.
    #[error("a worker ended early: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

impl LoadError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { what, error }
    }

    fn protocol(what: impl Into<String>) -> Self {
        Self::Protocol(what.into())
    }
}
