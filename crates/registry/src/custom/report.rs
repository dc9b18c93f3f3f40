//! What the servers tell each other about custom resources: a definition is reported before anything is written by it.
//!
//! **Flow.** A put asks for its encoding. Where this server has not reported the definition as it is now, it does so
//! first; where the report finds that the definition has moved on, the kind is brought up to it.
//! Deliberately not here: how reports are agreed on; that is [`fleet::custom`].

use std::{sync::Arc, time::Duration};

use fleet::{Encoding, agree::Blocked, custom::Definition};
use meta::{GroupResource, GroupVersion, Status, StorageVersion};
use station::NotReported;
use store::{Key, Store};

use super::{Custom, GROUP, definition};
use crate::{Kind, Registry, Target, limits, outcome};

/// How long a new definition waits for the other servers before it is looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where the definition of a custom resource is stored.
pub fn definition_key(resource: &GroupResource) -> Key {
    let GroupResource { group, resource } = resource;
    Key::new(format!("/registry/{GROUP}/customresourcedefinitions/{resource}.{group}"))
}

/// Where the objects of a custom resource are stored.
pub fn custom_prefix(resource: &GroupResource) -> String {
    definition::prefix(&resource.group, &resource.resource)
}

impl Custom {
    /// What the servers tell each other about the definition.
    pub(crate) fn reported(&self) -> Definition {
        let group = &self.storage.group;
        let stored = |it: &meta::ApiVersion| {
            StorageVersion::new(GroupVersion::new(group.clone(), it.as_str()).to_string())
        };
        let served = self.versions.iter().filter(|it| it.served.is_some());
        Definition {
            uid: self.stored.uid().into(),
            revision: self.stored.revision(),
            storage: StorageVersion::new(self.storage.to_string()),
            versions: self.versions.iter().map(|it| stored(&it.name)).collect(),
            served: served.map(|it| stored(&it.name)).collect(),
        }
    }
}

impl Registry {
    /// All custom resources, as the servers tell each other about them.
    pub fn reported_definitions(&self) -> Vec<(GroupResource, Definition)> {
        let kinds = self.kinds.custom();
        let reported = |kind: &Arc<Kind>| Some((kind.resource.clone(), kind.custom.as_ref()?.reported()));
        kinds.iter().filter_map(reported).collect()
    }

    /// One custom resource, as the servers tell each other about it.
    pub fn reported_definition(&self, resource: &GroupResource) -> Option<Definition> {
        let kind = self.kinds.get(resource)?;
        kind.custom.as_ref().map(|it| it.reported())
    }

    /// The definition by which a custom object must be written now, and in what.
    pub(crate) async fn custom_encoding(
        &self,
        target: &mut Target,
    ) -> Result<(Arc<Custom>, Encoding), Status> {
        for _ in 0..limits::MAX_ATTEMPTS {
            let custom = target.kind.custom.clone().ok_or_else(Status::no_such_resource)?;
            let resource = target.kind.resource.clone();
            let storage = custom.storage.to_string();
            if !custom.lists_storage {
                // Boxed: it is rare, and every write would carry its size.
                target.kind = Box::pin(self.list_storage_version(&custom, &resource)).await?;
                continue;
            }
            match self.station.encoding(&resource) {
                Ok(encoding) if encoding.version.as_str() == storage => return Ok((custom, encoding)),
                Ok(_) | Err(_) => {}
            }
            // Boxed: it is rare, and every write would carry its size.
            match Box::pin(self.station.report_definition(&resource, &custom.reported())).await {
                Ok(()) => {}
                Err(NotReported::Redefined(_) | NotReported::Blocked(Blocked::Behind { .. })) => {
                    let key = custom.stored.key();
                    let entry = self.store.get(key).await.map_err(|it| outcome::read_failed(&it))?;
                    target.kind = Box::pin(self.renewed(&custom, &resource, entry.as_ref())).await?;
                }
                Err(why) => return Err(outcome::shut(&why.shut(&resource))),
            }
        }
        Err(outcome::fences_lost(target))
    }

    /// Whether the definition of a custom resource is being deleted, so that nothing is created in it: it goes when the
    /// last of its objects has gone. The kind is brought up to date, because only what the store holds can refuse.
    pub(crate) async fn is_ending(&self, target: &mut Target) -> Result<bool, Status> {
        let Some(custom) = target.kind.custom.clone().filter(|it| it.is_terminating) else {
            return Ok(false);
        };
        let entry = self.store.get(custom.stored.key()).await.map_err(|it| outcome::read_failed(&it))?;
        // Boxed: it is rare, and every write would carry its size.
        target.kind = Box::pin(self.renewed(&custom, &target.kind.resource, entry.as_ref())).await?;
        Ok(target.kind.custom.as_ref().is_some_and(|it| it.is_terminating))
    }

    /// Reports a definition that is in force, and says whether every server has.
    pub(crate) async fn report_kind(&self, kind: &Kind) -> Result<bool, NotReported> {
        let Some(custom) = kind.custom.as_deref() else { return Ok(true) };
        let definition = custom.reported();
        self.station.report_definition(&kind.resource, &definition).await?;
        let all_have = self.station.until(|it| it.awaited(&kind.resource, &definition).is_empty());
        tokio::select! {
            () = all_have => Ok(true),
            () = self.clock.sleep(LOOK_AGAIN) => Ok(false),
        }
    }
}
