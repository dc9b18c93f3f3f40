//! A cluster changes its release, and back, server by server, behind a balancer and under load.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use store::Store;
use testkit::{Convoy, Options, balance::Balancer, history::watch, tools};
use tokio::{
    process::Command,
    sync::watch as signal,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use super::{
    fleet::{AGGREGATED, Fleet, eventually, get, get_with},
    hands::{Hand, Place, Python},
    load::{KINDS, Shared, Worker, listable, seen},
    verdict::Logbook,
    watchers::{Goal, Watcher},
};
use crate::fleet::{ground::Ground, history::History};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// So many faults are enough to go by.
const MANY: usize = 30;
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The cluster, and what is known about it.
struct Cluster {
    servers: Vec<Convoy>,
    balancer: Balancer,
    logbook: Arc<Logbook>,
    fleet: Fleet,
}

/// How a server is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Term,
    Kill,
}

impl Cluster {
    async fn start(logbook: Arc<Logbook>) -> Result<Option<Self>> {
        let Some(fleet) = Fleet::new().await? else { return Ok(None) };
        let mut servers = Vec::new();
        for name in NAMES {
            servers.push(Convoy::start(options(&fleet, name, 34)).await?);
        }
        let balancer = Balancer::start(servers.iter().map(Convoy::port).collect()).await?;
        let cluster = Self { servers, balancer, logbook, fleet };
        for n in 0..NAMES.len() {
            cluster.came(n, 34).await?;
        }
        Ok(Some(cluster))
    }

    /// A server is ready: from now on nobody may deny what it serves.
    async fn came(&self, n: usize, minor: u16) -> Result<()> {
        if !self.logbook.knows(minor) {
            let mut offer = BTreeSet::new();
            for path in ["/api", "/apis"] {
                let accept = format!("{AGGREGATED};profile=nopeer");
                let admin = self.servers[n].admin();
                offer.extend(listable(&get_with(&admin, path, &[("accept", &accept)]).await?.expect(200)?));
            }
            ensure!(offer.len() > 50, "{offer:?}");
            self.logbook.offers(minor, offer);
        }
        self.logbook.came(n, minor);
        Ok(())
    }

    async fn replace(&mut self, n: usize, minor: u16, stop: Stop) -> Result<()> {
        self.logbook.goes(n);
        match stop {
            Stop::Term => {
                let ended = self.servers[n].term(Duration::from_secs(30)).await?;
                ensure!(ended.success(), "{ended}: {}", self.servers[n].log_tail());
            }
            Stop::Kill => self.servers[n].kill9()?,
        }
        *self.servers[n].options_mut() = options(&self.fleet, NAMES[n], minor);
        self.servers[n].start_again().await?;
        self.came(n, minor).await
    }

    /// There and back so many times; ends early when something is wrong.
    async fn roll(&mut self, rounds: usize, random: &mut StdRng, crew: &Crew) -> Result<()> {
        crew.have_read_all(34).await?;
        for round in 0..rounds {
            for minor in [35, 36, 35, 34] {
                for n in 0..NAMES.len() {
                    self.step(n, minor, random).await?;
                    if self.logbook.faults().len() > MANY {
                        return Ok(());
                    }
                }
                crew.have_read_all(minor).await?;
                if (round, minor) == (0, 36) {
                    dependents(&crew.place).await?;
                }
            }
        }
        Ok(())
    }

    /// Replaces one server. In the long form there may be bad weather: it is killed, and connections are cut.
    async fn step(&mut self, n: usize, minor: u16, random: &mut StdRng) -> Result<()> {
        if !tools::is_soak() || random.random_range(0..2) == 0 {
            return self.replace(n, minor, Stop::Term).await;
        }
        self.logbook.rough();
        self.balancer.cut(Some(random.random()));
        let stop = if random.random_range(0..3) == 0 { Stop::Term } else { Stop::Kill };
        self.replace(n, minor, stop).await?;
        self.balancer.cut(None);
        self.logbook.calm();
        Ok(())
    }

