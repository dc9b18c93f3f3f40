//! A store with a definition, a namespace, an owner, a leader's lease and objects of two resources, and those who act on
//! them: each first looks and decides, and what it decided on reaches the store later, once, twice, or unheard.
//!
//! Nothing here knows a clock: a process that is not scheduled is a process that sleeps. Deliberately not here: who is
//! scheduled when; see [`super::explore`].

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

/// What is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Of the first resource; the second one is built in.
    Definition,
    Namespace,
    /// The definition of the owner's kind: it says at which of two places owners are.
    OwnerKind,
    /// At one of the two places.
    Owner(u8),
    /// Who leads.
    Lease,
    /// One of each resource is enough: names are used again.
    Object(Resource),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Custom,
    BuiltIn,
}

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub uid: u32,
    pub modified: u64,
    pub is_deleting: bool,
    /// The uid of the owner that it names.
    pub owner: Option<u32>,
    /// Where owners are, if this is the definition of their kind.
    pub place: u8,
}

/// What a transaction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    Absent(Key),
    At(Key, u64),
}

/// Part of a protocol that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omission {
    /// A removal does not require the object as it was.
    OwnKey,
    DefinitionKey,
    NamespaceKey,
    OwnerKey,
    /// It does not require that owners are still where they were looked for.
    OwnerKindKey,
    LeaseKey,
    /// A create does not require its namespace.
    HomeOfCreate,
    /// A create does not require its definition.
    DefinitionOfCreate,
    /// A requirement that failed is judged again by name, whatever has that name now.
    JudgeByName,
    /// A namespace that is empty goes, without being what it was when that was seen.
    FinishOfNamespace,
}

/// Why an object is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ground {
    /// Its definition, of this uid, is being deleted.
    Definition(u32),
    Namespace(u32),
    /// The owner of this uid, which it names, is not there.
    Owner(u32),
}

/// Something that was decided on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    pub act: Act,
    pub needs: Vec<Need>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Remove the object of this uid.
    Remove(Resource, u32, Ground),
    /// Make one, in the namespace of this uid, with this owner.
    Create(Resource, u32, Option<u32>),
    /// Take the finalizer off the definition of this uid, which is empty.
    FinishDefinition(u32),
    FinishNamespace(u32),
}

/// Who acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Every server removes the objects of definitions.
    Follower,
    /// The leader empties namespaces.
    Emptier,
    /// The leader collects what has lost its owner.
    Collector,
    /// A client's create.
    Creator,
}

#[derive(Clone, Debug)]
pub struct Actor {
    pub role: Role,
    pub plan: Option<Plan>,
    /// The definition of the owner's kind, as it was seen last.
    pub kind: Held,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// G12: an object was removed, and its ground did not hold at that revision.
    Groundless,
    /// Another object of that name was removed.
    WrongObject,
    /// It was removed by somebody who did not lead.
    NotLeading,
    /// An object was made in a namespace that is gone, goes, or is another one.
    Homeless,
    /// An object was made without its definition.
    Undefined,
    /// A namespace or a definition went before what it holds.
    LeftBehind,
}

#[derive(Clone, Debug)]
pub struct World {
    pub omission: Option<Omission>,
    pub keys: BTreeMap<Key, Held>,
    pub actors: Vec<Actor>,
    revision: u64,
    last_uid: u32,
    pub n_removed: usize,
    pub n_created: usize,
}

impl World {
    pub fn new(roles: &[Role], omission: Option<Omission>) -> Self {
        let (keys, actors) = (BTreeMap::new(), Vec::new());
        let mut world = Self { omission, keys, actors, revision: 1, last_uid: 0, n_removed: 0, n_created: 0 };
        for key in [Key::Definition, Key::Namespace, Key::OwnerKind, Key::Owner(0), Key::Lease] {
            world.make(key, None);
        }
        let (kind, owner) = (world.keys[&Key::OwnerKind], world.keys[&Key::Owner(0)].uid);
        world.make(Key::Object(Resource::Custom), None);
        world.make(Key::Object(Resource::BuiltIn), Some(owner));
        world.actors = roles.iter().map(|role| Actor { role: *role, plan: None, kind }).collect();
        world
    }

    /// Owners are found at the other place from now on. There are none at that time.
    pub fn swap(&mut self) {
        self.touch(Key::OwnerKind);
        if let Some(kind) = self.keys.get_mut(&Key::OwnerKind) {
            kind.place = 1 - kind.place;
        }
    }

    /// Where the owner is, or would be.
    pub fn owner_key(&self) -> Key {
        Key::Owner(self.keys[&Key::OwnerKind].place)
    }

