//! What the proposal says, point by point, and what counting makes of it.

use super::*;

const V1: &str = "example.com/v1";
const V2: &str = "example.com/v2";

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn agreed_on(version: &str) -> Agreement {
    Agreement::Agreed { version: version.to_owned(), epoch: 1 }
}

fn state(current: &str, persisted: &[&str], heartbeat: &str) -> State {
    State {
        current_version: current.to_owned(),
        persisted_versions: persisted.iter().map(|it| (*it).to_owned()).collect(),
        last_heartbeat_time: Some(heartbeat.to_owned()),
        ..State::default()
    }
}

const FRESH: &str = "2026-11-16T11:59:00Z";

fn made(version: &str, is_own: bool, outcome: Option<bool>) -> Made {
    Made {
        name: format!("m-{}", version.rsplit('/').next().unwrap()),
        is_own,
        is_ended: outcome.is_some(),
        has_succeeded: outcome == Some(true),
        is_interrupted: false,
        is_whole: true,
        version: version.to_owned(),
        epoch: 1,
        completed: outcome.map(|_| "2026-11-16T11:58:00Z".parse().unwrap()),
        evidence: None,
    }
}

struct Given<'a> {
    state: Option<State>,
    agreement: Agreement,
    written: &'a [&'a str],
    stored: Option<&'a [(&'a str, u64)]>,
    migrations: Vec<Made>,
    is_first: bool,
}

impl Given<'_> {
    fn on(version: &str) -> Self {
        Self {
            state: None,
            agreement: agreed_on(version),
            written: &[],
            stored: None,
            migrations: Vec::new(),
            is_first: false,
        }
    }

    fn plan(&self) -> Plan {
        let stored: Option<BTreeMap<String, u64>> =
            self.stored.map(|it| it.iter().map(|(version, n)| ((*version).to_owned(), *n)).collect());
        let written: Vec<String> = self.written.iter().map(|it| (*it).to_owned()).collect();
        plan(&Facts {
            state: self.state.as_ref(),
            agreement: &self.agreement,
            written: &written,
            stored: stored.as_ref(),
            migrations: &self.migrations,
            is_first: self.is_first,
            now: now(),
        })
    }
}

fn persisted(plan: &Plan) -> Vec<&str> {
    plan.state.iter().flat_map(|it| &it.persisted).map(String::as_str).collect()
}

/// B2, B4, B14: nothing is known, and nothing can be counted.
#[test]
fn without_a_state_everything_is_unknown_and_migrated() {
    let plan = Given { migrations: vec![made(V1, true, Some(true))], ..Given::on(V1) }.plan();
    assert!(plan.create);
    assert_eq!(plan.delete, ["m-v1"]);
    assert_eq!(persisted(&plan), [UNKNOWN, V1]);
    assert_eq!(plan.state.unwrap().current, V1);
}

/// B15: an equal version only moves the heartbeat, and that not too often.
#[test]
fn the_same_version_is_a_heartbeat() {
    let quiet = Given { state: Some(state(V1, &[V1], FRESH)), ..Given::on(V1) }.plan();
    assert_eq!(quiet, Plan::default());
    let due = Given { state: Some(state(V1, &[V1], "2026-11-16T11:54:00Z")), ..Given::on(V1) }.plan();
    assert!(!due.create && due.delete.is_empty());
    assert_eq!(persisted(&due), [V1]);
}

/// B1, B7, B16, B23: another version is appended, and migrated to; running migrations of ours are made anew.
#[test]
fn another_version_is_appended_and_migrated_to() {
    let given = Given {
        state: Some(state(V1, &[V1], FRESH)),
        migrations: vec![made(V1, true, None), made("example.com/v0", false, None)],
        ..Given::on(V2)
    };
    // Somebody's own migration is under way, so none is made.
    assert!(!given.plan().create);
    let given = Given { migrations: vec![made(V1, true, None)], ..given };
    let plan = given.plan();
    assert!(plan.create);
    assert_eq!(plan.delete, ["m-v1"]);
    assert_eq!(persisted(&plan), [V1, V2]);
    // Back again: each version stands there once.
    let back = Given { state: Some(state(V2, &[V1, V2], FRESH)), ..Given::on(V1) }.plan();
    assert!(back.create);
    assert_eq!(persisted(&back), [V1, V2]);
}

/// B6, B17: when the migration is done, only the current version is left.
#[test]
fn a_finished_migration_leaves_one_version() {
    let given = Given {
        state: Some(state(V2, &[V1, V2], FRESH)),
        migrations: vec![made(V2, true, Some(true))],
        ..Given::on(V2)
    };
    assert_eq!(persisted(&given.plan()), [V2]);
    // One that was about some objects, or another version, says nothing.
    for other in [Made { is_whole: false, ..made(V2, true, Some(true)) }, made(V1, true, Some(true))] {
        let plan = Given { migrations: vec![other], ..Given::on(V2) };
        let plan = Given { state: Some(state(V2, &[V1, V2], FRESH)), ..plan }.plan();
        assert!(plan.create);
        assert_eq!(persisted(&plan), Vec::<&str>::new(), "the state says it already");
    }
}

