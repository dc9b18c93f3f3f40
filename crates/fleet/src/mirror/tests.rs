//! The object as clients see it.

use super::*;
use crate::{
    Members,
    agree::{self, Facts},
    cluster::Agreement,
    testing::{V1, V2, member, report, things, time},
};

fn record() -> FenceRecord {
    let members =
        Members::of([member("apiserver-a", "1", V1, &[V1, V2]), member("apiserver-b", "1", V2, &[V1, V2])]);
    let resource = things();
    let mut fence = None;
    for (name, preferred) in [("apiserver-a", V1), ("apiserver-b", V2)] {
        let facts = Facts {
            resource: &resource,
            fence: fence.as_ref(),
            members: &members,
            agreement: Agreement::Vote,
            settle: std::time::Duration::from_secs(60),
            now: time(0),
            revision: store::Revision::new(1),
        };
        fence = Some(agree::plan(&facts, Some(&report(name, "1", preferred, &[V1, V2]))).unwrap().record);
    }
    fence.unwrap()
}

#[test]
fn the_mirror_has_upstreams_shape_and_what_was_selected() {
    let object = mirror(&record(), None, New { uid: "u-1", now: time(0) }).unwrap();
    let entry = |name: &str, preferred: &str| {
        json!({
            "apiServerID": name,
            "encodingVersion": V1,
            "preferredVersion": preferred,
            "decodableVersions": [V1, V2],
            "servedVersions": [V1, V2],
        })
    };
    assert_eq!(
        object,
        json!({
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
            "kind": "StorageVersion",
            "metadata": {
                "name": "example.com.things", "uid": "u-1", "creationTimestamp": "2023-11-14T22:13:20Z",
            },
            "spec": {},
            "status": {
                "storageVersions": [entry("apiserver-a", V1), entry("apiserver-b", V2)],
                "commonEncodingVersion": V1,
                "selectedVersion": V1,
                "epoch": 2,
                "conditions": [{
                    "type": "AllEncodingVersionsEqual",
                    "status": "True",
                    "lastTransitionTime": "2023-11-14T22:13:20Z",
                    "reason": "CommonEncodingVersionSet",
                    "message": "Common encoding version set",
                }],
            },
        })
    );
}

#[test]
fn equal_records_give_equal_bytes_and_peoples_notes_stay() {
    let record = record();
    let mut object = mirror(&record, None, New { uid: "u-1", now: time(0) }).unwrap();
    object["metadata"]["annotations"] = json!({"note": "mine"});
    let again = mirror(&record, Some(&object), New { uid: "u-2", now: time(9) }).unwrap();
    assert_eq!(again.to_string(), object.to_string());
    assert!(is_true(&record, Some(&object)));
    object["status"]["commonEncodingVersion"] = V2.into();
    assert!(!is_true(&record, Some(&object)));
    assert!(!is_true(&record, None));
}

#[test]
fn a_resource_that_nobody_reports_has_no_mirror() {
    let mut record = record();
    record.entries.clear();
    assert_eq!(mirror(&record, None, New { uid: "u", now: time(0) }), None);
    assert!(is_true(&record, None));
}
