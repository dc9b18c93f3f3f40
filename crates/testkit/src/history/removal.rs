//! Judges G12 and G3: an object is gone only if somebody asked for it, or if its namespace, its definition or its last
//! owner went; and nothing is there that nobody made.
//!
//! # Flow
//! It is told what clients asked for and were told ([`Removals::note`]), and then every change of the store in order of
//! revision ([`Removals::see`]). Each removal, and each mark of a deletion (`deletionTimestamp`), is judged by what the
//! store held *just before* it, never by what was true earlier or later. [`Removals::judge`] is asked when both are
//! complete up to a revision; [`Removals::unsettled`] says what has yet to go before a cluster is at rest.
//!
//! # What makes a removal right
//! - a client asked for it, by uid or by name, and was not refused (no answer counts as not refused);
//! - its namespace is being deleted, or is not the one that it was made in;
//! - its definition is being deleted. A definition that is gone is no reason: somebody forced it to go, and what is left
//!   then stays, as it does with kube-apiserver;
//! - it names owners, and none of them is there, except those that wait for their dependents (foreground deletion).
//!
//! A marked object was judged when it was marked. It may go when its finalizers are off, and only clients take off those
//! that are not the cluster's own. A namespace and a definition go after what they hold, unless a client forced them.
//!
//! # Assumptions
//! The history is told from the store's first revision on. Values are unique, uids are never used twice.
//! Deliberately not here: whether reads were right ([`super::linearizable`], [`super::watch`]).

mod object;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
};

use super::migration::Change;
use object::{Object, Place};

/// What a client did, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// It is about to write this value, which nobody else ever writes.
    Attempted { value: String },
    /// It was told that an object was written.
    Written { key: String, uid: String, revision: u64 },
    /// It asked for a removal and was not refused.
    Removal { of: Of, after: u64 },
    /// It took finalizers off an object, its namespace's or definition's own included, and was not refused.
    Freed { uid: String },
    /// It was told that an object is gone.
    Gone { uid: String },
}

/// What a client wants to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Of {
    /// This very object.
    Uid(String),
    /// Whatever has this key.
    Key(String),
    /// Whatever has a key that begins so.
    Prefix(String),
}

/// Something that must not have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub revision: u64,
    pub key: String,
    pub uid: String,
    pub what: What,
    /// Why nothing justifies it.
    pub why: String,
}

/// What must not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// An acknowledged write is not in the store's history.
    Lost,
    /// An object was removed, and nobody had a reason to.
    Removed,
    /// An object was marked as being deleted, and nobody had a reason to.
    Marked,
    /// An object was removed while a finalizer held it.
    Unheld,
    /// A namespace or a definition went before what it holds.
    LeftBehind,
    /// An object was made in a namespace that was not there, or was being deleted.
    Homeless,
    /// An object was prepared before its namespace was made: it was meant for an earlier one of the same name.
    Misplaced,
    /// An object was made without a definition, or while it was being deleted.
    Undefined,
    /// A value is stored that nobody wrote.
    Phantom,
    /// One request made two objects.
    Doubled,
    /// An object came back after it was removed.
    Resurrected,
    /// An object that was said to be gone is there.
    NotGone,
}

/// The annotation that holds what a client wrote.
pub const VALUE: &str = "removals/value";

/// Finalizers that the cluster itself takes off.
const OWN_FINALIZERS: [&str; 3] = [FOREGROUND, "orphan", object::CLEANUP];
const FOREGROUND: &str = "foregroundDeletion";

/// Namespaces whose content belongs to the cluster itself.
const SYSTEM: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Objects that end by themselves.
const EVENTS: [&str; 2] = ["/registry/events/", "/registry/events.k8s.io/events/"];

/// The history of one store.
#[derive(Debug, Clone, Default)]
pub struct Removals {
    /// If all clocks agree: by how many seconds an object may look older than its namespace.
    slack: Option<i64>,
    attempted: HashSet<String>,
    /// What clients were told and the history has yet to confirm.
    to_confirm: Vec<Fact>,
    permits: Permits,
    /// By key.
    objects: BTreeMap<String, Object>,
    /// Keys by uid.
    living: HashMap<String, String>,
    /// Uids that were there once.
    removed: HashSet<String>,
    /// Which object has a value, or had it.
    values: HashMap<String, String>,
    /// Keys by namespace, and by definition (`plural.group`).
    content: HashMap<Place, BTreeSet<String>>,
    /// The keys of all definitions that there ever were.
    defined: BTreeSet<String>,
    /// Keys that were used once.
    used: HashSet<String>,
    /// Which uid was put, by key and revision.
    puts: HashMap<(String, u64), String>,
    reached: u64,
    faults: Vec<Violation>,
    pub counts: Counts,
}

