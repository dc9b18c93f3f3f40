//! The graph, event by event.

use super::*;

const MAPS: Source = Source(0);

/// The resource that [`MAPS`] shows.
fn maps() -> GroupResource {
    GroupResource::new("", "configmaps")
}

fn identity(name: &str) -> Identity {
    let (namespace, kind) = if name.starts_with("cluster") { ("", "Planet") } else { ("ns", "ConfigMap") };
    Identity {
        api_version: "v1".into(),
        kind: kind.into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: name.into(),
    }
}

/// `name` owns; `name!` and its deletion waits for the dependent.
fn object(name: &str, owners: &[&str], life: Life) -> Object {
    let owners = owners.iter().map(|it| {
        let Identity { api_version, kind, name, uid, .. } = identity(it.trim_end_matches('!'));
        Owner { api_version, kind, name, uid, is_blocking: it.ends_with('!') }
    });
    Object { identity: identity(name), owners: owners.collect(), life, plain_at: Some(1) }
}

fn graph() -> Graph {
    let mut graph = Graph::default();
    graph.add_source(MAPS, maps());
    graph.list_begins(MAPS);
    graph
}

/// The uids to look at, sorted.
fn looks(actions: Vec<Action>) -> Vec<String> {
    let mut uids: Vec<String> = actions
        .into_iter()
        .filter_map(|it| match it {
            Action::Look(uid) => Some(uid.to_string()),
            Action::Report(_) => None,
        })
        .collect();
    uids.sort();
    uids.dedup();
    uids
}

fn see(graph: &mut Graph, name: &str, owners: &[&str], life: Life) -> Vec<String> {
    looks(graph.seen(MAPS, object(name, owners, life)))
}

#[test]
fn an_owner_that_nobody_has_seen_is_looked_at_once() {
    let mut graph = graph();
    assert_eq!(see(&mut graph, "child", &["owner"], Life::Staying), ["owner"]);
    assert_eq!(see(&mut graph, "other", &["owner"], Life::Staying), [""; 0]);
    assert!(graph.view("owner").unwrap().is_virtual);
    assert_eq!(see(&mut graph, "owner", &[], Life::Staying), [""; 0]);
    assert!(!graph.view("owner").unwrap().is_virtual);
    assert_eq!(looks(graph.gone("owner")), ["owner"]);
    assert_eq!(looks(graph.absent(&identity("owner"), &maps())), ["child", "other"]);
}

#[test]
fn only_a_proof_is_remembered_as_absence() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    see(&mut graph, "owner", &[], Life::Staying);
    assert_eq!(looks(graph.gone("owner")), ["owner"]);
    assert!(graph.known_absent(&identity("owner")).is_none());
    assert!(graph.view("owner").unwrap().is_virtual);
    assert_eq!(looks(graph.absent(&identity("owner"), &maps())), ["child"]);
    assert!(graph.known_absent(&identity("owner")).is_some());
}

#[test]
fn owners_of_kinds_that_are_served_again_are_looked_at() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    let Identity { api_version, kind, .. } = identity("owner");
    let is_it = |a: &str, k: &str| (a, k) == (&*api_version, &*kind);
    assert_eq!(looks(graph.look_for(is_it)), ["owner"]);
    assert_eq!(looks(graph.look_for(|_, _| false)), [""; 0]);
    see(&mut graph, "owner", &[], Life::Staying);
    assert_eq!(looks(graph.look_for(is_it)), [""; 0]);
}

#[test]
fn a_virtual_node_goes_with_the_last_that_names_it() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    see(&mut graph, "child", &[], Life::Staying);
    assert_eq!(graph.n_nodes(), 1);
    see(&mut graph, "child", &["owner"], Life::Staying);
    graph.gone("child");
    assert_eq!(graph.n_nodes(), 0);
}

#[test]
fn proved_absence_leads_to_those_that_mean_this_owner() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    let mut confused = object("confused", &["owner"], Life::Staying);
    confused.owners[0].name = "another".into();
    graph.seen(MAPS, confused);
    // The other one calls it something else, so that is asked for next.
    assert_eq!(looks(graph.absent(&identity("owner"), &maps())), ["child", "owner"]);
    let renamed = graph.view("owner").unwrap().identity;
    assert_eq!(&*renamed.name, "another");
    assert_eq!(looks(graph.absent(&renamed, &maps())), ["confused"]);
    // A real object is not absent because somebody calls it by a wrong name.
    see(&mut graph, "owner", &[], Life::Staying);
    graph.absent(&renamed, &maps());
    assert!(!graph.view("owner").unwrap().is_virtual);
}

