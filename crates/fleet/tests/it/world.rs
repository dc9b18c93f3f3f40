//! A cluster in one value: a store with the semantics of `store::Txn`, and processes that take one step at a time
//! between its transactions. Every decision and every transaction is `fleet`'s own.
//!
//! A process that is not scheduled is a process that is paused. Deliberately not here: who is scheduled when; see
//! [`crate::explore`] (every order) and [`crate::stories`] (one order).

mod process;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use fleet::{
    FenceRecord, Identity, MemberRecord, Members,
    agree::{Facts, Plan},
    cluster::{Agreement, Guarantee},
    collect::{self, Collect, Owner},
    custom::Definition,
    fence::Fence,
    keys, mirror, record,
    write::{self, Basis},
};
use jiff::{SignedDuration, Timestamp};
use meta::{GroupResource, StorageVersion, Value};
use store::{Change, Key, Require, Revision, Txn};

pub use process::{Phase, Process, Step};

/// How long departures settle in worlds.
pub const SETTLE: Duration = Duration::from_secs(60);

/// What does not change while a world turns.
#[derive(Clone, Debug)]
pub struct Rules {
    /// How the cluster agrees.
    pub agreement: Agreement,
    /// Whether the resource is a custom one.
    pub is_custom: bool,
    /// What is broken on purpose.
    pub fault: Option<Fault>,
    /// The versions, oldest first.
    pub versions: Vec<StorageVersion>,
}

/// A protocol that should be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Puts require nothing.
    NoFence,
    /// The mark that a DELETE leaves requires nothing.
    MarksExempt,
    /// Who moves the selection leaves the others' entries for them to rewrite.
    LazyEntries,
    /// Fences are written over members that joined meanwhile.
    BlindToJoins,
    /// Members join over versions that came into use meanwhile.
    BlindToMoves,
    /// Puts that need no fence require nothing at all.
    LooseRequiresNothing,
}

/// What a server is made of: which versions it reads, and which of them it prefers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Build {
    /// Its preference.
    pub preferred: StorageVersion,
    /// What it reads.
    pub decodable: Vec<StorageVersion>,
    /// Whether its feature gate is on.
    pub is_on: bool,
}

/// Something went wrong that must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// G1: the mirror shows one version and another was stored.
    Polluted { shown: String, stored: String },
    /// A live member cannot read what was stored.
    Unreadable { member: Identity, stored: String },
    /// Mirror, epoch or record are not what the rules say.
    Broken(String),
}

#[derive(Clone, Debug)]
pub struct World {
    pub revision: Revision,
    keys: BTreeMap<Key, Held>,
    pub processes: Vec<Process>,
    /// A collector between reading and writing.
    pub collector: Option<Decided>,
    pub now: Timestamp,
    /// The versions that objects are stored in.
    pub stored: BTreeSet<StorageVersion>,
    /// A collector has left out a live member: who can read what is no longer promised.
    pub is_misled: bool,
    /// What is promised of puts; an operator may change it.
    pub guarantee: Guarantee,
}

/// A transaction that was decided on, and what tells its content from others.
#[derive(Clone, Debug)]
pub struct Decided {
    pub txn: Txn,
    digest: u64,
    /// The definition that a record was made by.
    definition: Option<Revision>,
}

/// One key.
#[derive(Clone, Debug)]
struct Held {
    modified: Revision,
    content: Arc<Content>,
}

/// Records are decoded once, when they are written.
#[derive(Debug)]
enum Content {
    Fence(FenceRecord),
    Member(MemberRecord),
    Mirror(Value),
    Definition(Definition),
    Mark,
}

impl Decided {
    /// To join: there is one way to.
    pub fn join(txn: Txn) -> Self {
        Self { txn, digest: 0, definition: None }
    }
}

impl World {
    pub fn new(processes: Vec<Process>) -> Self {
        Self {
            revision: Revision::new(1),
            keys: BTreeMap::new(),
            processes,
            collector: None,
            now: Timestamp::from_second(1_000_000).unwrap(),
            stored: BTreeSet::new(),
            is_misled: false,
            guarantee: Guarantee::Strict,
        }
    }

    pub fn resource() -> GroupResource {
        GroupResource::new("example.com", "things")
    }

    pub fn fence(&self) -> Option<Fence> {
        let held = self.keys.get(&keys::fence(&Self::resource()))?;
        match &*held.content {
            Content::Fence(record) => Some(Fence { record: record.clone(), modified: held.modified }),
            other => panic!("{other:?}"),
        }
    }

