//! `cargo xtask robustness`: the long form of the suite in `crates/convoy/tests/it/robustness`.
//!
//! Each store has two clusters, processes and servers in one process; the minutes of a store are shared between them.

use anyhow::{Context, Result, bail, ensure};

use crate::run::{self, cargo};
use crate::test::Tools;

/// Clusters that are run one after the other for a store.
const CLUSTERS: u64 = 2;

#[derive(Debug, PartialEq, Eq)]
struct Wish {
    filter: &'static str,
    /// For each store.
    minutes: u64,
    seed: u64,
}

/// Runs what is asked for.
pub fn suite(args: &[String]) -> Result<()> {
    let Wish { filter, minutes, seed } = parse(args)?;
    let tools = Tools::find();
    tools.report_missing();
    println!("robustness: {filter} for {minutes} minutes each store, seed {seed}");
    let mut command = cargo();
    command
        .args(["test", "--release", "--locked", "-p", "convoy", "--test", "it"])
        .args(["--", filter, "--nocapture", "--test-threads=1"])
        .env("CONVOY_SOAK_SEED", seed.to_string())
        .env("CONVOY_SOAK_MINUTES", minutes.div_ceil(CLUSTERS).to_string());
    tools.give_to(&mut command);
    run::run(&mut command)
}

fn parse(args: &[String]) -> Result<Wish> {
    let mut wish = Wish { filter: "robustness::e", minutes: 60, seed: 1 };
    let has_removals = args.iter().any(|it| it == "--removals");
    if has_removals {
        wish.filter = "robustness::removals::";
    }
    if args.iter().any(|it| it == "--unfenced") {
        ensure!(!has_removals, "--unfenced is about puts, --removals about removals: one at a time");
        // Its servers have an embedded store in the test's own process.
        let has_store = args.iter().any(|it| it == "--store");
        ensure!(!has_store, "--unfenced has a store of its own: leave --store out");
        wish.filter = "robustness::fence::";
    }
    let mut args = args.iter().filter(|it| !["--unfenced", "--removals"].contains(&it.as_str()));
    while let Some(option) = args.next() {
        let value = args.next().with_context(|| format!("{option} wants a value"))?;
        match (option.as_str(), value.as_str()) {
            ("--store", "embedded") if has_removals => wish.filter = "robustness::removals::embedded::",
            ("--store", "etcd") if has_removals => wish.filter = "robustness::removals::etcd::",
            ("--store", "both") if has_removals => {}
            ("--store", "embedded") => wish.filter = "robustness::embedded::",
            ("--store", "etcd") => wish.filter = "robustness::etcd::",
            ("--store", "both") => wish.filter = "robustness::e",
            ("--minutes", number) => wish.minutes = number.parse().context("--minutes")?,
            ("--seed", number) => wish.seed = number.parse().context("--seed")?,
            (option, value) => bail!("no option `{option} {value}`"),
        }
    }
    Ok(wish)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_runs() {
        let parsed = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words)
        };
        let wish = |text: &str| parsed(text).unwrap();
        assert_eq!(wish(""), Wish { filter: "robustness::e", minutes: 60, seed: 1 });
        let etcd = Wish { filter: "robustness::etcd::", minutes: 5, seed: 9 };
        assert_eq!(wish("--store etcd --minutes 5 --seed 9"), etcd);
        assert_eq!(wish("--unfenced").filter, "robustness::fence::");
        assert_eq!(wish("--seed 9 --unfenced").seed, 9);
        assert_eq!(wish("--removals --minutes 5").filter, "robustness::removals::");
        assert_eq!(wish("--store etcd --removals").filter, "robustness::removals::etcd::");
        assert_eq!(wish("--removals --store both").filter, "robustness::removals::");
        let wrongs = [
            "--store paper",
            "--unfenced --store etcd",
            "--store embedded --unfenced",
            "--removals --unfenced",
            "--seed",
        ];
        for wrong in wrongs {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
