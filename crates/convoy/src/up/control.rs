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

use super::balance::AFTER_A_FAILURE;
use crate::{
    failure::{Exit, Failure},
    flags::parse_release,
};

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
///
/// The socket is made in a directory that only its owner can enter, and moved when only its owner can open it: others
/// are kept out also of a data directory that they can enter, and at every moment.
pub(super) fn listen(path: &Path) -> Result<UnixListener, Failure> {
    let fail = |it: std::io::Error| Failure::failed(format!("cannot listen on {}: {it}", path.display()));
    let folder = path.parent().unwrap_or(Path::new("."));
    let only_us = std::fs::Permissions::from_mode(0o700);
    let private =
        tempfile::Builder::new().prefix(".up").permissions(only_us).tempdir_in(folder).map_err(fail)?;
    let draft = private.path().join("s");
    let listener = UnixListener::bind(&draft).map_err(fail)?;
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o600)).map_err(fail)?;
    std::fs::rename(&draft, path).map_err(fail)?;
    Ok(listener)
}

/// Hands requests to `orders`, until it is dropped.
pub(super) async fn serve(listener: UnixListener, orders: mpsc::Sender<Order>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, orders.clone()))),
            Err(_) => tokio::time::sleep(AFTER_A_FAILURE).await,
        }
    }
}

async fn answer(mut stream: UnixStream, orders: mpsc::Sender<Order>) -> Option<()> {
    let (reader, mut writer) = stream.split();
    let mut text = String::new();
    BufReader::new(reader.take(MAX_REQUEST)).read_line(&mut text).await.ok()?;
    let (sender, mut lines) = mpsc::unbounded_channel();
    let wrong = |text: String| Line { text, exit: Some(Exit::Usage.code()) };
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[tokio::test]
    async fn only_its_owner_can_open_the_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket(folder.path());
        // One that was left behind is replaced.
        for _ in 0..2 {
            let _listener = listen(&path).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
            assert!(UnixStream::connect(&path).await.is_ok());
            let names: Vec<_> =
                std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
            assert_eq!(names, ["up.sock"]);
        }
    }
}