    /// Sees where owners are.
    pub fn learn(&mut self, actor: usize) {
        self.actors[actor].kind = self.keys[&Key::OwnerKind];
    }

    /// Whether the owner of this uid lives, wherever it is.
    fn lives(&self, uid: u32) -> bool {
        [Key::Owner(0), Key::Owner(1)].iter().any(|it| self.get(*it).is_some_and(|it| it.uid == uid))
    }

    /// Makes what is not there.
    pub fn make(&mut self, key: Key, owner: Option<u32>) {
        self.last_uid += 1;
        self.revision += 1;
        let held = Held { uid: self.last_uid, modified: self.revision, is_deleting: false, owner, place: 0 };
        self.keys.insert(key, held);
    }

    /// Changes something that matters to nobody.
    pub fn touch(&mut self, key: Key) {
        self.revision += 1;
        if let Some(held) = self.keys.get_mut(&key) {
            held.modified = self.revision;
        }
    }

    pub fn mark(&mut self, key: Key) {
        self.touch(key);
        if let Some(held) = self.keys.get_mut(&key) {
            held.is_deleting = true;
        }
    }

    /// Removes it because a client asked for it, or forced it.
    pub fn drop_key(&mut self, key: Key) {
        self.revision += 1;
        self.keys.remove(&key);
    }

    /// Another server leads.
    pub fn take_over(&mut self) {
        self.drop_key(Key::Lease);
        self.make(Key::Lease, None);
    }

    fn get(&self, key: Key) -> Option<Held> {
        self.keys.get(&key).copied()
    }

    /// Looks, and decides what to do about a resource. A collector may be behind: it has not seen the owner yet.
    pub fn look(&self, actor: usize, resource: Resource, is_behind: bool) -> Option<Plan> {
        let object = self.get(Key::Object(resource));
        let act = match self.actors[actor].role {
            Role::Follower if resource == Resource::Custom => {
                let definition = self.get(Key::Definition).filter(|it| it.is_deleting)?.uid;
                match object {
                    Some(it) => Act::Remove(resource, it.uid, Ground::Definition(definition)),
                    None => Act::FinishDefinition(definition),
                }
            }
            Role::Follower => return None,
            Role::Emptier => {
                let namespace = self.get(Key::Namespace).filter(|it| it.is_deleting)?.uid;
                let is_empty = !self.has_content();
                match object {
                    Some(it) => Act::Remove(resource, it.uid, Ground::Namespace(namespace)),
                    None if is_empty => Act::FinishNamespace(namespace),
                    None => return None,
                }
            }
            Role::Collector => {
                let object = object?;
                let owner = object.owner?;
                let kind = self.actors[actor].kind;
                let key = Key::Owner(kind.place);
                let found = self.get(key).filter(|_| !is_behind);
                if found.is_some_and(|it| it.uid == owner) {
                    return None;
                }
                let act = Act::Remove(resource, object.uid, Ground::Owner(owner));
                let mut needs = self.needs_of_removal(Role::Collector, object, resource)?;
                self.need(&mut needs, Omission::OwnerKindKey, Need::At(Key::OwnerKind, kind.modified));
                let absent = found.map_or(Need::Absent(key), |it| Need::At(key, it.modified));
                self.need(&mut needs, Omission::OwnerKey, absent);
                return Some(Plan { act, needs });
            }
            Role::Creator => {
                let namespace = self.get(Key::Namespace).filter(|it| !it.is_deleting)?.uid;
                if resource == Resource::Custom {
                    self.get(Key::Definition).filter(|it| !it.is_deleting)?;
                }
                if object.is_some() {
                    return None;
                }
                Act::Create(resource, namespace, self.get(self.owner_key()).map(|it| it.uid))
            }
        };
        self.needs(self.actors[actor].role, act).map(|needs| Plan { act, needs })
    }

