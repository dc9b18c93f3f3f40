//! `convoy rollout`: rolls the servers of a running `convoy up` to another release, one by one, or back.

use std::path::PathBuf;

use clap::Args;
use meta::Release;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::UnixStream,
};

use crate::{
    cli::say,
    cluster::block_on,
    failure::{Exit, Failure},
    flags::parse_release,
    storage::DEFAULT_DATA_DIR,
    up::control::{self, Line, Request},
};

/// The flags of `convoy rollout`.
#[derive(Debug, Args)]
pub struct RolloutFlags {
    /// The release to roll to, newer or older
    #[arg(long, value_name = "X.Y", value_parser = parse_release)]
    to: Release,

    /// The data directory of the `convoy up` that runs
    #[arg(long, value_name = "DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
}

/// Asks for it, and shows how it goes.
pub fn run(flags: &RolloutFlags) -> Result<(), Failure> {
    block_on(async {
        let path = control::socket(&flags.data_dir);
        let mut stream = UnixStream::connect(&path).await.map_err(|it| {
            Failure::failed(format!(
                "no `convoy up` answers at {}: {it}; start it, or name its --data-dir",
                path.display()
            ))
        })?;
        let request = Request { to: flags.to.to_string() };
        let mut text = serde_json::to_string(&request).map_err(|it| Failure::because(&it))?;
        text.push('\n');
        stream.write_all(text.as_bytes()).await.map_err(|it| Failure::because(&it))?;
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next_line().await.map_err(|it| Failure::because(&it))? {
            let Line { text, exit } = serde_json::from_str(&line).map_err(|it| Failure::because(&it))?;
            match exit.map(Exit::of) {
                None => say(&format!("{text}\n")),
                Some(Exit::Ok) => {
                    say(&format!("{text}\n"));
                    return Ok(());
                }
                Some(exit) => return Err(Failure { exit, message: text }),
            }
        }
        Err(Failure::failed("`convoy up` ended in the middle"))
    })
}
