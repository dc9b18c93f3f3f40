//! A `convoy serve` process that a test owns: start, kill, pause, start again on the same directories.
//!
//! Everything lies in one temporary directory that goes with the value; so does the process. The port
//! is chosen before the first start and kept for later ones, so clients find the server again.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use tokio::time::Instant;

use crate::client::{Client, read_kubeconfig};
use crate::ports::free_ports;

/// A member of `system:masters`.
pub const ADMIN_TOKEN: &str = "admin-token-of-a-test";
/// An authenticated user without any right of its own.
pub const USER_TOKEN: &str = "user-token-of-a-test";

/// Debug builds on two busy cores are slow; a server that needs longer is broken.
const START_LIMIT: Duration = Duration::from_secs(60);

/// What to run and on which store.
#[derive(Debug, Clone)]
pub struct Options {
    /// The built binary: `env!("CARGO_BIN_EXE_convoy")` in the tests of that crate.
    pub binary: PathBuf,
    pub store: StoreChoice,
    /// Further flags, as given on the command line.
    pub flags: Vec<String>,
    /// Keys and certificates that several servers share; its own without.
    pub certs: Option<PathBuf>,
    /// A serving certificate of one's own, which goes without an administrator's kubeconfig.
    pub serving: Option<Serving>,
}

/// The files of a serving certificate that the server did not make.
#[derive(Debug, Clone)]
pub struct Serving {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Who signed it.
    pub ca: PathBuf,
}

/// Where the server keeps its objects.
#[derive(Debug, Clone)]
pub enum StoreChoice {
    /// The embedded store, in the temporary directory.
    Embedded,
    /// The embedded store in this directory, whatever is in it.
    Directory(PathBuf),
    /// An etcd that runs already.
    Etcd { endpoint: String, prefix: String },
}

/// A server and its directories.
pub struct Convoy {
    options: Options,
    home: TempDir,
    child: Option<Child>,
    port: u16,
    base: String,
    ca: Vec<u8>,
}

impl Options {
    #[must_use]
    pub fn embedded(binary: &str) -> Options {
        Options {
            binary: binary.into(),
            store: StoreChoice::Embedded,
            flags: Vec::new(),
            certs: None,
            serving: None,
        }
    }

    #[must_use]
    pub fn etcd(binary: &str, endpoint: &str, prefix: &str) -> Options {
        let store = StoreChoice::Etcd { endpoint: endpoint.to_owned(), prefix: prefix.to_owned() };
        Options { binary: binary.into(), store, flags: Vec::new(), certs: None, serving: None }
    }

    /// Opens the embedded store in this directory.
    #[must_use]
    pub fn data_dir(mut self, directory: &Path) -> Options {
        self.store = StoreChoice::Directory(directory.to_owned());
        self
    }

    /// Shares keys and certificates with others that are given the same directory.
    #[must_use]
    pub fn certs(mut self, folder: &Path) -> Options {
        self.certs = Some(folder.to_owned());
        self
    }

    /// Shows this certificate instead of a self-made one.
    #[must_use]
    pub fn serving(mut self, serving: Serving) -> Options {
        self.serving = Some(serving);
        self
    }

    #[must_use]
    pub fn flag(mut self, flag: &str) -> Options {
        self.flags.push(flag.to_owned());
        self
    }
}

impl Convoy {
    /// Starts a server on fresh directories and waits until it is ready.
    pub async fn start(options: Options) -> Result<Convoy> {
        let home = tempfile::Builder::new().prefix("convoy-test-").tempdir()?;
        let tokens = format!("{ADMIN_TOKEN},admin,1,\"system:masters\"\n{USER_TOKEN},user,2\n");
        std::fs::write(home.path().join("tokens.csv"), tokens)?;
        let [port] = free_ports()?;
        let mut convoy = Convoy { options, home, child: None, port, base: String::new(), ca: Vec::new() };
        convoy.start_again().await?;
        Ok(convoy)
    }

