//! Histories that must be accepted, and for each kind of violation one that must not.

use serde_json::{Value, json};

use super::*;

const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/things.example.com";

/// A store that is changed one revision at a time, from 1 on.
#[derive(Default)]
struct Story {
    judge: Removals,
    revision: u64,
}

fn story() -> Story {
    let mut story = Story { judge: Removals::with_one_clock(1), revision: 0 };
    story.namespace("n1");
    story
}

impl Story {
    fn change(&mut self, key: &str, value: Option<&Value>) -> &mut Self {
        self.revision += 1;
        let bytes = value.map(Value::to_string);
        self.judge.see(self.revision, &[(key, bytes.as_ref().map(String::as_bytes))]);
        self
    }

    /// Puts an object with this uid, whose value is its own.
    fn put(&mut self, key: &str, uid: &str, metadata: &Value) -> &mut Self {
        self.put_with(key, uid, metadata, &json!({}))
    }

    fn put_with(&mut self, key: &str, uid: &str, metadata: &Value, rest: &Value) -> &mut Self {
        let value = format!("value of {uid}");
        self.judge.note(Fact::Attempted { value: value.clone() });
        let parts: Vec<&str> = key.split('/').collect();
        let name = parts[parts.len() - 1];
        let mut object = json!({"metadata": {"uid": uid, "name": name, "annotations": {VALUE: value},
            "creationTimestamp": "2026-11-18T00:00:10Z"}});
        if parts[parts.len() - 2] == "ns" {
            object["metadata"]["namespace"] = json!("ns");
        }
        for (field, value) in metadata.as_object().unwrap() {
            object["metadata"][field] = value.clone();
        }
        for (field, value) in rest.as_object().unwrap() {
            object[field] = value.clone();
        }
        self.change(key, Some(&object))
    }

    fn remove(&mut self, key: &str) -> &mut Self {
        self.change(key, None)
    }

    fn note(&mut self, fact: Fact) -> &mut Self {
        self.judge.note(fact);
        self
    }

    fn asked(&mut self, uid: &str) -> &mut Self {
        self.note(Fact::Removal { of: Of::Uid(uid.to_owned()), after: self.revision })
    }

    fn freed(&mut self, uid: &str) -> &mut Self {
        self.note(Fact::Freed { uid: uid.to_owned() })
    }

    fn namespace(&mut self, uid: &str) -> &mut Self {
        self.put_with("/registry/namespaces/ns", uid, &json!({}), &held_namespace())
    }

    /// Somebody deletes the namespace: it is marked.
    fn end_namespace(&mut self, uid: &str) -> &mut Self {
        self.asked(uid).put_with("/registry/namespaces/ns", uid, &deleting(&[]), &held_namespace())
    }

    fn definition(&mut self, uid: &str) -> &mut Self {
        self.put_with(DEFINITION, uid, &json!({"finalizers": [object::CLEANUP]}), &established())
    }

    fn end_definition(&mut self, uid: &str) -> &mut Self {
        self.asked(uid).put_with(DEFINITION, uid, &deleting(&[object::CLEANUP]), &established())
    }

    #[track_caller]
    fn is_fine(&mut self) {
        let found = self.judge.judge();
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Nothing is wrong but this, with the last change.
    #[track_caller]
    fn is(&mut self, what: What) {
        let found: Vec<What> = self.judge.judge().iter().map(|it| it.what).collect();
        assert_eq!(found, [what], "{:#?}", self.judge.judge());
    }
}

fn held_namespace() -> Value {
    json!({"spec": {"finalizers": ["kubernetes"]}})
}

fn established() -> Value {
    json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}})
}

fn deleting(finalizers: &[&str]) -> Value {
    json!({"deletionTimestamp": "2026-11-18T00:00:20Z", "finalizers": finalizers})
}

fn owned_by(uids: &[&str]) -> Value {
    json!({"ownerReferences": uids.iter().map(|it| json!({"uid": it})).collect::<Vec<_>>()})
}

