//! Where log lines go and how they look.

use std::io::IsTerminal;

use tracing_subscriber::{EnvFilter, fmt};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Volume {
    /// Only what somebody should look at.
    Quiet,
    /// `-v`, as in kube-apiserver: 0 is the ordinary, 2 and more is for finding errors, 6 and more shows everything.
    Level(u8),
}

/// Sends log lines to standard error from now on. Only the first call counts.
pub fn start(format: LogFormat, volume: Volume) {
    let level = match volume {
        Volume::Quiet => "warn",
        Volume::Level(0 | 1) => "info",
        Volume::Level(2..=5) => "debug",
        Volume::Level(_) => "trace",
    };
    // The libraries below say much that nobody needs before the highest levels.
    let libraries = if matches!(volume, Volume::Level(8..)) { "debug" } else { "warn" };
    let filter = format!(
        "{level},hyper={libraries},hyper_util={libraries},h2={libraries},rustls={libraries},tower={libraries},\
         tonic={libraries},tokio_rustls={libraries},mio={libraries}"
    );
    let builder = fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).with_target(false).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging was started before");
    }
}
