//! Each watcher's view equals the store's history: in order, without gap or repeat.
//!
//! # Flow
//! Every watcher keeps a [`Log`]: lists, and stretches of watching between two resourceVersions. Writers
//! note what was acknowledged. [`check`] puts everything together at the end.
//!
//! # Guarantees
//! An accepted set of logs agrees with one history: all watchers that covered a revision saw the same
//! change there, every acknowledged put is in it, each list is a state of it.
//!
//! # Assumptions
//! A value is written once (values are unique), and a watcher resumes where its last stretch ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use thiserror::Error;

/// One object as a watcher sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    pub revision: u64,
    pub value: String,
    /// The label that some watchers select by.
    pub label: String,
}

/// One watch event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: Kind,
    pub key: String,
    pub object: Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
}

/// What one watcher did.
#[derive(Debug, Clone, Default)]
pub struct Log {
    pub name: String,
    /// Only objects with this label; `None` for all.
    pub selects: Option<String>,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone)]
pub enum Step {
    /// A list at a revision: at the start, and after 410.
    List { revision: u64, items: BTreeMap<String, Object> },
    /// Events after `from`, complete up to `to` (the last event's or bookmark's revision).
    Watch { from: u64, to: u64, events: Vec<Event> },
}

/// What the writers know.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Puts that were acknowledged, by revision.
    pub acknowledged: BTreeMap<u64, (String, Object)>,
    /// Every value anybody ever tried to write, as (key, value).
    pub attempted: BTreeSet<(String, String)>,
    /// Keys that somebody tried to delete.
    pub deleted: BTreeSet<String>,
}

/// What must not happen.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Violation {
    #[error("{watcher}: {revision} came after {last}")]
    OutOfOrder { watcher: String, revision: u64, last: u64 },
    #[error("{watcher}: resumed from {from}, but the last stretch ended at {last}")]
    BadResume { watcher: String, from: u64, last: u64 },
    #[error("{watcher}: missed the change of {key} at {revision}")]
    Gap { watcher: String, key: String, revision: u64 },
    #[error("{watcher}: saw a change of {key} at {revision} that never was")]
    Phantom { watcher: String, key: String, revision: u64 },
    #[error("{watcher}: saw {key} at {revision} differently than others did: {detail}")]
    Disagrees { watcher: String, key: String, revision: u64, detail: String },
    #[error("{watcher}: its list at {at} shows {key} wrongly: {detail}")]
    BadList { watcher: String, at: u64, key: String, detail: String },
}

/// What [`check`] went through.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub watchers: usize,
    pub events: usize,
    pub lists: usize,
    pub changes: usize,
}

/// Judges all logs against each other and against what was written.
pub fn check(logs: &[Log], written: &Written) -> Result<Summary, Violation> {
    let truth = Truth::gather(logs, written)?;
    let mut summary = Summary { watchers: logs.len(), changes: truth.changes.len(), ..Summary::default() };
    for log in logs {
        let mut view = View { log, truth: &truth, written, state: BTreeMap::new(), last: None };
        for step in &log.steps {
            match step {
                Step::List { revision, items } => {
                    summary.lists += 1;
                    view.list(*revision, items)?;
                }
                Step::Watch { from, to, events } => {
                    summary.events += events.len();
                    view.watch(*from, *to, events)?;
                }
            }
        }
    }
    Ok(summary)
}

/// The one history, as far as anybody saw it.
struct Truth {
    changes: BTreeMap<u64, Change>,
    /// Stretches `(from, to]` that a watcher of everything went through: nothing in them is unseen.
    covered: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    key: String,
    /// `None` for a deletion.
    object: Option<Object>,
}

impl Truth {
    fn gather(logs: &[Log], written: &Written) -> Result<Truth, Violation> {
        let mut changes: BTreeMap<u64, Change> = BTreeMap::new();
        for (revision, (key, object)) in &written.acknowledged {
            changes.insert(*revision, Change { key: key.clone(), object: Some(object.clone()) });
        }
        // A selecting watcher sees an object leave as DELETED, so only the others can tell.
        for log in logs.iter().filter(|it| it.selects.is_none()) {
            for event in log.steps.iter().flat_map(Step::events) {
                let object = (event.kind != Kind::Deleted).then(|| event.object.clone());
                let change = Change { key: event.key.clone(), object };
                let known = changes.entry(event.object.revision).or_insert_with(|| change.clone());
                if *known != change {
                    let detail = format!("{change:?} instead of {known:?}");
                    return Err(disagrees(log, event, detail));
                }
            }
        }
        Ok(Truth { changes, covered: coverage(logs) })
    }

