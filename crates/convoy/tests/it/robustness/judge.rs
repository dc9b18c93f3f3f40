//! Everything that was seen, judged: G1, G3, G4, G5, G12 and linearizability by the store's own history, G2 by what clients
//! were told. What is stored is read from the store itself, never through a server.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use futures_util::StreamExt;
use serde_json::{Value, json};
use store::{Event, Range, Revision, SharedStore, Store};
use testkit::history::{
    encoding::Encodings,
    linearizable::{self, Stored, Verdict},
    migration::Migrations,
    removal::{Counts as RemovalCounts, Fact, Removals},
    routing::Routing,
    watch::{self, Kind as EventKind, Log, Step, Written},
};

use super::ledger::{Books, Denial, Kind, N_KINDS};
use crate::fleet::ground::built_in;

/// The judge of one cluster, from its first revision on.
pub struct Judge {
    kinds: [Kind; N_KINDS],
    encodings: Encodings,
    migrations: Migrations,
    routing: Routing,
    removals: Removals,
    /// All that is stored of our kinds, by number of the kind and name: revision and value.
    held: BTreeMap<(usize, String), (u64, String)>,
    seen: Revision,
    pub counts: Counts,
}

/// What was gone through.
#[derive(Debug, Default, Clone)]
pub struct Counts {
    pub n_changes: usize,
    pub n_objects: usize,
    pub n_requests: usize,
    pub n_undecided: usize,
    pub n_events: usize,
    pub n_judged: u64,
    pub n_moves: u64,
    pub n_succeeded: u64,
    pub n_lists: u64,
    pub removals: RemovalCounts,
}

/// What the store went through since the last look.
pub struct Stretch {
    changes: Vec<Event>,
    from: Revision,
}

impl Judge {
    pub fn new(kinds: [Kind; N_KINDS]) -> Self {
        let mut prefixes = built_in();
        prefixes.push(("/registry/example.com/widgets/".to_owned(), "example.com.widgets".to_owned()));
        Self {
            kinds,
            encodings: Encodings::new("/registry/storageversions/", prefixes.clone()),
            migrations: Migrations::new(prefixes),
            routing: Routing::new(["batch", "v1", "jobs"]),
            removals: Removals::new(),
            held: BTreeMap::new(),
            seen: Revision::ZERO,
            counts: Counts::default(),
        }
    }

    /// What people asked for and were told, as far as removals go.
    pub fn note(&mut self, facts: Vec<Fact>) {
        facts.into_iter().for_each(|it| self.removals.note(it));
    }

    /// Whether the store is at rest: nothing is on its way out. Says what is, if it is not.
    pub fn unsettled(&self, stretch: &Stretch) -> Vec<String> {
        let mut removals = self.removals.clone();
        see_each(&stretch.changes, |revision, pairs| removals.see(revision, pairs));
        removals.unsettled()
    }

    /// Reads what the store went through, at least up to a revision at which an object was written.
    pub async fn look(&self, store: &SharedStore, until: u64) -> Result<Stretch> {
        let mut batches = store.watch(&Range::prefix("/"), self.seen).await?;
        let (mut changes, mut reached) = (Vec::new(), self.seen.get());
        while reached < until {
            let next = tokio::time::timeout(std::time::Duration::from_secs(30), batches.next()).await;
            let batch = next.context("the store's history ends too early")?.context("no history")??;
            reached = batch.revision.get();
            changes.extend(batch.events);
        }
        changes.retain(|it| it.revision().get() <= until);
        Ok(Stretch { changes, from: self.seen })
    }

