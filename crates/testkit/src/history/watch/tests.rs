//! Histories that must pass, and for each promise one that must not.

use super::*;

fn object(revision: u64, value: &str, label: &str) -> Object {
    Object { revision, value: value.to_owned(), label: label.to_owned() }
}

fn event(kind: Kind, key: &str, revision: u64, value: &str, label: &str) -> Event {
    Event { kind, key: key.to_owned(), object: object(revision, value, label) }
}

/// a is made, changed into the other group and deleted; b is made in between.
fn events() -> Vec<Event> {
    vec![
        event(Kind::Added, "a", 2, "a1", "red"),
        event(Kind::Added, "b", 3, "b1", "red"),
        event(Kind::Modified, "a", 4, "a2", "blue"),
        event(Kind::Deleted, "a", 6, "a2", "blue"),
    ]
}

fn written() -> Written {
    let puts = [(2, "a", "a1", "red"), (3, "b", "b1", "red"), (4, "a", "a2", "blue")];
    let acknowledged = puts
        .map(|(revision, key, value, label)| (revision, (key.to_owned(), object(revision, value, label))));
    let attempted = puts.map(|(_, key, value, _)| (key.to_owned(), value.to_owned()));
    let deleted = BTreeSet::from(["a".to_owned()]);
    Written { acknowledged: acknowledged.into(), attempted: attempted.into(), deleted }
}

fn empty_list() -> Step {
    Step::List { revision: 1, items: BTreeMap::new() }
}

fn log(name: &str, events: Vec<Event>) -> Log {
    let watch = Step::Watch { from: 1, to: 6, events };
    Log { name: name.to_owned(), selects: None, steps: vec![empty_list(), watch] }
}

fn verdict(events: Vec<Event>) -> Result<Summary, Violation> {
    check(&[log("good", self::events()), log("judged", events)], &written())
}

#[test]
fn the_true_history_passes() {
    let summary = verdict(events()).unwrap();
    assert_eq!(summary, Summary { watchers: 2, events: 8, lists: 2, changes: 4 });
}

#[test]
fn a_skipped_event_is_a_gap() {
    let mut events = events();
    events.remove(1);
    let violation = verdict(events).unwrap_err();
    assert_eq!(violation, Violation::Gap { watcher: "judged".into(), key: "b".into(), revision: 3 });
}

#[test]
fn an_event_that_all_watchers_miss_is_still_a_gap_if_acknowledged() {
    let mut events = events();
    events.remove(1);
    let violation = check(&[log("only", events)], &written()).unwrap_err();
    assert!(matches!(violation, Violation::Gap { revision: 3, .. }), "{violation}");
}

#[test]
fn a_repeated_event_is_refused() {
    let mut events = events();
    events.insert(2, events[1].clone());
    assert!(matches!(verdict(events), Err(Violation::OutOfOrder { revision: 3, .. })));
}

#[test]
fn reordered_events_are_refused() {
    let mut events = events();
    events.swap(0, 1);
    assert!(matches!(verdict(events), Err(Violation::OutOfOrder { revision: 2, .. })));
}

#[test]
fn an_invented_event_is_refused() {
    let mut events = events();
    events.insert(3, event(Kind::Added, "c", 5, "c1", "red"));
    let violation = verdict(events).unwrap_err();
    assert!(matches!(violation, Violation::Gap { ref watcher, .. } if watcher == "good"), "{violation}");
}

#[test]
fn a_change_shown_with_another_value_is_refused() {
    let mut events = events();
    events[1].object.value = "b9".to_owned();
    assert!(matches!(verdict(events), Err(Violation::Disagrees { revision: 3, .. })));
}

#[test]
fn a_change_shown_as_another_kind_is_refused() {
    let mut events = events();
    events[2].kind = Kind::Added;
    assert!(matches!(verdict(events), Err(Violation::Disagrees { revision: 4, .. })));
}

