//! `convoy bench`: how fast an API server is, whoever's it is; two of them side by side with `--against`.
//!
//! Everything is made in a namespace of its own and with definitions of its own, and removed in the end.
//! Deliberately not here: what the figures should be (`cargo xtask bench` holds Convoy against its aims).

mod endpoint;
mod measure;
mod own;
mod report;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::{
    cli::{note, say},
    cluster::ClusterFlags,
    duration::GoDuration,
    failure::Failure,
    flags::EtcdFlags,
    machine,
    output::Output,
    serve::Signals,
};
use endpoint::Endpoint;
use own::Own;
use report::{Column, Report};

/// The flags of `convoy bench`.
#[derive(Debug, Args)]
pub struct BenchFlags {
    /// Measure the cluster of this kubeconfig, too, and show both side by side
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// The context of that kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", requires = "against")]
    against_context: Option<String>,

    /// Start a server for the time of the measurement, on an empty temporary directory or on --etcd-servers below a fresh
    /// prefix that begins with --etcd-prefix, instead of asking one that runs
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    start: bool,

    /// Measure only these
    #[arg(long, value_enum, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<Measure>,

    /// How long each load runs
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    duration: GoDuration,

    /// Connections at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    connections: u64,

    /// Objects of 1 KB that are listed and migrated
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(10..))]
    objects: u64,

    /// Clients that watch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    watchers: u64,

    /// Custom resource definitions that are installed
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=5_000))]
    definitions: u64,

    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// The cluster of this kubeconfig [default: $KUBECONFIG, ~/.kube/config, or the pod's own]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    #[command(flatten)]
    etcd: EtcdFlags,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measure {
    /// From the start of a process to its readiness, and its memory (only with --start)
    Start,
    /// One object
    Get,
    /// A list of --objects
    List,
    /// New objects
    Create,
    /// Objects replaced
    Update,
    /// Objects changed by merge patches
    Patch,
    /// --objects deleted one by one
    Delete,
    /// --objects removed by the garbage collector after their owner was deleted
    Collect,
    /// From a write to its event at every watcher
    Watch,
    /// Definitions, until all of them are established and found by discovery
    Definitions,
    /// Objects asked for through a server that does not have them (only with --start)
    Proxied,
    /// Stored objects brought into another version
    Migration,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Size {
    time: std::time::Duration,
    connections: u64,
    objects: u64,
    watchers: u64,
    definitions: u64,
}

/// Measures and shows it.
pub fn run(flags: &BenchFlags) -> Result<(), Failure> {
    if !flags.start && !flags.etcd.etcd_servers.is_empty() {
        return Err(Failure::usage("--etcd-servers is for a server that bench starts: add --start"));
    }
    // Every watcher is a connection.
    machine::raise_open_files();
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|it| Failure::failed(format!("cannot start threads: {it}")))?;
    let report = runtime.block_on(measured(flags));
    runtime.shutdown_background();
    let report = report?;
    say(&flags.output.document(&report.document()).unwrap_or_else(|| report.table()));
    Ok(())
}

/// However it ends, what was made is removed.
async fn measured(flags: &BenchFlags) -> Result<Report, Failure> {
    let mut signals = Signals::new()?;
    let mut stage = Stage::default();
    let report = tokio::select! {
        report = stage.play(flags) => report,
        () = signals.next() => Err(Failure::failed("told to stop")),
    };
    let cleaned = tokio::select! {
        cleaned = stage.clean_up() => cleaned,
        () = signals.next() => Err(Failure::failed("told to stop twice: what was made may be left")),
    };
    let report = report?;
    cleaned?;
    Ok(report)
}

/// What there is to clean up.
#[derive(Default)]
struct Stage {
    own: Option<Own>,
    endpoints: Vec<Endpoint>,
    /// In so many of them something was made. Elsewhere the namespace may be somebody's.
    n_used: usize,
}

impl Stage {
    async fn play(&mut self, flags: &BenchFlags) -> Result<Report, Failure> {
        let size = Size {
            time: flags.duration.0,
            connections: flags.connections,
            objects: flags.objects,
            watchers: flags.watchers,
            definitions: flags.definitions,
        };
        self.set_up(flags).await?;
        for endpoint in &self.endpoints {
            endpoint.make_namespace().await?;
            self.n_used += 1;
            endpoint.make_objects(size).await?;
        }
        let mut columns: Vec<Column> = self.endpoints.iter().map(Column::new).collect();
        fill(flags, size, self.own.as_ref(), &self.endpoints, &mut columns).await?;
        Ok(Report { columns, seconds: flags.duration.0.as_secs_f64() })
    }

    async fn set_up(&mut self, flags: &BenchFlags) -> Result<(), Failure> {
        if flags.start {
            let own = self.own.insert(Own::launch(&flags.etcd)?);
            own.ready().await?;
            self.endpoints.push(own.endpoint().await?);
        } else {
            let cluster = ClusterFlags::running(flags.kubeconfig.clone(), flags.context.clone());
            self.endpoints.push(Endpoint::of(&cluster).await?);
        }
        if let Some(other) = &flags.against {
            let other = ClusterFlags::running(Some(other.clone()), flags.against_context.clone());
            self.endpoints.push(Endpoint::of(&other).await?);
        }
        Ok(())
    }

    async fn clean_up(self) -> Result<(), Failure> {
        for endpoint in &self.endpoints[..self.n_used] {
            endpoint.clean_up().await;
        }
        match self.own {
            Some(own) => own.clean_up().await,
            None => Ok(()),
        }
    }
}

/// One measurement after the other, each on all endpoints before the next: what else a machine does meets both alike.
async fn fill(
    flags: &BenchFlags,
    size: Size,
    own: Option<&Own>,
    endpoints: &[Endpoint],
    columns: &mut [Column],
) -> Result<(), Failure> {
    let wanted = |it: &Measure| flags.only.is_empty() || flags.only.contains(it);
    for measure in Measure::value_variants().iter().filter(|it| wanted(it)) {
        for (n, endpoint) in endpoints.iter().enumerate() {
            let own = own.filter(|_| n == 0);
            note(&format!("{} on {}", measure.name(), endpoint.name));
            let figures = match measure {
                Measure::Start => own.map(Own::figures).unwrap_or_else(|| measure::skipped(*measure)),
                Measure::Proxied => match own {
                    Some(own) => own.proxied(size).await?,
                    None => measure::skipped(*measure),
                },
                _ => endpoint.measure(*measure, size).await?,
            };
            columns[n].figures.extend(figures);
        }
    }
    Ok(())
}

impl Measure {
    fn name(self) -> String {
        self.to_possible_value().map(|it| it.get_name().to_owned()).unwrap_or_default()
    }
}
