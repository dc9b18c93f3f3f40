//! Servers that are started to be measured: processes of this binary, on an empty directory or on etcd.

mod pair;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rand::RngExt;
use rustix::process::{Pid, Signal, kill_process};
use store::{Range, ReadAt, SharedClock, Store, SystemClock, Txn};
use tempfile::TempDir;

use super::{
    Size,
    endpoint::Endpoint,
    measure::{float, millis},
    report::Figure,
};
use crate::{
    cluster::ClusterFlags,
    duration::GoDuration,
    failure::Failure,
    flags::{DEFAULT_QUOTA, EtcdFlags, StorageFlags},
    storage::{NotOpened, Storage},
};

/// How long a start may take.
const START: Duration = Duration::from_secs(60);
/// How long it may take to stop.
const LEAVE: Duration = Duration::from_secs(30);
/// Until what a process uses is what it uses at rest.
const REST: Duration = Duration::from_secs(2);
/// Keys that are removed in one transaction.
const PAGE: usize = 100;

const THROUGH_ANOTHER: &str = "GET through another server";
/// The flag of a server that has to ask another one.
const WITHOUT_MAPS: &str = "--runtime-config=/v1/configmaps=false";

/// The server, and where it keeps its things.
pub struct Own {
    process: Process,
    etcd: Option<EtcdFlags>,
    home: TempDir,
    clock: SharedClock,
    took: Duration,
    resident: Option<u64>,
}

