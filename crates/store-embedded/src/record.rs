//! What is written to disk, byte by byte. Everything carries its own CRC-32, so damage is found here and
//! not by whoever parses a value. All numbers are little-endian, except in log keys, which must sort.
//!
//! | what | bytes |
//! |---|---|
//! | log key | revision u64 big-endian, position in the revision u32 big-endian |
//! | log record | crc u32 (of log key and the rest), kind u8 (0 removed, 1 put), created u64, lease i64 (0 none), key length u32, key, value |
//! | lease | crc u32 (of id and the rest), ttl in milliseconds u64, when its time began in milliseconds since 1970 i64 |
//! | meta | format u32, crc u32 (of the rest), revision u64, compacted u64, last lease i64, count u64, sum u64 |

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use store::{Entry, Event, Key, LeaseId, Revision};

/// The format this build reads and writes. A store of another format is refused.
pub(crate) const FORMAT: u32 = 1;

/// Where a record is: its revision and its position among the changes of that revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    pub(crate) revision: Revision,
    pub(crate) position: u32,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) location: Location,
    pub(crate) key: Key,
    pub(crate) created: Revision,
    pub(crate) lease: Option<LeaseId>,
    /// Nothing for a removal.
    pub(crate) value: Option<Bytes>,
}

/// A record as it lies on disk, checked but not copied.
pub(crate) struct RecordView<'a> {
    pub(crate) location: Location,
    pub(crate) key: &'a str,
    pub(crate) created: Revision,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) value: Option<&'a [u8]>,
}

/// A lease as it lies on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub(crate) ttl: Duration,
    /// When its time began, in milliseconds since 1970; not known of leases that 0.1.0 wrote.
    pub(crate) since: Option<i64>,
}

/// The counters of the store, rewritten by every commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
    pub(crate) last_lease: i64,
    pub(crate) tally: Tally,
}

/// How many log and lease records there are, and the sum of their CRCs. Finds records that went missing or
/// came back, whatever the engine below says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) count: u64,
    pub(crate) sum: u64,
}

/// Bytes that are not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    #[error("{what} is damaged")]
    Bytes { what: String },
    #[error("the store has format {found}, this build reads format {FORMAT}")]
    Format { found: u32 },
}

impl Damage {
    fn of(what: impl Into<String>) -> Self {
        Damage::Bytes { what: what.into() }
    }
}

impl Location {
    /// The first location of a revision.
    pub(crate) fn first_of(revision: Revision) -> Self {
        Self { revision, position: 0 }
    }

    pub(crate) fn to_key(self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..8].copy_from_slice(&self.revision.get().to_be_bytes());
        key[8..].copy_from_slice(&self.position.to_be_bytes());
        key
    }

    pub(crate) fn from_key(key: &[u8; 12]) -> Self {
        let (mut revision, mut position) = ([0; 8], [0; 4]);
        revision.copy_from_slice(&key[..8]);
        position.copy_from_slice(&key[8..]);
        Self { revision: Revision::new(u64::from_be_bytes(revision)), position: u32::from_be_bytes(position) }
    }
}

impl Record {
    pub(crate) fn of_event(event: &Event, position: u32) -> Self {
        let location = Location { revision: event.revision(), position };
        match event {
            Event::Put(it) => Self {
                location,
                key: it.key.clone(),
                created: it.created,
                lease: it.lease,
                value: Some(it.value.clone()),
            },
            Event::Delete(key, revision) => {
                Self { location, key: key.clone(), created: *revision, lease: None, value: None }
            }
        }
    }