    /// What an act requires, as things are now; `None` if it has no ground.
    fn needs(&self, role: Role, act: Act) -> Option<Vec<Need>> {
        let is_same = |key: Key, uid: u32, is_deleting: bool| {
            self.get(key).filter(|it| it.uid == uid && it.is_deleting == is_deleting)
        };
        let at = |key: Key, held: Held| Need::At(key, held.modified);
        let mut needs = Vec::new();
        if let Act::Remove(resource, uid, _) = act {
            let by_name = self.omission == Some(Omission::JudgeByName);
            let object = self.get(Key::Object(resource)).filter(|it| it.uid == uid || by_name)?;
            needs = self.needs_of_removal(role, object, resource)?;
        }
        let mut need = |omission: Omission, need: Need| self.need(&mut needs, omission, need);
        match act {
            Act::Remove(_, _, ground) => {
                match ground {
                    Ground::Definition(uid) => {
                        let held = is_same(Key::Definition, uid, true)?;
                        need(Omission::DefinitionKey, at(Key::Definition, held));
                    }
                    Ground::Namespace(uid) => {
                        let held = is_same(Key::Namespace, uid, true)?;
                        need(Omission::NamespaceKey, at(Key::Namespace, held));
                    }
                    Ground::Owner(uid) => {
                        // What came back says where owners are now.
                        let (kind, key) = (self.get(Key::OwnerKind)?, self.owner_key());
                        need(Omission::OwnerKindKey, at(Key::OwnerKind, kind));
                        match self.get(key) {
                            Some(it) if it.uid == uid => return None,
                            Some(it) => need(Omission::OwnerKey, at(key, it)),
                            None => need(Omission::OwnerKey, Need::Absent(key)),
                        }
                    }
                }
            }
            Act::Create(resource, namespace, _) => {
                need(Omission::OwnKey, Need::Absent(Key::Object(resource)));
                let home = is_same(Key::Namespace, namespace, false)?;
                need(Omission::HomeOfCreate, at(Key::Namespace, home));
                if resource == Resource::Custom {
                    let definition = self.get(Key::Definition).filter(|it| !it.is_deleting)?;
                    need(Omission::DefinitionOfCreate, at(Key::Definition, definition));
                }
            }
            Act::FinishDefinition(uid) => {
                let held = is_same(Key::Definition, uid, true)?;
                need(Omission::FinishOfNamespace, at(Key::Definition, held));
            }
            Act::FinishNamespace(uid) => {
                let held = is_same(Key::Namespace, uid, true)?;
                need(Omission::FinishOfNamespace, at(Key::Namespace, held));
            }
        }
        if role == Role::Emptier && !matches!(act, Act::Remove(..)) {
            let lease = self.get(Key::Lease)?;
            need(Omission::LeaseKey, at(Key::Lease, lease));
        }
        Some(needs)
    }

    fn need(&self, needs: &mut Vec<Need>, omission: Omission, need: Need) {
        needs.extend((self.omission != Some(omission)).then_some(need));
    }

    /// What every removal requires: the object as it was, and the lease of whoever leads.
    fn needs_of_removal(&self, role: Role, object: Held, resource: Resource) -> Option<Vec<Need>> {
        let mut needs = Vec::new();
        self.need(&mut needs, Omission::OwnKey, Need::At(Key::Object(resource), object.modified));
        if matches!(role, Role::Emptier | Role::Collector) {
            let lease = self.get(Key::Lease)?;
            self.need(&mut needs, Omission::LeaseKey, Need::At(Key::Lease, lease.modified));
        }
        Some(needs)
    }

    /// A plan reaches the store. Whoever made it hears of it, or not: then it sends the same once more.
    pub fn send(&mut self, actor: usize, is_heard: bool, term: u64) -> Result<(), Violation> {
        let Some(plan) = self.actors[actor].plan.take() else { return Ok(()) };
        let holds = |it: &Need| match it {
            Need::Absent(key) => !self.keys.contains_key(key),
            Need::At(key, modified) => self.get(*key).is_some_and(|it| it.modified == *modified),
        };
        if plan.needs.iter().all(holds) {
            self.judge(actor, &plan, term)?;
            self.carry_out(plan.act);
            self.actors[actor].plan = (!is_heard).then_some(plan);
            return Ok(());
        }
        // What failed came back with what there is now, and is judged again: the same uids, or nothing. A leader that has
        // lost its lease does not go on.
        let leads = !matches!(self.actors[actor].role, Role::Emptier | Role::Collector)
            || self.get(Key::Lease).is_some_and(|it| it.modified == term);
        let needs = self.needs(self.actors[actor].role, plan.act).filter(|_| leads);
        self.actors[actor].plan = needs.map(|needs| Plan { act: plan.act, needs });
        Ok(())
    }

