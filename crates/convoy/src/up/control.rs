//! How `convoy rollout` reaches a running `convoy up`: a socket in its data directory that only its user can open.
//!
//! One line of JSON is asked, lines of JSON are answered until the connection ends.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use meta::Release;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::mpsc,
};

use crate::{failure::Failure, flags::parse_release};

/// A longer request is none.
const MAX_REQUEST: u64 = 4_096;

/// What is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The release to roll to, `1.36`.
    pub(crate) to: String,
}

/// One line of the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    /// What happened, for people.
    pub(crate) text: String,
    /// At the end: the exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) exit: Option<u8>,
}

/// A request that came in, and where its answer goes.
pub(super) struct Order {
    pub(super) to: Release,
    pub(super) answer: mpsc::UnboundedSender<Line>,
}

/// Where the socket of a data directory is.
pub(crate) fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("up.sock")
}

/// Listens. Whoever left a socket behind is gone: the store in the same directory is ours.
pub(super) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let _ = std::fs::remove_file(path);
    let fail = |it: std::io::Error| Failure::failed(format!("cannot listen on {}: {it}", path.display()));
    let listener = UnixListener::bind(path).map_err(fail)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    Ok(listener)
}

/// Hands requests to `orders`, until it is dropped.
pub(super) async fn serve(listener: UnixListener, orders: mpsc::Sender<Order>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(answer(stream, orders.clone()));
    }
}

async fn answer(mut stream: UnixStream, orders: mpsc::Sender<Order>) -> Option<()> {
    let (reader, mut writer) = stream.split();
    let mut text = String::new();
    BufReader::new(reader.take(MAX_REQUEST)).read_line(&mut text).await.ok()?;
    let (sender, mut lines) = mpsc::unbounded_channel();
    let wrong = |text: String| Line { text, exit: Some(2) };
    match serde_json::from_str::<Request>(&text).map_err(|it| it.to_string()) {
        Ok(request) => match parse_release(&request.to) {
            Ok(to) => orders.send(Order { to, answer: sender }).await.ok()?,
            Err(why) => drop(sender.send(wrong(why))),
        },
        Err(why) => drop(sender.send(wrong(why))),
    }
    while let Some(line) = lines.recv().await {
        let mut text = serde_json::to_string(&line).ok()?;
        text.push('\n');
        writer.write_all(text.as_bytes()).await.ok()?;
    }
    Some(())
}
