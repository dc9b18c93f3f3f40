//! Who says what, and what follows.

use super::*;

fn hash(version: &str) -> BTreeSet<String> {
    [storage_version_hash(&format!("example.com/{version}"), "Widget")].into()
}

fn offer(hashes: BTreeSet<String>) -> Offer {
    let offered = |version: &str| Offered {
        version: version.to_owned(),
        kind: "Widget".to_owned(),
        is_namespaced: true,
        verbs: vec!["list".to_owned(), "patch".to_owned()],
        has_status: false,
    };
    Offer { versions: vec![offered("v2"), offered("v1")], hashes }
}

/// Each endpoint writes this version: `-` announces none, `!` does not answer, `~` does not serve it.
fn facts(endpoints: &str) -> Facts {
    let said = |it: &str| match it {
        "!" => Err("connection refused".to_owned()),
        "~" => Ok(None),
        "-" => Ok(Some(offer(BTreeSet::new()))),
        version => Ok(Some(offer(hash(version)))),
    };
    let names = ["a", "b", "c"];
    let endpoints = endpoints.split(' ').zip(names).map(|(it, name)| (name.to_owned(), said(it))).collect();
    Facts { endpoints, definition: Ok(None), storage: Ok(None) }
}

fn definition(storage: &str, stored: &[&str]) -> Option<Definition> {
    let stored = stored.iter().map(|it| (*it).to_owned()).collect();
    Some(Definition { uid: "u".to_owned(), storage: storage.to_owned(), stored })
}

fn storage(common: Option<&str>, mark: &str) -> Option<Storage> {
    let servers =
        vec![("s1".to_owned(), "example.com/v1".to_owned()), ("s2".to_owned(), "example.com/v2".to_owned())];
    Some(Storage { common: common.map(str::to_owned), servers, mark: mark.to_owned() })
}

fn told(facts: Facts) -> String {
    match decide(&GroupResource::from("widgets.example.com"), facts) {
        Standing::Agreed { version, .. } => version,
        Standing::Apart(why) => format!("apart: {why}"),
        Standing::Following(why) => format!("following: {why}"),
        Standing::Silent(why) => format!("silent: {why}"),
        Standing::Absent => "absent".to_owned(),
    }
}