    /// The fence without a copy.
    pub fn record(&self) -> Option<&FenceRecord> {
        match &*self.keys.get(&keys::fence(&Self::resource()))?.content {
            Content::Fence(record) => Some(record),
            other => panic!("{other:?}"),
        }
    }

    pub fn member(&self, identity: &Identity) -> Option<(MemberRecord, Revision)> {
        let held = self.keys.get(&keys::member(identity))?;
        match &*held.content {
            Content::Member(record) => Some((record.clone(), held.modified)),
            other => panic!("{other:?}"),
        }
    }

    pub fn members(&self) -> Members {
        let range = keys::members();
        Members::of(self.keys.range(range.start..range.end).filter_map(|(_, it)| match &*it.content {
            Content::Member(record) => Some(record.clone()),
            _ => None,
        }))
    }

    pub fn mirror(&self) -> Option<&Value> {
        match &*self.keys.get(&mirror_key())?.content {
            Content::Mirror(object) => Some(object),
            other => panic!("{other:?}"),
        }
    }

    pub fn definition(&self) -> Option<Definition> {
        let held = self.keys.get(&definition_key())?;
        match &*held.content {
            Content::Definition(it) => Some(Definition { revision: held.modified, ..it.clone() }),
            other => panic!("{other:?}"),
        }
    }

    pub fn modified(&self, key: &Key) -> Option<Revision> {
        self.keys.get(key).map(|it| it.modified)
    }

