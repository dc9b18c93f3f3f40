//! `cargo xtask bench` runs this: reads the options, measures, prints the table.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool talks to its terminal")]

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use testkit::bench::{self, Plan, ceiling};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut plan = Plan { convoy: PathBuf::new(), etcd: false, seconds: 5, objects: 50_000, only: None };
    let mut json = false;
    while let Some(option) = args.next() {
        let mut value = || args.next().with_context(|| format!("{option} wants a value"));
        match option.as_str() {
            "--serve-constant" => return ceiling::serve(&PathBuf::from(value()?)).await,
            "--convoy" => plan.convoy = value()?.into(),
            "--etcd" => plan.etcd = true,
            "--seconds" => plan.seconds = value()?.parse().context("--seconds")?,
            "--objects" => plan.objects = value()?.parse().context("--objects")?,
            "--only" => plan.only = Some(value()?),
            "--json" => json = true,
            other => bail!("no option `{other}`"),
        }
    }
    let table = bench::run(&plan, |step| eprintln!("… {step}")).await?;
    if json {
        println!("{:#}", table.to_json());
    } else {
        println!("{table}");
        // Figures from a machine that was busy with something else say little.
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        println!("load average at the end: {}", load.trim());
    }
    Ok(())
}
