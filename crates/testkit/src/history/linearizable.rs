//! What clients were told of one object agrees with one order of events, which is the store's.
//!
//! # Flow
//! Clients note when they asked and when they were answered ([`Op`]); afterwards the store says what it held, revision
//! by revision ([`Stored`]). [`check`] looks for moments at which everything happened (the search of Wing and Gong,
//! with what was seen before remembered): each between question and answer, each as the object was at that moment.
//!
//! # Guarantees
//! A history that is accepted is linearizable, nothing acknowledged is missing from the store, and nothing is in the
//! store that nobody asked for. A question without an answer may have had its effect at any time since, or never.
//!
//! # Assumptions
//! Values are unique. The object was absent at first. `Stored` is complete. Servers may write an object anew as it is.

use std::collections::{BTreeMap, HashSet};

use thiserror::Error;

/// What a client asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Create(String),
    Read,
    /// Replaces what has this resourceVersion.
    Update {
        expected: u64,
        value: String,
    },
    /// Replaces whatever is there.
    Patch(String),
    Delete,
}

/// What it was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Written at this resourceVersion.
    Put(u64),
    Removed,
    /// Read: this value at this resourceVersion.
    Found(String, u64),
    /// There is no such object.
    Missing,
    /// There is one already.
    Exists,
    /// It has another resourceVersion.
    Conflict,
    /// Nothing was done, for a reason that says nothing of the object.
    Refused,
    /// It may have happened, or may yet happen.
    Unknown,
}

/// One request about the object; times are of one clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    pub who: String,
    pub asked: u64,
    /// When the answer was there, or the client gave up.
    pub answered: u64,
    pub action: Action,
    pub outcome: Outcome,
}

/// What the object was from a revision on; `None` is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    pub revision: u64,
    pub value: Option<String>,
}

/// What must not happen.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Violation {
    #[error("acknowledged, but not in the store: {0:?}")]
    Lost(Op),
    #[error("refused, but in the store: {0:?}")]
    DoneThoughRefused(Op),
    #[error("nobody asked for {0:?}")]
    Phantom(Stored),
    #[error(
        "no order of events explains this; at best the object was {state:?} when one of these came: {stuck:#?}"
    )]
    NoOrder { state: Option<Stored>, stuck: Vec<Op> },
}

/// How far the search came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Linearizable,
    /// The search was given up.
    Undecided,
}

/// So many states are looked at.
const BUDGET: usize = 500_000;

/// Judges all that was asked of one object.
pub fn check(ops: &[Op], stored: &[Stored]) -> Result<Verdict, Violation> {
    let makers = makers(ops, stored)?;
    let mut late: Vec<&Op> = Vec::new();
    let mut items: Vec<(usize, &Op)> = Vec::new();
    for (n, op) in ops.iter().enumerate() {
        match (&op.action, &op.outcome) {
            (Action::Delete, Outcome::Unknown) => late.push(op),
            (_, Outcome::Unknown | Outcome::Refused) => {}
            _ => items.push((n, op)),
        }
    }
    items.sort_by_key(|(_, op)| op.asked);
    if late.len() > 64 {
        return Ok(Verdict::Undecided);
    }
    Search { ops, stored, makers, items, late }.run()
}

/// Where a state of the object came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    Op(usize),
    /// Written anew by a server, as it was.
    Rewrite,
    /// By one of those who asked for it to be removed.
    Removal,
}

fn makers(ops: &[Op], stored: &[Stored]) -> Result<Vec<Maker>, Violation> {
    let mut by_value = BTreeMap::new();
    for (n, op) in ops.iter().enumerate() {
        if let Some(value) = op.action.value() {
            by_value.insert(value, n);
        }
    }
    let mut makers = Vec::new();
    let mut before: Option<&str> = None;
    for state in stored {
        let value = state.value.as_deref();
        let maker = match value {
            None => Maker::Removal,
            Some(_) if before == value => Maker::Rewrite,
            Some(value) => {
                let n = *by_value.get(value).ok_or_else(|| Violation::Phantom(state.clone()))?;
                match &ops[n].outcome {
                    Outcome::Unknown => {}
                    Outcome::Put(revision) if *revision == state.revision => {}
                    Outcome::Put(_) => return Err(Violation::Phantom(state.clone())),
                    _ => return Err(Violation::DoneThoughRefused(ops[n].clone())),
                }
                Maker::Op(n)
            }
        };
        makers.push(maker);
        before = value;
    }
    for (n, op) in ops.iter().enumerate() {
        if matches!(op.outcome, Outcome::Put(_)) && !makers.contains(&Maker::Op(n)) {
            return Err(Violation::Lost(op.clone()));
        }
    }
    Ok(makers)
}

impl Action {
    fn value(&self) -> Option<&str> {
        match self {
            Action::Create(value) | Action::Update { value, .. } | Action::Patch(value) => Some(value),
            Action::Read | Action::Delete => None,
        }
    }
}

struct Search<'a> {
    ops: &'a [Op],
    stored: &'a [Stored],
    makers: Vec<Maker>,
    /// Answered, by the time they were asked.
    items: Vec<(usize, &'a Op)>,
    /// Removals without an answer.
    late: Vec<&'a Op>,
}

/// How far an order of events is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Node {
    /// All items before this one have happened.
    base: usize,
    /// And these after it, in order.
    ahead: Vec<usize>,
    /// And these of the late ones.
    late: u64,
    /// So many states of the object are past.
    at: usize,
}

