//! Stored custom objects as a client's version shows them.
//!
//! An object that was written under the schemas of today, in the version that is asked for, is shown as it is stored.
//! Any other is pruned and filled in by the schema of the version it is stored in, converted, and pruned by that of the
//! version that is asked for. What comes out is an [`Item`] again, so that everything behind this works on it alike.
//!
//! What the stored version does not list is lost when an object is written in another version, as upstream.
//!
//! An object can be stored in a version of which this server has not heard yet: another server knew the newer
//! definition. It is brought up to that first.

use std::sync::Arc;

use bytes::Bytes;
use cache::Item;
use meta::{GroupResource, GroupVersion, Status, StorageVersion, Value, object};
use schema::custom::{Node, drop_nulls, fill, prune};
use store::Entry;

use super::{Conversion, Custom, Installer, Shape, Webhooks, convert};
use crate::{Kind, Registry, Target};

/// Brings stored objects of one kind into the version of one client.
#[derive(Clone)]
pub(crate) struct Presenter {
    kind: Arc<Kind>,
    version: GroupVersion,
    /// The version as it stands in `apiVersion`; empty for built-in kinds, which do not ask.
    text: String,
    webhooks: Arc<dyn Webhooks>,
    installer: Arc<Installer>,
}

impl Presenter {
    /// Whether the object is shown as it is stored. Objects of built-in kinds are, as far as this is concerned.
    pub(crate) fn is_as_stored(&self, item: &Item) -> bool {
        let Some(custom) = self.kind.custom.as_deref() else { return true };
        item.revision() > custom.since && item.storage_version().as_str() == self.text
    }

    /// Whether objects that are not shown as they are stored are sent to a webhook.
    pub(crate) fn asks_webhook(&self) -> bool {
        self.kind.custom.as_deref().is_some_and(|it| matches!(it.conversion, Conversion::Webhook(_)))
    }

    /// Objects as the client sees them, in the same order.
    pub(crate) async fn present(&self, mut items: Vec<Arc<Item>>) -> Result<Vec<Arc<Item>>, Status> {
        let Some(custom) = self.kind.custom.as_deref() else { return Ok(items) };
        let places: Vec<usize> = (0..items.len()).filter(|at| !self.is_as_stored(&items[*at])).collect();
        if places.is_empty() {
            return Ok(items);
        }
        let others: Vec<Arc<Item>> = places.iter().map(|at| Arc::clone(&items[*at])).collect();
        for (at, tree) in places.into_iter().zip(self.trees_of(custom, &others).await?) {
            items[at] = self.item(&items[at], &tree)?;
        }
        Ok(items)
    }

    /// Custom objects in the client's version as trees, in the same order, however they are stored.
    pub(crate) async fn trees(&self, items: &[Arc<Item>]) -> Result<Vec<Value>, Status> {
        let custom = self.kind.custom.as_deref().ok_or_else(Status::no_such_resource)?;
        self.trees_of(custom, items).await
    }

    async fn trees_of(&self, custom: &Custom, items: &[Arc<Item>]) -> Result<Vec<Value>, Status> {
        let strange = items.iter().filter(|it| !has_version(custom, it));
        match strange.map(|it| it.revision()).max() {
            None => self.trees_by(custom, items).await,
            Some(revision) => {
                let kind = Box::pin(self.installer.as_of(&self.kind, revision)).await?;
                let custom = kind.custom.as_deref().ok_or_else(Status::no_such_resource)?;
                self.trees_by(custom, items).await
            }
        }
    }

    /// By this state of the definition.
    async fn trees_by(&self, custom: &Custom, items: &[Arc<Item>]) -> Result<Vec<Value>, Status> {
        let trees = items.iter().map(|it| settled(custom, it)).collect::<Result<_, _>>()?;
        between(self.webhooks.as_ref(), custom, trees, &self.version).await
    }

    fn item(&self, stored: &Item, tree: &Value) -> Result<Arc<Item>, Status> {
        let collection = self.kind.collection().ok_or_else(Status::no_such_resource)?;
        let entry = Entry {
            key: stored.key().clone(),
            value: schema::json::encode_stored(tree),
            created: stored.created(),
            modified: stored.revision(),
            lease: stored.lease(),
        };
        collection.parse(&entry).map(Arc::new).map_err(Status::internal)
    }
}

impl Registry {
    /// How stored objects of the target become what its client sees.
    pub(crate) fn presenter(&self, target: &Target) -> Presenter {
        Presenter {
            kind: Arc::clone(&target.kind),
            version: target.group_version.clone(),
            text: match target.kind.custom {
                Some(_) => target.group_version.to_string(),
                None => String::new(),
            },
            webhooks: Arc::clone(&self.webhooks),
            installer: Arc::clone(&self.installer),
        }
    }

    /// One object as the client sees it.
    pub(crate) async fn presented(&self, target: &Target, item: &Arc<Item>) -> Result<Arc<Item>, Status> {
        let items = self.presenter(target).present(vec![Arc::clone(item)]).await?;
        items.into_iter().next().ok_or_else(|| Status::internal("an object got lost in conversion"))
    }

    /// One object as the client sees it, or as it is stored if it cannot be converted: whoever deletes an object, or
    /// wants only its metadata, need not be able to read it.
    pub(crate) async fn presented_at_best(&self, target: &Target, item: &Arc<Item>) -> Arc<Item> {
        self.presented(target, item).await.unwrap_or_else(|_| Arc::clone(item))
    }