const MAP: &str = "/registry/configmaps/ns/a";
const OWNER: &str = "/registry/configmaps/ns/owner";
const THING: &str = "/registry/example.com/things/ns/a";

#[test]
fn what_somebody_asked_for_may_go() {
    story().put(MAP, "a", &json!({})).asked("a").remove(MAP).is_fine();
    let by_name = |of: Of| {
        let mut story = story();
        story.put(MAP, "a", &json!({})).note(Fact::Removal { of, after: 1 }).remove(MAP);
        story
    };
    by_name(Of::Key(MAP.to_owned())).is_fine();
    by_name(Of::Prefix("/registry/configmaps/ns/".to_owned())).is_fine();
    by_name(Of::Key(format!("{MAP}b"))).is(What::Removed);
}

#[test]
fn what_nobody_asked_for_stays() {
    story().put(MAP, "a", &json!({})).remove(MAP).is(What::Removed);
    story().put(MAP, "a", &json!({})).put(MAP, "a", &deleting(&["x/y"])).is(What::Marked);
    // It was another object of that name that was asked for.
    story()
        .put(MAP, "a", &json!({}))
        .asked("a")
        .remove(MAP)
        .put(MAP, "b", &json!({}))
        .remove(MAP)
        .is(What::Removed);
    // A request justifies nothing that happened before it.
    let mut late = story();
    late.put(MAP, "a", &json!({})).note(Fact::Removal { of: Of::Uid("a".to_owned()), after: 3 });
    late.remove(MAP).is(What::Removed);
    // A put with another uid removes what was there.
    story().put(MAP, "a", &json!({})).put(MAP, "b", &json!({})).is(What::Removed);
}

#[test]
fn what_is_marked_goes_when_its_finalizers_are_off() {
    let marked = || {
        let mut story = story();
        story.put(MAP, "a", &json!({"finalizers": ["x/y"]})).asked("a").put(MAP, "a", &deleting(&["x/y"]));
        story
    };
    marked().freed("a").remove(MAP).is_fine();
    marked().remove(MAP).is(What::Unheld);
    marked().put(MAP, "a", &deleting(&[])).remove(MAP).is_fine();
    let mut foreground = story();
    foreground.put(MAP, "a", &json!({})).asked("a").put(MAP, "a", &deleting(&[FOREGROUND])).remove(MAP);
    foreground.is_fine();
}

#[test]
fn content_goes_with_its_namespace() {
    story().put(MAP, "a", &json!({})).end_namespace("n1").remove(MAP).is_fine();
    // Who comes back after the namespace was made anew finds another one.
    let mut late = story();
    late.put(MAP, "a", &json!({})).end_namespace("n1").remove(MAP).remove("/registry/namespaces/ns");
    late.namespace("n2").put(MAP, "b", &json!({})).remove(MAP).is(What::Removed);
    // What an earlier namespace left may be cleaned up.
    let mut forced = story();
    forced.put(MAP, "a", &json!({})).end_namespace("n1").freed("n1").remove("/registry/namespaces/ns");
    forced.remove(MAP).is_fine();
    let mut forced = story();
    forced.put(MAP, "a", &json!({})).end_namespace("n1").freed("n1").remove("/registry/namespaces/ns");
    forced.namespace("n2").remove(MAP).is_fine();
}

#[test]
fn a_namespace_goes_last() {
    let ended = || {
        let mut story = story();
        story.put(MAP, "a", &json!({})).end_namespace("n1");
        story
    };
    ended().remove(MAP).remove("/registry/namespaces/ns").is_fine();
    ended().remove("/registry/namespaces/ns").is(What::LeftBehind);
    ended().freed("n1").remove("/registry/namespaces/ns").is_fine();
    story().remove("/registry/namespaces/ns").is(What::Removed);
    // Events end by themselves, and hold nothing.
    let mut event = story();
    event.put("/registry/events/ns/e", "e", &json!({})).end_namespace("n1");
    event.remove("/registry/namespaces/ns").remove("/registry/events/ns/e").is_fine();
}

