//! Who may join, and who still is a member.

use super::*;
use crate::{
    agree,
    cluster::Agreement,
    testing::{V1, V2, member, report, things, time},
};

struct Scene {
    me: MemberRecord,
    taken: Option<MemberRecord>,
    other: Other,
    members: Vec<MemberRecord>,
    fences: Vec<FenceRecord>,
    unreadable: Vec<Undecodable>,
    defined: Vec<GroupResource>,
}

impl Scene {
    fn new(me: MemberRecord) -> Self {
        let (members, fences, unreadable) = (Vec::new(), Vec::new(), Vec::new());
        Self { me, taken: None, other: Other::NotAsked, members, fences, unreadable, defined: Vec::new() }
    }

    fn join(&self) -> Result<Join, JoinError> {
        let members = Members::of(self.members.iter().cloned());
        join(&Applicant {
            me: &self.me,
            taken: self.taken.as_ref().map(|it| (it, Revision::new(7))),
            other: self.other.clone(),
            members: &members,
            fences: &self.fences,
            unreadable: &self.unreadable,
            defined: &self.defined,
        })
    }
}

fn fence_of(writer: &MemberRecord) -> FenceRecord {
    let members = Members::of([writer.clone()]);
    let resource = things();
    let facts = agree::Facts {
        resource: &resource,
        fence: None,
        members: &members,
        agreement: Agreement::Vote,
        settle: std::time::Duration::from_secs(60),
        now: time(0),
        revision: Revision::new(1),
    };
    let report = report(writer.identity.as_str(), writer.incarnation.as_str(), V2, &[V1, V2]);
    agree::plan(&facts, Some(&report)).unwrap().record
}

#[test]
fn a_free_identity_is_created() {
    assert_eq!(Scene::new(member("a", "1", V1, &[V1])).join(), Ok(Join::Create));
}

#[test]
fn a_taken_identity_is_asked_for_and_taken_over_when_nobody_answers() {
    let mut scene = Scene::new(member("a", "2", V1, &[V1]));
    let mut old = member("a", "1", V1, &[V1]);
    old.peer_address = Some("10.0.0.1:6443".into());
    scene.members.push(old.clone());
    scene.taken = Some(old);
    let over = Ok(Join::TakeOver(Revision::new(7)));
    assert_eq!(scene.join(), Ok(Join::Probe("10.0.0.1:6443".into())));
    scene.other = Other::Silent;
    assert_eq!(scene.join(), over);
    // An embedded store admits one process.
    scene.other = Other::Excluded;
    assert_eq!(scene.join(), over);
    // The address leads here.
    scene.other = Other::Answered(Identity::new("a"), Incarnation::new("2"));
    assert_eq!(scene.join(), over);
}

/// A twin that cannot prove itself to the first server, or the other way round, must not end it.
#[test]
fn what_is_not_proven_is_not_silence() {
    let mut scene = Scene::new(member("a", "2", V1, &[V1]));
    let mut old = member("a", "1", V1, &[V1]);
    old.peer_address = Some("10.0.0.1:6443".into());
    scene.taken = Some(old);
    scene.other = Other::Unproven("invalid peer certificate: UnknownIssuer".into());
    let error = scene.join().unwrap_err().to_string();
    assert!(
        error.starts_with("the identity a is recorded for another process (incarnation 1 at 10.0.0.1:6443)")
    );
    assert!(error.contains("not known to be gone: invalid peer certificate: UnknownIssuer;"), "{error}");
    // Nor does another server at that address show that the first one is gone: it may be a common address of both.
    scene.other = Other::Answered(Identity::new("b"), Incarnation::new("9"));
    let error = scene.join().unwrap_err().to_string();
    assert!(error.contains("not known to be gone: b answers there;"), "{error}");
}

#[test]
fn a_living_twin_is_refused_and_named() {
    let mut scene = Scene::new(member("a", "2", V1, &[V1]));
    let mut old = member("a", "1", V1, &[V1]);
    old.peer_address = Some("10.0.0.1:6443".into());
    scene.taken = Some(old);
    scene.other = Other::Answered(Identity::new("a"), Incarnation::new("1"));
    let error = scene.join().unwrap_err().to_string();
    assert_eq!(
        error,
        "the identity a is in use by another process (incarnation 1 at 10.0.0.1:6443): give this server another \
         name with --hostname-override, or stop the other one"
    );
}

