//! Custom resources: definitions, flips, and their end.

use super::*;
use crate::{
    Incarnation,
    cluster::Agreement,
    fence::Reason,
    testing::{V1, V2, member, things, time, versions},
};

fn definition(revision: u64, storage: &str) -> Definition {
    let all = versions(&[V1, V2]);
    let storage = StorageVersion::new(storage);
    Definition {
        uid: "u1".into(),
        revision: Revision::new(revision),
        storage,
        versions: all.clone(),
        served: all,
    }
}

fn reporter(name: &str) -> Reporter {
    Reporter { identity: Identity::new(name), incarnation: Incarnation::new("1"), votes: true }
}

fn planned(
    fence: Option<&FenceRecord>,
    members: &Members,
    who: &str,
    definition: &Definition,
) -> Result<Plan, Blocked> {
    let resource = things();
    let facts = Facts {
        resource: &resource,
        fence,
        members,
        agreement: Agreement::Vote,
        settle: std::time::Duration::from_secs(60),
        now: time(0),
        revision: Revision::new(1),
    };
    plan(&facts, Some(&reporter(who)), definition)
}

fn two() -> Members {
    Members::of([member("a", "1", V1, &[V1]), member("b", "1", V1, &[V1])])
}

#[test]
fn a_definition_is_established_when_every_member_has_reported_it() {
    let (members, first) = (two(), definition(5, V1));
    assert_eq!(awaited(None, &members, &first).len(), 2);
    let a = planned(None, &members, "a", &first).unwrap().record;
    assert_eq!(a.condition.reason, Reason::MembersMissing);
    assert_eq!(awaited(Some(&a), &members, &first), [Identity::new("b")]);
    let b = planned(Some(&a), &members, "b", &first).unwrap().record;
    assert_eq!(b.common, Some(StorageVersion::new(V1)));
    assert!(awaited(Some(&b), &members, &first).is_empty());
    assert!(!planned(Some(&b), &members, "a", &first).unwrap().changed);
}

#[test]
fn whoever_sees_a_flip_first_moves_everybody() {
    let (members, first) = (two(), definition(5, V1));
    let a = planned(None, &members, "a", &first).unwrap().record;
    let both = planned(Some(&a), &members, "b", &first).unwrap().record;
    let flipped = planned(Some(&both), &members, "b", &definition(9, V2)).unwrap().record;
    assert_eq!(flipped.common, Some(StorageVersion::new(V2)));
    assert_eq!(flipped.epoch, both.epoch.next());
    assert!(flipped.entries.iter().all(|it| it.encoding.as_str() == V2));
    // The other one has not seen it: it must not move it back.
    let behind = planned(Some(&flipped), &members, "a", &first).unwrap_err();
    assert_eq!(behind, Blocked::Behind { resource: things(), definition: Revision::new(9) });
}

#[test]
fn a_deleted_definition_leaves_nobody_who_may_write() {
    let (members, first) = (two(), definition(5, V1));
    let a = planned(None, &members, "a", &first).unwrap().record;
    let retired = retire(&a, Revision::new(12), time(3));
    assert!(retired.entries.is_empty() && retired.selection.is_none());
    assert!(matches!(planned(Some(&retired), &members, "a", &first), Err(Blocked::Behind { .. })));
    // Made anew, it starts where the epochs were.
    let anew = planned(Some(&retired), &members, "a", &definition(20, V2)).unwrap().record;
    assert!(anew.epoch >= a.epoch);
    assert_eq!(anew.entries.len(), 1);
}

#[test]
fn reports_of_an_earlier_definition_do_not_establish_a_new_one() {
    let (members, first) = (two(), definition(5, V1));
    let one = planned(None, &members, "a", &first).unwrap().record;
    let both = planned(Some(&one), &members, "b", &first).unwrap().record;
    assert!(awaited(Some(&both), &members, &first).is_empty());
    let anew = Definition { uid: "u2".into(), ..definition(9, V1) };
    assert_eq!(awaited(Some(&both), &members, &anew).len(), 2);
    let reported = planned(Some(&both), &members, "a", &anew).unwrap().record;
    assert_eq!(awaited(Some(&reported), &members, &anew), [Identity::new("b")]);
}

/// An epoch that was noted for one definition is never found again under another one of the same name, whether the
/// deletion in between was noticed or not, and what the members of the first had in common is nothing of the second.
#[test]
fn a_definition_made_anew_has_an_epoch_of_its_own() {
    let (members, first) = (two(), definition(5, V1));
    let a = planned(None, &members, "a", &first).unwrap().record;
    let both = planned(Some(&a), &members, "b", &first).unwrap().record;
    assert_eq!(both.common, Some(StorageVersion::new(V1)));
    let second = Definition { uid: "u2".into(), ..definition(20, V1) };
    for before in [
        both.clone(),
        a.clone(),
        retire(&both, Revision::new(12), time(3)),
        retire(&a, Revision::new(12), time(3)),
    ] {
        let one = planned(Some(&before), &members, "a", &second).unwrap().record;
        assert_eq!(one.epoch, before.epoch.next(), "{before:?}");
        assert_eq!(one.common, None, "{before:?}");
        let all = planned(Some(&one), &members, "b", &second).unwrap().record;
        assert_eq!(all.common, Some(StorageVersion::new(V1)));
        assert!(all.epoch > both.epoch);
    }
    // A lone server agrees with itself at once, and the epoch is another one all the same.
    let alone = Members::of([member("a", "1", V1, &[V1])]);
    let one = planned(None, &alone, "a", &first).unwrap().record;
    let anew = planned(Some(&one), &alone, "a", &second).unwrap().record;
    assert_eq!((one.common.clone(), one.epoch.next()), (anew.common.clone(), anew.epoch));
}

/// Two kinds of records under one name: neither is taken for the other while somebody may write by it.
#[test]
fn the_record_of_a_definition_and_that_of_a_built_in_resource_are_never_mixed() {
    let (members, first) = (two(), definition(5, V1));
    let resource = things();
    let facts = |fence| Facts {
        resource: &resource,
        fence,
        members: &members,
        agreement: Agreement::Vote,
        settle: std::time::Duration::from_secs(60),
        now: time(0),
        revision: Revision::new(1),
    };
    let Reporter { identity, incarnation, votes } = reporter("a");
    let (preferred, decodable) = (StorageVersion::new(V1), versions(&[V1]));
    let served = decodable.clone();
    let report = Report { identity, incarnation, preferred, decodable, served, votes };
    let built_in = agree::plan(&facts(None), Some(&report)).unwrap().record;
    let blocked = planned(Some(&built_in), &members, "b", &first).unwrap_err();
    assert_eq!(blocked, Blocked::BuiltIn { resource: things() });

    let custom = planned(None, &members, "b", &first).unwrap().record;
    let blocked = agree::plan(&facts(Some(&custom)), Some(&report)).unwrap_err();
    assert_eq!(blocked, Blocked::Defined { resource: things() });

    // Nobody may write any more by a definition that is gone: its record goes on as that of the built-in resource.
    let retired = retire(&custom, Revision::new(12), time(3));
    let next = agree::plan(&facts(Some(&retired)), Some(&report)).unwrap().record;
    assert_eq!((next.definition, next.definition_uid.clone()), (None, None));
    assert!(next.epoch >= retired.epoch && next.entries.len() == 1);
}
