//! What this server knows of the records: what was listed, what the watch brought since, and what its own commits found.
//!
//! # Guarantees
//! Members and the mark of the last join always belong together: both come from the watch, in order, and from nowhere
//! else. A fence or a mirror may be known newer than that, never older. Deliberately not here: where the news comes from.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use fleet::{
    Encoding, FenceRecord, Identity, Incarnation, MemberRecord, Members,
    cluster::{ClusterRecord, Guarantee},
    fence::Fence,
    keys, put,
    record::{self, Record},
};
use meta::{GroupResource, StorageVersion, Value};
use store::{Entry, Event, Key, Require, Revision};

use crate::refusal::{self, Refusal};

/// The board of one server.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Who this server is.
    me: Option<(Identity, Incarnation)>,
    /// Whether the records have been read at all.
    pub(crate) is_loaded: bool,
    /// Everything about records up to this revision has been seen.
    pub(crate) applied: Revision,
    /// The same of mirrors, which have a watch of their own.
    mirrors_applied: Revision,
    pub(crate) cluster: Option<ClusterRecord>,
    /// When that was last written.
    modes: Revision,
    members: BTreeMap<Identity, Held<MemberRecord>>,
    /// The same without revisions, shared with whoever plans.
    live: Arc<Members>,
    /// Records of members that cannot be read: while there are any, nothing is decided.
    strange_members: BTreeMap<Key, String>,
    pub(crate) joined: Option<Revision>,
    pub(crate) moved: Option<Revision>,
    fences: HashMap<GroupResource, Known>,
    /// Which resource a fence's key is about.
    names: HashMap<String, GroupResource>,
    mirrors: HashMap<String, Mirror>,
    pub(crate) refusals: BTreeMap<Identity, Refusal>,
    /// Grows when a resource is written in another version.
    pub(crate) n_moves: u64,
    /// Grows when servers agree on something else, or no more, or again.
    pub(crate) n_agreements: u64,
    /// Grows when the members change.
    pub(crate) n_memberships: u64,
    /// Resources on which the servers came to agree (true), no longer do (false), or which are gone (`None`), in order.
    /// As many as there are records, at most.
    pub(crate) verdicts: BTreeMap<GroupResource, Option<bool>>,
}

/// A record and the revisions of its key.
#[derive(Clone, Debug)]
pub(crate) struct Held<R> {
    pub(crate) record: R,
    pub(crate) created: Revision,
    pub(crate) modified: Revision,
}

/// What is known of one fence.
#[derive(Debug, Default)]
struct Known {
    fence: Option<Arc<Fence>>,
    /// The revision as of which this is known.
    seen: Revision,
    /// What this server may write.
    own: Option<Encoding>,
    /// Why the record cannot be read.
    strange: Option<String>,
}

/// What is known of a StorageVersion object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    pub(crate) object: Option<Arc<Value>>,
    /// When it was last written; `None` if there is none.
    pub(crate) modified: Option<Revision>,
    seen: Revision,
}

/// Everything that a decision about one fence is based on.
#[derive(Clone, Debug)]
pub(crate) struct Basis {
    pub(crate) fence: Option<Arc<Fence>>,
    pub(crate) members: Arc<Members>,
    pub(crate) joined: Option<Revision>,
    pub(crate) mirror: Mirror,
    /// The revision as of which the fence is known.
    pub(crate) revision: Revision,
}

impl Board {
    pub(crate) fn of(identity: &Identity, incarnation: &Incarnation) -> Self {
        Self { me: Some((identity.clone(), incarnation.clone())), ..Self::default() }
    }

    /// Starts anew from a list of everything, as of `revision`.
    pub(crate) fn replace(
        &mut self,
        entries: Vec<Entry>,
        mirrors: Vec<Entry>,
        prefix: &str,
        revision: Revision,
    ) {
        let fences: Vec<GroupResource> = self.fences.keys().cloned().collect();
        self.members.clear();
        self.strange_members.clear();
        self.refusals.clear();
        (self.joined, self.moved) = (None, None);
        let listed: BTreeSet<Key> = entries.iter().map(|it| it.key.clone()).collect();
        for entry in entries {
            self.put(&entry, revision);
        }
        for resource in fences.into_iter().filter(|it| !listed.contains(&keys::fence(it))) {
            self.note_fence(&resource, None, revision);
        }
        let gone: Vec<String> = self.mirrors.keys().cloned().collect();
        let listed: BTreeSet<String> = mirrors.iter().filter_map(|it| mirror_name(&it.key, prefix)).collect();
        for entry in mirrors {
            self.note_mirror_entry(&entry, prefix, revision);
        }
        for name in gone.into_iter().filter(|it| !listed.contains(it)) {
            self.note_mirror(&name, None, revision);
        }
        self.applied = self.applied.max(revision);
        self.mirrors_applied = self.mirrors_applied.max(revision);
        self.forget_fences();
        self.forget_mirrors();
        self.count_members();
    }

