//! The rules of agreement one by one. Whole upgrades are told in `tests/stories`.

use super::*;
use crate::{
    Epoch, MemberRecord,
    fence::{Hold, Reason},
    record::{self, Record},
    testing::{self, V1, V2, member, report, things, time},
};

/// A fence that is written as planned, time after time.
struct Cluster {
    agreement: Agreement,
    members: Vec<MemberRecord>,
    fence: Option<FenceRecord>,
    now: Timestamp,
    revision: u64,
}

impl Cluster {
    fn new(agreement: Agreement) -> Self {
        Self { agreement, members: Vec::new(), fence: None, now: time(0), revision: 10 }
    }

    fn try_plan(&self, report: Option<&Report>) -> Result<Plan, Blocked> {
        let resource = things();
        let members = Members::of(self.members.iter().cloned());
        plan(
            &Facts {
                resource: &resource,
                fence: self.fence.as_ref(),
                members: &members,
                agreement: self.agreement,
                settle: Duration::from_secs(60),
                now: self.now,
                revision: Revision::new(self.revision),
            },
            report,
        )
    }

    fn write(&mut self, report: Option<&Report>) -> Plan {
        let plan = self.try_plan(report).unwrap();
        plan.record.check().unwrap();
        self.fence = Some(plan.record.clone());
        self.revision += 1;
        plan
    }

    /// Joins and reports.
    fn start(&mut self, name: &str, incarnation: &str, preferred: &str, reads: &[&str]) -> Plan {
        self.leave(name);
        self.members.push(member(name, incarnation, preferred, reads));
        self.write(Some(&report(name, incarnation, preferred, reads)))
    }

    fn leave(&mut self, name: &str) {
        self.members.retain(|it| it.identity.as_str() != name);
    }

    fn common(&self) -> Option<&str> {
        self.fence.as_ref()?.common.as_ref().map(StorageVersion::as_str)
    }

    fn epoch(&self) -> Epoch {
        self.fence.as_ref().unwrap().epoch
    }
}

const BOTH: &[&str] = &[V1, V2];

#[test]
fn an_unchanged_report_writes_nothing() {
    for agreement in [Agreement::Vote, Agreement::Report] {
        let mut cluster = Cluster::new(agreement);
        assert!(cluster.start("a", "1", V1, BOTH).changed);
        cluster.start("b", "1", V2, BOTH);
        cluster.now = time(5);
        for _ in 0..3 {
            assert!(!cluster.write(Some(&report("a", "1", V1, BOTH))).changed);
            assert!(!cluster.write(Some(&report("b", "1", V2, BOTH))).changed);
            assert!(!cluster.write(None).changed);
        }
    }
}

/// SV-11.
#[test]
fn an_entry_is_replaced_in_place_and_new_ones_follow() {
    let mut cluster = Cluster::new(Agreement::Vote);
    for name in ["b", "a", "c"] {
        cluster.start(name, "1", V1, BOTH);
    }
    cluster.start("a", "2", V1, BOTH);
    let record = cluster.fence.unwrap();
    let order: Vec<_> = record.entries.iter().map(|it| it.identity.as_str()).collect();
    assert_eq!(order, ["b", "a", "c"]);
    assert_eq!(record.entries[1].incarnation.as_str(), "2");
}

#[test]
fn the_epoch_and_the_time_change_exactly_with_the_common_version() {
    let mut cluster = Cluster::new(Agreement::Report);
    cluster.start("a", "1", V1, BOTH);
    let (first, since) = (cluster.epoch(), time(0));
    assert_eq!(first, Epoch::new(11));
    // The same again: nothing changes.
    cluster.now = time(1);
    cluster.start("b", "1", V1, BOTH);
    assert_eq!((cluster.common(), cluster.epoch()), (Some(V1), first));
    assert_eq!(cluster.fence.as_ref().unwrap().condition.since, since);
    // Unset.
    cluster.now = time(2);
    cluster.start("c", "1", V2, BOTH);
    let condition = cluster.fence.as_ref().unwrap().condition.clone();
    assert_eq!((cluster.common(), cluster.epoch()), (None, first.next()));
    assert_eq!((condition.reason, condition.since), (Reason::CommonEncodingVersionUnset, time(2)));
    // Still unset, with another message and the same time.
    cluster.now = time(3);
    cluster.start("b", "2", V2, BOTH);
    assert_eq!(cluster.epoch(), first.next());
    assert_eq!(cluster.fence.as_ref().unwrap().condition.since, time(2));
    // Set to another.
    cluster.now = time(4);
    cluster.start("a", "2", V2, BOTH);
    assert_eq!((cluster.common(), cluster.epoch()), (Some(V2), first.next().next()));
    assert_eq!(cluster.fence.as_ref().unwrap().condition.since, time(4));
}

