//! A TCP proxy between store and etcd that can cut every connection, swallow etcd's answers, and hold requests back.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

pub struct Proxy {
    port: u16,
    state: watch::Sender<State>,
    held: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Default, PartialEq)]
struct State {
    /// Connections of an earlier epoch are cut.
    epoch: u64,
    is_mute: bool,
    holds: Holds,
}

/// What becomes of what clients send.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Holds {
    #[default]
    Nothing,
    /// It is kept.
    Requests,
    /// What was kept stays; what comes now is dropped.
    Sealed,
    /// What was kept goes to etcd.
    Delivered,
}

impl Proxy {
    /// Forwards to a port on this machine, until dropped.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (state, watched) = watch::channel(State::default());
        let held = Arc::new(AtomicUsize::new(0));
        tokio::spawn(accept(listener, port, watched, Arc::clone(&held)));
        Self { port: own, state, held }
    }

    /// From now on requests are kept here.
    pub fn hold(&self) {
        self.state.send_modify(|it| it.holds = Holds::Requests);
    }

    /// How many bytes are kept.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    /// What is kept is all: nothing more is taken, such as the news that nobody waits for an answer.
    pub fn seal(&self) {
        self.state.send_modify(|it| it.holds = Holds::Sealed);
    }

    /// What was kept arrives.
    pub fn deliver(&self) {
        self.state.send_modify(|it| it.holds = Holds::Delivered);
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections; new ones are forwarded again.
    pub fn cut(&self) {
        self.state.send_modify(|it| it.epoch += 1);
    }

    /// From now on answers do not come back.
    pub fn mute(&self) {
        self.state.send_modify(|it| it.is_mute = true);
    }

    /// Answers come back again, on new connections.
    pub fn unmute(&self) {
        self.state.send_modify(|it| *it = State { epoch: it.epoch + 1, ..State::default() });
    }
}

async fn accept(listener: TcpListener, port: u16, mut state: watch::Receiver<State>, held: Arc<AtomicUsize>) {
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                let Ok(etcd) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let epoch = state.borrow().epoch;
                tokio::spawn(forward(client, etcd, epoch, state.clone(), Arc::clone(&held)));
            }
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

async fn forward(
    client: TcpStream,
    etcd: TcpStream,
    epoch: u64,
    mut state: watch::Receiver<State>,
    held: Arc<AtomicUsize>,
) {
    let (from_client, to_client) = client.into_split();
    let (from_etcd, to_etcd) = etcd.into_split();
    let look = state.clone();
    tokio::select! {
        () = send(from_client, to_etcd, state.clone(), &held) => {}
        () = copy(from_etcd, to_client, || !look.borrow().is_mute) => {}
        _ = state.wait_for(|it| it.epoch != epoch) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_open: impl Fn() -> bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        if is_open() && to.write_all(&buffer[..n]).await.is_err() {
            return;
        }
    }
}

/// Passes on what a client sends, as soon as it may arrive.
async fn send(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Receiver<State>,
    held: &AtomicUsize,
) {
    let mut buffer = vec![0; 64 << 10];
    let mut kept = Vec::new();
    let mut deliveries = state.clone();
    loop {
        let read = tokio::select! {
            biased;
            () = delivery(&mut deliveries), if !kept.is_empty() => None,
            read = from.read(&mut buffer) => Some(read.unwrap_or_default()),
        };
        let holds = state.borrow().holds;
        let sent = match (read, holds) {
            (None, _) => to.write_all(&std::mem::take(&mut kept)).await,
            // A client that is gone may have sent something before.
            (Some(0), _) => {
                if !kept.is_empty() {
                    delivery(&mut deliveries).await;
                    let _ = to.write_all(&kept).await;
                    std::future::pending::<()>().await;
                }
                return;
            }
            (Some(n), Holds::Nothing) => to.write_all(&buffer[..n]).await,
            (Some(n), Holds::Requests) => {
                kept.extend_from_slice(&buffer[..n]);
                held.fetch_add(n, Ordering::SeqCst);
                Ok(())
            }
            (Some(_), Holds::Sealed | Holds::Delivered) => Ok(()),
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn delivery(state: &mut watch::Receiver<State>) {
    if state.wait_for(|it| it.holds == Holds::Delivered).await.is_err() {
        std::future::pending::<()>().await;
    }
}