#[test]
fn a_foreground_deletion_looks_at_dependents_and_is_looked_at_when_they_go() {
    let mut graph = graph();
    see(&mut graph, "owner", &[], Life::Staying);
    see(&mut graph, "child", &["owner!"], Life::Staying);
    see(&mut graph, "free", &["owner"], Life::Staying);
    assert_eq!(see(&mut graph, "owner", &[], Life::GoingLast), ["child", "free", "owner"]);
    assert_eq!(graph.view("owner").unwrap().blocking, ["child".into()]);
    assert_eq!(see(&mut graph, "late", &["owner"], Life::Staying), ["late"]);
    assert_eq!(looks(graph.gone("child")), ["owner"]);
    see(&mut graph, "next", &["owner!"], Life::Staying);
    assert!(see(&mut graph, "next", &["owner"], Life::Staying).contains(&"owner".to_owned()));
}

#[test]
fn circles_of_waiting_are_seen() {
    let mut graph = graph();
    for (name, owner) in [("a", "c!"), ("b", "a!"), ("c", "b!"), ("tail", "a!")] {
        see(&mut graph, name, &[owner], Life::GoingLast);
    }
    assert!(["a", "b", "c"].iter().all(|it| graph.is_in_waiting_circle(it)));
    assert!(!graph.is_in_waiting_circle("tail"));
    see(&mut graph, "b", &["a"], Life::GoingLast);
    assert!(!graph.is_in_waiting_circle("a"));
    see(&mut graph, "self", &["self!"], Life::GoingLast);
    assert!(graph.is_in_waiting_circle("self"));
}

#[test]
fn what_a_later_list_does_not_show_is_gone() {
    let mut graph = graph();
    see(&mut graph, "owner", &[], Life::Staying);
    see(&mut graph, "child", &["owner"], Life::Staying);
    assert!(!graph.is_complete());
    assert_eq!(looks(graph.list_ends(MAPS)), [""; 0]);
    assert!(graph.is_complete());
    graph.list_begins(MAPS);
    see(&mut graph, "child", &["owner"], Life::Staying);
    assert_eq!(looks(graph.list_ends(MAPS)), ["owner"]);
    assert_eq!(looks(graph.absent(&identity("owner"), &maps())), ["child"]);
    assert_eq!(graph.n_nodes(), 1);
}

#[test]
fn what_is_not_served_any_more_is_unknown_and_not_gone() {
    let mut graph = graph();
    graph.add_source(Source(1), GroupResource::new("", "secrets"));
    see(&mut graph, "owner", &[], Life::Staying);
    graph.seen(Source(1), object("child", &["owner"], Life::Staying));
    assert_eq!(looks(graph.drop_source(MAPS)), ["owner"]);
    assert!(graph.view("owner").unwrap().is_virtual);
    assert!(graph.known_absent(&identity("owner")).is_none());
}

#[test]
fn owners_in_other_namespaces_are_reported_in_either_order() {
    let abroad = || {
        let mut abroad = object("child", &["owner"], Life::Staying);
        abroad.identity.namespace = "abroad".into();
        abroad
    };
    let is_reported = |actions: Vec<Action>| actions.iter().any(|it| matches!(it, Action::Report(_)));
    let mut owner_first = graph();
    see(&mut owner_first, "owner", &[], Life::Staying);
    assert!(is_reported(owner_first.seen(MAPS, abroad())));
    let mut child_first = graph();
    assert!(!is_reported(child_first.seen(MAPS, abroad())));
    assert!(is_reported(child_first.seen(MAPS, object("owner", &[], Life::Staying))));
    let mut cluster = graph();
    see(&mut cluster, "cluster", &[], Life::Staying);
    assert!(!is_reported(cluster.seen(MAPS, object("child", &["cluster"], Life::Staying))));
}

