//! The five outcomes of a failed fence.

use super::*;
use crate::{
    FenceRecord, agree,
    testing::{V1, V2, report, things, time},
};

fn fence(entry_of: Option<(&str, &str)>) -> Fence {
    let mut record = FenceRecord::new(&things(), Revision::new(3), time(0));
    record.definition = Some(Revision::new(4));
    if let Some((name, incarnation)) = entry_of {
        let report = report(name, incarnation, V1, &[V1, V2]);
        agree::put_entry(&mut record, &report, StorageVersion::new(V2)).unwrap();
    }
    Fence { record, modified: Revision::new(9) }
}

#[test]
fn each_failure_has_one_way_on() {
    let (identity, incarnation) = (Identity::new("a"), Incarnation::new("1"));
    let (mine, none, foreign) = (fence(Some(("a", "1"))), fence(None), fence(Some(("a", "2"))));
    let after = |fence: Option<&Fence>, is_member: bool| {
        let (identity, incarnation) = (&identity, &incarnation);
        let (is_defined, refused) = (true, None);
        after_failure(&Failed { fence, identity, incarnation, is_member, is_defined, refused })
    };
    let required = Require::At(keys::fence(&things()), Revision::new(9));
    let encoding = Encoding { version: StorageVersion::new(V2), fence: Some(required) };
    assert_eq!(after(Some(&mine), true), Next::Encode(encoding, Some(Revision::new(4))));
    assert_eq!(after(Some(&none), true), Next::Report);
    assert_eq!(after(None, true), Next::Report);
    assert_eq!(after(Some(&mine), false), Next::Rejoin);
    assert_eq!(after(Some(&foreign), true), Next::Rejoin);
    let failed = Failed {
        fence: Some(&mine),
        identity: &identity,
        incarnation: &incarnation,
        is_member: false,
        is_defined: false,
        refused: None,
    };
    assert_eq!(after_failure(&failed), Next::Gone);
    let refused = Failed { refused: Some("no"), ..failed };
    assert_eq!(after_failure(&refused), Next::Refused("no".into()));
}

#[test]
fn a_loose_guarantee_requires_nothing() {
    let (identity, incarnation) = (Identity::new("a"), Incarnation::new("1"));
    let fence = fence(Some(("a", "1")));
    let loose = encoding(&fence, &identity, &incarnation, Guarantee::Loose).unwrap();
    assert_eq!((loose.version.as_str(), loose.fence), (V2, None));
    let other = Incarnation::new("2");
    assert_eq!(encoding(&fence, &identity, &other, Guarantee::Strict), None);
}
