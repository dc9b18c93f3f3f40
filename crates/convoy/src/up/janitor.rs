//! Removes the directory of `convoy up --ephemeral` however that process ends: it holds an administrator's keys, and a
//! process that is killed removes nothing.
//!
//! # Flow
//! A second process of the same binary waits for the end of its standard input, which only the first one holds open.

use std::{
    io::Read,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use clap::Args;

use crate::failure::Failure;

/// The command, which nobody else needs.
pub const COMMAND: &str = "janitor";

/// What the names of such directories begin with.
pub const PREFIX: &str = "convoy-";

/// What the other process is told.
#[derive(Debug, Args)]
pub struct JanitorFlags {
    /// The directory to remove
    folder: PathBuf,
}

/// The other process, as long as it has nothing to do.
pub struct Janitor(Child);

impl Janitor {
    /// Has a directory removed when this process is gone. Without it the directory stays if this process is killed.
    pub fn of(folder: &Path) -> Option<Self> {
        let started = std::env::current_exe().and_then(|binary| {
            let mut command = Command::new(binary);
            command.arg(COMMAND).arg(folder).stdin(Stdio::piped());
            // Ctrl-C is not for it.
            command.stdout(Stdio::null()).stderr(Stdio::null()).process_group(0).spawn()
        });
        match started {
            Ok(child) => Some(Self(child)),
            Err(error) => {
                tracing::warn!(%error, "a process that is killed will leave its keys in {}", folder.display());
                None
            }
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Waits, and removes the directory if it is still there.
pub fn run(flags: &JanitorFlags) -> Result<(), Failure> {
    let is_ours = flags.folder.file_name().is_some_and(|it| it.to_string_lossy().starts_with(PREFIX));
    if !is_ours || !flags.folder.join("up.lock").exists() {
        return Err(Failure::usage(format!("{} was not made by `convoy up`", flags.folder.display())));
    }
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    match std::fs::remove_dir_all(&flags.folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::failed(format!("cannot remove {}: {error}", flags.folder.display())))
        }
        _ => Ok(()),
    }
}