/// A definition was deleted with its objects: nobody can be asked for them, but the server can check where they were.
#[test]
fn where_an_owner_was_seen_is_remembered_when_its_kind_is_served_no_longer() {
    let mut graph = graph();
    see(&mut graph, "owner", &[], Life::Staying);
    see(&mut graph, "child", &["owner"], Life::Staying);
    graph.gone("owner");
    assert_eq!(looks(graph.named_by("owner")), ["child"]);
    let Identity { kind, name, uid, .. } = identity("owner");
    let owner = |api_version: &str| Owner {
        api_version: api_version.into(),
        kind: kind.clone(),
        name: name.clone(),
        uid: uid.clone(),
        is_blocking: false,
    };
    for api_version in ["v1", "v2"] {
        let (seen, resource) = graph.seen_in(&owner(api_version)).unwrap();
        assert_eq!((seen, &*resource), (identity("owner"), &maps()), "dependents may name another version");
    }
    assert_eq!(graph.seen_in(&owner("example.org/v1")), None);
    assert!(graph.view("owner").unwrap().is_virtual, "it may be there: nothing is proved yet");
}

/// Only where a watch has shown an owner is its place known; where its kind led to is checked together with the kind.
#[test]
fn an_owner_that_was_never_seen_is_absent_from_where_its_kind_led() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    graph.absent(&identity("owner"), &maps());
    assert!(!graph.known_absent(&identity("owner")).unwrap().was_seen);
}

/// The same where the watch shows the owner before the server refutes its absence.
#[test]
fn an_owner_that_is_seen_before_its_absence_is_refuted_has_its_dependents_again() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    graph.absent(&identity("owner"), &maps());
    see(&mut graph, "owner", &[], Life::Staying);
    assert!(!graph.view("owner").unwrap().has_dependents);
    assert_eq!(looks(graph.doubt_absent(&identity("owner"))), ["owner"]);
    assert!(graph.view("owner").unwrap().has_dependents);
    assert_eq!(looks(graph.gone("owner")), ["owner"]);
}

/// The kind map was behind and the owner was looked for in the wrong resource: the server refused to act on that. Its
/// dependents must be found again when the owner really goes.
#[test]
fn an_owner_whose_absence_is_refuted_has_its_dependents_again() {
    let mut graph = graph();
    see(&mut graph, "child", &["owner"], Life::Staying);
    see(&mut graph, "other", &["owner"], Life::Staying);
    graph.absent(&identity("owner"), &maps());
    assert!(graph.view("owner").is_none());
    assert_eq!(looks(graph.doubt_absent(&identity("owner"))), ["owner"]);
    assert_eq!(graph.known_absent(&identity("owner")), None);
    see(&mut graph, "owner", &[], Life::Staying);
    graph.gone("owner");
    assert_eq!(looks(graph.absent(&identity("owner"), &maps())), ["child", "other"]);
}

#[test]
fn an_object_is_abandoned_when_none_of_its_owners_was_found() {
    let mut graph = graph();
    let site = Site { resource: Arc::new(maps()), was_seen: false };
    see(&mut graph, "child", &["a", "b"], Life::Staying);
    assert_eq!(graph.abandoned("child"), None, "nobody has looked for its owners");
    graph.note_absent(identity("a"), site.clone());
    assert_eq!(graph.abandoned("child"), None, "nobody has looked for one of its owners");
    graph.note_absent(identity("b"), site.clone());
    let owners = vec![(identity("a"), site.clone()), (identity("b"), site.clone())];
    assert_eq!(graph.abandoned("child"), Some(Abandoned { resource_version: 1, owners }));
    graph.seen(MAPS, Object { plain_at: None, ..object("child", &["a", "b"], Life::Staying) });
    assert_eq!(graph.abandoned("child"), None, "a finalizer says what becomes of its dependents");
    see(&mut graph, "child", &["a", "b"], Life::Going);
    assert_eq!(graph.abandoned("child"), None, "it goes already");
    see(&mut graph, "free", &[], Life::Staying);
    assert_eq!((graph.abandoned("free"), graph.abandoned("a")), (None, None), "who has no owners stays");
}

#[test]
fn what_was_only_in_a_list_that_was_broken_off_is_looked_at() {
    let mut graph = graph();
    see(&mut graph, "owner", &[], Life::Staying);
    see(&mut graph, "child", &["owner"], Life::Staying);
    graph.list_begins(MAPS);
    see(&mut graph, "child", &["owner"], Life::Staying);
    assert_eq!(looks(graph.list_ends(MAPS)), ["owner"]);
}