    /// Takes in what the watch of the records brought. Says whether that was anything.
    pub(crate) fn apply(&mut self, events: Vec<Event>, revision: Revision) -> bool {
        let mut is_news = false;
        let before = self.applied;
        for event in events.into_iter().filter(|it| it.revision() > before) {
            is_news = true;
            match event {
                Event::Put(entry) => self.put(&entry, entry.modified),
                Event::Delete(key, at) => self.delete(&key, at),
            }
        }
        self.applied = self.applied.max(revision);
        if is_news {
            self.forget_fences();
            self.count_members();
        }
        is_news
    }

    /// Takes in what the watch of the mirrors brought.
    pub(crate) fn apply_mirrors(&mut self, events: &[Event], prefix: &str, revision: Revision) -> bool {
        for event in events {
            match event {
                Event::Put(entry) => self.note_mirror_entry(entry, prefix, entry.modified),
                Event::Delete(key, at) => {
                    if let Some(name) = mirror_name(key, prefix) {
                        self.note_mirror(&name, None, *at);
                    }
                }
            }
        }
        self.mirrors_applied = self.mirrors_applied.max(revision);
        if !events.is_empty() {
            self.forget_mirrors();
        }
        !events.is_empty()
    }

    /// Forgets fences that are gone. Until the watch has come that far, an older answer could bring them back.
    fn forget_fences(&mut self) {
        let (applied, n_known) = (self.applied, self.fences.len());
        self.fences.retain(|_, it| it.fence.is_some() || it.strange.is_some() || it.seen > applied);
        if self.fences.len() < n_known {
            let fences = &self.fences;
            self.names.retain(|_, resource| fences.contains_key(resource));
        }
    }

    /// The same for mirrors.
    fn forget_mirrors(&mut self) {
        let applied = self.mirrors_applied;
        self.mirrors.retain(|_, it| it.modified.is_some() || it.seen > applied);
    }

    /// Takes in a fence as somebody found it at `seen`.
    pub(crate) fn note_fence(&mut self, resource: &GroupResource, entry: Option<&Entry>, seen: Revision) {
        let read = entry.map(|it| (record::read::<FenceRecord>(&it.key, &it.value), it.modified));
        let (fence, strange) = match read {
            None => (None, None),
            Some((Ok(record), modified)) => (Some(Arc::new(Fence { record, modified })), None),
            Some((Err(error), _)) => (None, Some(error.to_string())),
        };
        self.set_fence(resource, fence, strange, seen);
    }

    /// Takes in a fence that this server has just written.
    pub(crate) fn note_written(&mut self, record: FenceRecord, modified: Revision) {
        let resource = record.resource.clone();
        self.set_fence(&resource, Some(Arc::new(Fence { record, modified })), None, modified);
    }

    fn set_fence(
        &mut self,
        resource: &GroupResource,
        fence: Option<Arc<Fence>>,
        strange: Option<String>,
        seen: Revision,
    ) {
        // What is not known was not there when the watch had come as far as it has.
        if seen < self.applied && !self.fences.contains_key(resource) {
            return;
        }
        let own = fence.as_deref().and_then(|it| self.own_encoding(it));
        self.names.insert(keys::mirror_name(resource), resource.clone());
        let known = self.fences.entry(resource.clone()).or_default();
        if seen < known.seen {
            return;
        }
        let (before, agreed) = (known.version(), known.agreement());
        *known = Known { fence, seen, own, strange };
        let verdict = known.fence.as_ref().map(|it| it.record.is_settled());
        self.verdicts.insert(resource.clone(), verdict);
        if known.version() != before {
            self.n_moves += 1;
        }
        if known.agreement() != agreed {
            self.n_agreements += 1;
        }
    }

    /// Takes in how the cluster agrees, as it was written at this revision.
    pub(crate) fn set_cluster(&mut self, cluster: Option<ClusterRecord>, modified: Revision) {
        if modified < self.modes {
            return;
        }
        (self.cluster, self.modes) = (cluster, modified);
        let mut fences = std::mem::take(&mut self.fences);
        for known in fences.values_mut() {
            known.own = known.fence.as_deref().and_then(|it| self.own_encoding(it));
        }
        self.fences = fences;
    }

