//! Removals and creates in every order: nothing goes unless its ground holds at that revision, nothing is made in a
//! namespace that is gone (G12). And the same with one requirement left out: each must be found out.
//!
//! Definitions, namespaces and owners are deleted, forced to go and made anew under the same name; answers are lost; the
//! leader changes. The short form runs in CI; `cargo xtask soak model` goes deeper (`CONVOY_SOAK_ROUNDS`).

mod explore;
mod world;

use explore::{Budget, Outcome, Search, show};
use world::{Omission, Role, Violation, World};

const ALL: [Role; 5] = [Role::Follower, Role::Follower, Role::Emptier, Role::Collector, Role::Creator];

fn rounds() -> Option<u64> {
    std::env::var("CONVOY_SOAK_ROUNDS").ok()?.parse().ok()
}

fn seed() -> u64 {
    std::env::var("CONVOY_SOAK_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1)
}

fn some() -> Budget {
    Budget { touches: 1, marks: 2, drops: 2, makes: 2, terms: 1, unheard: 1, behind: 1, swaps: 1 }
}

fn hold(what: &str, roles: &[Role], budget: Budget, depth: usize) {
    let Outcome { n_worlds, n_removed, n_created, found } =
        Search { world: World::new(roles, None), budget }.exhaust(depth);
    println!("{what}: {n_worlds} worlds, depth {depth}");
    if let Some((trace, violation)) = found {
        panic!("{what}: {violation:?} after: {}", show(&trace));
    }
    assert!(n_removed + n_created > 0, "{what}: nothing was ever done");
}

/// The shortest history in which an omission shows.
fn finds(omission: Omission, roles: &[Role], budget: Budget) -> Violation {
    let outcome = Search { world: World::new(roles, Some(omission)), budget }.exhaust(8);
    let (trace, violation) = outcome.found.unwrap_or_else(|| panic!("{omission:?} is not found out"));
    println!("{omission:?}: {violation:?} after: {}", show(&trace));
    violation
}

fn depth(short: usize, long: usize) -> usize {
    if rounds().is_some() { long } else { short }
}

#[test]
fn removals_hold_in_every_order() {
    hold("definitions", &[Role::Follower, Role::Follower, Role::Creator], some(), depth(6, 10));
    hold("namespaces", &[Role::Emptier, Role::Emptier, Role::Creator], some(), depth(6, 9));
    hold("owners", &[Role::Collector, Role::Collector, Role::Creator], some(), depth(6, 9));
    hold("all", &ALL, some(), depth(4, 7));
}

#[test]
fn each_requirement_is_needed() {
    let follower: &[Role] = &[Role::Follower, Role::Follower, Role::Creator];
    let emptier: &[Role] = &[Role::Emptier, Role::Creator];
    let collector: &[Role] = &[Role::Collector, Role::Creator];
    let cases = [
        (Omission::OwnKey, collector, Violation::WrongObject),
        (Omission::DefinitionKey, follower, Violation::Groundless),
        (Omission::NamespaceKey, emptier, Violation::Groundless),
        (Omission::OwnerKey, collector, Violation::Groundless),
        (Omission::OwnerKindKey, collector, Violation::Groundless),
        (Omission::LeaseKey, emptier, Violation::NotLeading),
        (Omission::HomeOfCreate, emptier, Violation::Homeless),
        (Omission::DefinitionOfCreate, follower, Violation::Undefined),
        (Omission::JudgeByName, collector, Violation::WrongObject),
        (Omission::FinishOfNamespace, emptier, Violation::LeftBehind),
    ];
    // Longer histories need less to happen in them.
    let few = Budget { touches: 0, marks: 0, drops: 2, makes: 1, terms: 0, unheard: 1, behind: 1, swaps: 1 };
    for (omission, roles, expected) in cases {
        let is_long = matches!(omission, Omission::OwnKey | Omission::OwnerKindKey | Omission::JudgeByName);
        let budget = if is_long { few } else { some() };
        assert_eq!(finds(omission, roles, budget), expected, "{omission:?}");
    }
}

#[test]
fn random_histories_of_removals_hold() {
    let n_walks = rounds().unwrap_or(500);
    let (many, some) = (60, 30);
    let budget = Budget {
        touches: many,
        marks: many,
        drops: many,
        makes: many,
        terms: some,
        unheard: some,
        behind: some,
        swaps: some,
    };
    let (mut n_removed, mut n_created) = (0, 0);
    for walk in 0..n_walks {
        let number = seed().wrapping_mul(1_000_003).wrapping_add(walk);
        let outcome = Search { world: World::new(&ALL, None), budget }.walk(number, 300);
        (n_removed, n_created) = (n_removed + outcome.n_removed, n_created + outcome.n_created);
        if let Some((trace, violation)) = outcome.found {
            panic!("walk {number}: {violation:?} after: {}", show(&trace));
        }
    }
    println!("{n_walks} random histories, {n_removed} removals, {n_created} creates");
    assert!(n_removed > 0 && n_created > 0);
}
