//! A real etcd for tests: finds the program, starts members on free ports in a temporary directory (with
//! fsync, so that killing one proves something), kills, stops, pauses and restarts them.
//! Deliberately not here: any client.

use std::{
    env,
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::ports::free_ports;

const START_LIMIT: Duration = Duration::from_secs(30);
/// Another process may take a port between our finding it free and etcd's taking it.
const TRIES: usize = 3;

/// One member. Killed when dropped.
#[derive(Debug)]
pub struct Etcd {
    plan: Plan,
    child: Option<Child>,
    dir: TempDir,
}

/// Certificates for etcd's client port; clients must then show one of the same authority.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authority, PEM.
    pub ca: PathBuf,
    /// etcd's certificate for 127.0.0.1, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
}

/// How a member is started, the same at every restart.
#[derive(Clone, Debug)]
struct Plan {
    program: PathBuf,
    name: String,
    client: u16,
    peer: u16,
    /// Health is asked here, without TLS.
    metrics: u16,
    cluster: String,
    tls: Option<EtcdTls>,
    extra: Vec<String>,
}

/// The program: `CONVOY_ETCD`, else `etcd` on the PATH, else `target/tools/etcd/etcd`.
pub fn find() -> Option<PathBuf> {
    if let Some(given) = env::var_os("CONVOY_ETCD") {
        return Some(given.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|it| it.join("etcd"));
    let target = match env::var_os("CARGO_TARGET_DIR") {
        Some(it) => PathBuf::from(it),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"),
    };
    on_path.chain([target.join("tools/etcd/etcd")]).find(|it| it.is_file())
}

/// Whether tests have to go on without etcd. Says so loudly.
///
/// # Panics
/// When there is no etcd and nobody allowed that with `CONVOY_SKIP_ETCD=1`.
pub fn is_missing() -> bool {
    if find().is_some() {
        return false;
    }
    let text = "no etcd found (CONVOY_ETCD, PATH, target/tools/etcd/etcd; `cargo xtask test` fetches one)";
    assert!(
        env::var("CONVOY_SKIP_ETCD").is_ok_and(|it| it == "1"),
        "{text}; CONVOY_SKIP_ETCD=1 skips the test"
    );
    // Past the capture of test output: nobody may take this for a test that ran.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {text}");
    true
}

/// `etcdctl` of the etcd that tests run: beside it, else on the PATH.
pub fn find_control() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path).map(|it| it.join("etcdctl"));
    let beside = find().map(|it| it.with_file_name("etcdctl"));
    beside.into_iter().chain(on_path).find(|it| it.is_file())
}

impl Etcd {
    /// One member with an empty store.
    pub async fn start() -> Result<Self> {
        Self::start_with(None, &[]).await
    }

    /// One member whose clients use TLS.
    pub async fn start_tls(tls: EtcdTls) -> Result<Self> {
        Self::start_with(Some(tls), &[]).await
    }

    /// One member with more flags, such as a small quota.
    pub async fn start_with(tls: Option<EtcdTls>, extra: &[&str]) -> Result<Self> {
        let mut last = None;
        for _ in 0..TRIES {
            let mut plan = Plan::new("one", tls.clone(), extra)?;
            plan.cluster = plan.peer_entry();
            let mut etcd = Self { plan, child: None, dir: tempfile::tempdir()? };
            match etcd.restart().await {
                Ok(()) => return Ok(etcd),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("at least one try")?)
    }

    /// Several members of one cluster.
    pub async fn start_cluster(size: usize) -> Result<Vec<Self>> {
        let mut plans =
            (0..size).map(|n| Plan::new(&format!("m{n}"), None, &[])).collect::<Result<Vec<_>>>()?;
        let cluster = plans.iter().map(Plan::peer_entry).collect::<Vec<_>>().join(",");
        let mut members = Vec::new();
        for plan in &mut plans {
            plan.cluster.clone_from(&cluster);
            let mut member = Self { plan: plan.clone(), child: None, dir: tempfile::tempdir()? };
            member.spawn()?;
            members.push(member);
        }
        for member in &mut members {
            member.wait_ready().await?;
        }
        Ok(members)
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        self.plan.client_url()
    }

    /// The port clients connect to, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.plan.client
    }

