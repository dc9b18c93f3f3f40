//! Two clusters on one etcd must not lie inside each other: the outer one would take the inner one's keys for its own
//! objects, and delete them as such.
//!
//! The inner one looks at every start whether a cluster lies around it. The outer one need only look when it is made: at
//! that time everything below its prefix belongs to others.

use bytes::Bytes;

use crate::{
    config::ConnectError,
    failure::{Failure, Refusal},
    layout::Layout,
    proto::RangeRequest,
    store::{EtcdStore, Inner},
};

/// How many foreign keys are looked at at a time.
const PAGE: i64 = 200;

impl EtcdStore {
    /// Fails if another cluster's prefix lies around this one's, or inside it. Asked before a cluster is served.
    pub async fn refuse_nested(&self) -> Result<(), ConnectError> {
        let unreachable = |it: Failure| ConnectError::Unreachable(it.to_string());
        let Layout::Under { objects, objects_end, records, records_end } = &self.inner.layout else {
            // Prefixes inside of the default one are refused by their name.
            return Ok(());
        };
        let prefix = objects.trim_end_matches('/');
        for around in ancestors(prefix) {
            let (start, end) = (format!("{around}.convoy/"), format!("{around}.convoy0"));
            match self.inner.first_key(&start, &end).await {
                Ok(None) => {}
                Ok(Some(_)) => return Err(nested(prefix, around)),
                // Whoever may not read there cannot be told; the outer cluster's administrator can.
                Err(Failure::Refused(Refusal::Denied(why))) => {
                    tracing::warn!(
                        around,
                        why,
                        "whether another cluster lies around this one cannot be told"
                    );
                }
                Err(failure) => return Err(unreachable(failure)),
            }
        }
        let is_made = self.inner.first_key(records, records_end).await.map_err(unreachable)?.is_some();
        if is_made {
            return Ok(());
        }
        match self.inner.cluster_inside(objects, objects_end).await.map_err(unreachable)? {
            Some(inside) => Err(nested(prefix, &inside)),
            None => Ok(()),
        }
    }
}

impl Inner {
    async fn first_key(&self, start: &str, end: &str) -> Result<Option<Bytes>, Failure> {
        let (key, range_end) =
            (Bytes::copy_from_slice(start.as_bytes()), Bytes::copy_from_slice(end.as_bytes()));
        let answer = self.range(RangeRequest { key, range_end, limit: 1, ..Default::default() }).await?;
        Ok(answer.kvs.into_iter().next().map(|it| it.key))
    }

    /// The prefix of a cluster that has records below a prefix where there should be nothing.
    async fn cluster_inside(&self, start: &str, end: &str) -> Result<Option<String>, Failure> {
        let range_end = Bytes::copy_from_slice(end.as_bytes());
        let mut key = Bytes::copy_from_slice(start.as_bytes());
        loop {
            let ask = RangeRequest { key, range_end: range_end.clone(), limit: PAGE, ..Default::default() };
            let answer = self.range(ask).await?;
            if let Some(found) = answer.kvs.iter().find_map(|it| prefix_of_records(&it.key)) {
                return Ok(Some(found));
            }
            let Some(last) = answer.kvs.last().filter(|_| answer.more) else { return Ok(None) };
            key = [last.key.as_ref(), b"\0"].concat().into();
        }
    }
}

fn nested(prefix: &str, other: &str) -> ConnectError {
    ConnectError::Nested { prefix: prefix.to_owned(), other: other.to_owned() }
}

/// The prefixes that lie around this one, outermost first.
fn ancestors(prefix: &str) -> impl Iterator<Item = &str> {
    prefix.match_indices('/').map(|(at, _)| &prefix[..at]).filter(|it| !it.is_empty())
}

/// The prefix of the cluster to whose records a key belongs.
fn prefix_of_records(key: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let (prefix, _) = key.split_once(".convoy/")?;
    Some(prefix.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_around_a_prefix_is_known_by_its_name() {
        assert_eq!(ancestors("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(ancestors("/a").count(), 0);
    }

    #[test]
    fn records_name_the_prefix_of_their_cluster() {
        assert_eq!(prefix_of_records(b"/a/b.convoy/cluster").as_deref(), Some("/a/b"));
        for other in [&b"/a/configmaps/default/x.convoy"[..], b"/a/pods/a/b", b"/a/\xff.convoy/x"] {
            assert_eq!(prefix_of_records(other), None);
        }
    }
}
