//! Facts, judged on the states that objects can be in.

use serde_json::{Value, json};

use super::*;

const KEY: &str = "/registry/example.org/widgets/a/x";

fn entry(object: &Value) -> Entry {
    let revision = Revision::new(7);
    let value = Bytes::from(object.to_string());
    Entry { key: Key::new(KEY), value, created: revision, modified: revision, lease: None }
}

fn place() -> Place {
    Place { group: "example.org".into(), resource: "widgets".into(), namespace: "a".into(), name: "x".into() }
}

/// `None` if the fact does not hold, else what proves it.
fn judge(fact: Fact, object: Option<&Value>) -> Option<Require> {
    let found = object.map(|it| Found::of_entry(&entry(it)).unwrap());
    Claim::Fact(fact).judge(&Key::new(KEY), found.as_ref()).ok()
}

fn at() -> Option<Require> {
    Some(Require::At(Key::new(KEY), Revision::new(7)))
}

fn object(uid: &str, deleted: bool, finalizers: &[&str]) -> Value {
    let mut object = json!({"metadata": {"uid": uid, "finalizers": finalizers}});
    if deleted {
        object["metadata"]["deletionTimestamp"] = json!("2026-11-18T00:00:00Z");
    }
    object
}

#[test]
fn an_object_is_gone_if_nothing_or_another_one_has_its_name() {
    let gone = || Fact::Gone { object: place(), uid: "u".into(), kind: None };
    assert_eq!(judge(gone(), None), Some(Require::Absent(Key::new(KEY))));
    assert_eq!(judge(gone(), Some(&object("other", false, &[]))), at());
    assert_eq!(judge(gone(), Some(&object("u", false, &[]))), None);
    assert_eq!(judge(gone(), Some(&object("u", true, &[]))), None, "it is going, not gone");
    let nobody = || Fact::Gone { object: place(), uid: String::new(), kind: None };
    assert_eq!(judge(nobody(), Some(&object("other", false, &[]))), None);
    assert!(judge(nobody(), None).is_some());
}

#[test]
fn an_object_is_being_deleted_only_if_it_is_that_one_and_still_waits() {
    let deleting = || Fact::Deleting { object: place(), uid: "u".into(), finalizer: "f".into() };
    assert_eq!(judge(deleting(), Some(&object("u", true, &["e", "f"]))), at());
    assert_eq!(judge(deleting(), Some(&object("u", false, &["f"]))), None);
    assert_eq!(judge(deleting(), Some(&object("u", true, &["e"]))), None, "somebody has freed it");
    assert_eq!(judge(deleting(), Some(&object("other", true, &["f"]))), None);
    assert_eq!(judge(deleting(), None), None);
    let mut namespace = object("u", true, &[]);
    namespace["spec"] = json!({"finalizers": ["kubernetes"]});
    assert_eq!(judge(Fact::namespace_ends("x", "u"), Some(&namespace)), at());
}

#[test]
fn a_term_ends_when_the_lease_changes_hands() {
    let leads = || Fact::Leads {
        namespace: "kube-system".into(),
        name: "l".into(),
        holder: "me".into(),
        transitions: 3,
    };
    let lease = |holder: &str, transitions: Value| json!({"metadata": {"uid": "u"}, "spec": {"holderIdentity": holder, "leaseTransitions": transitions}});
    assert_eq!(judge(leads(), Some(&lease("me", json!(3)))), at());
    assert_eq!(judge(leads(), Some(&lease("me", json!(5)))), None, "somebody had it in between");
    assert_eq!(judge(leads(), Some(&lease("you", json!(3)))), None);
    assert_eq!(judge(leads(), None), None);
}

#[test]
fn a_definition_must_still_define_the_kind() {
    let judge = |object: Option<&Value>| {
        let found = object.map(|it| Found::of_entry(&entry(it)).unwrap());
        let claim = Claim::Names {
            definition: "widgets.example.org".into(),
            kind: "Widget".into(),
            is_namespaced: true,
        };
        claim.judge(&Key::new(KEY), found.as_ref()).ok()
    };
    let names = |kind: &str, scope: &str| {
        json!({"metadata": {"uid": "u"}, "spec": {"names": {"kind": kind}, "scope": scope},
            "status": {"acceptedNames": {"kind": kind}}})
    };
    assert_eq!(judge(Some(&names("Widget", "Namespaced"))), at());
    let mut refused = names("Widget", "Namespaced");
    refused["status"]["acceptedNames"]["kind"] = json!("");
    assert_eq!(judge(Some(&refused)), None, "another definition of the group has that kind");
    assert_eq!(judge(Some(&names("Gadget", "Namespaced"))), None);
    assert_eq!(judge(Some(&names("Widget", "Cluster"))), None, "it was made anew with another scope");
    assert_eq!(judge(None), None);
}

#[test]
fn a_spec_of_any_shape_and_a_value_that_is_no_object_are_told_apart() {
    let gone = || Fact::Gone { object: place(), uid: "u".into(), kind: None };
    for spec in [json!(null), json!([1]), json!("text"), json!({"finalizers": 7, "names": []})] {
        let object = json!({"metadata": {"uid": "other"}, "spec": spec});
        assert_eq!(judge(gone(), Some(&object)), at(), "{object}");
    }
    assert!(Found::of_entry(&entry(&json!("encrypted"))).is_err(), "what cannot be read proves nothing");
}

#[test]
fn a_refusal_can_be_recognised() {
    let fact = Fact::Gone { object: place(), uid: "u".into(), kind: None };
    let found = Found::of_entry(&entry(&object("u", false, &[]))).unwrap();
    let status = Claim::Fact(fact).judge(&Key::new(KEY), Some(&found)).unwrap_err();
    assert_eq!(status.code, 409);
    assert_eq!(status.details.unwrap().causes[0].reason, REASON);
}