    pub(crate) fn into_event(self) -> Event {
        let modified = self.location.revision;
        match self.value {
            Some(value) => {
                Event::Put(Entry { key: self.key, value, created: self.created, modified, lease: self.lease })
            }
            None => Event::Delete(self.key, modified),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let key = self.key.as_str();
        let value = self.value.as_deref().unwrap_or_default();
        let mut bytes = Vec::with_capacity(length(key, value.len()));
        bytes.put_u32_le(0);
        bytes.put_u8(u8::from(self.value.is_some()));
        bytes.put_u64_le(self.created.get());
        bytes.put_i64_le(self.lease.map_or(0, |it| it.0));
        bytes.put_u32_le(u32::try_from(key.len()).expect("keys must be short: transactions are checked"));
        bytes.put_slice(key.as_bytes());
        bytes.put_slice(value);
        seal(&self.location.to_key(), bytes)
    }
}

impl<'a> RecordView<'a> {
    pub(crate) fn decode(location: Location, bytes: &'a [u8]) -> Result<Self, Damage> {
        let damage = || {
            let Location { revision, position } = location;
            Damage::of(format!("the record of change {position} of revision {revision}"))
        };
        let mut rest = unseal(&location.to_key(), bytes).ok_or_else(damage)?;
        let mut parse = || {
            let kind = rest.try_get_u8().ok()?;
            let created = Revision::new(rest.try_get_u64_le().ok()?);
            let lease = rest.try_get_i64_le().ok()?;
            let length = usize::try_from(rest.try_get_u32_le().ok()?).ok()?;
            let (key, value) = rest.split_at_checked(length)?;
            let key = std::str::from_utf8(key).ok()?;
            let lease = (lease != 0).then_some(LeaseId(lease));
            let value = match kind {
                0 if value.is_empty() => None,
                1 => Some(value),
                _ => return None,
            };
            Some(Self { location, key, created, lease, value })
        };
        parse().ok_or_else(damage)
    }

    pub(crate) fn to_record(&self) -> Record {
        Record {
            location: self.location,
            key: Key::from(self.key),
            created: self.created,
            lease: self.lease,
            value: self.value.map(Bytes::copy_from_slice),
        }
    }
}

/// Leases of at most this length begin anew when the store is opened: they are kept alive by renewals, which are not
/// written to disk. Of longer ones every renewal is.
const SHORT_LEASE: Duration = Duration::from_secs(60);

impl LeaseRecord {
    /// A lease whose time begins at `now`, in milliseconds since 1970.
    pub(crate) fn new(ttl: Duration, now: i64) -> Self {
        Self { ttl, since: Some(now) }
    }

    /// Whether its time goes on while nobody has the store open.
    pub(crate) fn is_long(&self) -> bool {
        self.ttl > SHORT_LEASE
    }

    /// How much of its time is left at `now`. A clock that was set back never makes it longer than it was granted for.
    pub(crate) fn remaining(&self, now: i64) -> Duration {
        let since = self.since.filter(|_| self.is_long());
        let passed = since.and_then(|it| u64::try_from(now.saturating_sub(it)).ok()).unwrap_or(0);
        self.ttl.saturating_sub(Duration::from_millis(passed))
    }

    pub(crate) fn encode(&self, lease: LeaseId) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.put_u64_le(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX));
        if let Some(since) = self.since {
            bytes.put_i64_le(since);
        }
        seal(&lease.0.to_le_bytes(), bytes)
    }

    /// Also reads what 0.1.0 wrote: the TTL alone.
    pub(crate) fn decode(lease: LeaseId, bytes: &[u8]) -> Result<Self, Damage> {
        let damage = || Damage::of(format!("the record of lease {}", lease.0));
        let mut rest = unseal(&lease.0.to_le_bytes(), bytes).ok_or_else(damage)?;
        let ttl = Duration::from_millis(rest.try_get_u64_le().map_err(|_| damage())?);
        Ok(Self { ttl, since: rest.try_get_i64_le().ok() })
    }
}

/// How long the record of a key and its value is.
pub(crate) fn length(key: &str, n_value: usize) -> usize {
    HEAD + key.len() + n_value
}

/// CRC, kind, when it was created, lease, length of the key.
const HEAD: usize = 25;

/// About how much of the file a record of this length takes: small ones share pages, larger ones have some of their own,
/// as many as a power of two.
pub(crate) fn cost(length: usize) -> u64 {
    const OF_TREE: usize = 64;
    const OWN_PAGES: usize = 2048;
    let bytes = if length > OWN_PAGES { (length + OF_TREE).next_power_of_two() } else { length + OF_TREE };
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The CRC at the front of a sealed record.
pub(crate) fn crc_of(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |it| u32::from_le_bytes(*it))
}

impl Meta {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.put_u64_le(self.revision.get());
        bytes.put_u64_le(self.compacted.get());
        bytes.put_i64_le(self.last_lease);
        bytes.put_u64_le(self.tally.count);
        bytes.put_u64_le(self.tally.sum);
        let mut all = FORMAT.to_le_bytes().to_vec();
        all.extend(seal(&FORMAT.to_le_bytes(), bytes));
        all
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Result<Self, Damage> {
        let damage = || Damage::of("the record of the store's counters");
        // The format comes first and outside of the CRC, so that every later build can tell.
        let found = bytes.try_get_u32_le().map_err(|_| damage())?;
        if found != FORMAT {
            return Err(Damage::Format { found });
        }
        let mut rest = unseal(&FORMAT.to_le_bytes(), bytes).ok_or_else(damage)?;
        let mut parse = || {
            Some(Self {
                revision: Revision::new(rest.try_get_u64_le().ok()?),
                compacted: Revision::new(rest.try_get_u64_le().ok()?),
                last_lease: rest.try_get_i64_le().ok()?,
                tally: Tally { count: rest.try_get_u64_le().ok()?, sum: rest.try_get_u64_le().ok()? },
            })
        };
        parse().ok_or_else(damage)
    }
}

