//! The commands, and what becomes of what they return.

use std::{
    ffi::OsString,
    io::{self, Write},
};

use clap::{Parser, Subcommand, error::ErrorKind};

use crate::{
    agreement, bench, census, check, failure::Exit, flags::ServeFlags, hold, migrate, remote, rollout, serve,
    snapshot, status, up, version,
};

/// A Kubernetes-compatible API server in one binary.
#[derive(Debug, Parser)]
#[command(name = "convoy", version, max_term_width = 110, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one API server. Flags are called as kube-apiserver's wherever it has one.
    Serve(Box<ServeFlags>),
    /// Run a control plane on this machine, and say how to use it. No flags needed.
    Up(Box<up::UpFlags>),
    /// Roll the servers of a running `convoy up` to another release, one by one, or back. Exits with 3 if that is not safe.
    Rollout(rollout::RolloutFlags),
    /// Show who is a member of a cluster, and the version each resource is stored in. Exits with 3 while something is not
    /// agreed on.
    Status(Box<status::StatusFlags>),
    /// Keep the storage version of resources where it is, or let it go.
    Hold(Box<hold::HoldFlags>),
    /// Count the stored objects of each resource by the version in which they are stored, and say which versions can be
    /// dropped.
    Census(Box<census::CensusFlags>),
    /// Say whether a step is safe: another release, or dropping a version. Exits with 0 if it is, 3 if not, 4 if that could
    /// not be told.
    Check(Box<check::CheckFlags>),
    /// Have stored objects rewritten in the version that is written now, and follow that. Exits with 3 if it was aborted.
    Migrate(Box<migrate::MigrateFlags>),
    /// Run the controllers that migrate stored objects beside any cluster.
    Controllers(Box<remote::ControllersFlags>),
    /// Measure how fast an API server is, or two of them side by side.
    Bench(Box<bench::BenchFlags>),
    /// Show how the servers of a cluster agree, or change it while none runs.
    Agreement(Box<agreement::AgreementFlags>),
    /// Save and restore the embedded store.
    #[command(subcommand)]
    Snapshot(snapshot::SnapshotCommand),
    /// Say which version this is.
    Version(version::VersionFlags),
    /// Remove a directory when standard input ends; for `convoy up --ephemeral`.
    #[command(hide = true, name = up::janitor::COMMAND)]
    Janitor(up::janitor::JanitorFlags),
}

/// Runs the command line; says on standard error what went wrong.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Exit {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let result = match cli.command {
        Command::Serve(flags) => serve::run(*flags),
        Command::Up(flags) => up::run(*flags),
        Command::Rollout(flags) => rollout::run(&flags),
        Command::Status(flags) => status::run(&flags),
        Command::Hold(flags) => hold::run(&flags),
        Command::Census(flags) => census::run(&flags),
        Command::Check(flags) => check::run(&flags),
        Command::Migrate(flags) => migrate::run(&flags),
        Command::Controllers(flags) => remote::run(&flags),
        Command::Bench(flags) => bench::run(&flags),
        Command::Agreement(flags) => agreement::run(&flags),
        Command::Snapshot(command) => snapshot::run(command),
        Command::Version(flags) => version::run(&flags),
        Command::Janitor(flags) => up::janitor::run(&flags),
    };
    match result {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            complain(&failure.to_string());
            failure.exit
        }
    }
}

/// Writes to standard output, where a closed pipe is no error of ours.
pub fn say(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Says how far something is, on standard error, where it is not in the way of what is asked for.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "… {text}");
}

fn complain(message: &str) {
    let _ = writeln!(io::stderr().lock(), "convoy: {message}");
}

/// Help goes to standard output; a wrong command line is one sentence.
fn refuse(error: &clap::Error) -> Exit {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            Exit::Ok
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            Exit::Usage
        }
        _ => {
            complain(&sentence(error));
            Exit::Usage
        }
    }
}

/// The first paragraph of what the parser says, and its tip, on one line.
fn sentence(error: &clap::Error) -> String {
    let text = error.to_string();
    let mut sentence = String::new();
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            break;
        }
        if line.is_empty() {
            continue;
        }
        let line = line.strip_prefix("error: ").unwrap_or(line);
        match (sentence.is_empty(), line.strip_prefix("tip: ")) {
            (true, _) => sentence.push_str(line),
            (false, Some(tip)) => sentence.push_str(&format!("; {tip}")),
            (false, None) => sentence.push_str(&format!(" {line}")),
        }
    }
    format!("{sentence} (--help explains every flag)")
}

/// Parses a command line as the binary would, for tests.
#[cfg(test)]
pub fn parse_serve(args: &[&str]) -> Result<ServeFlags, crate::failure::Failure> {
    use crate::failure::Failure;
    let args = ["convoy", "serve"].iter().chain(args).map(OsString::from);
    match Cli::try_parse_from(args).map_err(|it| Failure::usage(sentence(&it)))?.command {
        Command::Serve(flags) => Ok(*flags),
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent_and_every_flag_is_explained() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for command in command.get_subcommands() {
            for flag in command.get_arguments() {
                let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{} {}", command.get_name(), flag.get_id());
            }
        }
    }

    #[test]
    fn a_wrong_command_line_is_one_sentence() {
        let error = parse_serve(&["--secure-prot", "1"]).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        assert_eq!(
            error.message,
            "unexpected argument '--secure-prot' found; a similar argument exists: '--secure-port' \
             (--help explains every flag)"
        );
        for args in [
            &["--secure-port", "x"][..],
            &["--data-dir", "a", "--etcd-servers", "b"],
            &["--event-ttl", "soon"],
        ] {
            let error = parse_serve(args).unwrap_err();
            assert_eq!(error.message.lines().count(), 1, "{error}");
            assert!(error.message.contains(args[0]), "{error}");
        }
    }
}
