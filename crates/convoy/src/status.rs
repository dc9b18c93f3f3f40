//! `convoy status`: who is a member, and what is agreed on.

mod table;

use std::{io::IsTerminal, time::Duration};

use clap::Args;
use jiff::Timestamp;
use station::{View, view};
use store::SystemClock;

use crate::{
    cli::say,
    cluster::{self, Cluster, ClusterFlags},
    failure::{Exit, Failure},
    output::Output,
};

/// How often `--watch` looks.
const WATCH: Duration = Duration::from_secs(1);

/// The flags of `convoy status`.
#[derive(Debug, Args)]
pub struct StatusFlags {
    #[command(flatten)]
    cluster: ClusterFlags,

    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,

    /// Show it again whenever something changes, until Ctrl-C
    #[arg(short, long)]
    watch: bool,
}

/// Shows it. Exits with 3 while something is not agreed on or a server is refused.
pub fn run(flags: &StatusFlags) -> Result<(), Failure> {
    let view = cluster::block_on(show(flags))?;
    let unsettled = view.resources.iter().filter(|it| it.is_disputed()).count();
    if let Some(refused) = view.refused.first() {
        return Err(Failure::unsafe_to(format!("{} is refused: {}", refused.identity, refused.reason)));
    }
    if unsettled > 0 {
        return Err(Failure::unsafe_to(format!("the servers do not agree on {unsettled} resources")));
    }
    Ok(())
}

async fn show(flags: &StatusFlags) -> Result<View, Failure> {
    let cluster = flags.cluster.open().await?;
    let clock = SystemClock::shared();
    let mut last: Option<View> = None;
    loop {
        let view = read(&cluster).await?;
        if last.as_ref() != Some(&view) {
            if flags.watch && flags.output == Output::Table {
                // Clears the screen, and what scrolled out of it.
                say("\x1b[2J\x1b[3J\x1b[H");
            }
            say(&render(&view, flags.output, clock.now())?);
        }
        if !flags.watch {
            return Ok(view);
        }
        last = Some(view);
        tokio::select! {
            () = clock.sleep(WATCH) => {}
            _ = tokio::signal::ctrl_c() => return last.ok_or_else(|| Failure::failed("nothing was shown")),
        }
    }
}

/// The fleet as its records show it.
pub async fn read(cluster: &Cluster) -> Result<View, Failure> {
    match cluster {
        Cluster::Running(client) => {
            let text = cluster::ask(client, "GET", "/convoy/status", Vec::new()).await?;
            serde_json::from_str(&text).map_err(|it| Failure {
                exit: Exit::Unknown,
                message: format!("the answer is not a status: {it}"),
            })
        }
        Cluster::Stored(storage) => {
            let now = SystemClock::shared().now();
            view::read(&storage.shared(), now).await.map_err(|it| Failure {
                exit: Exit::Unknown,
                message: format!("the records cannot be read: {it}"),
            })
        }
    }
}

fn render(view: &View, output: Output, now: Timestamp) -> Result<String, Failure> {
    let document = serde_json::to_value(view).map_err(|it| Failure::because(&it))?;
    Ok(output.document(&document).unwrap_or_else(|| table::render(view, now, has_colour())))
}

fn has_colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty())
}
