//! Why a pass of a controller did not succeed.

use std::{error::Error as StdError, fmt, time::Duration};

/// A pass failed. It is tried again after a pause, whatever the reason.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server said no.
    #[error("the API server answered {code} {reason}: {message}")]
    Refused {
        code: u16,
        reason: String,
        message: String,
        causes: Vec<String>,
        /// The object that the answer is about.
        name: String,
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
        /// How a list that it has forgotten can go on.
        next: Option<String>,
    },
    /// No answer: it may have happened.
    #[error("the API server could not be asked")]
    Unreachable(#[source] kube::Error),
    #[error("an answer of the API server could not be read")]
    Unreadable(#[source] serde_json::Error),
    /// What is needed for a decision is not known.
    #[error("{0}")]
    Unknown(String),
    #[error("the pass took longer than {0:?}")]
    TooLong(Duration),
    #[error("the pass panicked")]
    Panicked,
}

impl Error {
    /// Whether the server answered with this status code.
    pub(crate) fn is(&self, status_code: u16) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == status_code)
    }

    /// How a list goes on that the server cannot continue as it was: from the same place, with what is there by now.
    pub(crate) fn next(&self) -> Option<&str> {
        match self {
            Self::Refused { next, .. } => next.as_deref().filter(|it| !it.is_empty()),
            _ => None,
        }
    }

    /// Whether the server said that the object of this name is not there: it knows the resource, and looked. A 404 for
    /// a path that it does not serve says nothing about objects.
    pub(crate) fn proves_absent(&self, object: &str) -> bool {
        matches!(self, Self::Refused { code: 404, reason, name, .. } if reason == "NotFound" && name == object)
    }

    /// Whether the server refused because the namespace is being deleted.
    pub(crate) fn is_namespace_terminating(&self) -> bool {
        matches!(self, Self::Refused { causes, .. } if causes.iter().any(|it| it == "NamespaceTerminating"))
    }

    /// Whether the server refused to let a namespace or an owner go because something of it is stored that nobody serves.
    pub(crate) fn is_unserved_content(&self) -> bool {
        matches!(self, Self::Refused { causes, .. } if causes.iter().any(|it| it == "UnservedContent"))
    }

    /// Whether the server refused because a fact that the request rests on does not hold.
    pub(crate) fn is_unjustified(&self) -> bool {
        matches!(self, Self::Refused { causes, .. } if causes.iter().any(|it| it == meta::grounds::REASON))
    }

    /// The server's own words if it answered, for conditions that people read.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Refused { message, .. } if !message.is_empty() => message.clone(),
            other => Chain(other).to_string(),
        }
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let kube::core::Status { code, reason, message, details, metadata, .. } = *status;
                let seconds = details.as_ref().map_or(0, |it| it.retry_after_seconds);
                let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
                let (name, causes) = details.map(|it| (it.name, it.causes)).unwrap_or_default();
                let causes = causes.into_iter().map(|it| it.reason).collect();
                let next = metadata.and_then(|it| it.continue_);
                Self::Refused { code, reason, message, causes, name, retry_after, next }
            }
            kube::Error::SerdeError(error) => Self::Unreadable(error),
            other => Self::Unreachable(other),
        }
    }
}

/// An error with everything that led to it, for logs.
pub(crate) struct Chain<'a>(pub(crate) &'a dyn StdError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