/// SV-10, the last row: from one common version straight to another the status does not flip, and the time is new.
#[test]
fn a_common_version_that_moves_directly_has_a_new_time() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    cluster.start("b", "1", V1, BOTH);
    cluster.now = time(5);
    cluster.start("a", "2", V2, BOTH);
    let before = cluster.fence.clone().unwrap().condition;
    assert_eq!((cluster.common(), before.since), (Some(V1), time(0)));
    cluster.now = time(9);
    cluster.start("b", "2", V2, BOTH);
    let after = cluster.fence.clone().unwrap().condition;
    assert_eq!((cluster.common(), after.since), (Some(V2), time(9)));
    assert_eq!(
        (before.reason, after.reason),
        (Reason::CommonEncodingVersionSet, Reason::CommonEncodingVersionSet)
    );
}

#[test]
fn a_move_by_votes_has_no_moment_without_a_common_version() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    cluster.start("b", "1", V1, BOTH);
    let before = cluster.epoch();
    cluster.start("a", "2", V2, BOTH);
    assert_eq!(cluster.common(), Some(V1));
    let plan = cluster.start("b", "2", V2, BOTH);
    assert_eq!((cluster.common(), cluster.epoch()), (Some(V2), before.next()));
    assert!(plan.moves);
    assert!(plan.record.entries.iter().all(|it| it.encoding.as_str() == V2));
}

#[test]
fn an_agreement_is_established_by_all_and_ended_only_by_an_entry() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.members = vec![member("a", "1", V1, BOTH), member("b", "1", V1, BOTH)];
    let plan = cluster.write(Some(&report("a", "1", V1, BOTH)));
    assert_eq!(plan.record.condition.reason, Reason::MembersMissing);
    assert_eq!(plan.record.condition.message, "Common encoding version unset: not yet reported by b");
    cluster.write(Some(&report("b", "1", V1, BOTH)));
    assert_eq!(cluster.common(), Some(V1));
    cluster.members.push(member("c", "1", V2, BOTH));
    assert!(!cluster.write(None).changed);
    assert_eq!(cluster.common(), Some(V1));
}

#[test]
fn members_that_do_not_persist_the_resource_do_not_count() {
    let mut cluster = Cluster::new(Agreement::Vote);
    let mut other = member("b", "1", V1, BOTH);
    other.persisted.clear();
    cluster.members = vec![member("a", "1", V1, BOTH), other];
    cluster.write(Some(&report("a", "1", V1, BOTH)));
    assert_eq!(cluster.common(), Some(V1));
}

#[test]
fn stale_entries_go_with_the_next_write_also_those_of_an_older_process() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    cluster.start("b", "1", V1, BOTH);
    // It was started anew and has not reported.
    cluster.leave("b");
    cluster.members.push(member("b", "2", V1, BOTH));
    let plan = cluster.write(None);
    assert!(plan.changed);
    assert_eq!(plan.record.entries.len(), 1);
}

