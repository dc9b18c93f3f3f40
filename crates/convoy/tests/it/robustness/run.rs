//! A run: rounds of clients and faults on one cluster, each judged before the next one begins.
//!
//! The seed of a round is that of the run and its number, so that `--seed` of a round that failed begins with it.

use std::{collections::BTreeMap, fmt::Write, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use store::Store;
use testkit::{history::watch::Object, tools};
use tokio::{task::JoinSet, time::Instant};

use super::{
    agent::Estate,
    clients::{CLASSES, Crowd, ROLLED, Traffic, USUAL},
    cluster::{Cluster, round_length},
    doors::Doors,
    faults::{self, Fault, Step, Turn},
    judge::{Counts, Judge, Stretch},
    ledger::{KINDS, Kind, Ledger, N_KINDS, read},
    tenants::Tenants,
    watchers::Lookouts,
};
use crate::migration::widgets;

/// How long servers may take to be well again once they are left alone.
const RECOVERY: Duration = Duration::from_secs(90);
/// In the rounds of every so-manieth seed of servers in this process somebody oversleeps.
const SLEEPERS: u64 = 4;

pub struct Run {
    name: &'static str,
    seed: u64,
    cluster: Cluster,
    ledger: Arc<Ledger>,
    judge: Judge,
    /// What was done and when.
    journal: Vec<String>,
    n_faults: BTreeMap<&'static str, u64>,
    /// People who change things.
    people: JoinSet<()>,
    /// What those noted who delete, force and make anew; nobody does in most runs.
    estate: Option<Arc<Estate>>,
}

impl Run {
    pub async fn start(name: &'static str, cluster: Cluster) -> Result<Self> {
        Self::start_with(KINDS, name, cluster).await
    }

    /// The same with other kinds of objects.
    pub async fn start_with(kinds: [Kind; N_KINDS], name: &'static str, cluster: Cluster) -> Result<Self> {
        let seed = tools::seed();
        let mut run = Self {
            name,
            seed,
            cluster,
            ledger: Arc::new(Ledger::new(kinds)),
            judge: Judge::new(kinds),
            journal: Vec::new(),
            n_faults: BTreeMap::new(),
            people: JoinSet::new(),
            estate: None,
        };
        run.say(&format!("{name}: seed {seed}"));
        define(&run.cluster.doors()).await?;
        Ok(run)
    }

    /// From now on people delete, force and make anew: definitions, namespaces, owners.
    pub async fn with_tenants(mut self) -> Result<Self> {
        let estate = Estate::new(&self.ledger);
        Tenants::settle_in(&estate, &self.cluster.doors()).await?;
        self.estate = Some(estate);
        Ok(self)
    }

    /// What can go wrong here.
    pub fn kinds(&self) -> &'static [faults::Kind] {
        self.cluster.kinds()
    }

    /// As long as was asked for, or one short round.
    pub async fn go(&mut self) -> Result<()> {
        let (begun, limit) = (Instant::now(), tools::minutes().unwrap_or_default());
        for number in 0.. {
            let seed = self.seed.wrapping_add(number as u64);
            let is_here = matches!(self.cluster, Cluster::Seams(_));
            let is_about_sleep = is_here && seed % SLEEPERS == SLEEPERS - 1;
            if is_about_sleep {
                self.round(number, seed, faults::sleepers(seed, 3), &CLASSES).await?;
            } else {
                let steps = faults::plan(seed, self.cluster.kinds(), round_length());
                self.round(number, seed, steps, &USUAL).await?;
            }
            if begun.elapsed() >= limit {
                break;
            }
        }
        self.enough()
    }

    /// Every release in turn, so many times.
    pub async fn roll(&mut self, minors: &[u16], n_rounds: usize) -> Result<()> {
        for number in 0..n_rounds {
            let seed = self.seed.wrapping_add(number as u64);
            self.round(number, seed, faults::rollouts(seed, minors), &ROLLED).await?;
            self.nothing_is_old().await?;
        }
        self.enough()?;
        let Counts { n_moves, n_succeeded, .. } = self.judge.counts;
        ensure!(n_moves > 1 && n_succeeded > 1, "nothing was migrated: {:?}", self.judge.counts);
        Ok(())
    }

    /// Waits until the census has no old version: nobody moves one any more.
    async fn nothing_is_old(&self) -> Result<()> {
        let (client, deadline) = (self.cluster.doors().client(0), Instant::now() + RECOVERY);
        loop {
            let census = client.get("/convoy/census").await?.expect(200)?;
            let old = |it: &&Value| {
                let mut versions = it["versions"].as_object().into_iter().flat_map(|it| it.keys());
                // What this release does not serve stays as it was left.
                it["written"].as_str().is_some_and(|written| versions.any(|it| it != written))
            };
            let resources = census["resources"].as_array().context("a census must have resources")?;
            let Some(old) = resources.iter().find(old) else { return Ok(()) };
            ensure!(Instant::now() < deadline, "old versions are left: {old}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn enough(&mut self) -> Result<()> {
        self.summary();
        let Counts { n_objects, n_requests, n_undecided, n_events, n_judged, .. } = self.judge.counts;
        let is_enough = n_requests > 50 && n_events > 20 && n_judged > 20 && n_undecided * 10 <= n_objects;
        ensure!(is_enough, "too little was judged to prove anything: {:?}", self.judge.counts);
        Ok(())
    }

    /// One round; what is wrong is said together with what led to it.
    pub async fn round(
        &mut self,
        number: usize,
        seed: u64,
        steps: Vec<Step>,
        traffic: &Traffic,
    ) -> Result<()> {
        self.say(&format!("{}: round {number}, seed {seed}", self.name));
        let crowd = Crowd::start(&self.ledger, &self.cluster, traffic, seed, number);
        let lookouts = Lookouts::start(&self.ledger, &self.cluster.doors(), seed);
        let doors = self.cluster.doors();
        let tenants = self.estate.as_ref().map(|it| Tenants::start(it, &doors, seed, number));
        let mut stretch = None;
        let ended = self.live_through(number, steps, (crowd, lookouts, tenants), &mut stretch).await;
        if let Err(error) = ended {
            let kept = self.keep(seed, number, stretch.as_ref(), &format!("{error:#}"));
            let kept = kept.map_or_else(|it| format!("not kept: {it}"), |it| it.display().to_string());
            return Err(error.context(format!(
                "{}: round {number} failed; again with --seed {seed}; its history: {kept}",
                self.name
            )));
        }
        self.ledger.next_round();
        Ok(())
    }

    async fn live_through(
        &mut self,
        number: usize,
        steps: Vec<Step>,
        (crowd, lookouts, tenants): (Crowd, Lookouts, Option<Tenants>),
        stretch: &mut Option<Stretch>,
    ) -> Result<()> {
        let doors = self.cluster.doors();
        self.disturb(steps).await?;
        self.cluster.settle().await?;
        for n in 0..doors.len() {
            recovered(&doors, n).await?;
        }
        // What is judged comes first: it says why something does not end.
        let mut unfinished = Vec::new();
        if let Some(tenants) = tenants {
            unfinished = tenants.stop().await;
            unfinished.extend(self.rest().await.err().map(|it| format!("{it:#}")));
        }
        crowd.stop().await;
        let goal = self.last_objects(&doors, number).await?;
        let logs = lookouts.end(goal).await?;
        self.people.abort_all();
        while self.people.join_next().await.is_some() {}
        let until = goal.into_iter().max().unwrap_or_default();
        let store = self.cluster.store().await?;
        let seen = self.judge.look(&store, until).await?;
        let seen = stretch.insert(seen);
        drop(store);
        self.judge.note(self.estate.as_ref().map(|it| it.take()).unwrap_or_default());
        self.judge.judge(seen, &self.ledger.books.lock(), &logs, &goal)?;
        ensure!(unfinished.is_empty(), "what was deleted does not end: {unfinished:#?}");
        self.cluster.go_on().await
    }

    /// Waits until nothing is on its way out any more, where the store can be asked past its servers.
    async fn rest(&self) -> Result<()> {
        let Some(store) = self.cluster.gauge().read().clone() else { return Ok(()) };
        let deadline = Instant::now() + RECOVERY;
        loop {
            let now = store.current().await?.get();
            let unsettled = self.judge.unsettled(&self.judge.look(&store, now).await?);
            if unsettled.is_empty() {
                return Ok(());
            }
            let some = &unsettled[..unsettled.len().min(10)];
            ensure!(Instant::now() < deadline, "{} objects do not go: {some:#?}", unsettled.len());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn disturb(&mut self, steps: Vec<Step>) -> Result<()> {
        let mut begun = Instant::now();
        for step in steps {
            // Whatever took longer than planned moves the rest: a sleep that lasts no time proves nothing.
            begun = begun.max(Instant::now().checked_sub(step.at).unwrap_or(begun));
            tokio::time::sleep_until(begun + step.at).await;
            self.say(&format!("{:8.1}s {}", self.ledger.elapsed().as_secs_f64(), step.turn));
            let since = Instant::now();
            let turned = match &step.turn {
                Turn::Begin(fault) => self.begin(fault).await,
                Turn::End(fault) => self.end(fault).await,
            };
            turned.with_context(|| step.turn.to_string())?;
            if since.elapsed() > Duration::from_secs(5) {
                self.say(&format!("          took {:.1} s", since.elapsed().as_secs_f64()));
            }
        }
        Ok(())
    }

    async fn begin(&mut self, fault: &Fault) -> Result<()> {
        *self.n_faults.entry(fault.name()).or_default() += 1;
        match fault {
            Fault::CutClients(seed) => self.cluster.doors().cut(*seed),
            Fault::Flip(version) => self.flip(version),
            other => self.cluster.begin(other).await?,
        }
        Ok(())
    }

    async fn end(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::CutClients(_) => self.cluster.doors().mend(),
            other => self.cluster.end(other).await?,
        }
        Ok(())
    }

    /// Moves the storage version of the widgets, if a migration does not forbid it. Nobody waits for that.
    fn flip(&mut self, version: &str) {
        let patch = json!({"spec": {"versions": widgets::versions(version)}});
        let (ledger, clients) = (Arc::clone(&self.ledger), self.cluster.doors().clients());
        self.people.spawn(async move {
            for client in clients {
                let answer = client.patch(widgets::DEFINITION, "application/merge-patch+json", &patch).await;
                let Ok(answer) = answer else { continue };
                let what = match answer.status.as_u16() {
                    200 => "flip",
                    422 => "flip refused",
                    _ => continue,
                };
                return ledger.count("people", what);
            }
            ledger.count("people", "flip given up");
        });
    }

    /// One last object of each kind: who has seen it has seen everything.
    async fn last_objects(&self, doors: &Doors, number: usize) -> Result<[u64; N_KINDS]> {
        let mut goal = [0; N_KINDS];
        for (n, kind) in self.ledger.kinds.iter().enumerate() {
            let name = format!("last-{number}");
            self.ledger.books.lock().written[n].attempted.insert((name.clone(), name.clone()));
            let deadline = Instant::now() + RECOVERY;
            let object: Object = loop {
                let client = doors.client(0);
                let made = client.post(kind.collection, &kind.object(&name, &name)).await;
                let made = made.and_then(|it| it.expect(201));
                // It may have been made all the same.
                let found = client.get(&format!("{}/{name}", kind.collection)).await;
                let found = made.or_else(|_| found.and_then(|it| it.expect(200)));
                match found.as_ref().ok().and_then(read) {
                    Some((_, object)) => break object,
                    None if Instant::now() > deadline => bail!("{name} of {} cannot be made", kind.name),
                    None => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            };
            goal[n] = object.revision;
            self.ledger.books.lock().written[n].acknowledged.insert(object.revision, (name, object));
        }
        Ok(goal)
    }

    fn say(&mut self, line: &str) {
        tools::report(line);
        self.journal.push(line.to_owned());
    }

    fn summary(&mut self) {
        let books = self.ledger.books.lock();
        let (counts, codes) = (books.counts.clone(), books.codes.clone());
        drop(books);
        let mut text = format!("{}: seed {}: passed", self.name, self.seed);
        let mut clients: BTreeMap<&str, String> = BTreeMap::new();
        for ((who, what), n) in counts {
            let _ = write!(clients.entry(who).or_default(), " {what} {n},");
        }
        for (who, what) in clients {
            let _ = write!(text, "\n  {who}:{}", what.trim_end_matches(','));
        }
        let _ = write!(text, "\n  answers by code: {codes:?}\n  faults: {:?}", self.n_faults);
        let _ = write!(text, "\n  {:?}", self.judge.counts);
        self.say(&text);
    }

    /// Writes down everything that is known of a round that failed.
    fn keep(&self, seed: u64, number: usize, stretch: Option<&Stretch>, why: &str) -> Result<PathBuf> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/robustness");
        std::fs::create_dir_all(&folder)?;
        let name = self.name.replace([' ', ','], "-");
        let mut text = String::new();
        let mut line = |it: Value| writeln!(text, "{it}");
        line(json!({"run": self.name, "seed": self.seed, "round": number, "seed of the round": seed}))?;
        line(json!({"violation": why}))?;
        for said in &self.journal {
            line(json!({"journal": said}))?;
        }
        for ((kind, name), ops) in &self.ledger.books.lock().ops {
            let key = format!("{}/{name}", self.ledger.kinds[*kind].name);
            for op in ops {
                let (action, outcome) = (format!("{:?}", op.action), format!("{:?}", op.outcome));
                line(json!({"object": key, "who": op.who, "asked": op.asked, "answered": op.answered,
                    "action": action, "outcome": outcome}))?;
            }
        }
        for change in stretch.map(Stretch::lines).unwrap_or_default() {
            writeln!(text, "{change}")?;
        }
        let path = folder.join(format!("{name}-{seed}.jsonl"));
        std::fs::write(&path, text)?;
        for (n, log) in self.cluster.logs().iter().enumerate() {
            std::fs::write(folder.join(format!("{name}-{seed}.server-{n}.log")), log)?;
        }
        Ok(path)
    }
}

/// Defines the widgets, and waits until every server serves them.
async fn define(doors: &Doors) -> Result<()> {
    let definition = widgets::definition("v1");
    doors.client(0).post(widgets::DEFINITIONS, &definition).await?.expect(201)?;
    for n in 0..doors.len() {
        let deadline = Instant::now() + RECOVERY;
        while !doors.client(n).get(widgets::WIDGETS).await.is_ok_and(|it| it.status == 200) {
            if Instant::now() > deadline {
                bail!("server {n} does not serve what was defined");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        recovered(doors, n).await?;
    }
    Ok(())
}

/// Waits until a server writes again: only a member does.
async fn recovered(doors: &Doors, n: usize) -> Result<()> {
    let (client, maps) = (doors.client(n), KINDS[0].collection);
    let deadline = Instant::now() + RECOVERY;
    for count in 0.. {
        let patch = json!({"data": {"count": format!("{count}-{}", rand::random::<u32>())}});
        let path = format!("{maps}/alive-{n}");
        let answer = match client.patch(&path, "application/merge-patch+json", &patch).await {
            Ok(answer) if answer.status == 404 => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": format!("alive-{n}")}});
                client.post(maps, &object).await
            }
            other => other,
        };
        match answer {
            Ok(answer) if answer.status.is_success() => return Ok(()),
            other if Instant::now() > deadline => {
                let said = other.map_or_else(|it| format!("{it:#}"), |it| it.text());
                bail!("server {n} does not write {RECOVERY:?} after it was left alone: {said}");
            }
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
    Ok(())
}
