//! Where a key lies in etcd. Callers always use `/registry/…` for objects and `/convoy/…` for our records;
//! the prefix moves both so that two clusters on one etcd never meet.
//!
//! With the default prefix every key is stored as it is. With the prefix `/other`:
//!
//! | key | in etcd |
//! |---|---|
//! | `/registry/configmaps/default/a` | `/other/configmaps/default/a` |
//! | `/convoy/servers/one` | `/other.convoy/servers/one` |
//!
//! The mapping keeps the order of keys and `.` is the character before `/`, so a range over both roots is
//! one range in etcd, with next to nothing foreign in it. Keys outside the two roots cannot be stored then.

use bytes::Bytes;
use store::{Key, Range};

/// Objects lie here, as other tools expect.
const OBJECTS: &str = "/registry/";
const OBJECTS_END: &str = "/registry0";
/// Our own records lie here.
const RECORDS: &str = "/convoy/";

/// What the store itself writes among the objects, see `progress.rs`. Callers are not shown it.
pub(crate) const PROGRESS: &str = "/registry/convoy.progress";
/// What the store itself writes to withdraw writes, see `settle.rs`. Callers are not shown it.
pub(crate) const TERM: &str = "/convoy/term";

/// Why a prefix cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("etcd prefix {prefix:?} cannot be used: {reason}")]
pub struct PrefixError {
    /// As given.
    pub prefix: String,
    /// What it would break.
    pub reason: &'static str,
}

/// How keys are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    AsIs,
    Under { objects: String, objects_end: String, records: String, records_end: String },
}

impl Layout {
    pub(crate) fn new(given: &str) -> Result<Self, PrefixError> {
        let refuse = |reason| PrefixError { prefix: given.into(), reason };
        let prefix = format!("/{}", given.trim_matches('/'));
        if prefix == "/registry" {
            return Ok(Self::AsIs);
        }
        let inner = [OBJECTS, RECORDS].iter().any(|it| format!("{prefix}/").starts_with(it));
        if inner {
            return Err(refuse("a cluster with the default prefix keeps its data there"));
        }
        if prefix == "/" {
            return Err(refuse("it is empty"));
        }
        if prefix.split('/').any(|it| it.ends_with(".convoy")) {
            return Err(refuse("names that end in .convoy hold another cluster's records"));
        }
        if prefix.split('/').skip(1).any(str::is_empty) || prefix.contains('\0') {
            return Err(refuse("it has an empty part or a zero byte"));
        }
        Ok(Self::Under {
            objects: format!("{prefix}/"),
            objects_end: format!("{prefix}0"),
            records: format!("{prefix}.convoy/"),
            records_end: format!("{prefix}.convoy0"),
        })
    }

    /// The key in etcd, if there is a place for it.
    pub(crate) fn outward(&self, key: &Key) -> Option<Bytes> {
        let key = key.as_str();
        match self {
            Self::AsIs if key.is_empty() => None,
            Self::AsIs => Some(bytes(key)),
            Self::Under { objects, records, .. } => {
                match (key.strip_prefix(OBJECTS), key.strip_prefix(RECORDS)) {
                    (Some(rest), _) => Some(bytes(&format!("{objects}{rest}"))),
                    (_, Some(rest)) => Some(bytes(&format!("{records}{rest}"))),
                    (None, None) => None,
                }
            }
        }
    }

    /// The key that is stored under these bytes, if it is one of our callers'.
    pub(crate) fn inward(&self, stored: &[u8]) -> Option<Key> {
        let stored = std::str::from_utf8(stored).ok()?;
        let key = match self {
            Self::AsIs => Some(Key::new(stored)),
            Self::Under { objects, records, .. } => {
                match (stored.strip_prefix(objects.as_str()), stored.strip_prefix(records.as_str())) {
                    (Some(rest), _) => Some(Key::new(format!("{OBJECTS}{rest}"))),
                    (_, Some(rest)) => Some(Key::new(format!("{RECORDS}{rest}"))),
                    (None, None) => None,
                }
            }
        };
        key.filter(|it| !matches!(it.as_str(), PROGRESS | TERM))
    }