/// How much was judged.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Counts {
    pub n_confirmed: usize,
    /// Removals and marks, by what justified them.
    pub n_justified: BTreeMap<&'static str, usize>,
    pub n_created: usize,
    /// Of those, how many have a name that another one had before.
    pub n_anew: usize,
}

#[derive(Debug, Clone, Default)]
struct Permits {
    /// With the revision before which the client cannot have asked.
    uids: HashMap<String, u64>,
    keys: HashMap<String, u64>,
    prefixes: Vec<(String, u64)>,
    freed: HashSet<String>,
}

impl Removals {
    /// A judge for a cluster whose clocks may differ.
    pub fn new() -> Self {
        Self::default()
    }

    /// A judge for a cluster with one clock: an object may look this many seconds older than its namespace.
    pub fn with_one_clock(slack: i64) -> Self {
        Self { slack: Some(slack), ..Self::default() }
    }

    /// What a client did. What it asked for must be noted before the changes that it led to are seen.
    pub fn note(&mut self, fact: Fact) {
        match fact {
            Fact::Attempted { value } => drop(self.attempted.insert(value)),
            Fact::Removal { of, after } => self.permits.give(of, after),
            Fact::Freed { uid } => drop(self.permits.freed.insert(uid)),
            Fact::Written { .. } | Fact::Gone { .. } => self.to_confirm.push(fact),
        }
    }

    /// All changes of one revision. They are judged by what there was before any of them.
    pub fn see(&mut self, revision: u64, changes: &[Change<'_>]) {
        let changes = changes.iter().filter(|(key, _)| key.starts_with("/registry/"));
        let read =
            |(key, value): &Change<'_>| ((*key).to_owned(), value.and_then(|it| Object::read(key, it)));
        let changes: Vec<(String, Option<Object>)> = changes.map(read).collect();
        let mut counts = std::mem::take(&mut self.counts);
        for (key, after) in &changes {
            let found = self.judge_change(revision, key, after.as_ref(), &mut counts);
            self.faults.extend(found);
        }
        self.counts = counts;
        for (key, after) in changes {
            self.keep(revision, &key, after);
        }
        self.reached = self.reached.max(revision);
    }

    /// What was wrong so far. Clients' knowledge of later revisions is kept for the next time.
    pub fn judge(&mut self) -> &[Violation] {
        for fact in std::mem::take(&mut self.to_confirm) {
            match &fact {
                Fact::Written { revision, .. } if *revision > self.reached => self.to_confirm.push(fact),
                Fact::Written { key, uid, revision } => {
                    self.counts.n_confirmed += 1;
                    let stored = self.puts.get(&(key.clone(), *revision));
                    if stored != Some(uid) {
                        let why = format!("it was acknowledged; the store has {stored:?} there");
                        self.faults.push(Violation::new(*revision, key, uid, What::Lost, why));
                    }
                }
                Fact::Gone { uid } => {
                    self.counts.n_confirmed += 1;
                    if let Some(key) = self.living.get(uid) {
                        let why = "a client was told that it is gone".to_owned();
                        self.faults.push(Violation::new(self.reached, key, uid, What::NotGone, why));
                    }
                }
                Fact::Attempted { .. } | Fact::Removal { .. } | Fact::Freed { .. } => {}
            }
        }
        &self.faults
    }

    /// What is on its way out, or would have to be: objects that are marked, and objects whose owners are all gone. What
    /// has no definition cannot go.
    pub fn unsettled(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (key, it) in &self.objects {
            if !self.is_judged(key, it) || self.is_without_definition(key) {
                continue;
            }
            if it.is_deleting {
                found.push(format!("{key} ({}) is marked; finalizers: {:?}", it.uid, it.finalizers));
            } else if self.has_lost_its_owners(it) {
                found.push(format!("{key} ({}) has lost its owners {:?}", it.uid, it.owners));
            }
        }
        found
    }

    /// Everything that is stored below a prefix: key and uid.
    pub fn stored<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let from = self.objects.range(prefix.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(prefix)).map(|(key, it)| (&**key, &*it.uid))
    }

    fn judge_change(
        &self,
        revision: u64,
        key: &str,
        after: Option<&Object>,
        counts: &mut Counts,
    ) -> Vec<Violation> {
        let mut found = Vec::new();
        let before = self.objects.get(key);
        let is_new = after.is_some_and(|it| before.is_none_or(|old| old.uid != it.uid));
        let judged = before.filter(|it| self.is_judged(key, it));
        if let Some(old) = judged.filter(|_| is_new || after.is_none()) {
            found.extend(self.judge_removal(revision, key, old, counts));
        }
        if let (Some(old), Some(new), false) = (judged, after, is_new)
            && new.is_deleting
            && !old.is_deleting
        {
            match self.reason(revision, key, old) {
                Ok(reason) => *counts.n_justified.entry(reason).or_default() += 1,
                Err(why) => found.push(Violation::new(revision, key, &old.uid, What::Marked, why)),
            }
        }
        if let Some(new) = after {
            let problem = |(what, why)| Violation::new(revision, key, &new.uid, what, why);
            found.extend(self.judge_value(new).map(problem));
            if is_new {
                counts.n_created += 1;
                counts.n_anew += usize::from(self.used.contains(key));
                found.extend(self.judge_creation(key, new).into_iter().map(problem));
            }
        }
        found
    }