#[test]
fn an_attempt_whose_outcome_was_unknown_is_written_again() {
    let mut scene = Scene::new(member("a", "1", V1, &[V1]));
    scene.taken = Some(scene.me.clone());
    assert_eq!(scene.join(), Ok(Join::TakeOver(Revision::new(7))), "the lease of the first attempt is lost");
}

#[test]
fn a_newer_protocol_is_not_joined() {
    let mut scene = Scene::new(member("a", "1", V1, &[V1]));
    scene.members.push(MemberRecord { protocol: 2, ..member("b", "1", V1, &[V1]) });
    let error = scene.join().unwrap_err();
    assert_eq!(error.to_string(), "b speaks protocol 2, this release knows protocols up to 1");
}

#[test]
fn what_is_stored_or_in_use_must_be_readable() {
    let mut scene = Scene::new(member("a", "1", V1, &[V1]));
    let writer = member("b", "1", V2, &[V1, V2]);
    scene.fences.push(fence_of(&writer));
    // Its writer is gone: the entry must go first, for as long as it stands it lets its process write.
    assert_eq!(scene.join(), Ok(Join::Prune(vec![things()])));
    scene.members.push(writer);
    let error = scene.join().unwrap_err().to_string();
    assert!(
        error.starts_with("things.example.com is written as example.com/v2, which release 1.36"),
        "{error}"
    );
    // One that has not reported yet will write what is selected.
    scene.fences[0].entries.clear();
    assert!(matches!(scene.join(), Err(JoinError::InUse { .. })));
    scene.fences.clear();
    let (version, release) = (StorageVersion::new(V2), Release::v1(36));
    scene.unreadable.push(Undecodable { resource: things(), version, count: 2, release });
    let error = scene.join().unwrap_err().to_string();
    assert!(error.starts_with("2 objects of things.example.com are stored as example.com/v2"), "{error}");
}

#[test]
fn a_member_knows_when_it_is_none_any_more() {
    let me = member("a", "1", V1, &[V1]);
    let ask = |current: Option<&MemberRecord>| standing(&me.identity, &me.incarnation, current);
    assert_eq!(ask(Some(&me)), Standing::Member);
    assert_eq!(ask(None), Standing::Lost);
    let other = member("a", "2", V1, &[V1]);
    assert_eq!(ask(Some(&other)), Standing::TakenOver(Incarnation::new("2")));
}

#[test]
fn a_record_says_what_others_need_to_know() {
    let mut record = member("a", "1", V1, &[V1, V2]);
    record.persisted.insert(
        GroupResource::new("", "pods"),
        Persisted { preferred: StorageVersion::new("v1"), decodable: vec![StorageVersion::new("v1")] },
    );
    let text = serde_json::to_string(&record).unwrap();
    assert!(text.contains(r#""release":"1.36""#), "{text}");
    assert!(text.contains(r#""pods":{"preferred":"v1","decodable":["v1"]}"#), "{text}");
    assert!(text.contains(r#""things.example.com":{"#), "{text}");
    let key = crate::keys::member(&record.identity);
    let bytes = crate::record::write(&key, &record).unwrap();
    assert_eq!(crate::record::read::<MemberRecord>(&key, &bytes).unwrap(), record);
    assert!(record.takes_part());
    record.features.clear();
    assert!(!record.takes_part());
}

#[test]
fn a_definition_of_what_is_built_in_stands_in_the_way_and_is_named() {
    let scene = Scene { defined: vec![things()], ..Scene::new(member("a", "1", V1, &[V1])) };
    let error = scene.join().unwrap_err();
    assert_eq!(error, JoinError::Defined { resource: things(), release: scene.me.emulated });
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("the CustomResourceDefinition {} stands in the way", things())),
        "{text}"
    );
    assert!(text.contains("--emulated-version"), "{text}");
}