    /// The range in etcd, start and end; nothing if it is empty. May hold keys that are not ours: see `inward`.
    pub(crate) fn range(&self, range: &Range) -> Option<(Bytes, Bytes)> {
        let (start, end) = (self.bound(range.start.as_str()), self.bound(range.end.as_str()));
        (range.start < range.end && start < end).then_some((start, end))
    }

    /// A key of our own that need not exist.
    pub(crate) fn probe(&self) -> Bytes {
        bytes(match self {
            Self::AsIs => RECORDS,
            Self::Under { records, .. } => records,
        })
    }

    fn bound(&self, text: &str) -> Bytes {
        match self {
            // To etcd an empty key is an error, and a zero byte the smallest key there is.
            Self::AsIs if text.is_empty() => bytes("\0"),
            Self::AsIs => bytes(text),
            Self::Under { objects_end, records, records_end, .. } => match self.outward(&Key::new(text)) {
                Some(inside) => inside,
                None if text < RECORDS => bytes(records),
                None if text < OBJECTS => bytes(records_end),
                None => bytes(objects_end),
            },
        }
    }
}

/// Whether the range holds every object, as the watch that feeds all caches does.
pub(crate) fn holds_all_objects(range: &Range) -> bool {
    range.start.as_str() <= OBJECTS && OBJECTS_END <= range.end.as_str()
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other() -> Layout {
        Layout::new("/other").unwrap()
    }

    fn range(layout: &Layout, start: &str, end: &str) -> Option<(String, String)> {
        let text = |it: Bytes| String::from_utf8(it.to_vec()).unwrap();
        let (start, end) = layout.range(&Range { start: start.into(), end: end.into() })?;
        Some((text(start), text(end)))
    }

    #[test]
    fn the_default_prefix_changes_nothing() {
        for prefix in ["/registry", "registry", "/registry/"] {
            let layout = Layout::new(prefix).unwrap();
            assert_eq!(layout.outward(&"/registry/pods/a/b".into()).unwrap(), "/registry/pods/a/b");
            assert_eq!(layout.outward(&"/convoy/servers/a".into()).unwrap(), "/convoy/servers/a");
        }
    }

    #[test]
    fn another_prefix_moves_objects_and_records_and_back() {
        for (key, stored) in [
            ("/registry/pods/a/b", "/other/pods/a/b"),
            ("/convoy/servers/one", "/other.convoy/servers/one"),
            ("/registry/", "/other/"),
        ] {
            assert_eq!(other().outward(&key.into()).unwrap(), stored);
            assert_eq!(other().inward(stored.as_bytes()).unwrap().as_str(), key);
        }
        assert_eq!(other().outward(&"/elsewhere/a".into()), None);
        for foreign in ["/registry/pods/a/b", "/convoy/servers/one", "/others/a", "/other.convoys/a"] {
            assert_eq!(other().inward(foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(other().inward(b"/other/\xff"), None);
    }

    #[test]
    fn ranges_keep_their_order_and_may_span_both_roots() {
        let check = |start, end, expect: Option<(&str, &str)>| {
            let expect = expect.map(|(start, end)| (start.to_owned(), end.to_owned()));
            assert_eq!(range(&other(), start, end), expect, "{start} {end}");
        };
        check("/registry/pods/", "/registry/pods0", Some(("/other/pods/", "/other/pods0")));
        check("/registry/", "/registry0", Some(("/other/", "/other0")));
        check("/convoy/", "/convoy0", Some(("/other.convoy/", "/other.convoy0")));
        check("/convoy/", "/registry0", Some(("/other.convoy/", "/other0")));
        check("", "\u{10ffff}", Some(("/other.convoy/", "/other0")));
        check("/a", "/b", None);
        check("/registry/b", "/registry/a", None);
        assert_eq!(range(&Layout::AsIs, "", "/b"), Some(("\0".into(), "/b".into())));
    }

    #[test]
    fn prefixes_that_would_mix_two_clusters_are_refused() {
        for prefix in ["", "/", "/registry/a", "/convoy", "/convoy/a", "/a.convoy", "/a//b", "/a.convoy/b"] {
            assert!(Layout::new(prefix).is_err(), "{prefix:?}");
        }
        assert!(Layout::new("/registry-of-another/cluster").is_ok());
    }
}
