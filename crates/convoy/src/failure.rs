//! How commands fail: one sentence and an exit code.

use std::{fmt, process::ExitCode};

/// What the exit code says; a contract with scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0
    Ok,
    /// 1: it could not be done.
    Failed,
    /// 2: it was asked for in a wrong way.
    Usage,
    /// 3: not safe, or not agreed on.
    Unsafe,
    /// 4: it could not be told.
    Unknown,
}

impl Exit {
    const ALL: [Self; 5] = [Self::Ok, Self::Failed, Self::Usage, Self::Unsafe, Self::Unknown];

    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unsafe => 3,
            Self::Unknown => 4,
        }
    }

    /// What a number says; one that nobody knows is a failure.
    pub fn of(code: u8) -> Self {
        Self::ALL.into_iter().find(|it| it.code() == code).unwrap_or(Self::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub struct Failure {
    /// What the process exits with.
    pub exit: Exit,
    /// One sentence, without the full stop.
    pub message: String,
}

impl Failure {
    /// It could not be done.
    pub fn failed(message: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, message: message.into() }
    }

    /// It was asked for in a wrong way.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, message: message.into() }
    }

    /// It is not safe, or not agreed on.
    pub fn unsafe_to(message: impl Into<String>) -> Self {
        Self { exit: Exit::Unsafe, message: message.into() }
    }

    /// The same for a command that was asked a question: what cannot be read cannot be told. What was asked in a wrong way
    /// stays that.
    #[must_use]
    pub fn unknown(self) -> Self {
        match self.exit {
            Exit::Usage => self,
            Exit::Ok | Exit::Failed | Exit::Unsafe | Exit::Unknown => Self { exit: Exit::Unknown, ..self },
        }
    }

    /// It could not be done, for this reason and those behind it.
    pub fn because(error: &dyn std::error::Error) -> Self {
        Self::failed(chain(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An error and everything behind it, on one line. Errors never repeat their sources.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