fn epoch_of(facts: Facts) -> i64 {
    match decide(&GroupResource::from("widgets.example.com"), facts) {
        Standing::Agreed { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn hashes_are_those_of_kube_apiserver() {
    for (version, kind, hash) in [
        ("v1", "Pod", "xPOwRZ+Yhw8="),
        ("v1", "ConfigMap", "qFsyl6wFWjQ="),
        ("apps/v1", "Deployment", "8aSe+NMegvE="),
        ("diff.example/v1", "Gadget", "vRwk7PEhC6k="),
    ] {
        assert_eq!(storage_version_hash(version, kind), hash, "{version} {kind}");
    }
}

#[test]
fn agreement_takes_everybody() {
    let cases = [
        ("v1", "example.com/v1"),
        ("v2 v2 v2", "example.com/v2"),
        (
            "v1 v2",
            "apart: the API server a writes widgets.example.com in example.com/v1, b in example.com/v2",
        ),
        (
            "v1 -",
            "apart: the API server a writes widgets.example.com in example.com/v1, b in a version that it does not tell",
        ),
        ("v1 ~", "apart: the API server b does not serve widgets.example.com, another one does"),
        ("v1 !", "silent: the API server b does not say what it serves: connection refused"),
        ("~ !", "silent: the API server b does not say what it serves: connection refused"),
        ("~ ~", "absent"),
        ("-", "silent: no API server says in which version widgets.example.com is stored"),
    ];
    for (endpoints, expect) in cases {
        assert_eq!(told(facts(endpoints)), expect, "{endpoints}");
    }
    let both = offer(hash("v1").into_iter().chain(hash("v2")).collect());
    let changing = told(Facts { endpoints: vec![("a".to_owned(), Ok(Some(both)))], ..facts("v1") });
    let says = "silent: the API server a changes how it writes widgets.example.com: it says ";
    assert!(changing.starts_with(says), "{changing}");
    let nobody = Facts { endpoints: Vec::new(), ..facts("v1") };
    assert_eq!(told(nobody), "silent: there is no API server to ask");
}

#[test]
fn the_definition_and_the_storage_version_count() {
    let with = |endpoints, definition: Option<Definition>, storage: Option<Storage>| Facts {
        definition: Ok(definition),
        storage: Ok(storage),
        ..facts(endpoints)
    };
    let cases = [
        (with("v2 v2", definition("v2", &["v1", "v2"]), None), "example.com/v2"),
        // A storage version that is not served has no hash.
        (with("-", definition("v3", &["v3"]), None), "example.com/v3"),
        (
            with("v1", definition("v2", &["v1", "v2"]), None),
            "following: the API server a writes widgets.example.com in example.com/v1, and not yet in example.com/v2",
        ),
        (with("-", None, storage(Some("example.com/v1"), "1")), "example.com/v1"),
        (
            with("v1", None, storage(None, "1")),
            "apart: the API servers write different versions: s1 writes example.com/v1, s2 writes example.com/v2",
        ),
        (
            with("v2", definition("v2", &["v2"]), storage(Some("example.com/v1"), "1")),
            "following: widgets.example.com is defined to be stored in example.com/v2, the servers write example.com/v1",
        ),
        (
            with("v2 v1", definition("v2", &["v1", "v2"]), None),
            "following: the API server a writes widgets.example.com in example.com/v2, b in example.com/v1",
        ),
        (
            with("~", definition("v2", &["v2"]), None),
            "silent: no API server serves widgets.example.com, and it may be defined",
        ),
    ];
    for (facts, expect) in cases {
        assert_eq!(told(facts), expect);
    }
    let unread = Facts { definition: Err("no".to_owned()), ..facts("v1") };
    assert_eq!(told(unread), "silent: the definition of widgets.example.com cannot be read: no");
}

#[test]
fn built_in_resources_are_recognised_by_their_hash() {
    let of = |resource: &str, version: &str, kind: &str| {
        recognise(&GroupResource::from(resource), kind, &storage_version_hash(version, kind))
    };
    assert_eq!(of("pods", "v1", "Pod").as_deref(), Some("v1"));
    assert_eq!(of("events.events.k8s.io", "v1", "Event").as_deref(), Some("v1"));
    assert_eq!(
        of("deviceclasses.resource.k8s.io", "resource.k8s.io/v1beta2", "DeviceClass").as_deref(),
        Some("resource.k8s.io/v1beta2")
    );
    assert_eq!(of("widgets.example.com", "example.com/nightly", "Widget"), None);
}

/// Every one of these is another agreement; the same facts are the same one.
#[test]
fn the_epoch_tells_agreements_apart() {
    let with = |endpoints, stored: &[&str], mark: &str| Facts {
        definition: Ok(definition("v2", stored)),
        storage: Ok(storage(Some("example.com/v2"), mark)),
        ..facts(endpoints)
    };
    let mut epochs = vec![
        epoch_of(with("v2", &["v2"], "1")),
        epoch_of(with("v2", &["v1", "v2"], "1")),
        epoch_of(with("v2", &["v2"], "2")),
        epoch_of(with("v2 v2", &["v2"], "1")),
        epoch_of(with("-", &["v2"], "1")),
        epoch_of(Facts { definition: Ok(None), ..with("v2", &["v2"], "1") }),
    ];
    assert_eq!(epoch_of(with("v2", &["v2"], "1")), epochs[0]);
    assert!(epochs.iter().all(|it| *it >= 0));
    let n_cases = epochs.len();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), n_cases);
}

#[test]
fn objects_are_reached_in_a_version_that_can_list_and_patch() {
    let resource = GroupResource::from("widgets.example.com");
    let mut offer = offer(BTreeSet::new());
    let version = |offer: &Offer, wanted| {
        offer.reach(&resource, wanted).map(|it| it.version.clone()).map_err(|it| it.join(" "))
    };
    assert_eq!(version(&offer, "example.com/v1").as_deref(), Ok("v1"));
    assert_eq!(version(&offer, "example.com/v3").as_deref(), Ok("v2"));
    offer.versions[1].verbs = vec!["get".to_owned(), "list".to_owned()];
    assert_eq!(version(&offer, "example.com/v1").as_deref(), Ok("v2"));
    offer.versions.remove(0);
    assert_eq!(version(&offer, "example.com/v1"), Err("patch".to_owned()));
}
