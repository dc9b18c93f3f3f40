//! Every order of steps up to a depth, or random orders: the search behind [`crate::model`].
//!
//! Breadth first, so the first violation found has a shortest trace. Worlds that can only go on alike are visited
//! once. Deliberately not here: what a step does; see [`crate::world`].

use std::{
    collections::{HashSet, VecDeque},
    fmt,
};

use fleet::{
    agree,
    fence::{Fence, Hold},
    keys,
};
use jiff::SignedDuration;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::world::{Rules, SETTLE, Step, Violation, World};

/// One thing that can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A process takes a step.
    Process(usize, Step),
    /// The lease of a process's identity ends.
    Lapse(usize),
    /// A collector reads; it may overlook the identity of a process.
    CollectorLooks(Option<usize>),
    /// What it decided on reaches the store.
    CollectorCommits,
    /// A user deletes the mirror.
    DeleteMirror,
    /// A server puts it back.
    MendMirror,
    /// Departures settle.
    Settle,
    /// An operator holds the selection, or lets it go.
    Hold,
    /// A user changes the storage version of the custom resource.
    Flip,
    /// An operator changes what is promised of puts.
    Guarantee,
}

/// How often the rarer things may happen in one history.
#[derive(Clone, Copy, Debug, Default, Hash, PartialEq, Eq)]
pub struct Budget {
    pub starts: u8,
    pub crashes: u8,
    pub leaves: u8,
    pub lapses: u8,
    pub looks: u8,
    pub wrong_looks: u8,
    pub mirrors: u8,
    pub settles: u8,
    pub holds: u8,
    pub flips: u8,
    pub puts: u8,
    pub marks: u8,
    pub guarantees: u8,
    pub unheard: u8,
}

/// What to search.
#[derive(Clone, Debug)]
pub struct Search {
    pub rules: Rules,
    pub world: World,
    pub budget: Budget,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub n_worlds: usize,
    pub n_puts: usize,
    pub depth: usize,
    pub found: Option<(Vec<Action>, Violation)>,
}

impl Search {
    /// Every order of at most `depth` steps, or until a violation is found.
    pub fn exhaust(&self, depth: usize) -> Outcome {
        let mut seen = HashSet::from([self.world.fingerprint()]);
        // For each world but the first: which it came from and how.
        let mut came: Vec<(usize, Action)> = vec![(0, Action::MendMirror)];
        let mut queue = VecDeque::from([(0_usize, 0_usize, self.world.clone(), self.budget)]);
        let mut outcome = Outcome { n_worlds: 1, n_puts: 0, depth: 0, found: None };
        while let Some((number, at, world, budget)) = queue.pop_front() {
            if at == depth {
                continue;
            }
            for action in self.actions(&world, &budget) {
                let (mut next, mut left) = (world.clone(), budget);
                let n_stored = next.revision;
                if let Err(violation) = self.act(&mut next, &mut left, action) {
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
                let is_put = matches!(action, Action::Process(_, Step::Send)) && next.revision > n_stored;
                outcome.n_puts += usize::from(is_put);
                if seen.insert(mixed(next.fingerprint(), &left)) {
                    came.push((number, action));
                    outcome.depth = at + 1;
                    queue.push_back((came.len() - 1, at + 1, next, left));
                }
            }
        }
        outcome.n_worlds = came.len();
        outcome
    }

    /// One random history of at most `steps` steps.
    pub fn walk(&self, seed: u64, steps: usize) -> Outcome {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut world, mut budget) = (self.world.clone(), self.budget);
        let mut outcome = Outcome { n_worlds: 1, n_puts: 0, depth: 0, found: None };
        let mut trace = Vec::new();
        for _ in 0..steps {
            let mut actions = self.actions(&world, &budget);
            // Accidents are rare enough that something gets done between them.
            if random.random_range(0..4) > 0 && actions.iter().any(|it| it.is_work()) {
                actions.retain(Action::is_work);
            }
            if actions.is_empty() {
                break;
            }
            let action = actions[random.random_range(0..actions.len())];
            trace.push(action);
            outcome.n_worlds += 1;
            let before = world.revision;
            if let Err(violation) = self.act(&mut world, &mut budget, action) {
                outcome.found = Some((trace, violation));
                break;
            }
            let is_put = matches!(action, Action::Process(_, Step::Send)) && world.revision > before;
            outcome.n_puts += usize::from(is_put);
        }
        outcome
    }

