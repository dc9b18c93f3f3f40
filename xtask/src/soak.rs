//! The long forms of tests that CI runs in short: `cargo xtask soak NAME`.
//!
//! A test reads how long it should run from the environment (`CONVOY_SOAK_ROUNDS`,
//! `CONVOY_SOAK_SEED`); its short form is what it does without. Add a row to [`SOAKS`] for a new one.

use anyhow::{Context, Result, bail};

use crate::run::{self, cargo};
use crate::test::Tools;

/// One long test.
struct Soak {
    name: &'static str,
    package: &'static str,
    /// What `cargo test` is asked to build: `--test it` or `--lib`.
    target: &'static [&'static str],
    filter: &'static str,
    rounds: u32,
    about: &'static str,
}

const IT: &[&str] = &["--test", "it"];

const SOAKS: &[Soak] = &[
    Soak {
        name: "durability-embedded",
        package: "convoy",
        target: IT,
        filter: "durability::embedded_",
        rounds: 200,
        about: "random load, kill -9, restart: nothing acknowledged is lost (rounds = kills)",
    },
    Soak {
        name: "durability-etcd",
        package: "convoy",
        target: IT,
        filter: "durability::etcd_",
        rounds: 50,
        about: "the same on etcd; server and etcd are killed in turn",
    },
    Soak {
        name: "watch",
        package: "convoy",
        target: IT,
        filter: "watch_soak::",
        rounds: 20_000,
        about: "200 watchers against the store's history, restarts and compactions between (rounds = writes)",
    },
    Soak {
        name: "hostile",
        package: "convoy",
        target: IT,
        filter: "hostile::",
        rounds: 2_000,
        about: "oversized, deep, slow, half-open and mutated requests (rounds = mutated requests)",
    },
    Soak {
        name: "authorization",
        package: "convoy",
        target: IT,
        filter: "what_is_authorized_is_what_is_carried_out",
        rounds: 100_000,
        about: "every resource, path form and verb as each of a dozen tenants, judged by an oracle (rounds = random requests)",
    },
    Soak {
        name: "labels",
        package: "server",
        target: IT,
        filter: "labels::",
        rounds: 400_000,
        about: "requests full of words that clients made up: none becomes a label of a metric (rounds = requests)",
    },
    Soak {
        name: "unread",
        package: "convoy",
        target: IT,
        filter: "limits::unread::clients_that_do_not_read",
        rounds: 4_000,
        about: "answers that nobody reads cost others nothing (rounds = connections)",
    },
    Soak {
        name: "audit",
        package: "convoy",
        target: IT,
        filter: "limits::audit::",
        rounds: 60_000,
        about: "clients that hang up: every stored change has its audit event (rounds = objects)",
    },
    Soak {
        name: "model",
        package: "fleet",
        target: IT,
        filter: "model::",
        rounds: 20_000,
        about: "agreement between servers, every order of steps, then random histories (rounds = histories)",
    },
    Soak {
        name: "fleet-pauses",
        package: "convoy",
        target: IT,
        filter: "fleet::pauses::",
        rounds: 1_000,
        about: "a server sleeps beyond its lease and wakes up writing (rounds = sleeps; CONVOY_SOAK_LEASE=10s for the default)",
    },
    Soak {
        name: "fleet-flips",
        package: "convoy",
        target: IT,
        filter: "flips_under_load",
        rounds: 1_000,
        about: "storage versions of a custom resource flip under load with three servers (rounds = flips)",
    },
    Soak {
        name: "fleet-chaos",
        package: "convoy",
        target: IT,
        filter: "fleet::chaos::",
        rounds: 200,
        about: "three servers crash, sleep, are cut off and change releases under load (rounds = faults)",
    },
    Soak {
        name: "fleet-skew",
        package: "convoy",
        target: IT,
        filter: "servers_come_and_go",
        rounds: 100,
        about: "a server of another release crashes, stops and returns between owners, dependents and namespaces (rounds = returns)",
    },
    Soak {
        name: "fleet-processes",
        package: "convoy",
        target: IT,
        filter: "fleet_processes::processes_die",
        rounds: 200,
        about: "the same with processes on etcd: kill -9, SIGSTOP, other releases (rounds = faults)",
    },
    Soak {
        name: "mixed-versions",
        package: "convoy",
        target: IT,
        filter: "mixed_versions::roll::",
        rounds: 50,
        about: "three servers go from 1.34 to 1.36 and back behind a balancer, with kill -9 and cut connections (rounds = rolls)",
    },
    Soak {
        name: "migration-crash",
        package: "convoy",
        target: IT,
        filter: "migration::crash::",
        rounds: 200,
        about: "the server that migrates crashes at random moments and another one goes on (rounds = flips)",
    },
    Soak {
        name: "migration-many",
        package: "convoy",
        target: IT,
        filter: "migration::many::",
        rounds: 100_000,
        about: "many objects are migrated in flat memory, and the estimate comes true (rounds = objects)",
    },
    Soak {
        name: "large-collection",
        package: "convoy",
        target: IT,
        filter: "large_collection::",
        rounds: 500_000,
        about: "many custom objects through a restart, changed fields and the end of their definition, two servers under load (rounds = objects)",
    },
    Soak {
        name: "rollout",
        package: "convoy",
        target: IT,
        filter: "there_and_back_under_load",
        rounds: 10,
        about: "`convoy up` is rolled from 1.33 to 1.36 one release at a time and back, under load (rounds = times)",
    },
    Soak {
        name: "gc",
        package: "controllers",
        target: IT,
        filter: "random_graphs::",
        rounds: 10_000,
        about: "garbage collection of random graphs against a model, with and without faults (rounds = objects)",
    },
    Soak {
        name: "crd-flips",
        package: "server",
        target: IT,
        filter: "custom::a_put_that_commits_after_a_flip",
        rounds: 200,
        about: "storage versions of a custom resource flip under write load (rounds = flips)",
    },
    Soak {
        name: "definitions",
        package: "server",
        target: IT,
        filter: "custom::many_definitions",
        rounds: 1_000,
        about: "custom resource definitions are established together (rounds = definitions)",
    },
];