    fn newest_log(&self) -> String {
        self.servers.iter().map(|it| format!("--- {}\n{}\n", it.base(), it.log_tail())).collect()
    }
}

/// All that a release has, but for versions that the next release cannot read: alphas that were replaced at once. Such
/// servers do not come together, and are right not to.
fn options(fleet: &Fleet, name: &str, minor: u16) -> Options {
    let without = match minor {
        34 => ",certificates.k8s.io/v1alpha1=false",
        35 => ",scheduling.k8s.io/v1alpha1=false",
        _ => "",
    };
    fleet
        .options(name, &[&format!("--runtime-config=api/all=true{without}"), "--member-lease-duration=2s"])
        .flag(&format!("--emulated-version=1.{minor}"))
        .flag("--allow-unenforced-policies")
}

/// kubectl, over and over, with all that it finds.
struct Kubectl {
    program: PathBuf,
    place: Place,
    home: PathBuf,
    shared: Shared,
}

impl Kubectl {
    async fn run(self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let _ = std::fs::remove_dir_all(self.home.join("cache"));
            let since = Instant::now();
            let names = self.call(since, &["api-resources", "--verbs=list", "-o", "name"]).await?;
            let names = names.lines().collect::<Vec<_>>().join(",");
            if !names.is_empty() {
                self.call(since, &["get", &names, "-A", "-o", "name"]).await?;
            }
        }
        Ok(())
    }

    async fn call(&self, since: Instant, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("KUBECONFIG", &self.place.kubeconfig).env("HOME", &self.home);
        command.arg(format!("--cache-dir={}", self.home.join("cache").display()));
        let output = command.kill_on_drop(true).output().await?;
        let logbook = &self.shared.logbook;
        for line in String::from_utf8_lossy(&output.stderr).lines() {
            let is = |words: &[&str]| words.iter().any(|it| line.contains(it));
            if line.trim().is_empty() || is(&["Warning:", "No resources found"]) {
                continue;
            }
            let (count, is_fault) = if is(&["ServiceUnavailable", "unable to handle the request", "proxying"])
            {
                ("put off", false)
            } else if is(&["NotFound", "could not find", "doesn't have a resource", "not served"]) {
                ("absent", logbook.was_quiet(since))
            } else {
                ("broken", !logbook.was_rough(since) && !logbook.was_turned_away(line, since))
            };
            logbook.count("kubectl", count);
            if is_fault {
                logbook.fault(format!("kubectl {}: {line}", arguments[0]));
            }
        }
        if output.status.success() {
            logbook.count("kubectl", "answered");
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Objects that belong to others: one whose owner only the newest release knows, and one whose owner is gone.
async fn dependents(place: &Place) -> Result<()> {
    let client = place.client()?;
    let groups = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups";
    let owner = json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
        "metadata": {"name": "owner"}, "spec": {"schedulingPolicy": {"basic": {}}}});
    let owner = client.post(groups, &owner).await?.expect(201)?;
    let dependent = |name: &str, uid: &Value| {
        json!({"metadata": {"name": name, "ownerReferences": [
            {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": name, "uid": uid}]}})
    };
    client.post(MAPS, &dependent("owner", &owner["metadata"]["uid"])).await?.expect(201)?;
    let nobody = json!("b7a7a8a1-0000-4000-8000-000000000000");
    client.post(MAPS, &dependent("nobody", &nobody)).await?.expect(201)?;
    eventually("what has an owner that never was is collected", async || {
        let answer = place.client()?.get(&format!("{MAPS}/nobody")).await;
        Ok(answer.is_ok_and(|it| it.status == 404))
    })
    .await
}

async fn definition(servers: &[Convoy]) -> Result<()> {
    let widgets = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    servers[0].admin().post(path, &widgets).await?.expect(201)?;
    for server in servers {
        eventually("widgets are served", async || {
            Ok(server.admin().get("/apis/example.com/v1/widgets").await?.status == 200)
        })
        .await?;
    }
    Ok(())
}

/// Everything at work.
struct Crew {
    shared: Shared,
    names: Vec<&'static str>,
    tasks: JoinSet<()>,
    kubectl: Option<JoinHandle<Result<()>>>,
    watchers: Vec<JoinHandle<Result<watch::Log>>>,
    goal: signal::Sender<Goal>,
    place: Place,
}

impl Crew {
    async fn start(place: &Place, shared: Shared, home: &Path) -> Result<Self> {
        let mut hands = vec![Hand::Raw(place.clone()), place.kube().await?];
        match tools::python() {
            Some(program) => hands.push(Python::start(&program, place)?),
            None => tools::skipped("the roll with Python's client", "CONVOY_PYTHON is not set"),
        }
        let names = hands.iter().map(Hand::name).collect();
        let (goal, reached) = signal::channel(None);
        let mut watchers = Vec::new();
        for kind in KINDS {
            for version in kind.watched {
                let watcher = Watcher {
                    place: place.clone(),
                    kind,
                    version,
                    goal: reached.clone(),
                    logbook: Arc::clone(&shared.logbook),
                };
                watchers.push(tokio::spawn(watcher.run()));
            }
        }
        let mut tasks = JoinSet::new();
        for hand in hands {
            let worker = Arc::new(Worker { hand, shared: shared.clone() });
            tasks.spawn(Arc::clone(&worker).read());
            tasks.spawn(worker.write());
        }
        let kubectl = match tools::kubectl() {
            Some(program) => {
                let home = home.to_owned();
                let kubectl = Kubectl { program, place: place.clone(), home, shared: shared.clone() };
                Some(tokio::spawn(kubectl.run()))
            }
            None => {
                tools::skipped("the roll with kubectl", "there is no kubectl on the PATH");
                None
            }
        };
        Ok(Self { shared, names, tasks, kubectl, watchers, goal, place: place.clone() })
    }

    /// Waits until every client has read all that a release serves, which is there now.
    async fn have_read_all(&self, minor: u16) -> Result<()> {
        for name in &self.names {
            let what = format!("{name} reads all of 1.{minor}");
            let logbook = &self.shared.logbook;
            eventually(&what, async || {
                Ok(logbook.unread(name, minor).is_empty() || logbook.faults().len() > MANY)
            })
            .await?;
        }
        Ok(())
    }

    /// Stops all work, and lets watchers see the last change of each resource.
    async fn end(self) -> Result<Vec<watch::Log>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.tasks.join_all().await;
        if let Some(kubectl) = self.kubectl {
            kubectl.await??;
        }
        let mut goal = BTreeMap::new();
        for kind in KINDS.iter().filter(|it| !it.watched.is_empty()) {
            let version = kind.watched[0];
            let client = self.place.client()?;
            let last = client.post(&kind.collection(version), &kind.object(version, "last", "last")).await?;
            let revision = crate::fixture::revision(&last.expect(201)?);
            let mut books = self.shared.books.lock();
            let pending = books.durability.begin(
                &format!("{}/last", kind.resource),
                testkit::history::durability::Write::Put("last".to_owned()),
            );
            books
                .durability
                .end(pending, testkit::history::durability::Outcome::Acknowledged(Some(revision)))?;
            let written = books.written.entry(kind.resource).or_default();
            written.attempted.insert(("last".to_owned(), "last".to_owned()));
            let object = watch::Object { revision, value: "last".to_owned(), label: String::new() };
            written.acknowledged.insert(revision, ("last".to_owned(), object));
            goal.insert(kind.resource, revision);
        }
        // Watchers that could not go on are gone; what they say comes below.
        let _ = self.goal.send(Some(goal));
        let mut logs = Vec::new();
        for watcher in self.watchers {
            logs.push(tokio::time::timeout(Duration::from_secs(60), watcher).await.context("a watcher")???);
        }
        Ok(logs)
    }
}

/// Every acknowledged write is there, and nothing is gone that nobody removed: read where it is kept.
async fn check_store(ground: &Ground, shared: &Shared) -> Result<()> {
    let revision = ground.store.current().await?;
    let mut found = BTreeMap::new();
    for kind in KINDS {
        let range = store::Range::prefix(kind.prefix);
        let page = ground.store.list(&range, store::ReadAt::Revision(revision), 1_000_000).await?;
        ensure!(page.remaining == 0);
        for entry in page.entries {
            if let Some((name, seen)) = seen(&entry.value, entry.modified.get())? {
                found.insert(format!("{}/{name}", kind.resource), seen);
            }
        }
    }
    shared.books.lock().durability.observe(revision.get(), &found)?;
    Ok(())
}

/// Every watcher saw every change of its resource once, in order.
fn check_watchers(logs: &[watch::Log], shared: &Shared) -> Result<usize> {
    let books = shared.books.lock();
    let mut n_events = 0;
    for kind in KINDS.iter().filter(|it| !it.watched.is_empty()) {
        let start = format!("watcher of {} ", kind.resource);
        let logs: Vec<watch::Log> = logs.iter().filter(|it| it.name.starts_with(&start)).cloned().collect();
        ensure!(logs.len() == kind.watched.len());
        let summary = watch::check(&logs, &books.written[kind.resource])?;
        n_events += summary.events;
    }
    Ok(n_events)
}

async fn judge(
    cluster: &Cluster,
    shared: &Shared,
    history: History,
    ground: &Ground,
    logs: Vec<watch::Log>,
) -> Result<()> {
    let faults = cluster.logbook.faults();
    let counts = cluster.logbook.counts();
    let (n_connections, n_cut, n_passed_over) = cluster.balancer.counts();
    let n_written = shared.books.lock().durability.acknowledged();
    tools::report(&format!(
        "roll: {n_written} writes, {n_connections} connections, {n_cut} cut, {n_passed_over} passed over, {counts:?}"
    ));
    let first: Vec<&String> = faults.iter().take(20).collect();
    ensure!(faults.is_empty(), "{} faults: {first:#?}\n{}", faults.len(), cluster.newest_log());
    check_store(ground, shared).await?;
    let n_events = check_watchers(&logs, shared)?;
    let judged = history.judge(&[("example.com", "widgets")]).await;
    tools::report(&format!("roll: {n_events} events, {} judged, {} moves", judged.n_judged, judged.n_moves));
    ensure!(n_written > 50 && n_events > 50 && judged.n_judged > 50, "{n_written} {n_events} {judged:?}");
    Ok(())
}

/// Soak: 50 rolls with kill -9 and cut connections. The short form is one roll in good weather.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_are_rolled_forth_and_back_and_no_client_is_told_anything_wrong() -> Result<()> {
    let (rounds, seed) = (tools::rounds(1), tools::seed());
    let shared = Shared::default();
    let Some(mut cluster) = Cluster::start(Arc::clone(&shared.logbook)).await? else { return Ok(()) };
    tools::report(&format!("roll: {rounds} rolls, seed {seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    let ground = Ground::shared_etcd(&cluster.fleet.etcd).await;
    let history = ground.history().await;
    definition(&cluster.servers).await?;
    let folder = tempfile::tempdir()?;
    let (ca, kubeconfig) = (cluster.servers[0].ca().to_vec(), cluster.servers[0].kubeconfig());
    let place = Place::new(&cluster.balancer.url(), &ca, &kubeconfig, folder.path())?;
    let crew = Crew::start(&place, shared.clone(), folder.path()).await?;
    let rolled = cluster.roll(rounds, &mut random, &crew).await;
    rolled.with_context(|| format!("{:#?}\n{}", cluster.logbook.faults(), cluster.newest_log()))?;
    let ended = crew.end().await?;
    // Whoever owns it is not known to any server now; that is no reason to remove what it owns.
    let owned = get(&cluster.servers[0], &format!("{MAPS}/owner")).await;
    judge(&cluster, &shared, history, &ground, ended).await?;
    ensure!(owned?["metadata"]["ownerReferences"].is_array());
    Ok(())
}
