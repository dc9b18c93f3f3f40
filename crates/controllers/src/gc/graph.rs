//! Who owns whom, as far as the watches have told. No clock, no network: what happens goes in, which objects are worth
//! a look comes out.
//!
//! # Flow
//! A node stands for a uid. A node that no watch has shown, but that others name as their owner, is *virtual*: nothing
//! is known of it until somebody looks. Every change returns the objects that have become worth a look.
//!
//! # Guarantees
//! - Nothing here decides a deletion. The graph can be behind or wrong; a look always asks the server.
//! - A virtual node goes with the last object that names it.
//!
//! Deliberately not here: what a look does (`look.rs`), and what follows from it (`plan.rs`).

mod absent;
mod strings;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use absent::Absent;
use meta::GroupResource;
use strings::Strings;

/// A shared string: kinds, namespaces and uids are met again and again.
pub(crate) type Text = Arc<str>;

/// What an object is called, and which of all that were ever called so it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Identity {
    pub(crate) api_version: Text,
    pub(crate) kind: Text,
    /// Empty if the kind is not in namespaces.
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    pub(crate) uid: Text,
}

impl Identity {
    /// Whether both are the same object, in whichever version.
    fn is_also(&self, other: &Self) -> bool {
        group(&self.api_version) == group(&other.api_version)
            && (&self.kind, &self.namespace, &self.name, &self.uid)
                == (&other.kind, &other.namespace, &other.name, &other.uid)
    }
}

/// The group of an `apiVersion`.
fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |it| it.0)
}

/// The resource in which an object is, was, or was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) resource: Arc<GroupResource>,
    /// A watch has shown the object there. A uid is never used twice, so it is there or it is gone, whatever the resource
    /// is called by now. Otherwise only the kind led there.
    pub(crate) was_seen: bool,
}

/// One entry of `ownerReferences`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) api_version: Text,
    pub(crate) kind: Text,
    pub(crate) name: Text,
    pub(crate) uid: Text,
    /// `blockOwnerDeletion`: a foreground deletion of the owner waits for this object.
    pub(crate) is_blocking: bool,
}

/// How far the deletion of an object has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Nobody has asked for it to go.
    Staying,
    /// It is on its way, and its dependents are nobody's concern until it is gone.
    Going,
    /// It goes after its dependents.
    GoingLast,
    /// It goes after its dependents have forgotten it.
    Orphaning,
}

/// What a watch tells of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) identity: Identity,
    pub(crate) owners: Vec<Owner>,
    pub(crate) life: Life,
    /// The `resourceVersion`; `None` if it is no number, or if a finalizer says what becomes of its dependents.
    pub(crate) plain_at: Option<u64>,
}

/// A watch: everything of one resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Source(pub(crate) u32);

/// What has become worth doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// This object may have to be deleted, released or finished.
    Look(Text),
    /// This object names an owner in another namespace.
    Report(Invalid),
}

/// An owner that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    pub(crate) dependent: Identity,
    pub(crate) owner: Owner,
}

/// What the graph knows of one object.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) identity: Identity,
    /// Where a watch has shown it, now or before.
    pub(crate) seen_in: Option<Arc<GroupResource>>,
    pub(crate) is_virtual: bool,
    pub(crate) life: Life,
    pub(crate) has_dependents: bool,
    /// One of its dependents goes after its own dependents; that may be a circle.
    pub(crate) has_dependent_going_last: bool,
    /// Those that a foreground deletion waits for.
    pub(crate) blocking: Vec<Text>,
}

/// An object all of whose owners were looked for and not found, in the state that a watch has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Abandoned {
    pub(crate) resource_version: u64,
    /// The owners, and where they were looked for.
    pub(crate) owners: Vec<(Identity, Site)>,
}

/// Who owns whom.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: HashMap<Text, Node>,
    sources: HashMap<Source, List>,
    strings: Strings,
    absent: Absent,
}

#[derive(Debug)]
struct Node {
    api_version: Text,
    kind: Text,
    namespace: Text,
    name: Text,
    owners: Box<[Owner]>,
    dependents: BTreeSet<Text>,
    life: Life,
    plain_at: Option<u64>,
    /// `None` for a virtual node.
    seen_by: Option<Source>,
    /// Where a watch has shown it, also if it does so no longer.
    seen_in: Option<Arc<GroupResource>>,
    /// The list of its source that it was last in.
    list: u32,
}