/// Runs one, or lists them all.
pub fn one(args: &[String]) -> Result<()> {
    let Some((name, options)) = args.split_first() else {
        return list();
    };
    let soak = SOAKS.iter().find(|it| it.name == name).with_context(|| format!("no soak `{name}`"))?;
    let Wanted { rounds, seed, minutes } = parse(soak, options)?;
    let tools = Tools::find();
    tools.report_missing();
    println!("soak {name}: {rounds} rounds, seed {seed}");
    let mut command = cargo();
    command
        .args(["test", "--release", "--locked", "-p", soak.package])
        .args(soak.target)
        .args(["--", soak.filter, "--nocapture", "--test-threads=1"])
        .env("CONVOY_SOAK", "1")
        .env("CONVOY_SOAK_ROUNDS", rounds.to_string())
        .env("CONVOY_SOAK_SEED", seed.to_string());
    if let Some(minutes) = minutes {
        command.env("CONVOY_SOAK_MINUTES", minutes.to_string());
    }
    tools.give_to(&mut command);
    run::run(&mut command)?;
    println!("soak {name}: passed; again with: cargo xtask soak {name} --rounds {rounds} --seed {seed}");
    Ok(())
}

fn list() -> Result<()> {
    for Soak { name, rounds, about, .. } in SOAKS {
        println!("{name:<22} {rounds:>6} rounds  {about}");
    }
    Ok(())
}

/// How long a soak runs, and from which seed.
struct Wanted {
    rounds: u32,
    seed: u64,
    /// Instead of the rounds, for soaks that can be measured in time.
    minutes: Option<u32>,
}

fn parse(soak: &Soak, options: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted { rounds: soak.rounds, seed: 1, minutes: None };
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let value = options.next().with_context(|| format!("{option} wants a number"))?;
        match option.as_str() {
            "--rounds" => wanted.rounds = value.parse().context("--rounds")?,
            "--seed" => wanted.seed = value.parse().context("--seed")?,
            "--minutes" => wanted.minutes = Some(value.parse().context("--minutes")?),
            other => bail!("no option `{other}`"),
        }
    }
    Ok(wanted)
}