impl Tally {
    /// Counts a sealed record in.
    pub(crate) fn add(&mut self, record: &[u8]) {
        self.count = self.count.wrapping_add(1);
        self.sum = self.sum.wrapping_add(u64::from(crc_of(record)));
    }

    /// Counts a sealed record out.
    pub(crate) fn remove(&mut self, record: &[u8]) {
        self.count = self.count.wrapping_sub(1);
        self.sum = self.sum.wrapping_sub(u64::from(crc_of(record)));
    }
}

/// Puts the CRC of `context` and everything behind the first four bytes into those.
pub(crate) fn seal(context: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc(context, &bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// What follows the CRC, if it is right.
pub(crate) fn unseal<'a>(context: &[u8], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (expected, rest) = bytes.split_first_chunk()?;
    (u32::from_le_bytes(*expected) == crc(context, rest)).then_some(rest)
}

fn crc(context: &[u8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(context);
    hasher.update(bytes);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            location: Location { revision: Revision::new(7), position: 3 },
            key: Key::from("/a/ü"),
            created: Revision::new(5),
            lease: Some(LeaseId(9)),
            value: Some(Bytes::from_static(b"value")),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let removed = Record { value: None, lease: None, ..record() };
        let empty = Record { value: Some(Bytes::new()), ..record() };
        for record in [record(), removed, empty] {
            let bytes = record.encode();
            assert_eq!(RecordView::decode(record.location, &bytes).unwrap().to_record(), record);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let record = record();
        let bytes = record.encode();
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert!(RecordView::decode(record.location, &damaged).is_err(), "byte {position}");
            assert!(RecordView::decode(record.location, &bytes[..position]).is_err(), "cut at {position}");
        }
        let elsewhere = Location { position: 4, ..record.location };
        assert!(RecordView::decode(elsewhere, &bytes).is_err(), "a record must not move");
    }

    #[test]
    fn counters_come_back_and_other_formats_are_named() {
        let meta = Meta {
            revision: Revision::new(1),
            compacted: Revision::new(2),
            last_lease: 3,
            ..Meta::default()
        };
        let mut bytes = meta.encode();
        assert_eq!(Meta::decode(&bytes), Ok(meta));
        bytes[0] = 2;
        assert_eq!(Meta::decode(&bytes), Err(Damage::Format { found: 2 }));
        assert!(Meta::decode(&bytes[..3]).is_err());
    }

    #[test]
    fn a_lease_comes_back_with_what_is_left_of_its_time() {
        let (id, hour) = (LeaseId(3), Duration::from_secs(3600));
        let lease = LeaseRecord::new(hour, 1_000);
        assert_eq!(LeaseRecord::decode(id, &lease.encode(id)), Ok(lease));
        assert_eq!(lease.remaining(1_000 + 600_000), hour - Duration::from_secs(600));
        assert_eq!(lease.remaining(10_000_000_000), Duration::ZERO);
        assert_eq!(lease.remaining(-5), hour, "the clock was set back");
        let short = LeaseRecord::new(Duration::from_secs(10), 1_000);
        assert_eq!(short.remaining(1_000_000), short.ttl);
        let of_old = LeaseRecord { ttl: hour, since: None };
        assert_eq!(LeaseRecord::decode(id, &of_old.encode(id)), Ok(of_old));
        assert_eq!(of_old.remaining(10_000_000_000), hour);
        assert!(LeaseRecord::decode(LeaseId(4), &lease.encode(id)).is_err());
    }

    #[test]
    fn locations_sort_like_their_keys() {
        let location = |revision, position| Location { revision: Revision::new(revision), position };
        let sorted =
            [location(1, 2), location(1, 300), location(2, 0), location(256, 0), location(70_000, 1)];
        assert!(sorted.map(Location::to_key).is_sorted());
        assert!(sorted.iter().all(|it| Location::from_key(&it.to_key()) == *it));
    }
}