    /// The invariants, by what is stored just before the transaction.
    fn judge(&self, actor: usize, plan: &Plan, term: u64) -> Result<(), Violation> {
        let check = |holds: bool, violation: Violation| if holds { Ok(()) } else { Err(violation) };
        let is_going = |key: Key, uid: u32| self.get(key).is_some_and(|it| it.uid == uid && it.is_deleting);
        match plan.act {
            Act::Remove(resource, uid, ground) => {
                if let Some(object) = self.get(Key::Object(resource)) {
                    check(object.uid == uid, Violation::WrongObject)?;
                    let holds = match ground {
                        Ground::Definition(uid) => is_going(Key::Definition, uid),
                        Ground::Namespace(uid) => is_going(Key::Namespace, uid),
                        Ground::Owner(uid) => object.owner == Some(uid) && !self.lives(uid),
                    };
                    check(holds, Violation::Groundless)?;
                }
            }
            Act::Create(resource, namespace, _) => {
                let home = self.get(Key::Namespace);
                let is_home = home.is_some_and(|it| it.uid == namespace && !it.is_deleting);
                check(is_home, Violation::Homeless)?;
                let definition = self.get(Key::Definition).is_some_and(|it| !it.is_deleting);
                check(resource == Resource::BuiltIn || definition, Violation::Undefined)?;
            }
            Act::FinishDefinition(uid) => {
                let is_left = self.get(Key::Object(Resource::Custom)).is_some();
                check(is_going(Key::Definition, uid) && !is_left, Violation::LeftBehind)?;
            }
            Act::FinishNamespace(uid) => {
                check(is_going(Key::Namespace, uid) && !self.has_content(), Violation::LeftBehind)?;
            }
        }
        if matches!(self.actors[actor].role, Role::Emptier | Role::Collector) {
            let leads = self.get(Key::Lease).is_some_and(|it| it.modified == term);
            check(leads, Violation::NotLeading)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, act: Act) {
        match act {
            Act::Remove(resource, ..) => {
                self.drop_key(Key::Object(resource));
                self.n_removed += 1;
            }
            Act::Create(resource, _, owner) => {
                self.make(Key::Object(resource), owner);
                self.n_created += 1;
            }
            Act::FinishDefinition(_) => self.drop_key(Key::Definition),
            Act::FinishNamespace(_) => self.drop_key(Key::Namespace),
        }
    }

    fn has_content(&self) -> bool {
        [Resource::Custom, Resource::BuiltIn].iter().any(|it| self.keys.contains_key(&Key::Object(*it)))
    }

    /// The term of whoever leads now.
    pub fn term(&self) -> u64 {
        self.get(Key::Lease).map_or(0, |it| it.modified)
    }

    /// Equal for worlds that can only go on alike: revisions and uids count by their order.
    pub fn fingerprint(&self, terms: &[u64]) -> u64 {
        let (mut revisions, mut uids) = (BTreeSet::new(), BTreeSet::new());
        for held in self.keys.values() {
            revisions.insert(held.modified);
            uids.extend([Some(held.uid), held.owner].into_iter().flatten());
        }
        revisions.extend(self.actors.iter().map(|it| it.kind.modified));
        for plan in self.actors.iter().filter_map(|it| it.plan.as_ref()) {
            uids.extend(plan.act.uids());
            revisions.extend(plan.needs.iter().filter_map(Need::revision));
        }
        revisions.extend(terms);
        let revision = |it: u64| revisions.iter().position(|other| *other == it);
        let uid = |it: u32| uids.iter().position(|other| *other == it);
        let mut hasher = DefaultHasher::new();
        for (key, held) in &self.keys {
            (key, uid(held.uid), revision(held.modified), held.is_deleting).hash(&mut hasher);
            (held.owner.map(uid), held.place).hash(&mut hasher);
        }
        for actor in &self.actors {
            (revision(actor.kind.modified), actor.kind.place).hash(&mut hasher);
            let Some(Plan { act, needs }) = &actor.plan else {
                0.hash(&mut hasher);
                continue;
            };
            (std::mem::discriminant(act), act.resource()).hash(&mut hasher);
            act.uids().map(uid).collect::<Vec<_>>().hash(&mut hasher);
            for need in needs {
                (need.key(), need.revision().map(revision)).hash(&mut hasher);
            }
        }
        terms.iter().map(|it| revision(*it)).collect::<Vec<_>>().hash(&mut hasher);
        hasher.finish()
    }
}

impl Act {
    fn resource(self) -> Option<Resource> {
        match self {
            Act::Remove(resource, ..) | Act::Create(resource, ..) => Some(resource),
            Act::FinishDefinition(_) | Act::FinishNamespace(_) => None,
        }
    }

    fn uids(self) -> impl Iterator<Item = u32> {
        let uids = match self {
            Act::Remove(_, uid, Ground::Definition(it) | Ground::Namespace(it) | Ground::Owner(it)) => {
                [Some(uid), Some(it)]
            }
            Act::Create(_, namespace, owner) => [Some(namespace), owner],
            Act::FinishDefinition(uid) | Act::FinishNamespace(uid) => [Some(uid), None],
        };
        uids.into_iter().flatten()
    }
}

impl Need {
    fn key(&self) -> Key {
        match self {
            Need::Absent(key) | Need::At(key, _) => *key,
        }
    }

    fn revision(&self) -> Option<u64> {
        match self {
            Need::Absent(_) => None,
            Need::At(_, revision) => Some(*revision),
        }
    }
}
