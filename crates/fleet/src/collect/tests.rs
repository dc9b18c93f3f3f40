//! What a leader may remove, and what not.

use super::*;
use crate::{
    cluster::Agreement,
    testing::{V1, V2, member, report, things, time, versions},
};
use meta::{GroupResource, StorageVersion};

struct Scene {
    resource: GroupResource,
    members: Members,
}

impl Scene {
    fn of(members: &[MemberRecord]) -> Self {
        Self { resource: things(), members: Members::of(members.iter().cloned()) }
    }

    fn facts<'a>(&'a self, fence: Option<&'a FenceRecord>) -> Facts<'a> {
        Facts {
            resource: &self.resource,
            fence,
            members: &self.members,
            agreement: Agreement::Report,
            settle: Duration::from_secs(60),
            now: time(0),
            revision: Revision::new(1),
        }
    }

    fn collect(&self, record: &FenceRecord, owner: Owner<'_>, keys_remain: bool) -> Collect {
        collect(&self.facts(None), record, owner, keys_remain).unwrap()
    }
}

fn a() -> MemberRecord {
    member("a", "1", V1, &[V1, V2])
}

fn b() -> MemberRecord {
    member("b", "1", V2, &[V1, V2])
}

/// Both have reported what they prefer.
fn record() -> FenceRecord {
    let scene = Scene::of(&[a(), b()]);
    let first = agree::plan(&scene.facts(None), Some(&report("a", "1", V1, &[V1, V2]))).unwrap().record;
    agree::plan(&scene.facts(Some(&first)), Some(&report("b", "1", V2, &[V1, V2]))).unwrap().record
}

#[test]
fn an_entry_goes_with_its_member_and_the_mirror_with_the_last() {
    let record = record();
    assert_eq!(Scene::of(&[a(), b()]).collect(&record, Owner::BuiltIn, true), Collect::Keep);
    let Collect::Write(plan) = Scene::of(&[b()]).collect(&record, Owner::BuiltIn, true) else { panic!() };
    assert_eq!(plan.record.entries.len(), 1);
    assert_eq!(plan.record.common, Some(StorageVersion::new(V2)));
    let nobody = Scene::of(&[]);
    let Collect::Write(plan) = nobody.collect(&plan.record, Owner::BuiltIn, false) else { panic!() };
    assert!(plan.record.entries.is_empty());
    // The record stays as long as something is stored, and goes a step after the last entry.
    assert_eq!(nobody.collect(&plan.record, Owner::BuiltIn, true), Collect::Keep);
    assert_eq!(nobody.collect(&plan.record, Owner::BuiltIn, false), Collect::Remove);
    // A member that is about to report keeps it.
    assert_eq!(Scene::of(&[b()]).collect(&plan.record, Owner::BuiltIn, false), Collect::Keep);
}

/// GC-6.
#[test]
fn a_server_without_an_entry_leaves_nothing_behind() {
    let other = member("c", "1", V1, &[V1, V2]);
    let record = record();
    assert_eq!(Scene::of(&[a(), b(), other]).collect(&record, Owner::BuiltIn, true), Collect::Keep);
}

#[test]
fn a_deleted_definition_takes_the_mirror_and_with_the_last_key_the_record() {
    let scene = Scene::of(&[a(), b()]);
    let gone = Owner::Gone(Revision::new(20));
    let Collect::Write(plan) = scene.collect(&record(), gone, true) else { panic!() };
    assert!(plan.record.entries.is_empty());
    assert_eq!(plan.record.common, None);
    assert_eq!(scene.collect(&plan.record, gone, true), Collect::Keep);
    assert_eq!(scene.collect(&plan.record, Owner::Gone(Revision::new(30)), true), Collect::Keep);
    assert_eq!(scene.collect(&plan.record, gone, false), Collect::Remove);
}

#[test]
fn a_definition_that_exists_keeps_its_record() {
    let all = versions(&[V1, V2]);
    let definition = Definition {
        uid: "u".into(),
        revision: Revision::new(5),
        storage: StorageVersion::new(V1),
        versions: all.clone(),
        served: all,
    };
    let record = FenceRecord { definition: Some(Revision::new(4)), ..record() };
    let Collect::Write(plan) = Scene::of(&[]).collect(&record, Owner::Custom(&definition), false) else {
        panic!()
    };
    let again = Scene::of(&[]).collect(&plan.record, Owner::Custom(&definition), false);
    assert_eq!(again, Collect::Keep);
}

#[test]
fn the_way_is_cleared_only_over_the_departed() {
    let mut record = record();
    record.selection = Some(StorageVersion::new(V2));
    let joiner = member("c", "1", V1, &[V1]);
    let clear = |members: &[MemberRecord]| {
        let scene = Scene::of(members);
        let facts = Facts { agreement: Agreement::Vote, ..scene.facts(None) };
        clear_for(&facts, &record, &joiner).record
    };
    assert_eq!(clear(&[b()]).selection, Some(StorageVersion::new(V2)));
    let cleared = clear(&[]);
    assert_eq!(cleared.in_use().count(), 0);
    assert_eq!(cleared.epoch, record.epoch);
}

#[test]
fn an_object_without_a_record_goes_after_a_minute() {
    let record = record();
    assert!(!is_orphan(None, time(0), time(59)));
    assert!(is_orphan(None, time(0), time(60)));
    assert!(!is_orphan(Some(&record), time(0), time(600)));
    // Its clock may be ahead of ours.
    assert!(!is_orphan(None, time(600), time(0)));
}

/// The model found it: an older process of the joiner's own identity is live, so that a prune alone would first
/// establish a common version and clearing it would end that again, in one write that raised the epoch twice.
#[test]
fn an_older_process_of_the_joiner_is_cleared_in_one_step_of_the_epoch() {
    let record = record();
    assert_eq!(record.common, None);
    let twin = member("b", "2", V1, &[V1]);
    // Its own entry, which names v2, is in the way; that of a departed one, too.
    let cleared = clear_for(&Scene::of(&[b()]).facts(None), &record, &twin);
    assert!(cleared.changed && cleared.record.entries.is_empty());
    assert_eq!(cleared.record.epoch, record.epoch);
}