    /// What `agree` wants to know.
    pub fn facts<'a>(
        &self,
        rules: &Rules,
        resource: &'a GroupResource,
        fence: Option<&'a FenceRecord>,
        members: &'a Members,
    ) -> Facts<'a> {
        let (agreement, now, revision) = (rules.agreement, self.now, self.revision);
        Facts { resource, fence, members, agreement, settle: SETTLE, now, revision }
    }

    /// The transaction of a planned fence, with its mirror and with the fault under test.
    pub fn transaction(&self, rules: &Rules, plan: &Plan, basis: &Basis, me: Option<&Identity>) -> Decided {
        let mut plan = plan.clone();
        if rules.fault == Some(Fault::LazyEntries) {
            let before = self.fence();
            for entry in plan.record.entries.iter_mut().filter(|it| Some(&it.identity) != me) {
                let old = before.as_ref().and_then(|it| it.record.entry(&entry.identity));
                entry.encoding = old.map_or_else(|| entry.encoding.clone(), |it| it.encoding.clone());
            }
            let key = keys::fence(&Self::resource());
            let bytes = serde_json::to_vec(&plan.record).unwrap();
            let txn = match basis.fence {
                Some(revision) => Txn::new().require_at(&key, revision),
                None => Txn::new().require_absent(&key),
            };
            return self.decided(txn.put(&key, bytes.into()), &plan.record);
        }
        let mut txn = write::fence(&plan, basis).unwrap();
        if rules.fault == Some(Fault::BlindToJoins) {
            txn.require.retain(|it| *it.key() != keys::joined());
        }
        self.decided(txn, &plan.record)
    }

    fn decided(&self, txn: Txn, record: &FenceRecord) -> Decided {
        let mut hasher = DefaultHasher::new();
        (&record.selection, &record.common, &record.entries, record.hold.is_some()).hash(&mut hasher);
        for it in &record.departed {
            (&it.identity, &it.preferred).hash(&mut hasher);
        }
        Decided { txn: self.with_mirror(txn, record), digest: hasher.finish(), definition: record.definition }
    }

    /// Adds the mirror of a record to a transaction.
    pub fn with_mirror(&self, txn: Txn, record: &FenceRecord) -> Txn {
        let new = mirror::New { uid: "u", now: self.now };
        match mirror::mirror(record, self.mirror(), new) {
            Some(object) => txn.put(&mirror_key(), object.to_string().into()),
            None => txn.delete(&mirror_key()),
        }
    }

    /// Carries out a transaction as every store does.
    pub fn commit(&mut self, txn: &Txn) -> Result<Revision, usize> {
        txn.check().unwrap();
        if let Some(failed) = txn.require.iter().position(|it| !it.holds(self.modified(it.key()))) {
            return Err(failed);
        }
        self.revision = self.revision.next();
        for change in &txn.changes {
            match change {
                Change::Put(key, value, _) => {
                    let content = Arc::new(decode(key, value));
                    self.keys.insert(key.clone(), Held { modified: self.revision, content });
                }
                Change::Delete(key) => {
                    self.keys.remove(key);
                }
            }
        }
        Ok(self.revision)
    }

    /// Commits a change of the fence and checks what must hold of every such change.
    pub fn commit_fence(&mut self, rules: &Rules, Decided { txn, .. }: &Decided) -> Result<bool, Violation> {
        let before = self.fence();
        if self.commit(txn).is_err() {
            return Ok(false);
        }
        let broken = |what: String| Err(Violation::Broken(what));
        let Some(Fence { record, .. }) = self.fence() else { return Ok(true) };
        if rules.fault == Some(Fault::LazyEntries) {
            return Ok(true);
        }
        if !mirror::is_true(&record, self.mirror()) {
            return broken(format!("the mirror shows {:?}", self.mirror()));
        }
        let Some(before) = before else { return Ok(true) };
        let has_changed = record.common != before.record.common;
        let expected = if has_changed { before.record.epoch.next() } else { before.record.epoch };
        if record.epoch != expected {
            return broken(format!("the epoch is {}, not {expected}", record.epoch));
        }
        Ok(true)
    }

    /// Notes that an object was stored and checks the two promises.
    pub fn stored_as(&mut self, version: &StorageVersion) -> Result<(), Violation> {
        self.stored.insert(version.clone());
        if self.guarantee == Guarantee::Loose {
            return Ok(());
        }
        let shown = self.mirror().and_then(|it| it["status"]["commonEncodingVersion"].as_str());
        match shown {
            Some(shown) if shown != version.as_str() => {
                return Err(Violation::Polluted { shown: shown.to_owned(), stored: version.to_string() });
            }
            _ => {}
        }
        let members = self.members();
        let blind = members.iter().find(|it| !it.decodes(&Self::resource(), version));
        match blind {
            Some(member) if !self.is_misled => {
                let (member, stored) = (member.identity.clone(), version.to_string());
                Err(Violation::Unreadable { member, stored })
            }
            _ => Ok(()),
        }
    }

    /// A member's lease ends.
    pub fn lapse(&mut self, identity: &Identity) {
        let _ = self.commit(&Txn::new().delete(&keys::member(identity)));
    }

    /// A user deletes the StorageVersion object.
    pub fn delete_mirror(&mut self) {
        let _ = self.commit(&Txn::new().delete(&mirror_key()));
    }

    /// A server puts it back.
    pub fn mend_mirror(&mut self) {
        let Some(Fence { record, modified }) = self.fence() else { return };
        if !mirror::is_true(&record, self.mirror()) {
            let fence = Require::At(keys::fence(&Self::resource()), modified);
            let txn = self.with_mirror(Txn::new().require(fence), &record);
            let _ = self.commit(&txn);
        }
    }

    /// A user makes another version the storage version of the custom resource.
    pub fn flip(&mut self, rules: &Rules) {
        let versions = &rules.versions;
        let place = self.definition().and_then(|it| versions.iter().position(|v| *v == it.storage));
        let storage = versions[place.map_or(0, |it| (it + 1) % versions.len())].clone();
        let text = Value::String(storage.to_string()).to_string();
        let _ = self.commit(&Txn::new().put(&definition_key(), text.into()));
        let all = rules.versions.clone();
        let definition = Definition {
            uid: "u".into(),
            revision: self.revision,
            storage,
            versions: all.clone(),
            served: all,
        };
        let held = Held { modified: self.revision, content: Arc::new(Content::Definition(definition)) };
        self.keys.insert(definition_key(), held);
    }

    /// An operator changes what is promised of puts.
    pub fn change_guarantee(&mut self) {
        let _ = self.commit(&Txn::new().put(&keys::cluster(), "{}".into()));
        self.guarantee = match self.guarantee {
            Guarantee::Strict => Guarantee::Loose,
            Guarantee::Loose => Guarantee::Strict,
        };
    }

    /// The guarantee, and when it was last changed.
    pub fn modes(&self) -> (Guarantee, Option<Revision>) {
        (self.guarantee, self.modified(&keys::cluster()))
    }

    /// A collector reads and decides; `without` is a live member that it does not see.
    pub fn collector_looks(&mut self, rules: &Rules, without: Option<&Identity>) {
        let Some(fence) = self.fence() else { return };
        let members = Members::of(self.members().iter().filter(|it| Some(&it.identity) != without).cloned());
        let resource = Self::resource();
        let facts = self.facts(rules, &resource, Some(&fence.record), &members);
        let definition = self.definition();
        let owner = match (&definition, rules.is_custom) {
            (Some(definition), true) => Owner::Custom(definition),
            (None, true) => Owner::Gone(self.revision),
            (_, false) => Owner::BuiltIn,
        };
        let basis = self.basis(rules, Some(fence.modified), None);
        let decided = match collect::collect(&facts, &fence.record, owner, !self.stored.is_empty()) {
            Ok(Collect::Write(plan)) => self.transaction(rules, &plan, &basis, None),
            Ok(Collect::Remove) => Decided {
                txn: write::remove_fence(&fence.record, &basis).delete(&mirror_key()),
                digest: u64::MAX,
                definition: None,
            },
            Ok(Collect::Keep) | Err(_) => return,
        };
        self.collector = Some(decided);
        self.is_misled |= without.is_some();
    }

    /// What a decision made now is based on.
    pub fn basis(
        &self,
        rules: &Rules,
        fence: Option<Revision>,
        member: Option<(Identity, Revision)>,
    ) -> Basis {
        let definition = self.modified(&definition_key()).map(|it| Require::At(definition_key(), it));
        let also = definition.into_iter().filter(|_| rules.is_custom).collect();
        Basis { fence, joined: self.modified(&keys::joined()), member, also }
    }

    /// Equal for worlds that can only go on alike: revisions count by their order, times by what has settled.
    pub fn fingerprint(&self) -> u64 {
        let mut revisions: BTreeSet<Revision> = self.keys.values().map(|it| it.modified).collect();
        for process in &self.processes {
            process.each_revision(&mut |it| {
                revisions.insert(it);
            });
        }
        if let Some(decided) = &self.collector {
            each_required(decided, &mut |it| {
                revisions.insert(it);
            });
        }
        for held in self.keys.values() {
            if let Content::Fence(FenceRecord { definition: Some(revision), .. }) = &*held.content {
                revisions.insert(*revision);
            }
        }
        let rank = |it: Revision| revisions.iter().position(|other| *other == it);
        let mut hasher = DefaultHasher::new();
        for (key, held) in &self.keys {
            (key, rank(held.modified)).hash(&mut hasher);
            self.hash_content(&held.content, &mut hasher, &rank);
        }
        for process in &self.processes {
            process.hash_with(&mut hasher, &rank);
        }
        if let Some(decided) = &self.collector {
            hash_decided(decided, &mut hasher, &rank);
        }
        (&self.stored, self.is_misled, self.guarantee).hash(&mut hasher);
        hasher.finish()
    }

    fn hash_content(
        &self,
        content: &Content,
        hasher: &mut DefaultHasher,
        rank: &impl Fn(Revision) -> Option<usize>,
    ) {
        match content {
            Content::Fence(record) => {
                // A record made by an older definition goes on in another way than one made by the newest.
                record.definition.map(rank).hash(hasher);
                (&record.selection, &record.common, &record.hold.is_some()).hash(hasher);
                record.entries.hash(hasher);
                for it in &record.departed {
                    let age = self.now.duration_since(it.at).min(SignedDuration::try_from(SETTLE).unwrap());
                    (&it.identity, &it.preferred, age).hash(hasher);
                }
            }
            Content::Member(record) => (&record.identity, &record.incarnation).hash(hasher),
            Content::Mirror(object) => object["status"]["commonEncodingVersion"].as_str().hash(hasher),
            Content::Definition(it) => it.storage.hash(hasher),
            Content::Mark => {}
        }
    }
}