    fn actions(&self, world: &World, budget: &Budget) -> Vec<Action> {
        let mut actions = Vec::new();
        for n in 0..world.processes.len() {
            let affordable = |step: &Step| cost(&mut budget.clone(), Action::Process(n, *step));
            let steps = Step::ALL.into_iter().filter(|it| world.can(&self.rules, n, *it));
            actions.extend(steps.filter(affordable).map(|it| Action::Process(n, it)));
            if world.modified(&keys::member(&world.processes[n].identity)).is_some() {
                actions.push(Action::Lapse(n));
                actions.push(Action::CollectorLooks(Some(n)));
            }
        }
        let fence = world.record();
        if fence.is_some() {
            actions.push(Action::CollectorLooks(None));
        }
        if world.collector.is_some() {
            actions.retain(|it| !matches!(it, Action::CollectorLooks(_)));
            actions.push(Action::CollectorCommits);
        }
        if world.mirror().is_some() {
            actions.push(Action::DeleteMirror);
        } else if fence.is_some_and(|it| !it.entries.is_empty()) {
            actions.push(Action::MendMirror);
        }
        if fence.is_some_and(|it| !it.departed.is_empty()) {
            actions.push(Action::Settle);
        }
        if fence.is_some() && !self.rules.is_custom {
            actions.push(Action::Hold);
        }
        if self.rules.is_custom {
            actions.push(Action::Flip);
        }
        actions.push(Action::Guarantee);
        actions.retain(|it| cost(&mut budget.clone(), *it));
        actions
    }

    fn act(&self, world: &mut World, budget: &mut Budget, action: Action) -> Result<(), Violation> {
        cost(budget, action);
        let rules = &self.rules;
        match action {
            Action::Process(n, step) => world.step(rules, n, step)?,
            Action::Lapse(n) => world.lapse(&world.processes[n].identity.clone()),
            Action::CollectorLooks(without) => {
                let without = without.map(|n| world.processes[n].identity.clone());
                world.collector_looks(rules, without.as_ref());
            }
            Action::CollectorCommits => {
                if let Some(decided) = world.collector.take() {
                    world.commit_fence(rules, &decided)?;
                }
            }
            Action::DeleteMirror => world.delete_mirror(),
            Action::MendMirror => world.mend_mirror(),
            Action::Settle => {
                world.now = world.now.saturating_add(SignedDuration::try_from(SETTLE).unwrap()).unwrap();
            }
            Action::Hold => hold(world, rules)?,
            Action::Flip => world.flip(rules),
            Action::Guarantee => world.change_guarantee(),
        }
        Ok(())
    }
}

/// An operator's hold is set, or lifted if there is one.
pub fn hold(world: &mut World, rules: &Rules) -> Result<(), Violation> {
    let Some(Fence { mut record, modified }) = world.fence() else { return Ok(()) };
    record.hold = match record.hold {
        Some(_) => None,
        None => Some(Hold {
            by: "jane".into(),
            reason: "a look around".into(),
            since: world.now,
            unknown: fleet::record::Unknown::new(),
        }),
    };
    let plan = agree::Plan { record, changed: true, moves: false, waiting: None };
    let basis = world.basis(rules, Some(modified), None);
    let decided = world.transaction(rules, &plan, &basis, None);
    world.commit_fence(rules, &decided)?;
    Ok(())
}

/// Pays for an action; false if the budget is spent.
fn cost(budget: &mut Budget, action: Action) -> bool {
    let purse = match action {
        Action::Process(_, Step::Start) => &mut budget.starts,
        Action::Process(_, Step::Crash) => &mut budget.crashes,
        Action::Process(_, Step::Leave) => &mut budget.leaves,
        Action::Process(_, Step::Encode) => &mut budget.puts,
        Action::Process(_, Step::Mark) => &mut budget.marks,
        Action::Process(_, Step::CommitUnheard) => &mut budget.unheard,
        Action::Process(..) | Action::CollectorCommits | Action::MendMirror => return true,
        Action::Lapse(_) => &mut budget.lapses,
        Action::CollectorLooks(None) => &mut budget.looks,
        Action::CollectorLooks(Some(_)) => &mut budget.wrong_looks,
        Action::DeleteMirror => &mut budget.mirrors,
        Action::Settle => &mut budget.settles,
        Action::Hold => &mut budget.holds,
        Action::Flip => &mut budget.flips,
        Action::Guarantee => &mut budget.guarantees,
    };
    match purse.checked_sub(1) {
        Some(left) => {
            *purse = left;
            true
        }
        None => false,
    }
}

fn mixed(fingerprint: u64, budget: &Budget) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    (fingerprint, budget).hash(&mut hasher);
    hasher.finish()
}

impl Action {
    /// What servers do all day, as opposed to what happens to them.
    fn is_work(&self) -> bool {
        let rare = [Step::Crash, Step::Leave, Step::Notice, Step::CommitUnheard];
        matches!(self, Action::Process(_, step) if !rare.contains(step))
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Process(n, step) => write!(f, "{step} {n}"),
            Action::Lapse(n) => write!(f, "lapse {n}"),
            Action::CollectorLooks(None) => f.write_str("collector looks"),
            Action::CollectorLooks(Some(n)) => write!(f, "collector overlooks {n}"),
            Action::CollectorCommits => f.write_str("collector commits"),
            Action::DeleteMirror => f.write_str("user deletes mirror"),
            Action::MendMirror => f.write_str("mirror is mended"),
            Action::Settle => f.write_str("settle"),
            Action::Hold => f.write_str("hold"),
            Action::Flip => f.write_str("flip"),
            Action::Guarantee => f.write_str("guarantee"),
        }
    }
}

/// A trace on one line.
pub fn show(trace: &[Action]) -> String {
    trace.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
