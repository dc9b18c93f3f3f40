//! What of a cluster's records is carried over into a store that is made from a copy of another one.
//!
//! The new store is another cluster: it gets an id of its own, and none of the servers of the old one are members of it.
//! What those agreed on stays; their entries are pruned like those of any server that has left.

use bytes::Bytes;
use store::Key;

use crate::{
    ClusterId,
    cluster::ClusterRecord,
    keys,
    record::{self, RecordError},
};

/// What becomes of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It stays as it is.
    AsIs,
    /// It gets this value.
    Replaced(Bytes),
    /// It is left out.
    Dropped,
}

/// Decides about one entry; `fresh` is the id of the new cluster.
pub fn carry(key: &Key, value: &Bytes, fresh: &ClusterId) -> Result<Carried, RecordError> {
    if keys::members().contains(key.as_str()) || keys::refusals().contains(key.as_str()) {
        return Ok(Carried::Dropped);
    }
    if *key != keys::cluster() {
        return Ok(Carried::AsIs);
    }
    let recorded: ClusterRecord = record::read(key, value)?;
    let renamed = ClusterRecord { id: Some(fresh.clone()), ..recorded };
    Ok(Carried::Replaced(record::write(key, &renamed)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Identity;

    #[test]
    fn a_copy_is_another_cluster_without_members() {
        let fresh = ClusterId::new("fresh");
        let ask = |key: &Key, value: &'static str| carry(key, &Bytes::from_static(value.as_bytes()), &fresh);
        let member = keys::member(&Identity::new("a"));
        assert_eq!(ask(&member, "{}"), Ok(Carried::Dropped));
        assert_eq!(ask(&Key::new("/convoy/refused/a"), "{}"), Ok(Carried::Dropped));
        for kept in ["/convoy/joined", "/convoy/moved", "/convoy/fences/core.pods", "/registry/pods/a/b"] {
            assert_eq!(ask(&Key::new(kept), "{}"), Ok(Carried::AsIs), "{kept}");
        }
        for id in ["", r#","id":"old""#] {
            let old = format!(
                r#"{{"format":1,"agreement":"vote","guarantee":"loose","protocol":1{id},"more":true}}"#
            );
            let Ok(Carried::Replaced(new)) = carry(&keys::cluster(), &old.into(), &fresh) else { panic!() };
            let new: serde_json::Value = serde_json::from_slice(&new).unwrap();
            assert_eq!(
                (&new["id"], &new["guarantee"], &new["more"]),
                (&"fresh".into(), &"loose".into(), &true.into())
            );
        }
        assert!(ask(&keys::cluster(), r#"{"format":9}"#).is_err(), "a newer format must not be guessed at");
    }
}