    /// Judges a round. What watchers saw is by the number of the kind.
    pub fn judge(
        &mut self,
        stretch: &Stretch,
        books: &Books,
        logs: &[(usize, Log)],
        goal: &[u64],
    ) -> Result<()> {
        self.see(&stretch.changes);
        let encodings: Vec<&String> = self.encodings.faults.iter().take(10).collect();
        ensure!(encodings.is_empty(), "G1: {} puts: {encodings:#?}", self.encodings.faults.len());
        let migrations: Vec<&String> = self.migrations.faults.iter().take(10).collect();
        ensure!(migrations.is_empty(), "G5: {migrations:#?}");
        let removals: Vec<String> = self.removals.judge().iter().map(ToString::to_string).collect();
        self.counts.removals = self.removals.counts.clone();
        ensure!(removals.is_empty(), "G12: {}: {:#?}", removals.len(), &removals[..removals.len().min(20)]);
        let faults: Vec<&String> = books.faults.iter().take(10).collect();
        ensure!(faults.is_empty(), "{} answers: {faults:#?}", books.faults.len());
        let is_wrong = |it: &&Denial| self.routing.was_offered(it.from, it.to);
        let say = |it: &Denial| format!("between {} and {}: {}", it.from, it.to, it.text);
        let denied: Vec<String> = books.denials.iter().filter(is_wrong).take(10).map(say).collect();
        ensure!(denied.is_empty(), "G2: a member had what was denied: {denied:#?}");
        self.objects(stretch, books)?;
        self.watchers(stretch, books, logs, goal)?;
        let Encodings { n_judged, n_moves, .. } = &self.encodings;
        let Migrations { n_succeeded, n_lists, .. } = &self.migrations;
        (self.counts.n_judged, self.counts.n_moves) = (*n_judged, *n_moves);
        (self.counts.n_succeeded, self.counts.n_lists) = (*n_succeeded, *n_lists);
        self.hold(stretch);
        Ok(())
    }

    /// G1, G5, and who offered what.
    fn see(&mut self, changes: &[Event]) {
        self.counts.n_changes += changes.len();
        see_each(changes, |revision, pairs| {
            for (key, value) in pairs {
                self.encodings.see(revision, key, *value);
            }
            self.migrations.see(revision, pairs);
            self.routing.see(revision, pairs);
            self.removals.see(revision, pairs);
        });
    }

    /// G3, and each object by itself.
    fn objects(&mut self, stretch: &Stretch, books: &Books) -> Result<()> {
        let mut stored: BTreeMap<(usize, String), Vec<Stored>> = BTreeMap::new();
        for change in &stretch.changes {
            if let Some((key, state)) = state_of(&self.kinds, change)? {
                stored.entry(key).or_default().push(state);
            }
        }
        for (key, states) in &stored {
            if books.ops.contains_key(key) {
                continue;
            }
            // Nobody touches what is left of earlier rounds, but servers may write it anew.
            let Some((_, held)) = self.held.get(key) else {
                ensure!(key.1.starts_with("last-"), "G3: nobody wrote {key:?}: {states:?}");
                continue;
            };
            let changed = states.iter().find(|it| it.value.as_ref() != Some(held));
            ensure!(changed.is_none(), "G3: {key:?} was {held}, and is {changed:?}");
        }
        for (key, ops) in &books.ops {
            let none = Vec::new();
            let states = stored.get(key).unwrap_or(&none);
            self.counts.n_objects += 1;
            self.counts.n_requests += ops.len();
            match linearizable::check(ops, states) {
                Ok(Verdict::Linearizable) => {}
                Ok(Verdict::Undecided) => self.counts.n_undecided += 1,
                Err(violation) => bail!("{}/{}: {violation}", self.kinds[key.0].name, key.1),
            }
        }
        Ok(())
    }

    /// G4: the store itself is one more watcher, who saw everything.
    fn watchers(
        &mut self,
        stretch: &Stretch,
        books: &Books,
        logs: &[(usize, Log)],
        goal: &[u64],
    ) -> Result<()> {
        for (kind, name) in self.kinds.map(|it| it.name).into_iter().enumerate() {
            let mut all = vec![self.own_log(stretch, kind, goal[kind])?];
            all.extend(logs.iter().filter(|it| it.0 == kind).map(|it| cut(&it.1, goal[kind])));
            let written: &Written = &books.written[kind];
            let summary = watch::check(&all, written).with_context(|| format!("G4: {name}"))?;
            self.counts.n_events += summary.events;
        }
        Ok(())
    }