#[test]
fn fields_of_newer_releases_stay_wherever_they_are() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    cluster.start("b", "1", V1, BOTH);
    cluster.start("gone", "1", V2, BOTH);
    cluster.leave("gone");
    cluster.write(None);
    let hold = Hold { by: "jane".into(), reason: String::new(), since: time(0), unknown: Unknown::new() };
    cluster.fence.as_mut().unwrap().hold = Some(hold);
    let mut newer = serde_json::to_value(cluster.fence.as_ref().unwrap()).unwrap();
    let places = ["", "/hold", "/departed/0", "/condition", "/entries/0"];
    for place in places {
        newer.pointer_mut(place).unwrap_or_else(|| panic!("{place}"))["more"] = place.into();
    }
    let key = crate::keys::fence(&things());
    let record = record::read(&key, newer.to_string().as_bytes()).unwrap();
    cluster.fence = Some(record);
    // Something that concerns most of it.
    cluster.leave("b");
    let plan = cluster.write(None);
    assert!(plan.changed);
    let written = record::write(&key, &plan.record).unwrap();
    let written: serde_json::Value = serde_json::from_slice(&written).unwrap();
    for place in places {
        let kept = written.pointer(place).map(|it| &it["more"]);
        assert_eq!(kept, Some(&place.into()), "{place} in {written}");
    }
}

#[test]
fn a_hold_is_one_more_vote() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    let hold = Hold { by: "jane".into(), reason: String::new(), since: time(0), unknown: Unknown::new() };
    cluster.fence.as_mut().unwrap().hold = Some(hold);
    let plan = cluster.start("a", "2", V2, BOTH);
    assert_eq!(plan.waiting, Some(Waiting::Hold { by: "jane".into() }));
    assert_eq!(cluster.common(), Some(V1));
    cluster.fence.as_mut().unwrap().hold = None;
    cluster.write(None);
    assert_eq!(cluster.common(), Some(V2));
}

#[test]
fn a_clock_that_is_far_ahead_does_not_stop_a_departure_from_settling() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    cluster.start("b", "1", V2, BOTH);
    cluster.leave("a");
    cluster.now = time(100_000);
    let plan = cluster.write(None);
    assert!(matches!(plan.waiting, Some(Waiting::Settle(_, until)) if until == time(100_060)));
    cluster.now = time(5);
    cluster.write(None);
    assert_eq!(cluster.common(), Some(V2));
}

#[test]
fn the_first_selection_is_the_newest_that_all_can_read() {
    let mut cluster = Cluster::new(Agreement::Vote);
    let all = &["example.com/v1beta1", "example.com/v1alpha1", V1, V2];
    cluster.members = vec![
        member("a", "1", V2, all),
        member("b", "1", "example.com/v1beta1", &["example.com/v1beta1", "example.com/v1alpha1"]),
    ];
    let plan = cluster.write(Some(&report("a", "1", V2, all)));
    assert_eq!(plan.record.selection, Some(StorageVersion::new("example.com/v1beta1")));
    cluster.fence = None;
    cluster.members[1] = member("b", "1", "example.com/v9", &["example.com/v9"]);
    let error = cluster.try_plan(Some(&report("a", "1", V2, all))).unwrap_err();
    assert_eq!(error, Blocked::NothingCommon { resource: things() });
}

#[test]
fn a_server_that_cannot_read_what_is_written_has_no_entry() {
    for agreement in [Agreement::Vote, Agreement::Report] {
        let mut cluster = Cluster::new(agreement);
        cluster.start("a", "1", V1, BOTH);
        cluster.members.push(member("b", "1", V2, &[V2]));
        let error = cluster.try_plan(Some(&report("b", "1", V2, &[V2]))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "things.example.com is written as example.com/v1, which this server cannot read"
        );
    }
}

#[test]
fn a_record_holds_a_bounded_number_of_servers() {
    let mut cluster = Cluster::new(Agreement::Vote);
    for n in 0..MAX_ENTRIES {
        cluster.start(&format!("s{n:03}"), "1", V1, BOTH);
    }
    cluster.members.push(member("one-more", "1", V1, BOTH));
    let error = cluster.try_plan(Some(&report("one-more", "1", V1, BOTH))).unwrap_err();
    assert_eq!(error, Blocked::Full { resource: things() });
    cluster.members.retain(|it| it.identity.as_str() < "s012");
    cluster.write(None);
    let record = cluster.fence.unwrap();
    assert_eq!((record.entries.len(), record.departed.len()), (11 + 1, MAX_ENTRIES - 12));
}

#[test]
fn messages_name_ten_servers_at_most() {
    let servers: Vec<Identity> = (0..12).map(|n| Identity::new(format!("s{n}"))).collect();
    assert_eq!(list(&servers), "s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 2 more");
}

