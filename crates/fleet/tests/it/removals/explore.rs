//! Every order of steps up to a depth, or random orders.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::world::{Key, Resource, Role, Violation, World};

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// An actor looks at a resource and decides.
    Look(usize, Resource),
    /// The same by one who has not seen the owner yet.
    LookBehind(usize, Resource),
    /// An actor sees where owners are.
    Learn(usize),
    /// Owners are found elsewhere from now on.
    Swap,
    /// What it decided on reaches the store.
    Send(usize),
    /// The same, and it does not hear of it.
    SendUnheard(usize),
    /// A client changes something that matters to nobody.
    Touch(Key),
    /// A client deletes a definition or a namespace.
    Mark(Key),
    /// A client forces it to go, or deletes an owner or an object.
    Drop(Key),
    /// A client makes a definition, a namespace or an owner anew.
    Make(Key),
    /// Another server leads.
    TakeOver,
}

/// How often clients may act in one history, and how often the leader changes.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct Budget {
    pub touches: u8,
    pub marks: u8,
    pub drops: u8,
    pub makes: u8,
    pub terms: u8,
    pub unheard: u8,
    pub behind: u8,
    pub swaps: u8,
}

/// What to search.
#[derive(Clone, Debug)]
pub struct Search {
    pub world: World,
    pub budget: Budget,
}

pub struct Outcome {
    pub n_worlds: usize,
    pub n_removed: usize,
    pub n_created: usize,
    pub found: Option<(Vec<Action>, Violation)>,
}

/// One state of the search: a world, what may still happen, and since when each actor leads.
#[derive(Clone)]
struct State {
    world: World,
    budget: Budget,
    terms: Vec<u64>,
}

impl Search {
    fn start(&self) -> State {
        let terms = vec![self.world.term(); self.world.actors.len()];
        State { world: self.world.clone(), budget: self.budget, terms }
    }

    /// Every order of at most `depth` steps, or until a violation is found.
    pub fn exhaust(&self, depth: usize) -> Outcome {
        let first = self.start();
        let mut seen = HashSet::from([first.fingerprint()]);
        let mut came: Vec<(usize, Action)> = vec![(0, Action::TakeOver)];
        let mut queue = VecDeque::from([(0_usize, 0_usize, first)]);
        let mut outcome = Outcome { n_worlds: 1, n_removed: 0, n_created: 0, found: None };
        while let Some((number, at, state)) = queue.pop_front() {
            if at == depth {
                continue;
            }
            for action in state.actions() {
                let mut next = state.clone();
                if let Err(violation) = next.act(action) {
                    let mut trace = vec![action];
                    let mut from = number;
                    while from > 0 {
                        trace.push(came[from].1);
                        from = came[from].0;
                    }
                    trace.reverse();
                    outcome.found = Some((trace, violation));
                    return outcome;
                }
                if seen.insert(next.fingerprint()) {
                    came.push((number, action));
                    outcome.n_removed = outcome.n_removed.max(next.world.n_removed);
                    outcome.n_created = outcome.n_created.max(next.world.n_created);
                    queue.push_back((came.len() - 1, at + 1, next));
                }
            }
        }
        outcome.n_worlds = came.len();
        outcome
    }

    /// One random history.
    pub fn walk(&self, seed: u64, steps: usize) -> Outcome {
        let mut random = StdRng::seed_from_u64(seed);
        let mut state = self.start();
        let (mut trace, mut found) = (Vec::new(), None);
        for _ in 0..steps {
            let actions = state.actions();
            if actions.is_empty() {
                break;
            }
            let action = actions[random.random_range(0..actions.len())];
            trace.push(action);
            if let Err(violation) = state.act(action) {
                found = Some((trace.clone(), violation));
                break;
            }
        }
        let World { n_removed, n_created, .. } = state.world;
        Outcome { n_worlds: trace.len(), n_removed, n_created, found }
    }
}