#[test]
fn nothing_is_made_in_a_namespace_that_goes_or_is_gone() {
    story().end_namespace("n1").put(MAP, "a", &json!({})).is(What::Homeless);
    let gone = || {
        let mut story = story();
        story.end_namespace("n1").remove("/registry/namespaces/ns");
        story
    };
    gone().put(MAP, "a", &json!({})).is(What::Homeless);
    // What is there already may be changed while the namespace goes.
    story().put(MAP, "a", &json!({})).end_namespace("n1").put(MAP, "a", &json!({"labels": {}})).is_fine();
    // It was meant for the namespace before.
    let mut late = gone();
    late.put_with(
        "/registry/namespaces/ns",
        "n2",
        &json!({"creationTimestamp": "2026-11-18T00:00:12Z"}),
        &held_namespace(),
    );
    late.put(MAP, "a", &json!({})).is(What::Misplaced);
    gone().namespace("n2").put(MAP, "a", &json!({})).is_fine();
}

#[test]
fn objects_go_with_their_definition_while_it_goes() {
    let defined = || {
        let mut story = story();
        story.definition("d1").put(THING, "a", &json!({}));
        story
    };
    defined().end_definition("d1").remove(THING).remove(DEFINITION).is_fine();
    defined().end_definition("d1").remove(DEFINITION).is(What::LeftBehind);
    defined().remove(THING).is(What::Removed);
    // Forced to go: what is left stays.
    let forced = || {
        let mut story = defined();
        story.end_definition("d1").freed("d1").remove(DEFINITION);
        story
    };
    forced().is_fine();
    forced().remove(THING).is(What::Removed);
    forced().definition("d2").remove(THING).is(What::Removed);
    forced().definition("d2").end_definition("d2").remove(THING).is_fine();
    forced().put("/registry/example.com/things/ns/b", "b", &json!({})).is(What::Undefined);
    defined()
        .end_definition("d1")
        .put("/registry/example.com/things/ns/b", "b", &json!({}))
        .is(What::Undefined);
    // A definition that was never Established holds nothing.
    let mut never = forced();
    never.put(DEFINITION, "d2", &json!({"finalizers": [object::CLEANUP]}));
    never.asked("d2").put(DEFINITION, "d2", &deleting(&[object::CLEANUP])).remove(DEFINITION).is_fine();
}

#[test]
fn dependents_go_with_their_last_owner() {
    let owned = |uids: &[&str]| {
        let mut story = story();
        story.put(OWNER, "o1", &json!({})).put(MAP, "a", &owned_by(uids));
        story
    };
    owned(&["o1"]).remove(MAP).is(What::Removed);
    owned(&["o1", "o0"]).remove(MAP).is(What::Removed);
    owned(&["o0"]).remove(MAP).is_fine();
    owned(&["o1"]).asked("o1").remove(OWNER).remove(MAP).is_fine();
    // The one who has its name now is somebody else, and keeps only those who name it.
    let again = |uids: &[&str]| {
        let mut story = owned(uids);
        story.asked("o1").remove(OWNER).put(OWNER, "o2", &json!({}));
        story
    };
    again(&["o1"]).remove(MAP).is_fine();
    again(&["o1", "o2"]).remove(MAP).is(What::Removed);
    // An owner that waits for its dependents does not keep them; one that only goes does.
    owned(&["o1"]).asked("o1").put(OWNER, "o1", &deleting(&[FOREGROUND])).remove(MAP).is_fine();
    owned(&["o1"]).asked("o1").put(OWNER, "o1", &deleting(&["x/y"])).remove(MAP).is(What::Removed);
    // Nobody owns anything in another namespace.
    let mut elsewhere = story();
    elsewhere.put("/registry/configmaps/ns/owner", "o1", &json!({"namespace": "default"}));
    elsewhere.put(MAP, "a", &owned_by(&["o1"])).remove(MAP).is_fine();
}