fn selecting(events: Vec<Event>) -> Result<Summary, Violation> {
    let mut judged = log("red", events);
    judged.selects = Some("red".to_owned());
    check(&[log("good", self::events()), judged], &written())
}

#[test]
fn a_selector_turns_leaving_into_deleted() {
    let left = event(Kind::Deleted, "a", 4, "a2", "blue");
    selecting(vec![events()[0].clone(), events()[1].clone(), left]).unwrap();
}

#[test]
fn a_selector_that_misses_leaving_or_shows_what_it_does_not_select_is_refused() {
    let missed = selecting(vec![events()[0].clone(), events()[1].clone()]);
    assert!(matches!(missed, Err(Violation::Gap { revision: 4, .. })), "{missed:?}");
    let stranger = selecting(events());
    assert!(matches!(stranger, Err(Violation::Disagrees { revision: 4, .. })), "{stranger:?}");
}

#[test]
fn resuming_elsewhere_is_refused() {
    let mut judged = log("judged", Vec::new());
    judged.steps = vec![
        empty_list(),
        Step::Watch { from: 1, to: 3, events: events()[..2].to_vec() },
        Step::Watch { from: 4, to: 6, events: events()[3..].to_vec() },
    ];
    let violation = check(&[log("good", events()), judged], &written()).unwrap_err();
    assert!(matches!(violation, Violation::BadResume { from: 4, last: 3, .. }), "{violation}");
}

fn relisted(revision: u64, items: &[(&str, Object)]) -> Result<Summary, Violation> {
    let items = items.iter().map(|(key, object)| ((*key).to_owned(), object.clone())).collect();
    let mut judged = log("judged", Vec::new());
    judged.steps = vec![empty_list(), Step::List { revision, items }];
    check(&[log("good", events()), judged], &written())
}

#[test]
fn a_list_is_a_state_of_the_history() {
    relisted(3, &[("a", object(2, "a1", "red")), ("b", object(3, "b1", "red"))]).unwrap();
    relisted(6, &[("b", object(3, "b1", "red"))]).unwrap();
}

#[test]
fn a_list_that_is_stale_or_misses_something_is_refused() {
    let stale = relisted(5, &[("a", object(2, "a1", "red")), ("b", object(3, "b1", "red"))]);
    assert!(matches!(stale, Err(Violation::BadList { .. })), "{stale:?}");
    let missing = relisted(5, &[("a", object(4, "a2", "blue"))]);
    assert!(matches!(missing, Err(Violation::BadList { .. })), "{missing:?}");
    let undead = relisted(6, &[("a", object(4, "a2", "blue")), ("b", object(3, "b1", "red"))]);
    assert!(matches!(undead, Err(Violation::BadList { .. })), "{undead:?}");
    let future = relisted(2, &[("a", object(2, "a1", "red")), ("b", object(3, "b1", "red"))]);
    assert!(matches!(future, Err(Violation::BadList { .. })), "{future:?}");
}

#[test]
fn a_write_of_unknown_outcome_may_show_up_in_a_list_only_where_nobody_watched() {
    let mut written = written();
    written.attempted.insert(("b".to_owned(), "b2".to_owned()));
    let items = BTreeMap::from([("b".to_owned(), object(8, "b2", "red"))]);
    let relisted = |to: u64| {
        let mut watched = log("good", events());
        watched.steps[1] = Step::Watch { from: 1, to, events: events() };
        watched.steps.push(Step::List { revision: 9, items: items.clone() });
        check(&[watched], &written)
    };
    relisted(7).unwrap();
    assert!(matches!(relisted(8), Err(Violation::BadList { .. })));
}

#[test]
fn a_stretch_in_which_nothing_came_is_fine() {
    let mut judged = log("judged", events());
    judged.steps.insert(1, Step::Watch { from: 1, to: 1, events: Vec::new() });
    check(&[judged], &written()).unwrap();
}
