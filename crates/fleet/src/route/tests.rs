//! Where requests go, as tables.

use super::*;
use crate::{
    offer::{GroupOffer, Offer, ResourceOffer},
    testing::{V1, member},
};

const NEED: Need<'static> =
    Need { group: "batch", version: "v1", resource: "jobs", subresource: "", verb: "list" };

/// A member of a release; one that has jobs if it is to.
fn server(name: &str, minor: u16, has_jobs: bool) -> MemberRecord {
    let jobs = ResourceOffer { verbs: vec!["list".into(), "get".into()], ..ResourceOffer::default() };
    let versions = [("v1".to_owned(), [("jobs".to_owned(), jobs)].into())].into();
    let offer = Offer([("batch".to_owned(), GroupOffer { priority: 1, versions })].into());
    let offer = if has_jobs { offer } else { Offer::default() };
    MemberRecord { emulated: Release::v1(minor), offer: offer.into(), ..member(name, "1", V1, &[V1]) }
}

/// `name:minor` of members that have jobs, `!name:minor` of those that do not. The first one is asked.
struct Scene {
    members: Members,
    me: MemberRecord,
    is_complete: bool,
    reach: Reach,
}

const NOW: Reach = Reach::AsOf(Revision::new(7));

impl Scene {
    fn of(text: &str) -> Self {
        let all: Vec<MemberRecord> = text
            .split_whitespace()
            .map(|it| {
                let (name, minor) = it.trim_start_matches('!').split_once(':').unwrap();
                server(name, minor.parse().unwrap(), !it.starts_with('!'))
            })
            .collect();
        Self { me: all[0].clone(), members: Members::of(all), is_complete: true, reach: NOW }
    }

    fn known(&self, here: Here) -> Known<'_> {
        Known {
            me: &self.me.identity,
            emulated: self.me.emulated,
            here,
            members: &self.members,
            is_complete: self.is_complete,
            reach: self.reach,
            forwards: true,
        }
    }

    fn show(&self, need: Need<'_>, compatibility: Option<u16>, is_forwarded: bool) -> String {
        let here = match self.me.offer.covers(&need) {
            true => Here::Offered,
            false if self.me.offer.resource(need.group, need.version, need.resource).is_some() => Here::Known,
            false => Here::Unknown,
        };
        let asked = Asked { need, compatibility: compatibility.map(Release::v1), is_forwarded };
        shown(&route(&asked, &self.known(here)))
    }
}

fn shown(route: &Route<'_>) -> String {
    match route {
        Route::Here => "here".to_owned(),
        Route::Forward(lists) => {
            let names = |it: &Vec<&MemberRecord>| {
                it.iter().map(|it| it.identity.as_str()).collect::<Vec<_>>().join(",")
            };
            lists.iter().map(names).collect::<Vec<_>>().join(" then ")
        }
        Route::CatchUp => "catch up".to_owned(),
        Route::Absent(it) => {
            assert_eq!(Reach::AsOf(it.as_of()), NOW);
            format!("nobody{}", if it.is_alone() { " alone" } else { "" })
        }
        Route::Unsure => "unsure".to_owned(),
        Route::Misdirected => "misdirected".to_owned(),
    }
}

#[test]
fn capability_decides_where_no_version_is_named() {
    for (members, expect) in [
        ("a:34 b:34", "here"),
        ("!a:34 b:34", "b"),
        ("!a:34 b:34 c:36", "b,c"),
        ("!a:34 !b:34", "nobody"),
        ("!a:34", "nobody alone"),
    ] {
        assert_eq!(Scene::of(members).show(NEED, None, false), expect, "{members}");
    }
}

#[test]
fn a_request_makes_one_hop_at_most() {
    assert_eq!(Scene::of("!a:34 b:34").show(NEED, None, true), "misdirected");
    assert_eq!(Scene::of("a:34 b:36").show(NEED, Some(36), true), "here");
}

#[test]
fn equal_releases_come_first_then_greater_ones() {
    for (members, client, expect) in [
        ("a:35 b:36", 35, "here"),
        ("a:35 b:36", 36, "b"),
        ("a:35 b:34 c:36", 34, "b then c"),
        ("a:36 b:35", 35, "b"),
        // Nobody is equal: a greater one, this server if it is one.
        ("a:36 b:36", 35, "here"),
        ("a:34 b:36", 35, "b"),
        // All are older than the client.
        ("a:34 b:35", 36, "here"),
        ("!a:34 b:34 c:35", 36, "c then b"),
        ("!a:34 !b:36", 36, "nobody"),
        ("!a:36 b:34", 36, "b"),
    ] {
        assert_eq!(Scene::of(members).show(NEED, Some(client), false), expect, "{members} for 1.{client}");
    }
}

#[test]
fn a_subresource_or_verb_that_only_others_have_is_theirs() {
    let scene = Scene::of("a:34 b:34");
    assert_eq!(scene.show(Need { verb: "create", ..NEED }, None, false), "nobody");
    assert_eq!(scene.show(Need { subresource: "status", ..NEED }, Some(36), false), "nobody");
    let mut more = server("b", 34, true);
    let mut offer = (*more.offer).clone();
    let jobs = offer.0.get_mut("batch").unwrap().versions.get_mut("v1").unwrap().get_mut("jobs").unwrap();
    jobs.verbs.push("create".to_owned());
    more.offer = offer.into();
    let scene = Scene { members: Members::of([scene.me.clone(), more]), ..scene };
    assert_eq!(scene.show(Need { verb: "create", ..NEED }, None, false), "b");
}

