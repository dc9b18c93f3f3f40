//! The protocol in every order of its steps: nothing polluted is ever stored (G1), and no live member is unable to
//! read what is stored. And the same with a part of the protocol missing: each must be found out.
//!
//! The short form runs in CI; `cargo xtask soak model` goes deeper and walks further (`CONVOY_SOAK_ROUNDS`).

use fleet::cluster::Agreement;
use meta::StorageVersion;

use crate::{
    explore::{Action, Budget, Outcome, Search, show},
    world::{Build, Fault, Process, Rules, Step, Violation, World},
};

/// Walks of the long form; without it a short form runs.
fn rounds() -> Option<u64> {
    std::env::var("CONVOY_SOAK_ROUNDS").ok()?.parse().ok()
}

fn seed() -> u64 {
    std::env::var("CONVOY_SOAK_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(1)
}

fn reads(preferred: usize, decodable: &[usize]) -> Build {
    let version = |it: usize| StorageVersion::new(format!("v{it}"));
    let decodable = decodable.iter().map(|it| version(*it)).collect();
    Build { preferred: version(preferred), decodable, is_on: true }
}

fn rules(agreement: Agreement) -> Rules {
    let versions = ["v1", "v2"].map(StorageVersion::new).to_vec();
    Rules { agreement, is_custom: false, fault: None, versions }
}

/// Servers that have all joined and reported, in the order given.
fn running(rules: Rules, budget: Budget, processes: &[(&str, Build)]) -> Search {
    let processes = processes.iter().map(|(name, build)| Process::new(name, build.clone())).collect();
    let mut search = Search { rules, world: World::new(processes), budget };
    if search.rules.is_custom {
        search.world.flip(&search.rules);
    }
    for n in 0..search.world.processes.len() {
        bring_up(&mut search, n);
    }
    search
}

/// Takes one process all the way to its entry.
fn bring_up(search: &mut Search, n: usize) {
    for step in [Step::Start, Step::Look, Step::Commit, Step::Watch, Step::Plan, Step::Commit, Step::Plan] {
        if search.world.can(&search.rules, n, step) {
            search.world.step(&search.rules, n, step).unwrap();
        }
    }
}

fn hold(search: &Search, what: &str, depth: usize) {
    let outcome = search.exhaust(depth);
    let Outcome { n_worlds, n_puts, depth, found } = outcome;
    println!("{what}: {n_worlds} worlds, {n_puts} puts, depth {depth}");
    if let Some((trace, violation)) = found {
        panic!("{what}: {violation:?} after: {}", show(&trace));
    }
    assert!(n_puts > 0, "{what}: nothing was ever stored");
}

/// The shortest history in which the fault shows.
fn finds(search: &Search, fault: Fault, depth: usize) -> (Vec<Action>, Violation) {
    let mut search = search.clone();
    search.rules.fault = Some(fault);
    let outcome = search.exhaust(depth);
    let (trace, violation) = outcome.found.unwrap_or_else(|| panic!("{fault:?} is not found out"));
    println!("{fault:?}: {violation:?} after: {}", show(&trace));
    (trace, violation)
}

/// An old server, and one that was upgraded and started anew while the other was paused.
fn upgrade(agreement: Agreement, budget: Budget) -> Search {
    let old = ("a", reads(1, &[1, 2]));
    let new = ("b", reads(2, &[1, 2]));
    running(rules(agreement), budget, &[old, new])
}

fn some() -> Budget {
    Budget { lapses: 1, looks: 2, settles: 1, puts: 2, marks: 1, ..Budget::default() }
}

fn depth(short: usize, long: usize) -> usize {
    if rounds().is_some() { long } else { short }
}

#[test]
fn votes_hold_in_every_order() {
    hold(&upgrade(Agreement::Vote, some()), "vote", depth(8, 15));
}

#[test]
fn reports_hold_in_every_order() {
    hold(&upgrade(Agreement::Report, some()), "report", depth(8, 15));
}

#[test]
fn a_twin_of_an_identity_holds_in_every_order() {
    let budget = Budget { starts: 1, puts: 2, looks: 1, ..Budget::default() };
    let mut search = running(rules(Agreement::Vote), budget, &[("a", reads(1, &[1, 2]))]);
    search.world.processes.push(Process::new("a", reads(2, &[1, 2])));
    hold(&search, "twins", depth(12, 18));
}

#[test]
fn restarts_hold_in_every_order() {
    let budget =
        Budget { starts: 2, crashes: 1, leaves: 1, lapses: 1, looks: 1, puts: 2, ..Budget::default() };
    hold(&upgrade(Agreement::Vote, budget), "restarts", depth(6, 12));
    hold(&upgrade(Agreement::Report, budget), "restarts, report", depth(6, 12));
}

#[test]
fn members_that_read_different_versions_hold_in_every_order() {
    // One reads only v1 and another, which prefers v2, comes and goes; or one reads both and is followed by one
    // that no longer reads v1.
    let pairs = [(reads(1, &[1]), reads(2, &[1, 2])), (reads(1, &[1, 2]), reads(2, &[2]))];
    for agreement in [Agreement::Vote, Agreement::Report] {
        for (first, second) in &pairs {
            let budget = Budget {
                starts: 2,
                crashes: 1,
                lapses: 2,
                looks: 1,
                settles: 1,
                puts: 2,
                ..Budget::default()
            };
            let mut search = running(rules(agreement), budget, &[("a", first.clone())]);
            search.world.processes.push(Process::new("b", second.clone()));
            hold(&search, "readers", depth(8, 14));
        }
    }
}

#[test]
fn three_servers_hold_in_every_order() {
    let servers = [("a", reads(1, &[1, 2])), ("b", reads(2, &[1, 2])), ("c", reads(2, &[1, 2]))];
    for agreement in [Agreement::Vote, Agreement::Report] {
        let budget = Budget { lapses: 1, settles: 1, puts: 1, ..Budget::default() };
        hold(&running(rules(agreement), budget, &servers), "three servers", depth(6, 11));
    }
}

#[test]
fn a_wrong_collector_and_a_deleted_mirror_pollute_nothing() {
    for agreement in [Agreement::Vote, Agreement::Report] {
        let budget = Budget {
            looks: 1,
            wrong_looks: 1,
            settles: 1,
            mirrors: 1,
            holds: 2,
            puts: 2,
            ..Budget::default()
        };
        hold(&upgrade(agreement, budget), "wrong collector", depth(6, 11));
    }
}

#[test]
fn flips_of_a_definition_hold_in_every_order() {
    let rules = Rules { is_custom: true, ..rules(Agreement::Vote) };
    let budget = Budget { flips: 2, lapses: 1, looks: 1, puts: 2, marks: 1, ..Budget::default() };
    let search = running(rules, budget, &[("a", reads(1, &[1, 2])), ("b", reads(1, &[1, 2]))]);
    hold(&search, "flips", depth(7, 10));
}

/// An operator makes the cluster loose and strict again; what was encoded meanwhile arrives later.
#[test]
fn changes_of_the_guarantee_hold_in_every_order() {
    for agreement in [Agreement::Vote, Agreement::Report] {
        let budget = Budget { guarantees: 2, lapses: 1, looks: 1, settles: 1, puts: 2, ..Budget::default() };
        hold(&upgrade(agreement, budget), "guarantee", depth(6, 10));
    }
}

#[test]
fn answers_that_are_lost_hold_in_every_order() {
    let budget = Budget { starts: 1, unheard: 2, lapses: 1, looks: 1, puts: 2, ..Budget::default() };
    let mut search = upgrade(Agreement::Vote, budget);
    search.world.processes.push(Process::new("c", reads(2, &[1, 2])));
    hold(&search, "unheard", depth(6, 10));
}

#[test]
fn a_loose_put_that_requires_nothing_pollutes_once_the_cluster_is_strict() {
    let budget = Budget { guarantees: 2, lapses: 1, looks: 1, settles: 1, puts: 1, ..Budget::default() };
    let search = upgrade(Agreement::Vote, budget);
    let (trace, violation) = finds(&search, Fault::LooseRequiresNothing, 12);
    assert_eq!(violation, Violation::Polluted { shown: "v2".into(), stored: "v1".into() });
    assert_eq!(trace.last(), Some(&Action::Process(0, Step::Send)));
}

#[test]
fn without_the_fence_a_paused_server_pollutes() {
    let (trace, violation) = finds(&upgrade(Agreement::Vote, some()), Fault::NoFence, 12);
    assert_eq!(violation, Violation::Polluted { shown: "v2".into(), stored: "v1".into() });
    // It encoded, was counted out, the others moved on, and its object arrived.
    assert!(trace.contains(&Action::Lapse(0)), "{}", show(&trace));
    assert_eq!(trace.last(), Some(&Action::Process(0, Step::Send)));
}

#[test]
fn with_deletes_exempt_a_mark_pollutes() {
    let (trace, violation) = finds(&upgrade(Agreement::Vote, some()), Fault::MarksExempt, 12);
    assert_eq!(violation, Violation::Polluted { shown: "v2".into(), stored: "v1".into() });
    assert!(trace.contains(&Action::Process(0, Step::Mark)), "{}", show(&trace));
}

#[test]
fn with_entries_rewritten_lazily_a_live_server_pollutes() {
    // The last old server is replaced; its vote moves the selection, the other's entry still names the old one.
    let budget = Budget { starts: 1, leaves: 1, puts: 1, ..Budget::default() };
    let mut search = upgrade(Agreement::Vote, budget);
    search.world.step(&search.rules, 0, Step::Leave).unwrap();
    search.world.processes[0].build = reads(2, &[1, 2]);
    let (trace, violation) = finds(&search, Fault::LazyEntries, 12);
    assert_eq!(violation, Violation::Polluted { shown: "v2".into(), stored: "v1".into() });
    assert_eq!(trace.last(), Some(&Action::Process(1, Step::Send)));
}

#[test]
fn decisions_blind_to_joins_or_moves_leave_a_member_unable_to_read() {
    let budget = Budget { starts: 1, puts: 1, settles: 1, looks: 1, lapses: 1, ..Budget::default() };
    // In flight: a first selection of v2, while a server that reads only v1 joins.
    let search = |name: &str| {
        let mut search = running(rules(Agreement::Vote), budget, &[]);
        search.world.processes.push(Process::new(name, reads(2, &[1, 2])));
        search.world.processes.push(Process::new("old", reads(1, &[1])));
        for step in [Step::Start, Step::Look, Step::Commit] {
            search.world.step(&search.rules, 0, step).unwrap();
        }
        search
    };
    hold(&search("new"), "join against selection", 12);
    for fault in [Fault::BlindToJoins, Fault::BlindToMoves] {
        let (_, violation) = finds(&search("new"), fault, 12);
        assert!(matches!(violation, Violation::Unreadable { .. }), "{violation:?}");
    }
}

#[test]
fn random_histories_of_larger_clusters_hold() {
    let (n_walks, seed) = (rounds().unwrap_or(60), seed());
    let mut n_puts = 0;
    for walk in 0..n_walks {
        let number = seed.wrapping_mul(1_000_003).wrapping_add(walk);
        let search = random_search(number);
        let outcome = search.walk(number, 400);
        n_puts += outcome.n_puts;
        if let Some((trace, violation)) = outcome.found {
            panic!("walk {number}: {violation:?} after: {}", show(&trace));
        }
    }
    println!("{n_walks} random histories, {n_puts} puts");
    assert!(n_puts > 0);
}

/// Four to six processes of four identities, three versions, and plenty of accidents.
fn random_search(number: u64) -> Search {
    let many = 200;
    let is_custom = number % 4 == 3;
    let agreement = if number.is_multiple_of(2) { Agreement::Vote } else { Agreement::Report };
    let budget = Budget {
        starts: many,
        crashes: 30,
        leaves: 30,
        lapses: 30,
        looks: many,
        wrong_looks: if number % 8 < 2 { 5 } else { 0 },
        mirrors: 10,
        settles: 20,
        holds: 6,
        flips: 30,
        puts: many,
        marks: many,
        guarantees: 4,
        unheard: 20,
    };
    let builds = [
        reads(1, &[1]),
        reads(1, &[1, 2]),
        reads(2, &[1, 2]),
        reads(2, &[1, 2, 3]),
        reads(3, &[2, 3]),
        Build { is_on: false, ..reads(2, &[1, 2]) },
    ];
    let n_processes = 4 + usize::try_from(number % 3).unwrap();
    let names = ["a", "b", "c", "d", "a", "b"];
    let pick = |n: usize| (usize::try_from(number / 7 % 1000).unwrap() + n * n) % builds.len();
    let processes = (0..n_processes).map(|n| Process::new(names[n], builds[pick(n)].clone())).collect();
    let versions = ["v1", "v2", "v3"].map(StorageVersion::new).to_vec();
    let rules = Rules { agreement, is_custom, fault: None, versions };
    let mut world = World::new(processes);
    if is_custom {
        world.flip(&rules);
    }
    Search { rules, world, budget }
}