#[test]
fn records_are_read_as_they_were_written_with_what_newer_releases_added() {
    let mut cluster = Cluster::new(Agreement::Vote);
    cluster.start("a", "1", V1, BOTH);
    cluster.start("b", "1", V2, BOTH);
    let mut record = cluster.fence.unwrap();
    record.unknown.insert("colour".into(), "red".into());
    record.entries[0].unknown.insert("shape".into(), 3.into());
    let key = store::Key::new("/convoy/fences/example.com.things");
    let bytes = record::write(&key, &record).unwrap();
    assert_eq!(record::read::<FenceRecord>(&key, &bytes).unwrap(), record);
    // And a report of its server keeps them.
    cluster.fence = Some(record);
    let plan = cluster.start("a", "2", V1, BOTH);
    assert_eq!(plan.record.unknown["colour"], "red");
    assert_eq!(plan.record.entries[0].unknown["shape"], 3);
}

#[test]
fn records_that_are_newer_malformed_or_contradict_themselves_are_refused() {
    let mut cluster = Cluster::new(Agreement::Vote);
    let record = cluster.start("a", "1", V1, BOTH).record;
    let key = store::Key::new("/convoy/fences/x");
    let read = |text: &str| record::read::<FenceRecord>(&key, text.as_bytes()).unwrap_err().to_string();
    let text = serde_json::to_string(&record).unwrap();
    let newer = text.replacen("\"format\":1", "\"format\":2", 1);
    assert_eq!(read(&newer), "/convoy/fences/x has format 2, this release knows formats up to 1");
    assert!(read("{}").contains("no format"));
    assert!(read("[1").contains("not a valid record"));
    assert!(read(&" ".repeat(record::MAX_BYTES + 1)).contains("are more than"));
    let mut wrong = record.clone();
    wrong.common = Some(StorageVersion::new(V2));
    assert!(read(&serde_json::to_string(&wrong).unwrap()).contains("not every server writes"));
    let mut wrong = record.clone();
    wrong.entries.push(record.entries[0].clone());
    assert!(record::write(&key, &wrong).unwrap_err().to_string().contains("a has two entries"));
    let mut wrong = record;
    wrong.entries[0].decodable.clear();
    assert!(record::write(&key, &wrong).unwrap_err().to_string().contains("which it cannot decode"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Random histories of one record: what is common is what all entries name, epochs grow with it, and a plan
    /// is its own fixed point.
    #[test]
    fn a_plan_is_sound_and_stable(
        steps in proptest::collection::vec((0..4_usize, 0..5_u8, 0..3_usize), 1..40),
        votes in proptest::bool::ANY,
    ) {
        let agreement = if votes { Agreement::Vote } else { Agreement::Report };
        let mut cluster = Cluster::new(agreement);
        for (n, (who, what, build)) in steps.into_iter().enumerate() {
            let name = ["a", "b", "c", "d"][who];
            let (preferred, reads): (&str, &[&str]) = [(V1, &[V1][..]), (V1, BOTH), (V2, BOTH)][build];
            let before = cluster.fence.clone();
            cluster.now = time(i64::try_from(n).unwrap() * 25);
            match what {
                0 => cluster.leave(name),
                1 => { cluster.write(None); }
                _ => {
                    let incarnation = n.to_string();
                    let report = report(name, &incarnation, preferred, reads);
                    let taken = cluster.members.clone();
                    cluster.leave(name);
                    cluster.members.push(member(name, &incarnation, preferred, reads));
                    match cluster.try_plan(Some(&report)) {
                        Ok(_) => {
                            cluster.write(Some(&report));
                            proptest::prop_assert!(!cluster.write(Some(&report)).changed);
                        }
                        Err(_) => cluster.members = taken,
                    }
                }
            }
            if let (Some(before), Some(after)) = (&before, &cluster.fence) {
                proptest::prop_assert!(after.epoch >= before.epoch);
                proptest::prop_assert_eq!(after.epoch != before.epoch, after.common != before.common);
            }
            if let Some(after) = &cluster.fence {
                proptest::prop_assert!(testing::is_sound(after));
            }
        }
    }
}