/// The lists that a watch begins with, and begins anew with after a gap.
#[derive(Debug)]
struct List {
    number: u32,
    is_complete: bool,
    resource: Arc<GroupResource>,
}

impl Node {
    fn identity(&self, uid: &Text) -> Identity {
        let Self { api_version, kind, namespace, name, .. } = self;
        Identity {
            api_version: api_version.clone(),
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
        }
    }

    fn is_virtual(&self) -> bool {
        self.seen_by.is_none()
    }

    fn blocks(&self, owner: &Text) -> bool {
        self.owners.iter().any(|it| it.uid == *owner && it.is_blocking)
    }

    /// Whether one of its references means exactly this owner.
    fn names(&self, owner: &Identity) -> bool {
        let is_reachable = owner.namespace.is_empty() || owner.namespace == self.namespace;
        is_reachable && self.owners.iter().any(|it| it.is_to(owner))
    }
}

impl Owner {
    /// The owner, if it is in this namespace.
    pub(crate) fn identity(&self, namespace: Text) -> Identity {
        let Self { api_version, kind, name, uid, .. } = self;
        let (api_version, kind) = (api_version.clone(), kind.clone());
        Identity { api_version, kind, namespace, name: name.clone(), uid: uid.clone() }
    }

    fn is_to(&self, identity: &Identity) -> bool {
        self.uid == identity.uid
            && self.api_version == identity.api_version
            && self.kind == identity.kind
            && self.name == identity.name
    }
}

impl Graph {
    /// A new watch.
    pub(crate) fn add_source(&mut self, source: Source, resource: GroupResource) {
        let resource = Arc::new(resource);
        self.sources.insert(source, List { number: 0, is_complete: false, resource });
    }

    /// A watch is given up because its resource is not served any more. What it showed is not gone by that: it is
    /// unknown.
    pub(crate) fn drop_source(&mut self, source: Source) -> Vec<Action> {
        self.sources.remove(&source);
        let mut actions = Vec::new();
        for uid in self.uids(|node| node.seen_by == Some(source)) {
            if let Some(node) = self.nodes.get_mut(&uid) {
                node.seen_by = None;
                node.life = Life::Staying;
                let owners = std::mem::take(&mut node.owners);
                let is_named = !node.dependents.is_empty();
                self.unlink(&uid, &owners);
                if is_named {
                    actions.push(Action::Look(uid));
                } else {
                    self.nodes.remove(&uid);
                }
            }
        }
        actions
    }

    /// Whether every watch has shown everything once.
    pub(crate) fn is_complete(&self) -> bool {
        self.sources.values().all(|it| it.is_complete)
    }