    fn own_log(&self, stretch: &Stretch, kind: usize, goal: u64) -> Result<Log> {
        let held = self.held.iter().filter(|it| it.0.0 == kind);
        let object = |revision: u64, value: &str| watch::Object {
            revision,
            value: value.to_owned(),
            label: String::new(),
        };
        let items: BTreeMap<String, watch::Object> =
            held.map(|((_, name), (revision, value))| (name.clone(), object(*revision, value))).collect();
        let mut present: BTreeMap<String, String> =
            items.iter().map(|(name, it)| (name.clone(), it.value.clone())).collect();
        let mut events = Vec::new();
        for change in &stretch.changes {
            let Some(((of, name), state)) = state_of(&self.kinds, change)? else { continue };
            if of != kind || state.revision > goal {
                continue;
            }
            let before = present.remove(&name);
            let (event, value) = match (&before, state.value) {
                (None, Some(value)) => (EventKind::Added, value),
                (Some(_), Some(value)) => (EventKind::Modified, value),
                (_, None) => (EventKind::Deleted, before.unwrap_or_default()),
            };
            if event != EventKind::Deleted {
                present.insert(name.clone(), value.clone());
            }
            events.push(watch::Event { kind: event, key: name, object: object(state.revision, &value) });
        }
        let from = stretch.from.get();
        let steps =
            vec![Step::List { revision: from, items }, Step::Watch { from, to: goal.max(from), events }];
        Ok(Log { name: "the store".to_owned(), selects: None, steps })
    }

    fn hold(&mut self, stretch: &Stretch) {
        for change in &stretch.changes {
            self.seen = self.seen.max(change.revision());
            match state_of(&self.kinds, change) {
                Ok(Some((key, Stored { revision, value: Some(value) }))) => {
                    self.held.insert(key, (revision, value));
                }
                Ok(Some((key, _))) => drop(self.held.remove(&key)),
                Ok(None) | Err(_) => {}
            }
        }
    }
}

impl Stretch {
    /// A line of JSON for each change, for people.
    pub fn lines(&self) -> Vec<String> {
        let line = |change: &Event| {
            let (key, value) = pair(change);
            let object: Value = value.and_then(|it| serde_json::from_slice(it).ok()).unwrap_or_default();
            if key.starts_with("/convoy/") {
                return json!({"revision": change.revision().get(), "key": key, "gone": value.is_none()})
                    .to_string();
            }
            let value = read_value(&object);
            let (version, status) = (&object["apiVersion"], &object["status"]);
            let mut line = json!({"revision": change.revision().get(), "key": key, "version": version});
            if let Some(value) = value {
                line["value"] = json!(value);
            } else if !status.is_null() {
                line["status"] = status.clone();
            }
            line.to_string()
        };
        self.changes.iter().map(line).collect()
    }
}

/// What a watcher saw up to a revision: only so far is it known what it had to see.
fn cut(log: &Log, goal: u64) -> Log {
    let mut log = log.clone();
    log.steps.retain(|it| match it {
        Step::List { revision, .. } => *revision <= goal,
        Step::Watch { from, .. } => *from < goal,
    });
    for step in &mut log.steps {
        if let Step::Watch { to, events, .. } = step {
            events.retain(|it| it.object.revision <= goal);
            *to = (*to).min(goal);
        }
    }
    log
}

/// All changes, those of one revision together.
fn see_each(changes: &[Event], mut see: impl FnMut(u64, &[(&str, Option<&[u8]>)])) {
    for together in changes.chunk_by(|a, b| a.revision() == b.revision()) {
        let pairs: Vec<(&str, Option<&[u8]>)> = together.iter().map(pair).collect();
        see(together[0].revision().get(), &pairs);
    }
}

fn pair(change: &Event) -> (&str, Option<&[u8]>) {
    match change {
        Event::Put(entry) => (entry.key.as_str(), Some(&entry.value)),
        Event::Delete(key, _) => (key.as_str(), None),
    }
}

fn read_value(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][super::ledger::VALUE].as_str()
}

/// A change of one of our objects; nothing for those of others.
fn state_of(kinds: &[Kind], change: &Event) -> Result<Option<((usize, String), Stored)>> {
    let (key, value) = pair(change);
    let found = kinds.iter().enumerate().find_map(|(n, it)| Some((n, key.strip_prefix(it.prefix)?)));
    let Some((kind, name)) = found else { return Ok(None) };
    let revision = change.revision().get();
    let value = match value {
        None if is_ours(name) => None,
        None => return Ok(None),
        Some(bytes) => {
            let object: Value = serde_json::from_slice(bytes).context("objects are stored as JSON")?;
            let Some(value) = read_value(&object) else { return Ok(None) };
            Some(value.to_owned())
        }
    };
    Ok(Some(((kind, name.to_owned()), Stored { revision, value })))
}

/// `r0-1` and `last-0`.
fn is_ours(name: &str) -> bool {
    name.starts_with("last-") || name.starts_with('r') && name.contains('-')
}