    fn judge_removal(
        &self,
        revision: u64,
        key: &str,
        old: &Object,
        counts: &mut Counts,
    ) -> Option<Violation> {
        let fault = |what, why| Some(Violation::new(revision, key, &old.uid, what, why));
        let is_freed = self.permits.freed.contains(&old.uid);
        let foreign: Vec<&String> =
            old.finalizers.iter().filter(|it| !OWN_FINALIZERS.contains(&it.as_str())).collect();
        if !foreign.is_empty() && !is_freed {
            return fault(What::Unheld, format!("nobody took {foreign:?} off"));
        }
        if !is_freed && let Some((kept, n)) = self.left_behind(old) {
            return fault(What::LeftBehind, format!("{n} objects are left, {kept} for one"));
        }
        let reason = if old.is_deleting { Ok("marked before") } else { self.reason(revision, key, old) };
        match reason {
            Ok(reason) => *counts.n_justified.entry(reason).or_default() += 1,
            Err(why) => return fault(What::Removed, why),
        }
        None
    }

    /// What a namespace or a definition still holds: one key, and how many.
    fn left_behind(&self, old: &Object) -> Option<(&String, usize)> {
        let mut content = self.content.get(old.guards.as_ref()?)?.iter().filter(|it| !is_event(it));
        let first = content.next()?;
        Some((first, 1 + content.count()))
    }