    fn is_covered(&self, revision: u64) -> bool {
        self.covered.iter().any(|(from, to)| *from < revision && revision <= *to)
    }

    /// Whether something may have happened in `(after, at]` that no watcher of everything saw.
    fn has_hole(&self, after: u64, at: u64) -> bool {
        let mut reached = after;
        for (from, to) in &self.covered {
            if *from <= reached {
                reached = reached.max(*to);
            }
        }
        reached < at
    }

    /// The last known change of a key up to a revision.
    fn last_of(&self, key: &str, at: u64) -> Option<(u64, &Change)> {
        let mut earlier = self.changes.range(..=at).rev();
        earlier.find(|(_, change)| change.key == key).map(|(revision, change)| (*revision, change))
    }
}

impl Step {
    fn events(&self) -> &[Event] {
        match self {
            Step::List { .. } => &[],
            Step::Watch { events, .. } => events,
        }
    }
}

fn coverage(logs: &[Log]) -> Vec<(u64, u64)> {
    let steps = logs.iter().filter(|it| it.selects.is_none()).flat_map(|it| &it.steps);
    let mut covered: Vec<(u64, u64)> = steps
        .filter_map(|step| match step {
            Step::List { .. } => None,
            Step::Watch { from, to, .. } => Some((*from, *to)),
        })
        .collect();
    covered.sort_unstable();
    covered
}

/// One watcher's state, replayed.
struct View<'a> {
    log: &'a Log,
    truth: &'a Truth,
    written: &'a Written,
    state: BTreeMap<String, Object>,
    last: Option<u64>,
}