/// Killed when dropped: what it has is thrown away.
struct Process {
    child: Child,
    kubeconfig: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// The end of its log, on one line.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.kubeconfig.with_extension("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("; ")
    }

    /// Lets it leave the fleet by itself: the others would wait for one that is killed until its lease ends.
    async fn leave(mut self, clock: &SharedClock) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let is_told = pid.is_some_and(|it| kill_process(it, Signal::TERM).is_ok());
        let deadline = clock.monotonic() + LEAVE;
        while is_told && matches!(self.child.try_wait(), Ok(None)) && clock.monotonic() < deadline {
            clock.sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Own {
    /// Starts it, without waiting for it.
    pub fn launch(etcd: &EtcdFlags) -> Result<Self, Failure> {
        let home = tempfile::Builder::new().prefix("convoy-bench-").tempdir();
        let home = home.map_err(|it| Failure::failed(format!("no temporary directory: {it}")))?;
        let etcd = (!etcd.etcd_servers.is_empty()).then(|| {
            // Beside what the prefix holds, never below it: somebody may serve that.
            let prefix = etcd.etcd_prefix.trim_end_matches('/');
            let prefix = format!("{prefix}-bench-{:08x}", rand::rng().random::<u32>());
            EtcdFlags { etcd_prefix: prefix, ..etcd.clone() }
        });
        // The clock begins with the process.
        let clock = SystemClock::shared();
        let process = launch(home.path(), etcd.as_ref(), "bench-1", &[])?;
        Ok(Self { process, etcd, home, clock, took: Duration::ZERO, resident: None })
    }

    /// Waits until it is ready and at rest.
    pub async fn ready(&mut self) -> Result<(), Failure> {
        wait(&mut self.process, &self.clock).await?;
        self.took = self.clock.monotonic();
        self.clock.sleep(REST).await;
        self.resident = resident_kib(self.process.child.id());
        Ok(())
    }

    pub async fn endpoint(&self) -> Result<Endpoint, Failure> {
        Endpoint::of(&ClusterFlags::running(Some(self.process.kubeconfig.clone()), None)).await
    }

    pub fn figures(&self) -> Vec<Figure> {
        let note = "from the start of the process, keys and certificates made on the way".to_owned();
        let mut figures = vec![Figure::time("start to readiness", millis(self.took), note)];
        if let Some(kib) = self.resident {
            let note = "no client connected".to_owned();
            let value = Some(float(kib) / 1024.0);
            figures.push(Figure {
                name: "resident at rest".to_owned(),
                value,
                unit: "MB",
                is_rate: false,
                note,
            });
        }
        figures
    }

    /// GET through a second server that does not have what is asked for.
    pub async fn proxied(&self, size: Size) -> Result<Vec<Figure>, Failure> {
        let Some(etcd) = &self.etcd else { return pair::proxied(size).await };
        let clock = SystemClock::shared();
        let mut second = launch(self.home.path(), Some(etcd), "bench-2", &[WITHOUT_MAPS])?;
        wait(&mut second, &clock).await?;
        let through = Endpoint::of(&ClusterFlags::running(Some(second.kubeconfig.clone()), None)).await?;
        let figure = through.get(size).await.map_err(|it| Failure::because(&it));
        second.leave(&clock).await;
        let mut figure = figure?;
        THROUGH_ANOTHER.clone_into(&mut figure.name);
        Ok(vec![figure])
    }

    /// Removes what is left in etcd.
    pub async fn clean_up(self) -> Result<(), Failure> {
        let Self { process, etcd, home, .. } = self;
        drop(process);
        drop(home);
        let Some(etcd) = etcd else { return Ok(()) };
        let flags = StorageFlags {
            data_dir: None,
            etcd,
            etcd_compaction_interval: GoDuration::from_secs(0),
            quota_backend_bytes: DEFAULT_QUOTA,
            event_ttl: GoDuration::from_secs(3_600),
        };
        let clock: SharedClock = SystemClock::shared();
        let store = match Storage::open(&flags, &clock).await {
            Ok(storage) => storage.shared(),
            Err(NotOpened::Missing(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        loop {
            let page = store.list(&Range::prefix("/"), ReadAt::Latest, PAGE).await;
            let page = page.map_err(|it| Failure::because(&it))?;
            if page.entries.is_empty() {
                return Ok(());
            }
            let txn = page.entries.iter().fold(Txn::new(), |txn, it| txn.delete(&it.key));
            store.commit(txn).await.map_err(|it| Failure::because(&it))?;
        }
    }
}

fn launch(home: &Path, etcd: Option<&EtcdFlags>, name: &str, more: &[&str]) -> Result<Process, Failure> {
    let failed = |it: std::io::Error| Failure::failed(format!("a server cannot be started: {it}"));
    let kubeconfig = home.join(format!("{name}.kubeconfig"));
    let log = std::fs::File::create(home.join(format!("{name}.log"))).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["serve", "--bind-address=127.0.0.1", "--secure-port=0"]);
    command.arg(format!("--hostname-override={name}")).args(more);
    command.arg("--cert-dir").arg(home.join("certs")).arg("--write-kubeconfig").arg(&kubeconfig);
    match etcd {
        None => drop(command.arg("--data-dir").arg(home.join("data"))),
        Some(etcd) => {
            command.arg("--etcd-servers").arg(etcd.etcd_servers.join(","));
            command.arg("--etcd-prefix").arg(&etcd.etcd_prefix);
            let files = [
                ("--etcd-cafile", &etcd.etcd_cafile),
                ("--etcd-certfile", &etcd.etcd_certfile),
                ("--etcd-keyfile", &etcd.etcd_keyfile),
            ];
            for (flag, file) in files {
                if let Some(file) = file {
                    command.arg(flag).arg(file);
                }
            }
        }
    }
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
    Ok(Process { child: command.spawn().map_err(failed)?, kubeconfig })
}

/// Until it says that it is ready.
async fn wait(process: &mut Process, clock: &SharedClock) -> Result<(), Failure> {
    let deadline = clock.monotonic() + START;
    while clock.monotonic() < deadline {
        if let Ok(Some(ended)) = process.child.try_wait() {
            return Err(Failure::failed(format!("the server ended with {ended}: {}", process.last_words())));
        }
        if process.kubeconfig.exists() {
            let flags = ClusterFlags::running(Some(process.kubeconfig.clone()), None);
            if let Ok(config) = flags.config().await {
                let client = kube::Client::try_from(config).map_err(|it| Failure::because(&it))?;
                if crate::cluster::ask(&client, "GET", "/readyz", Vec::new()).await.is_ok() {
                    return Ok(());
                }
            }
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    Err(Failure::failed(format!("the server is not ready after {START:?}: {}", process.last_words())))
}

/// What a process holds in memory, where the system tells.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}
