//! How `convoy rollout` reaches a running `convoy up`: a socket in its data directory that only its user can open.
//!
//! One line of JSON is asked, lines of JSON are answered until the connection ends.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use meta::Release;
use parking_lot::Mutex;
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
    pub(super) teller: Teller,
}

/// Where orders go; there is one at a time.
#[derive(Clone)]
pub(super) struct Orders {
    sender: mpsc::UnboundedSender<Order>,
    under_way: Arc<Mutex<Option<Release>>>,
}

/// Tells whoever asked; they may have gone.
pub(super) struct Teller {
    lines: mpsc::UnboundedSender<Line>,
    turn: Turn,
}

/// Others are refused until it is dropped.
struct Turn(Arc<Mutex<Option<Release>>>);

impl Drop for Turn {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}

impl Teller {
    pub(super) fn say(&self, text: impl Into<String>) {
        let _ = self.lines.send(Line { text: text.into(), exit: None });
    }

    /// The last word; by then the next one may be ordered.
    pub(super) fn end(self, text: impl Into<String>, exit: Exit) {
        let Self { lines, turn } = self;
        drop(turn);
        let _ = lines.send(Line { text: text.into(), exit: Some(exit.code()) });
    }

    /// Whether nobody listens any more.
    pub(super) fn is_alone(&self) -> bool {
        self.lines.is_closed()
    }
}

impl Orders {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<Order>) {
        let (sender, orders) = mpsc::unbounded_channel();
        (Self { sender, under_way: Arc::default() }, orders)
    }

    /// Hands an order on, if there is no other; what happens is told to `lines`.
    fn take(&self, to: Release, lines: mpsc::UnboundedSender<Line>) {
        let turn = {
            let mut under_way = self.under_way.lock();
            if let Some(other) = *under_way {
                let text = format!("a rollout to {other} is under way; wait until it has ended");
                let _ = lines.send(Line { text, exit: Some(Exit::Failed.code()) });
                return;
            }
            *under_way = Some(to);
            Turn(Arc::clone(&self.under_way))
        };
        let _ = self.sender.send(Order { to, teller: Teller { lines, turn } });
    }
}

/// Where the socket of a data directory is.
pub(crate) fn socket(data_dir: &Path) -> PathBuf {
    data_dir.join("up.sock")
}

/// Listens. Whoever left a socket behind is gone: the directory is locked by us.
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
pub(super) async fn serve(listener: UnixListener, orders: Orders) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(answer(stream, orders.clone()))),
            Err(_) => tokio::time::sleep(AFTER_A_FAILURE).await,
        }
    }
}

/// Answers one request, until its end or until whoever asked has gone.
async fn answer(mut stream: UnixStream, orders: Orders) -> Option<()> {
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader.take(MAX_REQUEST));
    let mut text = String::new();
    reader.read_line(&mut text).await.ok()?;
    let (sender, mut lines) = mpsc::unbounded_channel();
    let wrong = |text: String| Line { text, exit: Some(Exit::Usage.code()) };
    match serde_json::from_str::<Request>(&text).map_err(|it| it.to_string()) {
        Ok(request) => match parse_release(&request.to) {
            Ok(to) => orders.take(to, sender),
            Err(why) => drop(sender.send(wrong(why))),
        },
        Err(why) => drop(sender.send(wrong(why))),
    }
    let told = async {
        while let Some(line) = lines.recv().await {
            let mut text = serde_json::to_string(&line).ok()?;
            text.push('\n');
            writer.write_all(text.as_bytes()).await.ok()?;
        }
        Some(())
    };
    tokio::select! {
        told = told => told,
        // Nobody has more to ask: the end of what is asked is the end of the connection.
        _ = reader.read_u8() => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// Asks for a release; the first line of the answer.
    async fn order(path: &Path, to: &str) -> (Option<Line>, UnixStream) {
        let mut stream = UnixStream::connect(path).await.unwrap();
        let request = format!("{}\n", serde_json::json!({"to": to}));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        let mut reader = BufReader::new(&mut stream);
        let told = reader.read_line(&mut text);
        let told = tokio::time::timeout(std::time::Duration::from_millis(200), told).await;
        (told.ok().map(|_| serde_json::from_str(&text).unwrap()), stream)
    }

    #[tokio::test]
    async fn there_is_one_rollout_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = socket(folder.path());
        let (orders, mut ordered) = Orders::new();
        let serve = tokio::spawn(serve(listen(&path).unwrap(), orders));
        let (said, _first) = order(&path, "1.35").await;
        assert!(said.is_none(), "{said:?}");
        let Order { to, teller } = ordered.recv().await.unwrap();
        assert_eq!(to.to_string(), "1.35");
        let (said, _) = order(&path, "1.36").await;
        let said = said.unwrap();
        assert_eq!(
            (said.exit, said.text.contains("a rollout to 1.35 is under way")),
            (Some(1), true),
            "{said:?}"
        );
        assert!(ordered.try_recv().is_err(), "it is not done later");
        teller.end("done", Exit::Ok);

        let (_, second) = order(&path, "1.36").await;
        let Order { teller, .. } = ordered.recv().await.unwrap();
        assert!(!teller.is_alone());
        drop(second);
        while !teller.is_alone() {
            tokio::task::yield_now().await;
        }
        serve.abort();
    }

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