    /// Whether writes are not fenced.
    pub(crate) fn is_loose(&self) -> bool {
        self.cluster.as_ref().is_some_and(|it| it.guarantee == Guarantee::Loose)
    }

    /// Where writes are not fenced they require that this is still so: whoever sleeps until it is not must not go on.
    fn own_encoding(&self, fence: &Fence) -> Option<Encoding> {
        let (identity, incarnation) = self.me.as_ref()?;
        let guarantee = self.cluster.as_ref().map_or(Guarantee::Strict, |it| it.guarantee);
        let encoding = put::encoding(fence, identity, incarnation, guarantee)?;
        let modes = (self.modes > Revision::ZERO).then(|| Require::At(keys::cluster(), self.modes));
        Some(Encoding { fence: encoding.fence.or(modes), ..encoding })
    }

    /// Takes in a mirror as somebody found it at `seen`.
    pub(crate) fn note_mirror(&mut self, name: &str, found: Option<(Arc<Value>, Revision)>, seen: Revision) {
        if seen < self.mirrors_applied && !self.mirrors.contains_key(name) {
            return;
        }
        let mirror = self.mirrors.entry(name.to_owned()).or_default();
        if seen >= mirror.seen {
            let (object, modified) = found.unzip();
            *mirror = Mirror { object, modified, seen };
        }
    }

    /// The same from a store's entry. What cannot be read is there all the same, and untrue.
    pub(crate) fn note_mirror_entry(&mut self, entry: &Entry, prefix: &str, seen: Revision) {
        if let Some(name) = mirror_name(&entry.key, prefix) {
            let object = serde_json::from_slice(&entry.value).unwrap_or(Value::Null);
            self.note_mirror(&name, Some((Arc::new(object), entry.modified)), seen);
        }
    }

    fn put(&mut self, entry: &Entry, seen: Revision) {
        let key = entry.key.as_str();
        if key == keys::joined().as_str() {
            self.joined = Some(entry.modified);
        } else if key == keys::moved().as_str() {
            self.moved = Some(entry.modified);
        } else if key == keys::cluster().as_str() {
            self.set_cluster(record::read(&entry.key, &entry.value).ok(), entry.modified);
        } else if keys::members().contains(key) {
            self.put_member(entry);
        } else if keys::fences().contains(key) {
            match record::read::<FenceRecord>(&entry.key, &entry.value) {
                Ok(record) => {
                    let (resource, modified) = (record.resource.clone(), entry.modified);
                    self.set_fence(&resource, Some(Arc::new(Fence { record, modified })), None, seen);
                }
                Err(error) => self.strange_fence(&entry.key, &error.to_string(), seen),
            }
        } else if let Some(refusal) = refusal::read(entry) {
            self.refusals.insert(refusal.identity.clone(), refusal);
        }
    }

    fn put_member(&mut self, entry: &Entry) {
        self.strange_members.remove(&entry.key);
        match record::read::<MemberRecord>(&entry.key, &entry.value) {
            Ok(record) if keys::member(&record.identity) == entry.key => {
                let identity = record.identity.clone();
                let held = Held { record, created: entry.created, modified: entry.modified };
                self.members.insert(identity, held);
            }
            Ok(record) => {
                let what = format!("{} holds the record of {}", entry.key, record.identity);
                self.strange_members.insert(entry.key.clone(), what);
            }
            Err(error) => {
                self.strange_members.insert(entry.key.clone(), error.to_string());
            }
        }
    }

    /// A fence that cannot be read is about a resource whose name is known from before, or about one that this server
    /// will ask for by name.
    fn strange_fence(&mut self, key: &Key, why: &str, seen: Revision) {
        let name = key.as_str().trim_start_matches(keys::fences().start.as_str());
        let resource = self.names.get(name).cloned().unwrap_or_else(|| resource_of(name));
        self.set_fence(&resource, None, Some(why.to_owned()), seen);
    }

    fn delete(&mut self, key: &Key, at: Revision) {
        let text = key.as_str();
        if text == keys::joined().as_str() {
            self.joined = None;
        } else if text == keys::moved().as_str() {
            self.moved = None;
        } else if text == keys::cluster().as_str() {
            self.set_cluster(None, at);
        } else if keys::members().contains(text) {
            self.strange_members.remove(key);
            self.members.retain(|identity, _| keys::member(identity) != *key);
        } else if let Some(name) = text.strip_prefix(keys::fences().start.as_str()) {
            if let Some(resource) = self.names.get(name).cloned() {
                self.set_fence(&resource, None, None, at);
            }
        } else {
            self.refusals.retain(|identity, _| refusal::key(identity) != *key);
        }
    }