    /// Starts the process on the same directories, store and port, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_ready().await
    }

    /// Starts the process and returns at once.
    pub fn spawn(&mut self) -> Result<()> {
        if self.child.is_some() {
            bail!("the server runs already");
        }
        // A kubeconfig of the last start would be read too early.
        let _ = std::fs::remove_file(self.kubeconfig());
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file())?;
        let mut command = self.command();
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.child = Some(child.with_context(|| format!("cannot run {}", self.options.binary.display()))?);
        Ok(())
    }

    /// Waits for the kubeconfig, then for `/readyz`.
    pub async fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            if let Some(status) = self.exited()? {
                self.child = None;
                bail!("the server ended at start: {status}\n{}", self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("the server is not ready after {START_LIMIT:?}\n{}", self.log_tail());
            }
            if self.is_ready().await {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// A client with all rights.
    pub fn admin(&self) -> Client {
        self.client(Some(ADMIN_TOKEN))
    }

    /// A client with this token.
    pub fn client(&self, token: Option<&str>) -> Client {
        Client::new(&self.base, &self.ca, token).expect("the CA of a running server must be usable")
    }

    /// `https://127.0.0.1:PORT`.
    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The CA that signed the serving certificate, PEM.
    pub fn ca(&self) -> &[u8] {
        &self.ca
    }

    /// The admin kubeconfig that the server wrote.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("admin.kubeconfig")
    }

    pub fn data_dir(&self) -> PathBuf {
        match &self.options.store {
            StoreChoice::Directory(directory) => directory.clone(),
            StoreChoice::Embedded | StoreChoice::Etcd { .. } => self.home.path().join("data"),
        }
    }

    pub fn cert_dir(&self) -> PathBuf {
        self.options.certs.clone().unwrap_or_else(|| self.home.path().join("certs"))
    }

    /// The temporary directory, for files of the test itself.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Flags for the next start.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// The process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill9(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().context("kill -9")?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and waits (at most `limit`) until the process is gone.
    pub async fn term(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal("TERM")?;
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.exited()? {
                self.child = None;
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("still running {limit:?} after SIGTERM\n{}", self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stops the process where it stands (SIGSTOP).
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets a paused process go on.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) -> Result<()> {
        let pid = self.pid().context("the server does not run")?;
        // The shell's own `kill`, because sending signals from Rust needs unsafe code.
        let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")).status()?;
        if !status.success() {
            bail!("kill -{name} {pid}: {status}");
        }
        Ok(())
    }

    /// How the process ended, if it did.
    pub fn exited(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.child {
            Some(child) => Ok(child.try_wait()?),
            None => Ok(None),
        }
    }

    /// Resident memory of the process in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// The most that was resident since the process started, in KiB.
    pub fn peak_kib(&self) -> Result<u64> {
        self.memory("VmHWM:")
    }

    fn memory(&self, field: &'static str) -> Result<u64> {
        let pid = self.pid().context("the server does not run")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|it| it.strip_prefix(field)).context(field)?;
        line.trim().trim_end_matches(" kB").trim().parse().context(field)
    }

    /// Processor time the process has used.
    pub fn cpu_time(&self) -> Result<Duration> {
        let pid = self.pid().context("the server does not run")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
        let fields = stat.rsplit_once(')').context("the name must end")?.1.split_whitespace();
        let ticks: Vec<u64> = fields.skip(11).take(2).filter_map(|it| it.parse().ok()).collect();
        // Linux counts in hundredths of a second.
        Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
    }

    /// Everything the server has said.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file()).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default()
    }

    /// The last lines of the log, for messages.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }

    fn command(&self) -> Command {
        let home = self.home.path();
        let mut command = Command::new(&self.options.binary);
        command.arg("serve");
        match &self.options.store {
            StoreChoice::Embedded | StoreChoice::Directory(_) => {
                command.arg("--data-dir").arg(self.data_dir());
            }
            StoreChoice::Etcd { endpoint, prefix } => {
                command.args(["--etcd-servers", endpoint, "--etcd-prefix", prefix]);
            }
        }
        command.arg("--cert-dir").arg(self.cert_dir());
        command.args(["--bind-address", "127.0.0.1", "--secure-port", &self.port.to_string()]);
        match &self.options.serving {
            None => {
                command.arg("--write-kubeconfig").arg(self.kubeconfig());
            }
            Some(Serving { certificate, key, .. }) => {
                command.arg("--tls-cert-file").arg(certificate).arg("--tls-private-key-file").arg(key);
            }
        }
        command.arg("--token-auth-file").arg(home.join("tokens.csv"));
        command.args(&self.options.flags).current_dir(home);
        command
    }

    async fn is_ready(&mut self) -> bool {
        let found = match &self.options.serving {
            None => read_kubeconfig(&self.kubeconfig()).ok(),
            Some(it) => std::fs::read(&it.ca).ok().map(|ca| (format!("https://127.0.0.1:{}", self.port), ca)),
        };
        let Some((base, ca)) = found else { return false };
        let Ok(client) = Client::new(&base, &ca, None) else { return false };
        let client = client.with_patience(Duration::from_secs(2));
        let Ok(answer) = client.get("/readyz").await else { return false };
        if answer.status != 200 {
            return false;
        }
        self.port =
            base.rsplit_once(':').and_then(|(_, it)| it.trim_end_matches('/').parse().ok()).unwrap_or(0);
        (self.base, self.ca) = (base, ca);
        true
    }

    fn log_file(&self) -> PathBuf {
        self.home.path().join("server.log")
    }
}

impl Drop for Convoy {
    fn drop(&mut self) {
        let _ = self.kill9();
    }
}
