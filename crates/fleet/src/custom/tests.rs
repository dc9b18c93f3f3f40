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