    /// An object of a client in another version of its kind.
    pub async fn convert(
        &self,
        resource: &GroupResource,
        object: &Value,
        to: &GroupVersion,
    ) -> Result<Value, Status> {
        let kind = self.kinds.get(resource).ok_or_else(Status::no_such_resource)?;
        let Some(custom) = kind.custom.as_deref() else {
            return Ok(kind.converter().convert(object.clone(), &to.to_string()));
        };
        let mut trees = between(self.webhooks.as_ref(), custom, vec![object.clone()], to).await?;
        trees.pop().ok_or_else(|| Status::internal("an object got lost in conversion"))
    }

    /// The bytes to store of a custom object, in the version that its definition says is stored, with the defaults of
    /// that version: what is read later is as it is stored.
    pub(crate) async fn custom_to_storage(
        &self,
        custom: &Custom,
        object: &Value,
        version: &StorageVersion,
    ) -> Result<Bytes, Status> {
        let shape = custom.shape(custom.storage.version.as_str());
        let is_other = object::api_version(object) != version.as_str();
        let is_bare = shape.is_some_and(|it| it.fills_status) && object.get("status").is_none();
        if !is_other && !is_bare {
            return Ok(schema::json::encode_stored(object));
        }
        let mut tree = object.clone();
        if is_other {
            let mut trees = between(self.webhooks.as_ref(), custom, vec![tree], &custom.storage).await?;
            tree = trees.pop().unwrap_or_default();
        }
        if let Some(Shape { root, .. }) = shape {
            fill(root, &mut tree);
        }
        Ok(schema::json::encode_stored(&tree))
    }
}

/// Whether the definition has the version that the object is stored in.
fn has_version(custom: &Custom, item: &Item) -> bool {
    let stored = item.storage_version().as_str();
    stored.rsplit_once('/').is_some_and(|(_, version)| custom.version(version).is_some())
}

/// A stored object under the schema of the version it is stored in: pruned, and filled in.
fn settled(custom: &Custom, item: &Item) -> Result<Value, Status> {
    let mut tree: Value = serde_json::from_slice(item.text()).map_err(Status::internal)?;
    let stored = object::api_version(&tree);
    let version = stored.split_once('/').map_or("", |(_, it)| it);
    let Some(Shape { root, .. }) = custom.shape(version) else {
        return Err(Status::internal(format!(
            "request to convert CR from an invalid group/version: {stored} ({})",
            item.key()
        )));
    };
    prune(root, &mut tree);
    fill(root, &mut tree);
    Ok(tree)
}

async fn between(
    webhooks: &dyn Webhooks,
    custom: &Custom,
    mut trees: Vec<Value>,
    wanted: &GroupVersion,
) -> Result<Vec<Value>, Status> {
    let text = wanted.to_string();
    match &custom.conversion {
        Conversion::None => {
            for tree in &mut trees {
                object::as_map_mut(tree).insert("apiVersion".to_owned(), Value::from(text.as_str()));
            }
        }
        Conversion::Webhook(config) => {
            let places: Vec<usize> =
                (0..trees.len()).filter(|at| object::api_version(&trees[*at]) != text).collect();
            let sent = places.iter().map(|at| trees[*at].take()).collect();
            let converted = convert::convert(webhooks, config, sent, wanted).await?;
            for (at, tree) in places.into_iter().zip(converted) {
                trees[at] = tree;
            }
        }
    }
    if let Some(Shape { root, .. }) = custom.shape(wanted.version.as_str()) {
        trees.iter_mut().for_each(|it| fit(root, it));
    }
    Ok(trees)
}

/// Brings a converted object into the schema of the version it was converted to, on the way to the store and back: what
/// that version does not list goes, for good if it is the stored one. Defaults of the version are not filled in.
fn fit(root: &Node, tree: &mut Value) {
    prune(root, tree);
    drop_nulls(root, tree);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(properties: &Value) -> Node {
        let spec = json!({"type": "object", "properties": properties});
        Node::compile(&json!({"type": "object", "properties": {"spec": spec}})).into_root()
    }

    /// What Flux did between versions of one of its kinds: fields moved below another, and nothing converts them.
    /// Upstream's codec to the store coerces to the schema of the stored version after strategy `None` has changed the
    /// `apiVersion` (`schemaCoercingConverter`), and what is answered to a create is decoded from what was stored: the
    /// fields are gone at once, and reading in the old version does not bring them back.
    #[test]
    fn what_the_stored_version_does_not_list_is_lost_in_all_versions() {
        let old = version(&json!({"branch": {"type": "string"}, "interval": {"type": "string"}}));
        let stored = version(
            &json!({"interval": {"type": "string"}, "suspend": {"type": "boolean", "default": false},
            "git": {"type": "object", "properties": {"branch": {"type": "string"}}}}),
        );
        let sent =
            json!({"kind": "A", "metadata": {"name": "a"}, "spec": {"branch": "main", "interval": "1m"}});
        let mut object = sent.clone();
        fit(&old, &mut object);
        assert_eq!(object, sent);
        fit(&stored, &mut object);
        fill(&stored, &mut object);
        assert_eq!(object["spec"], json!({"interval": "1m", "suspend": false}));
        fit(&old, &mut object);
        assert_eq!(object["spec"], json!({"interval": "1m"}));
    }

    #[test]
    fn a_null_that_another_version_allows_is_not_shown_where_it_is_no_value() {
        let mut object = json!({"spec": {"a": null, "b": null}});
        fit(
            &version(&json!({"a": {"type": "string"}, "b": {"type": "string", "nullable": true}})),
            &mut object,
        );
        assert_eq!(object["spec"], json!({"b": null}));
    }
}