#[test]
fn what_was_acknowledged_is_in_the_history() {
    let written =
        |uid: &str, revision: u64| Fact::Written { key: MAP.to_owned(), uid: uid.to_owned(), revision };
    story().put(MAP, "a", &json!({})).note(written("a", 2)).is_fine();
    story().put(MAP, "a", &json!({})).note(written("b", 2)).is(What::Lost);
    story().put(MAP, "a", &json!({})).note(written("a", 1)).is(What::Lost);
    // Later revisions are judged when they have been seen.
    let mut early = story();
    early.note(written("a", 2)).is_fine();
    early.put(MAP, "b", &json!({})).is(What::Lost);
    assert_eq!(early.judge.counts.n_confirmed, 1);
}

#[test]
fn what_is_said_to_be_gone_is_gone() {
    let gone = || Fact::Gone { uid: "a".to_owned() };
    story().put(MAP, "a", &json!({})).asked("a").remove(MAP).note(gone()).is_fine();
    story().put(MAP, "a", &json!({})).note(gone()).is(What::NotGone);
    let mut back = story();
    back.put(MAP, "a", &json!({})).asked("a").remove(MAP).put(MAP, "a", &json!({})).is(What::Resurrected);
}

#[test]
fn each_value_was_written_once_by_somebody() {
    let object = |uid: &str| json!({"metadata": {"uid": uid, "annotations": {VALUE: "v"}}});
    let mut phantom = story();
    phantom.change("/registry/configmaps/default/a", Some(&object("a"))).is(What::Phantom);
    let mut doubled = story();
    doubled.note(Fact::Attempted { value: "v".to_owned() });
    doubled.change("/registry/configmaps/default/a", Some(&object("a")));
    doubled.change("/registry/configmaps/default/a", Some(&object("a"))).is_fine();
    doubled.change("/registry/configmaps/default/b", Some(&object("b"))).is(What::Doubled);
}

#[test]
fn what_the_cluster_keeps_for_itself_is_not_judged() {
    let lease = json!({"metadata": {"uid": "l", "name": "l", "namespace": "kube-system"}});
    let key = "/registry/leases/kube-system/l";
    story().change(key, Some(&lease)).remove(key).is_fine();
    let events = "/registry/events/ns/e";
    story().put(events, "e", &json!({})).remove(events).is_fine();
    // A custom resource that is called so is like all others.
    let custom = "/registry/example.com/events/ns/e";
    story().put(custom, "e", &json!({})).remove(custom).is(What::Removed);
}

/// One transaction removes a namespace's content and the namespace: it is judged by what there was before.
#[test]
fn changes_of_one_revision_are_judged_by_what_was_before() {
    let mut together = story();
    together.put(MAP, "a", &json!({})).end_namespace("n1");
    together.judge.see(9, &[("/registry/namespaces/ns", None), (MAP, None)]);
    together.is(What::LeftBehind);
}

#[test]
fn a_cluster_at_rest_has_nothing_left_to_remove() {
    let mut story = story();
    story.put(MAP, "a", &owned_by(&["o0"])).put(OWNER, "o1", &json!({}));
    assert_eq!(story.judge.unsettled().len(), 1, "{:?}", story.judge.unsettled());
    story.asked("o1").put(OWNER, "o1", &deleting(&["x/y"]));
    assert_eq!(story.judge.unsettled().len(), 2);
    story.freed("o1").remove(OWNER).remove(MAP);
    assert_eq!(story.judge.unsettled(), Vec::<String>::new());
    // Without their definition objects cannot go.
    story
        .definition("d1")
        .put(THING, "t", &owned_by(&["o0"]))
        .end_definition("d1")
        .freed("d1")
        .remove(DEFINITION);
    assert_eq!(story.judge.unsettled(), Vec::<String>::new());
    assert_eq!(story.judge.stored("/registry/example.com/").collect::<Vec<_>>(), [(THING, "t")]);
    story.is_fine();
}