    /// Why an object may go, by what is stored now; or why it may not.
    fn reason(&self, revision: u64, key: &str, old: &Object) -> Result<&'static str, String> {
        if self.permits.allow(revision, key, &old.uid) {
            return Ok("asked for");
        }
        let home = self.home(old);
        match home {
            Some(home) if home.is_deleting => return Ok("namespace"),
            Some(home) if old.home.as_ref() != Some(&home.uid) => return Ok("earlier namespace"),
            None if !old.namespace.is_empty() => return Ok("namespace gone"),
            Some(_) | None => {}
        }
        let definition = object::definition_key(key).and_then(|it| self.objects.get(&it));
        if definition.is_some_and(|it| it.is_deleting) {
            return Ok("definition");
        }
        if self.has_lost_its_owners(old) {
            return Ok("owners");
        }
        Err(self.why_not(key, old, home, definition))
    }

    fn why_not(&self, key: &str, old: &Object, home: Option<&Object>, definition: Option<&Object>) -> String {
        let mut why = "nobody asked for it".to_owned();
        if let Some(home) = home {
            why += &format!("; its namespace {} ({}) is there", home.name, home.uid);
        }
        match (definition, object::definition_key(key)) {
            (Some(it), _) => why += &format!("; its definition {} ({}) is there", it.name, it.uid),
            (None, Some(name)) if self.is_defined(&name) => why += "; its definition was forced to go",
            (None, _) => {}
        }
        let solid = old.owners.iter().filter(|it| self.is_solid(old, it));
        let solid: Vec<&String> = solid.collect();
        if solid.is_empty() { why + "; it has no owners" } else { why + &format!("; {solid:?} own it") }
    }

    fn judge_value(&self, new: &Object) -> Option<(What, String)> {
        let value = new.value.as_ref()?;
        if !self.attempted.contains(value) {
            return Some((What::Phantom, format!("nobody wrote {value}")));
        }
        let other = self.values.get(value).filter(|it| **it != new.uid)?;
        Some((What::Doubled, format!("{value} is already that of {other}")))
    }

    fn judge_creation(&self, key: &str, new: &Object) -> Vec<(What, String)> {
        let mut found = Vec::new();
        if self.removed.contains(&new.uid) || self.living.contains_key(&new.uid) {
            found.push((What::Resurrected, "its uid was used before".to_owned()));
        }
        if self.is_tenant(&new.namespace) && !is_event(key) {
            match self.home(new) {
                None => found.push((What::Homeless, "there is no such namespace".to_owned())),
                Some(home) if home.is_deleting => {
                    found.push((What::Homeless, format!("its namespace ({}) is being deleted", home.uid)));
                }
                Some(home) => {
                    let gap = home.created.zip(new.created).map_or(0, |(home, new)| home - new);
                    if self.slack.is_some_and(|it| gap > it) {
                        let why = format!("its namespace ({}) is {gap} seconds younger", home.uid);
                        found.push((What::Misplaced, why));
                    }
                }
            }
        }
        if let Some(definition) = object::definition_key(key).filter(|it| self.is_defined(it)) {
            match self.objects.get(&definition) {
                None => found.push((What::Undefined, "its definition is gone".to_owned())),
                Some(it) if it.is_deleting => {
                    found.push((What::Undefined, format!("its definition ({}) is being deleted", it.uid)));
                }
                Some(_) => {}
            }
        }
        found
    }

    fn keep(&mut self, revision: u64, key: &str, after: Option<Object>) {
        if let Some(old) = self.objects.remove(key) {
            for place in old.places(key) {
                if let Some(content) = self.content.get_mut(&place) {
                    content.remove(key);
                }
            }
            self.living.remove(&old.uid);
            let stays = after.as_ref().is_some_and(|it| it.uid == old.uid);
            if !stays {
                self.removed.insert(old.uid.clone());
            }
            if let Some(mut new) = after {
                new.home = if stays { old.home } else { self.home(&new).map(|it| it.uid.clone()) };
                self.put(revision, key, new);
            }
        } else if let Some(mut new) = after {
            new.home = self.home(&new).map(|it| it.uid.clone());
            self.put(revision, key, new);
        }
    }

    fn put(&mut self, revision: u64, key: &str, new: Object) {
        for place in new.places(key) {
            self.content.entry(place).or_default().insert(key.to_owned());
        }
        if object::is_definition(key) {
            self.defined.insert(key.to_owned());
        }
        if let Some(value) = &new.value {
            self.values.entry(value.clone()).or_insert_with(|| new.uid.clone());
        }
        self.living.insert(new.uid.clone(), key.to_owned());
        self.used.insert(key.to_owned());
        self.puts.insert((key.to_owned(), revision), new.uid.clone());
        self.objects.insert(key.to_owned(), new);
    }

    /// What clients made, and whatever is in namespaces that are not the cluster's own.
    fn is_judged(&self, key: &str, object: &Object) -> bool {
        !is_event(key) && (object.value.is_some() || self.is_tenant(&object.namespace))
    }

    fn is_tenant(&self, namespace: &str) -> bool {
        !namespace.is_empty() && !SYSTEM.contains(&namespace)
    }

    fn home(&self, object: &Object) -> Option<&Object> {
        if object.namespace.is_empty() {
            return None;
        }
        self.objects.get(&format!("{}{}", object::NAMESPACES, object.namespace))
    }

    fn is_defined(&self, definition: &str) -> bool {
        self.defined.contains(definition)
    }

    fn is_without_definition(&self, key: &str) -> bool {
        let definition = object::definition_key(key);
        definition.is_some_and(|it| self.is_defined(&it) && !self.objects.contains_key(&it))
    }

    fn has_lost_its_owners(&self, object: &Object) -> bool {
        !object.owners.is_empty() && !object.owners.iter().any(|it| self.is_solid(object, it))
    }

    /// Whether an owner keeps its dependents: it is there, where the dependent can name it, and does not wait for them.
    fn is_solid(&self, dependent: &Object, owner: &str) -> bool {
        let Some(owner) = self.living.get(owner).and_then(|key| self.objects.get(key)) else { return false };
        let is_reachable = owner.namespace.is_empty() || owner.namespace == dependent.namespace;
        let waits = owner.is_deleting && owner.finalizers.iter().any(|it| it == FOREGROUND);
        is_reachable && !waits
    }
}

impl Permits {
    /// The earliest request counts: each of them may have been carried out at any time since.
    fn give(&mut self, of: Of, after: u64) {
        let since = match of {
            Of::Uid(uid) => self.uids.entry(uid).or_insert(after),
            Of::Key(key) => self.keys.entry(key).or_insert(after),
            Of::Prefix(prefix) => return self.prefixes.push((prefix, after)),
        };
        *since = after.min(*since);
    }

    fn allow(&self, revision: u64, key: &str, uid: &str) -> bool {
        let before = |after: &u64| *after < revision;
        self.uids.get(uid).is_some_and(before)
            || self.keys.get(key).is_some_and(before)
            || self.prefixes.iter().any(|(prefix, after)| key.starts_with(prefix) && before(after))
    }
}

fn is_event(key: &str) -> bool {
    EVENTS.iter().any(|it| key.starts_with(it))
}

impl Violation {
    fn new(revision: u64, key: &str, uid: &str, what: What, why: String) -> Self {
        Self { revision, key: key.to_owned(), uid: uid.to_owned(), what, why }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { revision, key, uid, what, why } = self;
        write!(f, "revision {revision}: {key} ({uid}): {what:?}: {why}")
    }
}
