//! Shows a migration what another cluster has in its etcd.

use std::collections::BTreeMap;

use controllers::migration::{
    api::{Form, StoreReader, StoredPage},
    engine::Trouble,
};
use futures_util::future::BoxFuture;
use meta::GroupResource;
use store::{Key, Range, ReadAt, Store};

use super::scan;
use crate::{failure::Failure, storage::Storage};

/// Keys that are read at once.
const PAGE: usize = 1_000;

/// An etcd that other servers write.
pub struct EtcdReader {
    storage: Storage,
    /// Where the objects of built-in resources are; those of others are where their names say.
    prefixes: BTreeMap<GroupResource, String>,
}

impl EtcdReader {
    pub fn new(storage: Storage) -> Result<Self, Failure> {
        let places = scan::built_in().map_err(Failure::failed)?;
        let prefixes = places.into_iter().map(|it| (it.resource, it.prefix)).collect();
        Ok(Self { storage, prefixes })
    }

    async fn page(&self, resource: &GroupResource, after: &str) -> Result<StoredPage, Trouble> {
        let prefix = match self.prefixes.get(resource) {
            Some(prefix) => prefix.clone(),
            None => scan::custom_prefix(resource),
        };
        let whole = Range::prefix(&prefix);
        let range = if after.is_empty() { whole } else { whole.after(&Key::new(after)) };
        let page = self.storage.shared().list(&range, ReadAt::Latest, PAGE).await;
        let page = page.map_err(|it| Trouble::Later(format!("etcd cannot be read: {it}")))?;
        let last = page.entries.last().map(|it| it.key.as_str().to_owned());
        let named = |key: &Key| key.as_str().trim_start_matches(&prefix).to_owned();
        let objects = page.entries.iter().map(|it| (named(&it.key), form(&it.value)));
        Ok(StoredPage { objects: objects.collect(), next: last.filter(|_| page.remaining > 0) })
    }
}

impl EtcdReader {
    /// Whatever form it has, its uid stands in it as text.
    async fn has(&self, namespace: &str, uid: &str) -> Result<bool, Trouble> {
        let key = Key::new(format!("/registry/namespaces/{namespace}"));
        let found = self.storage.shared().get(&key).await;
        let found = found.map_err(|it| Trouble::Later(format!("etcd cannot be read: {it}")))?;
        let Some(found) = found else { return Ok(false) };
        if found.value.starts_with(scan::SEALED) {
            return Err(Trouble::Never(format!(
                "the namespace {namespace} is encrypted in etcd, so that nobody can tell whose store it is: leave \
                 --verify-etcd-servers out, and the API servers are asked instead"
            )));
        }
        Ok(found.value.windows(uid.len().max(1)).any(|it| it == uid.as_bytes()))
    }
}

impl StoreReader for EtcdReader {
    fn read<'a>(
        &'a self,
        resource: &'a GroupResource,
        after: &'a str,
    ) -> BoxFuture<'a, Result<StoredPage, Trouble>> {
        Box::pin(self.page(resource, after))
    }

    fn holds<'a>(&'a self, namespace: &'a str, uid: &'a str) -> BoxFuture<'a, Result<bool, Trouble>> {
        Box::pin(self.has(namespace, uid))
    }
}

fn form(value: &[u8]) -> Form {
    match scan::version_of(value) {
        Some(_) if value.starts_with(scan::SEALED) => Form::Encrypted,
        Some(version) => Form::Version(version),
        None => Form::Damaged,
    }
}