impl View<'_> {
    fn list(&mut self, revision: u64, items: &BTreeMap<String, Object>) -> Result<(), Violation> {
        if let Some(last) = self.last.filter(|last| revision < *last) {
            return Err(Violation::OutOfOrder { watcher: self.log.name.clone(), revision, last });
        }
        for (key, object) in items {
            self.check_item(revision, key, object)?;
        }
        let keys: BTreeSet<&String> = self.truth.changes.range(..=revision).map(|(_, it)| &it.key).collect();
        for key in keys {
            self.check_absence(revision, key, items.get(key))?;
        }
        self.state.clone_from(items);
        self.last = Some(revision);
        Ok(())
    }

    /// A listed object is one that was written, and known to history as such.
    fn check_item(&self, at: u64, key: &str, object: &Object) -> Result<(), Violation> {
        let selected = self.log.selects.as_ref().is_none_or(|it| *it == object.label);
        let attempted = self.written.attempted.contains(&(key.to_owned(), object.value.clone()));
        if !selected || !attempted || object.revision > at {
            return Err(self.bad_list(at, key, format!("{object:?} was never so")));
        }
        match self.truth.changes.get(&object.revision) {
            Some(change) if change.key != key || change.object.as_ref() != Some(object) => {
                Err(self.bad_list(at, key, format!("{object:?} instead of {change:?}")))
            }
            None if self.truth.is_covered(object.revision) => {
                Err(self.bad_list(at, key, format!("{object:?}, but nobody saw it written")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// What history last says of a key is in the list, or something newer that nobody saw happen.
    fn check_absence(&self, at: u64, key: &str, listed: Option<&Object>) -> Result<(), Violation> {
        let Some((revision, change)) = self.truth.last_of(key, at) else { return Ok(()) };
        match (&change.object, listed) {
            (Some(_), Some(listed)) if listed.revision >= revision => Ok(()),
            (None, Some(listed)) if listed.revision > revision => Ok(()),
            (Some(object), Some(listed)) => {
                Err(self.bad_list(at, key, format!("{listed:?} is older than {object:?}")))
            }
            (None, Some(listed)) => Err(self.bad_list(at, key, format!("{listed:?} was deleted"))),
            (None, None) => Ok(()),
            (Some(object), None) => {
                let left = self.log.selects.as_ref().is_some_and(|it| *it != object.label);
                // A write whose outcome nobody learned may have removed it from this view.
                let removable = self.written.deleted.contains(key) || self.log.selects.is_some();
                let explained = left || (removable && self.truth.has_hole(revision, at));
                if explained { Ok(()) } else { Err(self.bad_list(at, key, format!("{object:?} is missing"))) }
            }
        }
    }

    fn watch(&mut self, from: u64, to: u64, events: &[Event]) -> Result<(), Violation> {
        match self.last {
            Some(last) if last != from => {
                return Err(Violation::BadResume { watcher: self.log.name.clone(), from, last });
            }
            Some(_) | None => {}
        }
        let mut last = from;
        for event in events {
            if event.object.revision <= last {
                let watcher = self.log.name.clone();
                return Err(Violation::OutOfOrder { watcher, revision: event.object.revision, last });
            }
            last = event.object.revision;
        }
        let mut seen = events.iter().peekable();
        let covered = (Bound::Excluded(from), Bound::Included(to.max(from)));
        for (revision, change) in self.truth.changes.range(covered) {
            while let Some(event) = seen.next_if(|it| it.object.revision < *revision) {
                self.unknown_to_others(event)?;
            }
            let expected = self.expected(change);
            let got = seen.next_if(|it| it.object.revision == *revision);
            self.compare(*revision, change, expected, got)?;
            match &change.object {
                Some(object) if self.selects(object) => self.state.insert(change.key.clone(), object.clone()),
                Some(_) | None => self.state.remove(&change.key),
            };
        }
        seen.try_for_each(|event| self.unknown_to_others(event))?;
        self.last = Some(to.max(from));
        Ok(())
    }

    /// Only a selecting watcher can be alone with an event, and only where no watcher of everything was.
    fn unknown_to_others(&mut self, event: &Event) -> Result<(), Violation> {
        let attempted = self.written.attempted.contains(&(event.key.clone(), event.object.value.clone()));
        if self.truth.is_covered(event.object.revision) || !attempted {
            return Err(self.phantom(event));
        }
        match event.kind {
            Kind::Added | Kind::Modified => self.state.insert(event.key.clone(), event.object.clone()),
            Kind::Deleted => self.state.remove(&event.key),
        };
        Ok(())
    }

    /// How this watcher must see a change: a selector turns entering and leaving into ADDED and DELETED.
    fn expected(&self, change: &Change) -> Option<Kind> {
        let was = self.state.contains_key(&change.key);
        let is = change.object.as_ref().is_some_and(|it| self.selects(it));
        match (was, is) {
            (false, true) => Some(Kind::Added),
            (true, true) => Some(Kind::Modified),
            (true, false) => Some(Kind::Deleted),
            (false, false) => None,
        }
    }

    fn compare(
        &self,
        revision: u64,
        change: &Change,
        expected: Option<Kind>,
        got: Option<&Event>,
    ) -> Result<(), Violation> {
        let (watcher, key) = (self.log.name.clone(), change.key.clone());
        match (expected, got) {
            (None, None) => Ok(()),
            (Some(_), None) => Err(Violation::Gap { watcher, key, revision }),
            (None, Some(event)) => Err(self.phantom(event)),
            (Some(kind), Some(event)) => {
                let same_value = match &change.object {
                    Some(object) if kind != Kind::Deleted => *object == event.object,
                    Some(_) | None => true,
                };
                if event.kind == kind && event.key == change.key && same_value {
                    return Ok(());
                }
                Err(disagrees(self.log, event, format!("{event:?}, expected {kind:?} of {change:?}")))
            }
        }
    }

    fn selects(&self, object: &Object) -> bool {
        self.log.selects.as_ref().is_none_or(|it| *it == object.label)
    }

    fn phantom(&self, event: &Event) -> Violation {
        let (watcher, key) = (self.log.name.clone(), event.key.clone());
        Violation::Phantom { watcher, key, revision: event.object.revision }
    }

    fn bad_list(&self, at: u64, key: &str, detail: String) -> Violation {
        Violation::BadList { watcher: self.log.name.clone(), at, key: key.to_owned(), detail }
    }
}

fn disagrees(log: &Log, event: &Event, detail: String) -> Violation {
    let (watcher, key) = (log.name.clone(), event.key.clone());
    Violation::Disagrees { watcher, key, revision: event.object.revision, detail }
}

#[cfg(test)]
mod tests;