#[test]
fn what_is_not_known_for_sure_is_not_denied() {
    let scene = Scene { is_complete: false, ..Scene::of("!a:34 !b:34") };
    assert_eq!(scene.show(NEED, None, false), "unsure");
    assert_eq!(scene.show(NEED, Some(36), false), "unsure");
    let scene = Scene { is_complete: false, ..Scene::of("!a:34 b:34") };
    assert_eq!(scene.show(NEED, None, false), "b");
}

/// Whatever the members are: a capable one answers, and 404 is said only if there is none.
#[test]
fn nobody_is_said_only_if_it_is_so() {
    for bits in 0..64_u16 {
        let names = ["a", "b", "c"];
        let members: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(n, name)| {
                let minor = if bits & (8 << n) == 0 { 34 } else { 36 };
                format!("{}{name}:{minor}", if bits & (1 << n) == 0 { "!" } else { "" })
            })
            .collect();
        let scene = Scene::of(&members.join(" "));
        for client in [None, Some(33), Some(34), Some(35), Some(36), Some(37)] {
            let shown = scene.show(NEED, client, false);
            let is_there = bits & 7 != 0;
            assert_eq!(shown.starts_with("nobody"), !is_there, "{members:?} for {client:?}: {shown}");
        }
    }
}

/// Nothing is denied on knowledge that may be old, whatever this server has of it and however it was asked.
#[test]
fn nothing_is_denied_before_the_store_was_asked() {
    let needs = [
        Need { resource: "nothing", ..NEED },
        Need { subresource: "status", ..NEED },
        Need { verb: "create", ..NEED },
    ];
    for (members, client, is_forwarded) in [
        ("a:34", None, false),
        ("a:34 b:34", None, false),
        ("a:34 b:34", Some(36), false),
        ("a:34 b:34", None, true),
        ("a:34", None, true),
    ] {
        for need in needs {
            let scene = Scene { reach: Reach::Unchecked, ..Scene::of(members) };
            assert_eq!(scene.show(need, client, is_forwarded), "catch up", "{members}: {need:?}");
            let scene = Scene { reach: Reach::Failed, ..Scene::of(members) };
            let expect = if is_forwarded { "misdirected" } else { "unsure" };
            assert_eq!(scene.show(need, client, is_forwarded), expect, "{members}: {need:?}");
        }
    }
}

/// A server that was handed a request by another one never says that nobody has it: the other one knows somebody.
#[test]
fn what_was_handed_on_is_not_denied() {
    let scene = Scene::of("a:34 b:34");
    for need in [
        Need { resource: "nothing", ..NEED },
        Need { subresource: "status", ..NEED },
        Need { verb: "create", ..NEED },
    ] {
        assert_eq!(scene.show(need, None, true), "misdirected", "{need:?}");
    }
}

/// A path that does not fit the resource does not fit it anywhere: it is not handed on, and whoever has the resource may
/// say so to another server.
#[test]
fn a_path_that_does_not_fit_is_denied_by_whoever_has_the_resource() {
    for (reach, expect) in [(Reach::Unchecked, "catch up"), (Reach::Failed, "unsure"), (NOW, "nobody alone")]
    {
        let scene = Scene { reach, ..Scene::of("a:34 b:34") };
        for is_forwarded in [false, true] {
            let asked = Asked { need: NEED, compatibility: None, is_forwarded };
            assert_eq!(shown(&route(&asked, &scene.known(Here::Misplaced))), expect);
        }
    }
}

/// A server that hands nothing on speaks for itself, but not before it knows every definition.
#[test]
fn a_server_that_hands_nothing_on_still_catches_up() {
    for (reach, expect) in [(Reach::Unchecked, "catch up"), (Reach::Failed, "unsure"), (NOW, "nobody alone")]
    {
        let scene = Scene { reach, is_complete: false, ..Scene::of("!a:34 b:34") };
        let known = Known { forwards: false, ..scene.known(Here::Unknown) };
        let asked = Asked { need: NEED, compatibility: None, is_forwarded: false };
        assert_eq!(shown(&route(&asked, &known)), expect);
    }
}

#[test]
fn documents_are_made_from_what_the_store_holds_now() {
    const BATCH: Option<(&str, &str)> = Some(("batch", "v1"));
    for (reach, is_complete, here, elsewhere, is_forwarded, expect) in [
        (Reach::Unchecked, true, Here::Offered, None, false, "catch up"),
        (Reach::Unchecked, true, Here::Unknown, BATCH, true, "catch up"),
        (NOW, true, Here::Offered, None, false, "here"),
        (NOW, true, Here::Offered, None, true, "here"),
        (NOW, true, Here::Unknown, None, false, "nobody"),
        (NOW, true, Here::Misplaced, BATCH, false, "nobody"),
        (NOW, true, Here::Unknown, BATCH, false, "b"),
        (NOW, true, Here::Unknown, BATCH, true, "misdirected"),
        // What lists everything does not come from a server that may not know everybody.
        (NOW, false, Here::Offered, None, false, "unsure"),
        (NOW, false, Here::Unknown, None, false, "unsure"),
        // A store that does not answer takes nothing away that is known.
        (Reach::Failed, true, Here::Offered, None, false, "here"),
        (Reach::Failed, true, Here::Unknown, None, false, "unsure"),
        (Reach::Failed, true, Here::Unknown, BATCH, false, "b"),
    ] {
        let scene = Scene { reach, is_complete, ..Scene::of("!a:34 b:34") };
        let route = document(elsewhere, is_forwarded, &scene.known(here));
        let what = format!("{reach:?} {is_complete} {here:?} {elsewhere:?} {is_forwarded}");
        assert_eq!(shown(&route), expect, "{what}");
    }
}
