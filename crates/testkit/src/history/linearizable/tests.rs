//! Histories that are linearizable, and such as are not. Times are written as `asked..answered`.

use std::ops::Range;

use super::*;

fn op(time: Range<u64>, action: Action, outcome: Outcome) -> Op {
    Op { who: "c".to_owned(), asked: time.start, answered: time.end, action, outcome }
}

fn create(time: Range<u64>, value: &str, outcome: Outcome) -> Op {
    op(time, Action::Create(value.to_owned()), outcome)
}

fn update(time: Range<u64>, expected: u64, value: &str, outcome: Outcome) -> Op {
    op(time, Action::Update { expected, value: value.to_owned() }, outcome)
}

fn patch(time: Range<u64>, value: &str, outcome: Outcome) -> Op {
    op(time, Action::Patch(value.to_owned()), outcome)
}

fn delete(time: Range<u64>, outcome: Outcome) -> Op {
    op(time, Action::Delete, outcome)
}

fn read(time: Range<u64>, value: &str, revision: u64) -> Op {
    op(time, Action::Read, Outcome::Found(value.to_owned(), revision))
}

fn absent(time: Range<u64>) -> Op {
    op(time, Action::Read, Outcome::Missing)
}

fn stored(states: &[(u64, &str)]) -> Vec<Stored> {
    let state = |(revision, value): &(u64, &str)| Stored {
        revision: *revision,
        value: (!value.is_empty()).then(|| (*value).to_owned()),
    };
    states.iter().map(state).collect()
}

#[track_caller]
fn accepts(ops: &[Op], states: &[(u64, &str)]) {
    assert_eq!(check(ops, &stored(states)), Ok(Verdict::Linearizable));
}

#[track_caller]
fn rejects(ops: &[Op], states: &[(u64, &str)]) -> Violation {
    check(ops, &stored(states)).expect_err("this must not be accepted")
}

#[test]
fn one_after_the_other_is_accepted() {
    let ops = [
        absent(0..1),
        create(2..3, "a", Outcome::Put(5)),
        create(4..5, "b", Outcome::Exists),
        read(6..7, "a", 5),
        update(8..9, 5, "c", Outcome::Put(7)),
        update(10..11, 5, "d", Outcome::Conflict),
        patch(12..13, "e", Outcome::Put(8)),
        delete(14..15, Outcome::Removed),
        delete(16..17, Outcome::Missing),
        patch(18..19, "f", Outcome::Missing),
    ];
    accepts(&ops, &[(5, "a"), (7, "c"), (8, "e"), (9, "")]);
}

#[test]
fn those_who_overlap_may_go_in_either_order() {
    let ops = |first: Op| [create(0..1, "a", Outcome::Put(1)), patch(2..9, "b", Outcome::Put(2)), first];
    accepts(&ops(read(3..4, "a", 1)), &[(1, "a"), (2, "b")]);
    accepts(&ops(read(3..4, "b", 2)), &[(1, "a"), (2, "b")]);
}

#[test]
fn a_stale_read_is_rejected() {
    let ops = [create(0..1, "a", Outcome::Put(1)), patch(2..3, "b", Outcome::Put(2)), read(4..5, "a", 1)];
    let violation = rejects(&ops, &[(1, "a"), (2, "b")]);
    assert!(matches!(violation, Violation::NoOrder { .. }), "{violation}");
}

#[test]
fn what_was_read_new_is_not_read_old_again() {
    let ops = [
        create(0..1, "a", Outcome::Put(1)),
        patch(2..20, "b", Outcome::Put(2)),
        read(3..4, "b", 2),
        read(5..6, "a", 1),
    ];
    rejects(&ops, &[(1, "a"), (2, "b")]);
}

#[test]
fn an_object_is_not_missing_after_it_was_made() {
    rejects(&[create(0..1, "a", Outcome::Put(1)), absent(2..3)], &[(1, "a")]);
    rejects(&[create(0..1, "a", Outcome::Put(1)), delete(2..3, Outcome::Missing)], &[(1, "a")]);
}