    /// Everything the member remembers.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Kills the member as a crash would; nothing is flushed.
    pub fn kill9(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts the member again, on the same data and ports; kills it first if it runs.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.spawn()?;
        self.wait_ready().await
    }

    /// Starts the member again without waiting until it serves.
    pub fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = Command::new(&self.plan.program);
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
            command.env_remove(name);
        }
        command.args(self.plan.args()).arg("--data-dir").arg(self.data_dir());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child =
            command.spawn().with_context(|| format!("cannot start {}", self.plan.program.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the member serves linearizable reads.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let ready = async {
            while !is_healthy(self.plan.metrics).await {
                let child = self.child.as_mut().context("etcd was not started")?;
                if let Some(status) = child.try_wait()? {
                    bail!("etcd ended with {status}");
                }
                sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let done = timeout(START_LIMIT, ready).await.context("etcd did not get ready").flatten();
        done.with_context(|| format!("etcd said: {}", tail(&self.log())))
    }

    /// Freezes the member: its connections stay open and nothing answers.
    pub fn pause(&self) -> Result<()> {
        self.signal("-STOP")
    }

    /// Lets a frozen member go on.
    pub fn resume(&self) -> Result<()> {
        self.signal("-CONT")
    }

    /// What the member counts under this name and these labels, such as
    /// `grpc_server_started_total{grpc_method="Range"`; zero if nothing.
    pub async fn metric(&self, start: &str) -> Result<f64> {
        let text = ask(self.plan.metrics, "/metrics").await?;
        let line = text.lines().find(|it| it.starts_with(start));
        Ok(line.and_then(|it| it.rsplit(' ').next()).and_then(|it| it.parse().ok()).unwrap_or_default())
    }

    /// Whether the member leads the others; false if it does not say.
    pub async fn is_leader(&self) -> bool {
        let asked = timeout(Duration::from_secs(2), self.metric("etcd_server_is_leader")).await;
        matches!(asked, Ok(Ok(it)) if it > 0.5)
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let child = self.child.as_ref().context("etcd does not run")?;
        let status = Command::new("kill").arg(signal).arg(child.id().to_string()).status()?;
        ensure!(status.success(), "kill {signal} ended with {status}");
        Ok(())
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("etcd.log")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // A child that is gone already is what we want.
        let _ = self.kill9();
    }
}

impl Plan {
    fn new(name: &str, tls: Option<EtcdTls>, extra: &[&str]) -> Result<Self> {
        let program = find().context("no etcd found")?;
        let [client, peer, metrics] = free_ports()?;
        let extra = extra.iter().map(|it| (*it).to_owned()).collect();
        Ok(Self { program, name: name.into(), client, peer, metrics, cluster: String::new(), tls, extra })
    }

    fn client_url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", self.client)
    }

    fn peer_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.peer)
    }

    fn peer_entry(&self) -> String {
        format!("{}={}", self.name, self.peer_url())
    }

    fn args(&self) -> Vec<String> {
        let mut args = vec![
            format!("--name={}", self.name),
            format!("--listen-client-urls={}", self.client_url()),
            format!("--advertise-client-urls={}", self.client_url()),
            format!("--listen-peer-urls={}", self.peer_url()),
            format!("--initial-advertise-peer-urls={}", self.peer_url()),
            format!("--listen-metrics-urls=http://127.0.0.1:{}", self.metrics),
            format!("--initial-cluster={}", self.cluster),
            "--initial-cluster-state=new".into(),
            "--log-level=warn".into(),
        ];
        if let Some(EtcdTls { ca, cert, key }) = &self.tls {
            args.push(format!("--cert-file={}", cert.display()));
            args.push(format!("--key-file={}", key.display()));
            args.push(format!("--trusted-ca-file={}", ca.display()));
            args.push("--client-cert-auth=true".into());
        }
        args.extend(self.extra.iter().cloned());
        args
    }
}

async fn is_healthy(port: u16) -> bool {
    let answer = timeout(Duration::from_secs(5), ask(port, "/health")).await;
    matches!(answer, Ok(Ok(text)) if text.starts_with("HTTP/1.0 200") && text.contains("\"true\""))
}

async fn ask(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The end of a log, for messages.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