pub fn mirror_key() -> Key {
    Key::new("/registry/storageversions/example.com.things")
}

pub fn definition_key() -> Key {
    Key::new("/registry/definitions/things")
}

fn decode(key: &Key, value: &[u8]) -> Content {
    let text = key.as_str();
    if keys::fences().contains(text) {
        // A faulty variant may write records that the checks of `record::read` refuse.
        Content::Fence(serde_json::from_slice(value).unwrap())
    } else if keys::members().contains(text) {
        Content::Member(record::read(key, value).unwrap())
    } else if *key == mirror_key() {
        Content::Mirror(serde_json::from_slice(value).unwrap())
    } else {
        Content::Mark
    }
}

fn each_required(decided: &Decided, visit: &mut impl FnMut(Revision)) {
    for require in &decided.txn.require {
        if let Require::At(_, revision) = require {
            visit(*revision);
        }
    }
    decided.definition.into_iter().for_each(visit);
}

fn hash_decided(decided: &Decided, hasher: &mut DefaultHasher, rank: &impl Fn(Revision) -> Option<usize>) {
    (decided.digest, decided.definition.map(rank)).hash(hasher);
    for require in &decided.txn.require {
        match require {
            Require::Absent(key) => (key, None::<Option<usize>>).hash(hasher),
            Require::At(key, revision) => (key, Some(rank(*revision))).hash(hasher),
        }
    }
}
