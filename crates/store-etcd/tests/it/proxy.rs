//! A TCP proxy between store and etcd that can cut every connection and swallow etcd's answers.

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
}

#[derive(Clone, Copy, Default, PartialEq)]
struct State {
    /// Connections of an earlier epoch are cut.
    epoch: u64,
    is_mute: bool,
}

impl Proxy {
    /// Forwards to a port on this machine, until dropped.
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (state, watched) = watch::channel(State::default());
        tokio::spawn(accept(listener, port, watched));
        Self { port: own, state }
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
        self.state.send_modify(|it| *it = State { epoch: it.epoch + 1, is_mute: false });
    }
}

async fn accept(listener: TcpListener, port: u16, mut state: watch::Receiver<State>) {
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { return };
                let Ok(etcd) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let epoch = state.borrow().epoch;
                tokio::spawn(forward(client, etcd, epoch, state.clone()));
            }
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

async fn forward(client: TcpStream, etcd: TcpStream, epoch: u64, mut state: watch::Receiver<State>) {
    let (from_client, to_client) = client.into_split();
    let (from_etcd, to_etcd) = etcd.into_split();
    let look = state.clone();
    tokio::select! {
        () = copy(from_client, to_etcd, || true) => {}
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