impl State {
    fn actions(&self) -> Vec<Action> {
        let (world, budget) = (&self.world, &self.budget);
        let mut actions = Vec::new();
        for n in 0..world.actors.len() {
            if world.actors[n].plan.is_some() {
                actions.push(Action::Send(n));
                actions.extend((budget.unheard > 0).then_some(Action::SendUnheard(n)));
            } else {
                let can = |it: &Resource| world.look(n, *it, false).is_some();
                let resources = [Resource::Custom, Resource::BuiltIn].into_iter();
                actions.extend(resources.clone().filter(can).map(|it| Action::Look(n, it)));
                if world.actors[n].role == Role::Collector {
                    let can = |it: &Resource| budget.behind > 0 && world.look(n, *it, true).is_some();
                    actions.extend(resources.filter(can).map(|it| Action::LookBehind(n, it)));
                    let is_old = world.keys.get(&Key::OwnerKind) != Some(&world.actors[n].kind);
                    actions.extend(is_old.then_some(Action::Learn(n)));
                }
            }
        }
        let owner = world.owner_key();
        let can_swap = budget.swaps > 0 && !world.keys.contains_key(&owner);
        actions.extend(can_swap.then_some(Action::Swap));
        for key in [Key::Definition, Key::Namespace, owner] {
            match world.keys.get(&key) {
                Some(held) => {
                    actions.extend((budget.touches > 0).then_some(Action::Touch(key)));
                    let can_mark = budget.marks > 0 && !held.is_deleting && key != owner;
                    actions.extend(can_mark.then_some(Action::Mark(key)));
                    // Only what is being deleted can be forced to go.
                    let can_drop = budget.drops > 0 && (held.is_deleting || key == owner);
                    actions.extend(can_drop.then_some(Action::Drop(key)));
                }
                None => actions.extend((budget.makes > 0).then_some(Action::Make(key))),
            }
        }
        for key in [Resource::Custom, Resource::BuiltIn].map(Key::Object) {
            if world.keys.contains_key(&key) {
                actions.extend((budget.touches > 0).then_some(Action::Touch(key)));
                actions.extend((budget.drops > 0).then_some(Action::Drop(key)));
            }
        }
        actions.extend((budget.terms > 0).then_some(Action::TakeOver));
        actions
    }

    fn act(&mut self, action: Action) -> Result<(), Violation> {
        let world = &mut self.world;
        match action {
            Action::Look(n, resource) => {
                world.actors[n].plan = world.look(n, resource, false);
                self.terms[n] = world.term();
            }
            Action::LookBehind(n, resource) => {
                self.budget.behind -= 1;
                world.actors[n].plan = world.look(n, resource, true);
                self.terms[n] = world.term();
            }
            Action::Learn(n) => world.learn(n),
            Action::Swap => {
                self.budget.swaps -= 1;
                world.swap();
            }
            Action::Send(n) => world.send(n, true, self.terms[n])?,
            Action::SendUnheard(n) => {
                self.budget.unheard -= 1;
                world.send(n, false, self.terms[n])?;
            }
            Action::Touch(key) => {
                self.budget.touches -= 1;
                world.touch(key);
            }
            Action::Mark(key) => {
                self.budget.marks -= 1;
                world.mark(key);
            }
            Action::Drop(key) => {
                self.budget.drops -= 1;
                world.drop_key(key);
            }
            Action::Make(key) => {
                self.budget.makes -= 1;
                world.make(key, None);
            }
            Action::TakeOver => {
                self.budget.terms -= 1;
                world.take_over();
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        // Terms matter to those who lead and have something in hand.
        let matters = |n: &usize| {
            let actor = &self.world.actors[*n];
            actor.plan.is_some() && matches!(actor.role, Role::Emptier | Role::Collector)
        };
        let terms: Vec<u64> = (0..self.terms.len()).filter(matters).map(|it| self.terms[it]).collect();
        let mut hasher = DefaultHasher::new();
        (self.world.fingerprint(&terms), self.budget).hash(&mut hasher);
        hasher.finish()
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// A trace on one line.
pub fn show(trace: &[Action]) -> String {
    trace.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
