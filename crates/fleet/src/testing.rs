//! Small makers of records for the unit tests of this crate.

use std::sync::Arc;

use jiff::Timestamp;
use meta::{GroupResource, Release, StorageVersion};

use crate::{
    FenceRecord, Identity, Incarnation, MemberRecord,
    agree::Report,
    cluster::PROTOCOL,
    member::{FEATURE, Persisted},
    record::{FORMAT, Record, Unknown},
};

pub(crate) const V1: &str = "example.com/v1";
pub(crate) const V2: &str = "example.com/v2";

pub(crate) fn things() -> GroupResource {
    GroupResource::new("example.com", "things")
}

pub(crate) fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

pub(crate) fn versions(texts: &[&str]) -> Vec<StorageVersion> {
    texts.iter().map(|it| StorageVersion::new(*it)).collect()
}

pub(crate) fn member(name: &str, incarnation: &str, preferred: &str, reads: &[&str]) -> MemberRecord {
    let persisted = Persisted { preferred: StorageVersion::new(preferred), decodable: versions(reads) };
    MemberRecord {
        format: FORMAT,
        identity: Identity::new(name),
        incarnation: Incarnation::new(incarnation),
        release: Release::v1(36),
        emulated: Release::v1(36),
        min_compatible: Release::v1(35),
        peer_address: None,
        protocol: PROTOCOL,
        cluster: None,
        features: [(FEATURE.to_owned(), true)].into(),
        persisted: [(things(), persisted)].into(),
        offer: Arc::default(),
        since: time(0),
        unknown: Unknown::new(),
    }
}

pub(crate) fn report(name: &str, incarnation: &str, preferred: &str, reads: &[&str]) -> Report {
    Report {
        identity: Identity::new(name),
        incarnation: Incarnation::new(incarnation),
        preferred: StorageVersion::new(preferred),
        decodable: versions(reads),
        served: versions(reads),
        votes: true,
    }
}

pub(crate) fn is_sound(record: &FenceRecord) -> bool {
    let names_common = |it: &crate::Entry| record.common.as_ref().is_none_or(|v| it.encoding == *v);
    record.check().is_ok() && record.entries.iter().all(names_common)
}
