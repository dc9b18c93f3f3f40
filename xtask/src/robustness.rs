//! `cargo xtask robustness`: the long form of the suite in `crates/convoy/tests/it/robustness`.
//!
//! Each store has two clusters, processes and servers in one process; the minutes of a store are shared between them.

use anyhow::{Context, Result, bail};

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
    let mut args = args.iter();
    while let Some(option) = args.next() {
        if option == "--unfenced" {
            wish.filter = "robustness::fence::";
            continue;
        }
        let value = args.next().with_context(|| format!("{option} wants a value"))?;
        match (option.as_str(), value.as_str()) {
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
        let wish = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            parse(&words).unwrap()
        };
        assert_eq!(wish(""), Wish { filter: "robustness::e", minutes: 60, seed: 1 });
        let etcd = Wish { filter: "robustness::etcd::", minutes: 5, seed: 9 };
        assert_eq!(wish("--store etcd --minutes 5 --seed 9"), etcd);
        assert_eq!(wish("--unfenced").filter, "robustness::fence::");
        assert!(parse(&["--store".to_owned(), "paper".to_owned()]).is_err());
    }
}
