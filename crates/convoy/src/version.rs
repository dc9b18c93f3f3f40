//! `convoy version`.

use crate::{cli::say, failure::Failure};

/// How the version is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum VersionFormat {
    /// One line.
    Text,
    /// An object.
    Json,
}

/// The flags of `convoy version`.
#[derive(Debug, clap::Args)]
pub struct VersionFlags {
    /// How to show it.
    #[arg(short, long, value_enum, default_value = "text")]
    output: VersionFormat,
}

/// One line: this build, and the releases it can be.
pub fn line() -> String {
    let (first, last) = (catalog::FIRST_RELEASE, catalog::LAST_RELEASE);
    format!("{} (Kubernetes {last}, emulates {first} to {last})", env!("CARGO_PKG_VERSION"))
}

/// Says it.
pub fn run(flags: &VersionFlags) -> Result<(), Failure> {
    match flags.output {
        VersionFormat::Text => say(&format!("convoy {}\n", line())),
        VersionFormat::Json => {
            let document = serde_json::json!({
                "version": env!("CARGO_PKG_VERSION"),
                "kubernetes": catalog::LAST_RELEASE.to_string(),
                "firstEmulated": catalog::FIRST_RELEASE.to_string(),
            });
            say(&format!("{document}\n"));
        }
    }
    Ok(())
}