impl Search<'_> {
    fn run(&self) -> Result<Verdict, Violation> {
        let mut seen = HashSet::new();
        let mut stack = vec![Node { base: 0, ahead: Vec::new(), late: 0, at: 0 }];
        let mut furthest = (0, stack[0].clone());
        while let Some(node) = stack.pop() {
            let node = self.observe(node);
            if node.base == self.items.len() && node.at == self.stored.len() {
                return Ok(Verdict::Linearizable);
            }
            let progress = node.base + node.ahead.len() + node.at;
            if progress > furthest.0 {
                furthest = (progress, node.clone());
            }
            if !seen.insert(node.clone()) {
                continue;
            }
            if seen.len() > BUDGET {
                return Ok(Verdict::Undecided);
            }
            self.step(&node, &mut stack);
        }
        let (_, node) = furthest;
        let stuck = self.open(&node).into_iter().map(|n| self.items[n].1.clone()).take(8).collect();
        Err(Violation::NoOrder { state: self.state(&node).cloned(), stuck })
    }

    /// The items that may come next: asked before any of those that are left was answered.
    fn open(&self, node: &Node) -> Vec<usize> {
        let mut found = Vec::new();
        let mut first_answer = u64::MAX;
        for n in self.left(node) {
            let op = self.items[n].1;
            if op.asked > first_answer {
                break;
            }
            first_answer = first_answer.min(op.answered);
            found.push(n);
        }
        found.retain(|n| self.items[*n].1.asked <= first_answer);
        found
    }

    fn left<'n>(&'n self, node: &'n Node) -> impl Iterator<Item = usize> + 'n {
        (node.base..self.items.len()).filter(|n| node.ahead.binary_search(n).is_err())
    }

    fn first_answer(&self, node: &Node) -> u64 {
        self.open(node).into_iter().map(|n| self.items[n].1.answered).min().unwrap_or(u64::MAX)
    }

    fn state(&self, node: &Node) -> Option<&Stored> {
        node.at.checked_sub(1).map(|at| &self.stored[at])
    }

    /// Whoever only looked, and saw what is there now, may as well have looked now: nothing is lost by it.
    fn observe(&self, mut node: Node) -> Node {
        loop {
            let state = self.state(&node);
            let fits = self.open(&node).into_iter().find(|n| is_seen(self.items[*n].1, state));
            let Some(n) = fits else { return node };
            node.happen(n);
        }
    }

    /// The next state of the object, by whoever may have made it.
    fn step(&self, node: &Node, stack: &mut Vec<Node>) {
        let Some(maker) = self.makers.get(node.at) else { return };
        let mut next = Node { at: node.at + 1, ..node.clone() };
        match maker {
            Maker::Rewrite => stack.push(next),
            Maker::Op(n) => {
                let op = &self.ops[*n];
                if !may_put(&op.action, self.state(node)) {
                    return;
                }
                if op.outcome == Outcome::Unknown {
                    if op.asked <= self.first_answer(node) {
                        stack.push(next);
                    }
                } else if let Some(item) = self.open(node).into_iter().find(|it| self.items[*it].0 == *n) {
                    next.happen(item);
                    stack.push(next);
                }
            }
            Maker::Removal => {
                let first_answer = self.first_answer(node);
                for (n, op) in self.late.iter().enumerate() {
                    let bit = 1_u64 << n;
                    if node.late & bit == 0 && op.asked <= first_answer {
                        stack.push(Node { late: node.late | bit, ..next.clone() });
                    }
                }
                for n in self.open(node) {
                    if self.items[n].1.outcome == Outcome::Removed {
                        let mut next = next.clone();
                        next.happen(n);
                        stack.push(next);
                    }
                }
            }
        }
    }
}

impl Node {
    fn happen(&mut self, n: usize) {
        if let Err(place) = self.ahead.binary_search(&n) {
            self.ahead.insert(place, n);
        }
        while self.ahead.first() == Some(&self.base) {
            self.ahead.remove(0);
            self.base += 1;
        }
    }
}

fn is_present(state: Option<&Stored>) -> bool {
    state.is_some_and(|it| it.value.is_some())
}

/// Whether somebody who changed nothing was told of this state.
fn is_seen(op: &Op, state: Option<&Stored>) -> bool {
    match (&op.action, &op.outcome) {
        (_, Outcome::Found(value, revision)) => {
            state.is_some_and(|it| it.revision == *revision && it.value.as_ref() == Some(value))
        }
        (_, Outcome::Missing) => !is_present(state),
        (_, Outcome::Exists) => is_present(state),
        (Action::Update { expected, .. }, Outcome::Conflict) => {
            state.is_some_and(|it| it.value.is_some() && it.revision != *expected)
        }
        (_, Outcome::Conflict) => true,
        (_, Outcome::Put(_) | Outcome::Removed | Outcome::Refused | Outcome::Unknown) => false,
    }
}

fn may_put(action: &Action, state: Option<&Stored>) -> bool {
    match action {
        Action::Create(_) => !is_present(state),
        Action::Update { expected, .. } => {
            is_present(state) && state.is_some_and(|it| it.revision == *expected)
        }
        Action::Patch(_) => is_present(state),
        Action::Read | Action::Delete => false,
    }
}

#[cfg(test)]
mod tests;
