//! How the vocabulary of `meta` is written in records: versions, releases and resources as plain text.
//!
//! Here and not in `meta`, because no object that clients see is written this way.

/// A [`meta::Release`] as `1.36`.
pub(crate) mod release {
    use meta::Release;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(it: &Release, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(it)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Release, D::Error> {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}

/// A [`meta::GroupResource`] as `deployments.apps`.
pub(crate) mod resource {
    use meta::GroupResource;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(it: &GroupResource, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(it)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<GroupResource, D::Error> {
        Ok(GroupResource::from(String::deserialize(from)?.as_str()))
    }
}

/// A map by [`meta::GroupResource`].
pub(crate) mod by_resource {
    use std::collections::BTreeMap;

    use meta::GroupResource;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        it: &BTreeMap<GroupResource, T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(it.iter().map(|(resource, value)| (resource.to_string(), value)))
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<GroupResource, T>, D::Error> {
        let map = BTreeMap::<String, T>::deserialize(from)?;
        Ok(map.into_iter().map(|(name, value)| (GroupResource::from(name.as_str()), value)).collect())
    }
}

/// A [`meta::StorageVersion`] as it stands in objects.
pub(crate) mod version {
    use meta::StorageVersion;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(it: &StorageVersion, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(it.as_str())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StorageVersion, D::Error> {
        Ok(StorageVersion::new(String::deserialize(from)?))
    }
}

/// A [`meta::StorageVersion`] that may be missing.
pub(crate) mod maybe_version {
    use meta::StorageVersion;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(it: &Option<StorageVersion>, to: S) -> Result<S::Ok, S::Error> {
        match it {
            Some(version) => to.serialize_some(version.as_str()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<StorageVersion>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(StorageVersion::new))
    }
}

/// A list of [`meta::StorageVersion`].
pub(crate) mod versions {
    use meta::StorageVersion;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(it: &[StorageVersion], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(it.iter().map(StorageVersion::as_str))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<StorageVersion>, D::Error> {
        Ok(Vec::<String>::deserialize(from)?.into_iter().map(StorageVersion::new).collect())
    }
}

/// A [`store::Revision`] that may be missing.
pub(crate) mod maybe_revision {
    use serde::{Deserialize, Deserializer, Serializer};
    use store::Revision;

    pub(crate) fn serialize<S: Serializer>(it: &Option<Revision>, to: S) -> Result<S::Ok, S::Error> {
        match it {
            Some(revision) => to.serialize_some(&revision.get()),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Revision>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Revision::new))
    }
}

/// A time with all its digits.
pub(crate) mod time {
    use jiff::Timestamp;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(it: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(it)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(Error::custom)
    }
}
