//! Repository chores, as programs: `cargo xtask` runs them, the same on a desk and in CI.
//!
//! Start at [`main`]: one line per command. What is deliberately not here: anything the server needs
//! at run time, and any dependency beyond reading JSON. Nothing is installed into the system; tools
//! that are missing go under `target/tools`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its terminal")]

mod advisories;
mod bench;
mod checksum;
mod ci;
mod clients;
mod deny;
mod etcd;
mod flags;
mod fuzz;
mod layers;
mod lock;
mod metadata;
mod release;
mod robustness;
mod run;
mod soak;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "usage: cargo xtask COMMAND

  ci                            everything below that a change must pass, cheapest first
  fmt-check                     rustfmt, without writing
  tidy                          repository rules that no compiler knows
  layers                        the arrows between crates, against ARCHITECTURE.md
  deny                          licences, banned crates and known faults of crates
  clippy                        lints over all targets, warnings are errors
  doc                           rustdoc, warnings are errors
  advisories DIR                writes xtask/data/advisories.txt from a checkout of the RustSec advisory database
  sbom                          writes the bill of materials of the binary (CycloneDX) to target/release-artifacts
  release                       builds the binary and puts it there, with its bill of materials and SHA-256 sums
  etcd                          finds a real etcd or puts one under target/tools; prints its path
  flags                         writes docs/flags.md from what every command's --help says
  test [FILTER]                 all tests: etcd, kubectl, Python and Node clients included
  soak [NAME] [--rounds N | --minutes N] [--seed N]
                                the long form of a named test; without a name: the list
  robustness [--store embedded|etcd|both] [--minutes N] [--seed S] [--unfenced|--removals]
                                clients and faults against every promise; without the fence it must fail
  fuzz [TARGET] [--seconds N]   runs the fuzz targets; needs cargo-fuzz
  bench [--seconds N] [--objects N] [--json]
        [--only start|load|objects|custom|fleet|proxied|migration|etcd|fanout|memory]
                                the table of speeds and sizes, each with its target";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<()> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match command {
        "ci" => ci::all(),
        "fmt-check" => ci::fmt_check(),
        "tidy" => tidy::check(),
        "layers" => layers::check(),
        "deny" => deny::check(),
        "advisories" => advisories::refresh(rest),
        "sbom" => release::sbom(),
        "release" => release::all(),
        "clippy" => ci::clippy(),
        "doc" => ci::doc(),
        "etcd" => etcd::print(),
        "flags" => flags::write(),
        "test" => test::all(rest),
        "soak" => soak::one(rest),
        "robustness" => robustness::suite(rest),
        "fuzz" => fuzz::targets(rest),
        "bench" => bench::table(rest),
        "help" | "-h" | "--help" => {
            println!("{USAGE}");
            Ok(())
        }
        other => bail!("no command `{other}`\n\n{USAGE}"),
    }
}