#[test]
fn a_lost_write_is_found() {
    let violation = rejects(&[create(0..1, "a", Outcome::Put(1))], &[]);
    assert!(matches!(violation, Violation::Lost(_)), "{violation}");
    let ops = [create(0..1, "a", Outcome::Put(1)), patch(2..3, "b", Outcome::Put(2))];
    rejects(&ops, &[(1, "a")]);
}

#[test]
fn a_refusal_that_was_none_is_found() {
    let ops = [create(0..1, "a", Outcome::Put(1)), update(2..3, 1, "b", Outcome::Conflict)];
    let violation = rejects(&ops, &[(1, "a"), (2, "b")]);
    assert!(matches!(violation, Violation::DoneThoughRefused(_)), "{violation}");
}

#[test]
fn a_conflict_needs_another_version() {
    let ops = [create(0..1, "a", Outcome::Put(1)), update(2..3, 1, "b", Outcome::Conflict)];
    rejects(&ops, &[(1, "a")]);
    // A server wrote it anew.
    accepts(&ops, &[(1, "a"), (2, "a")]);
}

#[test]
fn two_updates_of_one_version_are_one_too_many() {
    let ops = [
        create(0..1, "a", Outcome::Put(1)),
        update(2..5, 1, "b", Outcome::Put(2)),
        update(2..5, 1, "c", Outcome::Put(3)),
    ];
    rejects(&ops, &[(1, "a"), (2, "b"), (3, "c")]);
}

#[test]
fn without_an_answer_it_may_happen_late_or_never() {
    let ops = |then: Op| {
        vec![create(0..1, "a", Outcome::Put(1)), patch(2..3, "b", Outcome::Unknown), read(4..5, "a", 1), then]
    };
    accepts(&ops(read(6..7, "a", 1)), &[(1, "a")]);
    accepts(&ops(read(6..7, "b", 2)), &[(1, "a"), (2, "b")]);
    // But not before it was asked for.
    let early = [create(0..1, "a", Outcome::Put(1)), read(2..3, "b", 2), patch(4..5, "b", Outcome::Unknown)];
    rejects(&early, &[(1, "a"), (2, "b")]);
}

#[test]
fn a_removal_without_an_answer_happens_once() {
    let ops = [
        create(0..1, "a", Outcome::Put(1)),
        delete(2..3, Outcome::Unknown),
        create(4..5, "b", Outcome::Put(3)),
    ];
    accepts(&ops, &[(1, "a"), (2, ""), (3, "b")]);
    rejects(&ops, &[(1, "a"), (2, ""), (3, "b"), (4, "")]);
}

#[test]
fn what_nobody_asked_for_is_found() {
    let made = [create(0..1, "a", Outcome::Put(1))];
    assert!(matches!(rejects(&made, &[(1, "a"), (2, "x")]), Violation::Phantom(_)));
    rejects(&made, &[(1, "a"), (2, "")]);
}

#[test]
fn what_servers_write_anew_has_a_new_version() {
    let ops = [create(0..1, "a", Outcome::Put(1)), read(2..3, "a", 4), update(4..5, 4, "b", Outcome::Put(5))];
    accepts(&ops, &[(1, "a"), (4, "a"), (5, "b")]);
    let back = [create(0..1, "a", Outcome::Put(1)), read(2..3, "a", 4), read(4..5, "a", 1)];
    rejects(&back, &[(1, "a"), (4, "a")]);
}

#[test]
fn many_at_once_are_decided() {
    let mut ops = vec![create(0..1, "v0", Outcome::Put(1))];
    let mut states = vec![(1, "v0".to_owned())];
    for n in 1..200_u64 {
        let value = format!("v{n}");
        ops.push(patch(2 * n..2 * n + 40, &value, Outcome::Put(n + 1)));
        ops.push(read(2 * n..2 * n + 50, &value, n + 1));
        ops.push(delete(2 * n..2 * n + 10, Outcome::Refused));
        states.push((n + 1, value));
    }
    let states: Vec<(u64, &str)> = states.iter().map(|(n, value)| (*n, value.as_str())).collect();
    accepts(&ops, &states);
}