    /// The watches that have yet to show everything.
    pub(crate) fn incomplete(&self) -> impl Iterator<Item = Source> + '_ {
        self.sources.iter().filter(|(_, it)| !it.is_complete).map(|(source, _)| *source)
    }

    /// Owners that no watch has shown and that are of such a kind (`apiVersion` and kind): they can be asked for now.
    pub(crate) fn look_for(&self, is_served: impl Fn(&str, &str) -> bool) -> Vec<Action> {
        let is_it = |node: &Node| node.is_virtual() && is_served(&node.api_version, &node.kind);
        self.uids(is_it).into_iter().map(Action::Look).collect()
    }

    /// Whether anything that a watch showed is still there.
    pub(crate) fn has_objects_of(&self, source: Source) -> bool {
        self.nodes.values().any(|it| it.seen_by == Some(source))
    }

    /// A watch will not show everything soon; others need not wait for it.
    pub(crate) fn give_up_waiting(&mut self, source: Source) -> Vec<Action> {
        match self.sources.get_mut(&source) {
            Some(list) => list.is_complete = true,
            None => return Vec::new(),
        }
        self.uids(|node| node.life == Life::GoingLast).into_iter().map(Action::Look).collect()
    }

    /// A watch begins to list.
    pub(crate) fn list_begins(&mut self, source: Source) {
        if let Some(list) = self.sources.get_mut(&source) {
            list.number = list.number.wrapping_add(1);
        }
    }

    /// The list is complete: what was not in it is gone.
    pub(crate) fn list_ends(&mut self, source: Source) -> Vec<Action> {
        let Some(list) = self.sources.get_mut(&source) else { return Vec::new() };
        let number = list.number;
        let was_complete = std::mem::replace(&mut list.is_complete, true);
        // Also of a first list: another one may have been broken off before it.
        let missing = self.uids(|node| node.seen_by == Some(source) && node.list != number);
        let mut actions: Vec<Action> = missing.iter().flat_map(|uid| self.gone(uid)).collect();
        if !was_complete {
            // Foreground deletions may have waited for this.
            let waiting = self.uids(|node| node.life == Life::GoingLast);
            actions.extend(waiting.into_iter().map(Action::Look));
        }
        actions
    }

    /// An object was made, changed or listed.
    pub(crate) fn seen(&mut self, source: Source, object: Object) -> Vec<Action> {
        let Some(list) = self.sources.get(&source) else { return Vec::new() };
        let (list, resource) = (list.number, Arc::clone(&list.resource));
        let Object { identity, owners, life, plain_at } = self.share(object);
        let uid = identity.uid.clone();
        let mut actions = Vec::new();
        match self.nodes.get(&uid) {
            Some(node) if node.is_virtual() && node.identity(&uid) != identity => {
                self.doubt_dependents(&identity, &mut actions);
            }
            _ => {}
        }
        let Identity { api_version, kind, namespace, name, .. } = identity;
        let node = self
            .nodes
            .entry(uid.clone())
            .or_insert_with(|| Node::unseen(&api_version, &kind, &namespace, &name));
        let old_life = if node.is_virtual() { Life::Staying } else { node.life };
        (node.api_version, node.kind, node.namespace, node.name) = (api_version, kind, namespace, name);
        (node.seen_by, node.list, node.life, node.plain_at) = (Some(source), list, life, plain_at);
        node.seen_in = Some(resource);
        if *node.owners != *owners {
            self.relink(&uid, owners, &mut actions);
        }
        if life != old_life {
            self.life_changed(&uid, life, &mut actions);
        }
        actions
    }

    /// An object was seen to go. That is no proof: a server that cannot read what another one wrote says the same. So if
    /// others name it, it is asked for.
    pub(crate) fn gone(&mut self, uid: &str) -> Vec<Action> {
        let Some((uid, node)) = self.nodes.get_key_value(uid) else { return Vec::new() };
        let uid = uid.clone();
        if node.dependents.is_empty() {
            return self.remove(&uid);
        }
        let Some(node) = self.nodes.get_mut(&uid) else { return Vec::new() };
        (node.seen_by, node.life) = (None, Life::Staying);
        let owners = std::mem::take(&mut node.owners);
        let mut actions = self.waiting_for(&owners);
        actions.push(Action::Look(uid.clone()));
        self.unlink(&uid, &owners);
        actions
    }

    /// An object is not there.
    fn remove(&mut self, uid: &str) -> Vec<Action> {
        let Some((uid, node)) = self.nodes.remove_entry(uid) else { return Vec::new() };
        let mut actions: Vec<Action> = node.dependents.iter().cloned().map(Action::Look).collect();
        actions.extend(self.waiting_for(&node.owners));
        self.unlink(&uid, &node.owners);
        actions
    }

    /// Those of these owners that go after their dependents.
    fn waiting_for(&self, owners: &[Owner]) -> Vec<Action> {
        let is_waiting = |it: &&Owner| self.nodes.get(&it.uid).is_some_and(|it| it.life == Life::GoingLast);
        owners.iter().filter(is_waiting).map(|it| Action::Look(it.uid.clone())).collect()
    }

    /// The object that a node stands for was looked for at `checked`, in this resource, and was not found. `checked` has no
    /// namespace if its kind has none.
    pub(crate) fn absent(&mut self, checked: &Identity, resource: &GroupResource) -> Vec<Action> {
        let Some(node) = self.nodes.get(&checked.uid) else { return Vec::new() };
        let (naming, others): (Vec<Text>, Vec<Text>) = node
            .dependents
            .iter()
            .cloned()
            .partition(|it| self.nodes.get(it).is_some_and(|it| it.names(checked)));
        let is_other = !node.is_virtual() && node.identity(&checked.uid) != *checked;
        let is_gone = !is_other && (others.is_empty() || !node.is_virtual());
        if !naming.is_empty() {
            let was_seen =
                node.seen_in.as_deref() == Some(resource) && node.identity(&checked.uid) == *checked;
            self.absent.insert(checked.clone(), Site { resource: Arc::new(resource.clone()), was_seen });
        }
        if is_gone {
            return self.remove(&checked.uid);
        }
        let mut actions: Vec<Action> = naming.into_iter().map(Action::Look).collect();
        if !is_other {
            actions.extend(self.rename(&checked.uid, &others));
        }
        actions
    }

    /// An object that can be deleted in the state that a watch has shown, if the server finds it and its owners so.
    pub(crate) fn abandoned(&self, uid: &str) -> Option<Abandoned> {
        let node = self.nodes.get(uid).filter(|it| !it.is_virtual() && it.life == Life::Staying)?;
        let resource_version = node.plain_at?;
        let owners = node.owners.iter().map(|it| self.absent_owner(it, &node.namespace));
        let owners = owners.collect::<Option<Vec<_>>>().filter(|it| !it.is_empty())?;
        Some(Abandoned { resource_version, owners })
    }

    /// The owner that an object in this namespace names, and where it was looked for before and not found.
    pub(crate) fn absent_owner(&self, owner: &Owner, namespace: &Text) -> Option<(Identity, Site)> {
        [Text::default(), namespace.clone()].into_iter().find_map(|namespace| {
            let identity = owner.identity(namespace);
            let site = self.absent.site(&identity)?.clone();
            Some((identity, site))
        })
    }

    #[cfg(test)]
    pub(crate) fn known_absent(&self, owner: &Identity) -> Option<Site> {
        self.absent.site(owner).cloned()
    }

    /// Notes that an owner was not found, though nothing may be known of it here.
    pub(crate) fn note_absent(&mut self, owner: Identity, site: Site) {
        self.absent.insert(owner, site);
    }

    /// Whoever names an object that a watch has shown before, and whose kind nobody serves any more: nobody can be asked for
    /// it, but the server can check where it was.
    pub(crate) fn named_by(&self, uid: &str) -> Vec<Action> {
        let dependents = self.nodes.get(uid).into_iter().flat_map(|it| &it.dependents);
        dependents.cloned().map(Action::Look).collect()
    }

    /// An owner that was taken for absent may be there after all: the server refused to act on its absence. Whoever names
    /// it is linked to it again.
    pub(crate) fn doubt_absent(&mut self, owner: &Identity) -> Vec<Action> {
        self.absent.forget(owner);
        let Identity { api_version, kind, namespace, name, uid } = owner;
        // Also where there is a node: a watch may have shown the owner after it was forgotten with all its dependents.
        let dependents = self.uids(|it| it.owners.iter().any(|it| it.uid == *uid));
        if dependents.is_empty() {
            return Vec::new();
        }
        let node =
            self.nodes.entry(uid.clone()).or_insert_with(|| Node::unseen(api_version, kind, namespace, name));
        node.dependents.extend(dependents);
        vec![Action::Look(uid.clone())]
    }

    /// Where a watch has shown this owner, now or before, in whichever version.
    pub(crate) fn seen_in(&self, owner: &Owner) -> Option<(Identity, Arc<GroupResource>)> {
        let node = self.nodes.get(&owner.uid)?;
        let identity = node.identity(&owner.uid);
        let is_it = group(&owner.api_version) == group(&identity.api_version)
            && owner.kind == identity.kind
            && owner.name == identity.name;
        Some((identity, node.seen_in.clone().filter(|_| is_it)?))
    }

    /// What is known of an object.
    pub(crate) fn view(&self, uid: &str) -> Option<View> {
        let (uid, node) = self.nodes.get_key_value(uid)?;
        let dependents = || node.dependents.iter().filter_map(|it| Some((it, self.nodes.get(it)?)));
        Some(View {
            identity: node.identity(uid),
            seen_in: node.seen_in.clone(),
            is_virtual: node.is_virtual(),
            life: node.life,
            has_dependents: !node.dependents.is_empty(),
            has_dependent_going_last: dependents().any(|(_, it)| it.life == Life::GoingLast),
            blocking: dependents().filter(|(_, it)| it.blocks(uid)).map(|(uid, _)| uid.clone()).collect(),
        })
    }

    /// Whether foreground deletions wait for each other in a circle through this object.
    pub(crate) fn is_in_waiting_circle(&self, uid: &str) -> bool {
        let waits_for = |uid: &str| {
            let node = self.nodes.get_key_value(uid).filter(|(_, it)| it.life == Life::GoingLast);
            let (uid, dependents) = node.map_or((None, None), |(uid, it)| (Some(uid), Some(&it.dependents)));
            let is_awaited = move |it: &&Text| {
                let node = self.nodes.get(*it);
                node.is_some_and(|it| it.life == Life::GoingLast && uid.is_some_and(|uid| it.blocks(uid)))
            };
            dependents.into_iter().flatten().filter(is_awaited).cloned().collect::<Vec<Text>>()
        };
        let mut to_visit = waits_for(uid);
        let mut visited = HashSet::new();
        while let Some(next) = to_visit.pop() {
            if *next == *uid {
                return true;
            }
            if visited.insert(next.clone()) {
                to_visit.extend(waits_for(&next));
            }
        }
        false
    }

    #[cfg(test)]
    pub(crate) fn n_nodes(&self) -> usize {
        self.nodes.len()
    }

    fn uids(&self, is_wanted: impl Fn(&Node) -> bool) -> Vec<Text> {
        self.nodes.iter().filter(|(_, node)| is_wanted(node)).map(|(uid, _)| uid.clone()).collect()
    }

    /// The same object with strings that others have, too.
    fn share(&mut self, object: Object) -> Object {
        let Object { mut identity, mut owners, life, plain_at } = object;
        identity.api_version = self.strings.share(identity.api_version);
        identity.kind = self.strings.share(identity.kind);
        identity.namespace = self.strings.share(identity.namespace);
        for owner in &mut owners {
            owner.api_version = self.strings.share(owner.api_version.clone());
            owner.kind = self.strings.share(owner.kind.clone());
            if let Some((uid, node)) = self.nodes.get_key_value(&owner.uid) {
                owner.uid = uid.clone();
                if node.name == owner.name {
                    owner.name = node.name.clone();
                }
            }
        }
        Object { identity, owners, life, plain_at }
    }

    fn relink(&mut self, uid: &Text, owners: Vec<Owner>, actions: &mut Vec<Action>) {
        let Some(node) = self.nodes.get_mut(uid) else { return };
        let old = std::mem::replace(&mut node.owners, owners.into_boxed_slice());
        let new: Vec<Owner> = node.owners.to_vec();
        // An owner that waited for this object need not wait any more.
        for owner in old.iter().filter(|it| it.is_blocking) {
            if !new.iter().any(|it| it.uid == owner.uid && it.is_blocking) {
                actions.push(Action::Look(owner.uid.clone()));
            }
        }
        let removed: Vec<Owner> =
            old.iter().filter(|it| !new.iter().any(|other| other.uid == it.uid)).cloned().collect();
        for owner in new.iter().filter(|it| !old.contains(it)) {
            self.link(uid, owner, actions);
        }
        self.unlink(uid, &removed);
    }

    fn link(&mut self, uid: &Text, owner: &Owner, actions: &mut Vec<Action>) {
        let Some(namespace) = self.nodes.get(uid).map(|it| it.namespace.clone()) else { return };
        let Some(node) = self.nodes.get_mut(&owner.uid) else {
            let Owner { api_version, kind, name, .. } = owner;
            let mut node = Node::unseen(api_version, kind, &namespace, name);
            node.dependents.insert(uid.clone());
            self.nodes.insert(owner.uid.clone(), node);
            actions.push(Action::Look(owner.uid.clone()));
            return;
        };
        node.dependents.insert(uid.clone());
        if node.is_virtual() {
            return;
        }
        let identity = node.identity(&owner.uid);
        let is_elsewhere = !identity.namespace.is_empty() && identity.namespace != namespace;
        if is_elsewhere && let Some(dependent) = self.nodes.get(uid) {
            let dependent = dependent.identity(uid);
            actions.push(Action::Report(Invalid { dependent, owner: owner.clone() }));
        }
        let is_going_last = self.nodes.get(&owner.uid).is_some_and(|it| it.life == Life::GoingLast);
        if is_elsewhere || is_going_last || !owner.is_to(&identity) {
            actions.push(Action::Look(uid.clone()));
        }
    }

    fn unlink(&mut self, uid: &Text, owners: &[Owner]) {
        for owner in owners {
            if let Some(node) = self.nodes.get_mut(&owner.uid) {
                node.dependents.remove(uid);
                if node.is_virtual() && node.dependents.is_empty() {
                    self.nodes.remove(&owner.uid);
                }
            }
        }
    }

    fn life_changed(&self, uid: &Text, life: Life, actions: &mut Vec<Action>) {
        match life {
            Life::Staying | Life::Going => {}
            Life::Orphaning => actions.push(Action::Look(uid.clone())),
            Life::GoingLast => {
                let dependents = self.nodes.get(uid).into_iter().flat_map(|it| &it.dependents);
                actions.extend(dependents.cloned().map(Action::Look));
                actions.push(Action::Look(uid.clone()));
            }
        }
    }

    /// A virtual node turns out to be something else than some of its dependents say.
    fn doubt_dependents(&self, identity: &Identity, actions: &mut Vec<Action>) {
        let dependents = self.nodes.get(&identity.uid).into_iter().flat_map(|it| &it.dependents);
        for (uid, dependent) in dependents.filter_map(|it| Some((it, self.nodes.get(it)?))) {
            if dependent.names(identity) {
                continue;
            }
            if !identity.namespace.is_empty() && identity.namespace != dependent.namespace {
                let owners = dependent.owners.iter().filter(|it| it.uid == identity.uid);
                actions.extend(owners.map(|owner| {
                    Action::Report(Invalid { dependent: dependent.identity(uid), owner: owner.clone() })
                }));
            }
            actions.push(Action::Look(uid.clone()));
        }
    }

    /// A virtual node is not what it was taken for; some of its dependents call it something else.
    fn rename(&mut self, uid: &Text, dependents: &[Text]) -> Option<Action> {
        let mut candidates: Vec<Identity> = Vec::new();
        for dependent in dependents.iter().filter_map(|it| self.nodes.get(it)) {
            for owner in dependent.owners.iter().filter(|it| it.uid == *uid) {
                candidates.push(Identity {
                    api_version: owner.api_version.clone(),
                    kind: owner.kind.clone(),
                    namespace: dependent.namespace.clone(),
                    name: owner.name.clone(),
                    uid: uid.clone(),
                });
            }
        }
        candidates.sort();
        // Whether the kind has namespaces is not known here.
        let is_absent = |it: &Identity| {
            let without_namespace = Identity { namespace: Text::default(), ..it.clone() };
            self.absent.site(it).or_else(|| self.absent.site(&without_namespace)).is_some()
        };
        let next = candidates.into_iter().find(|it| !is_absent(it))?;
        let node = self.nodes.get_mut(uid)?;
        if !node.identity(uid).is_also(&next) {
            node.seen_in = None;
        }
        (node.api_version, node.kind, node.namespace, node.name) =
            (next.api_version, next.kind, next.namespace, next.name);
        Some(Action::Look(uid.clone()))
    }
}

impl Node {
    fn unseen(api_version: &Text, kind: &Text, namespace: &Text, name: &Text) -> Self {
        Self {
            api_version: api_version.clone(),
            kind: kind.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            owners: Box::default(),
            dependents: BTreeSet::new(),
            life: Life::Staying,
            plain_at: None,
            seen_by: None,
            seen_in: None,
            list: 0,
        }
    }
}

#[cfg(test)]
mod tests;