/// B18, B19: an old heartbeat is not believed: not at the start, nor by whoever could not look for so long.
#[test]
fn a_stale_state_is_made_anew() {
    let old = Some(state(V1, &[V1], "2026-11-16T11:49:00Z"));
    for is_first in [true, false] {
        let plan = Given { state: old.clone(), is_first, ..Given::on(V1) }.plan();
        assert!(plan.create);
        assert_eq!(persisted(&plan), [UNKNOWN, V1]);
    }
    let recent = Some(state(V1, &[V1], "2026-11-16T11:51:00Z"));
    assert!(!Given { state: recent, is_first: true, ..Given::on(V1) }.plan().create);
}

/// Where objects are counted nothing is guessed: no state, a stale one, and a wrong one come to the same.
#[test]
fn counting_replaces_guessing() {
    for before in [None, Some(state(V1, &[UNKNOWN], "2026-11-16T10:00:00Z")), Some(state(V2, &[V2], FRESH))] {
        let given = Given { state: before, is_first: true, ..Given::on(V1) };
        let clean = Given { stored: Some(&[(V1, 12)]), ..given };
        let plan = clean.plan();
        assert!(!plan.create);
        assert_eq!(persisted(&plan), [V1]);
        let mixed = Given { stored: Some(&[(V1, 12), (V2, 1)]), ..clean };
        let plan = mixed.plan();
        assert!(plan.create);
        assert!(persisted(&plan).is_empty() || persisted(&plan) == [V1, V2]);
        let empty = Given { stored: Some(&[]), ..mixed };
        assert!(!empty.plan().create);
    }
}

/// B24, B26: while servers write different versions nothing is migrated, and all of those are noted.
#[test]
fn disagreement_stops_our_migrations_and_is_noted() {
    let given = Given {
        state: Some(state(V1, &[V1], FRESH)),
        agreement: Agreement::Open("a and b differ".to_owned()),
        written: &[V1, V2],
        stored: Some(&[(V1, 3)]),
        migrations: vec![made(V1, true, None), made(V2, false, None)],
        is_first: false,
    };
    let plan = given.plan();
    assert!(!plan.create);
    assert_eq!(plan.delete, ["m-v1"], "people's migrations are theirs");
    assert_eq!(persisted(&plan), [V1, V2]);
    assert_eq!(plan.state.unwrap().current, UNKNOWN);
    // B27: when they agree again it goes on.
    let plan = Given {
        state: Some(state(UNKNOWN, &[V1, V2], FRESH)),
        agreement: agreed_on(V2),
        migrations: Vec::new(),
        ..given
    };
    assert!(plan.plan().create);
}

#[test]
fn a_failed_migration_is_not_repeated_at_once() {
    let failed = made(V2, true, Some(false));
    let given = Given {
        state: Some(state(V2, &[V1, V2], FRESH)),
        stored: Some(&[(V1, 1), (V2, 1)]),
        migrations: vec![failed.clone()],
        ..Given::on(V2)
    };
    assert_eq!(given.plan(), Plan::default());
    // Somebody cancelled their own: another one in its place would not be what they want.
    let cancelled = Given { migrations: vec![made(V2, false, Some(false))], ..given };
    assert_eq!(cancelled.plan(), Plan::default());
    // The state may lag behind: it was cancelled before the trigger had seen that there is something to migrate.
    let behind = Given { state: Some(state(V1, &[V1], "2026-11-16T11:57:00Z")), ..cancelled };
    assert!(!behind.plan().create);
    let cancelled = Given { state: Some(state(V1, &[V1, V2], FRESH)), ..behind };
    assert!(cancelled.plan().create, "what failed is older than the change");
    let cancelled = Given { state: Some(state(V2, &[V1, V2], FRESH)), ..cancelled };
    let some = Made { is_whole: false, ..made(V2, false, Some(false)) };
    let given = Given { migrations: vec![some], ..cancelled };
    assert!(given.plan().create, "it was not about everything");
    let interrupted = Made { is_interrupted: true, ..failed.clone() };
    let given = Given { migrations: vec![interrupted], ..given };
    assert!(given.plan().create, "they agree again");
    let long_ago = Made { completed: Some("2026-11-16T11:00:00Z".parse().unwrap()), ..failed };
    let plan = Given { migrations: vec![long_ago], ..given }.plan();
    assert!(plan.create);
    assert_eq!(plan.delete, ["m-v2"]);
}

/// T15, B13, B21: there and back while nobody looked is seen by what the definition lists.
#[test]
fn a_version_that_is_listed_beside_is_migrated_once() {
    let given = Given {
        state: Some(state(V1, &[V1], FRESH)),
        written: &[V1, V2],
        migrations: vec![Made { epoch: 7, ..made(V1, true, Some(true)) }],
        ..Given::on(V1)
    };
    let plan = given.plan();
    assert!(plan.create, "the one that succeeded did so under another list");
    assert_eq!(persisted(&plan), [V1, V2]);
    // Under this list, too: it is not narrowed because the evidence was not good enough for that.
    let done = Given { migrations: vec![made(V1, true, Some(true))], ..given };
    assert!(!done.plan().create);
}