    fn count_members(&mut self) {
        let records = self.members.values().map(|it| it.record.clone());
        let live = Members::of(records);
        if *self.live != live {
            self.live = Arc::new(live);
            self.n_memberships += 1;
        }
    }

    /// What a decision about a fence is based on; or why nothing can be decided.
    pub(crate) fn basis(&self, resource: &GroupResource) -> Result<Basis, String> {
        if let Some(why) = self.strange_members.values().next() {
            return Err(format!("the members are not known: {why}"));
        }
        let known = self.fences.get(resource);
        if let Some(why) = known.and_then(|it| it.strange.clone()) {
            return Err(why);
        }
        Ok(Basis {
            fence: known.and_then(|it| it.fence.clone()),
            members: Arc::clone(&self.live),
            joined: self.joined,
            mirror: self.mirrors.get(&keys::mirror_name(resource)).cloned().unwrap_or_default(),
            revision: known.map_or(self.applied, |it| it.seen.max(self.applied)),
        })
    }

    /// What this server may write.
    pub(crate) fn own(&self, resource: &GroupResource) -> Option<&Encoding> {
        self.fences.get(resource)?.own.as_ref()
    }

    /// The fence of a resource.
    pub(crate) fn fence(&self, resource: &GroupResource) -> Option<Arc<Fence>> {
        self.fences.get(resource)?.fence.clone()
    }

    /// All fences, by resource.
    pub(crate) fn fences(&self) -> BTreeMap<GroupResource, Arc<Fence>> {
        let known = self.fences.iter();
        known.filter_map(|(resource, it)| Some((resource.clone(), it.fence.clone()?))).collect()
    }

    /// The names of StorageVersion objects that belong to no fence, with the objects.
    pub(crate) fn orphans(&self) -> Vec<(String, Mirror)> {
        let is_orphan = |name: &str| {
            let resource = self.names.get(name);
            resource.is_none_or(|it| {
                self.fences.get(it).is_none_or(|it| it.fence.is_none() && it.strange.is_none())
            })
        };
        let orphans = self.mirrors.iter().filter(|(name, it)| it.object.is_some() && is_orphan(name));
        orphans.map(|(name, it)| (name.clone(), it.clone())).collect()
    }

    /// Whether every record of a member could be read.
    pub(crate) fn knows_all_members(&self) -> bool {
        self.strange_members.is_empty()
    }

    /// The live members.
    pub(crate) fn members(&self) -> Arc<Members> {
        Arc::clone(&self.live)
    }

    /// The record of one server.
    pub(crate) fn member(&self, identity: &Identity) -> Option<&Held<MemberRecord>> {
        self.members.get(identity)
    }

    /// How many members have been there for longer than this server.
    pub(crate) fn rank(&self, identity: &Identity) -> usize {
        let Some(own) = self.members.get(identity) else { return self.members.len() };
        self.members.values().filter(|it| it.created < own.created).count()
    }

    /// The mirror of a resource.
    pub(crate) fn mirror(&self, resource: &GroupResource) -> Mirror {
        self.mirrors.get(&keys::mirror_name(resource)).cloned().unwrap_or_default()
    }

    /// What a resource is written in, by whoever agreed on it.
    pub(crate) fn version(&self, resource: &GroupResource) -> Option<StorageVersion> {
        self.fences.get(resource)?.version()
    }
}

impl Known {
    /// What this server writes, else what the others selected.
    fn version(&self) -> Option<StorageVersion> {
        let selected = self.fence.as_ref().and_then(|it| it.record.selection.clone());
        self.own.as_ref().map(|it| it.version.clone()).or(selected)
    }

    /// What all agree on, and how often that has changed.
    fn agreement(&self) -> Option<(Option<StorageVersion>, u64)> {
        let record = &self.fence.as_ref()?.record;
        Some((record.common.clone(), record.epoch.get()))
    }
}

/// The name of the object at a key below the mirrors' prefix.
fn mirror_name(key: &Key, prefix: &str) -> Option<String> {
    key.as_str().strip_prefix(prefix).map(str::to_owned)
}

/// The resource that a mirror's name is about.
fn resource_of(name: &str) -> GroupResource {
    match name.rsplit_once('.') {
        Some(("core", resource)) => GroupResource::new("", resource),
        Some((group, resource)) => GroupResource::new(group, resource),
        None => GroupResource::new("", name),
    }
}

/// Reads a record that may be absent.
pub(crate) fn read<R: Record>(entry: Option<&Entry>) -> Result<Option<R>, String> {
    entry.map(|it| record::read(&it.key, &it.value)).transpose().map_err(|it| it.to_string())
}
