//! Kinds that users define: what a stored CustomResourceDefinition means, and what its objects go through.
//!
//! **Flow.** A definition is checked when it is written ([`rules`]), its names are accepted or not ([`names`]), its
//! collection is opened and its kind joins the table of kinds ([`follow`]). From then on its objects go through the
//! same verbs as all others; where a step asks for the schema, it is asked of [`Custom`].
//!
//! **Guarantees.** Every put of a custom object requires the definition at the revision that the put was encoded by, and
//! the fence that all servers share ([`report`]): a put that commits after the storage version was changed is in the new
//! one, whichever server it came through. `status.storedVersions` is never untrue.
//! Deliberately not here: HTTP. The server hands in how conversion webhooks are called ([`Webhooks`]).

pub(crate) mod accept;
mod catch_up;
pub(crate) mod columns;
pub(crate) mod convert;
pub(crate) mod definition;
mod embedded;
pub(crate) mod follow;
mod frozen;
mod install;
mod names;
pub(crate) mod prepare;
mod present;
mod report;
pub(crate) mod rules;
pub(crate) mod scale;
mod stored;

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use cache::Item;
use catalog::{Schemas, Served};
use meta::{ApiVersion, FieldError, GroupResource, GroupVersion, Status, Value};
use schema::{
    custom::{Node, fill, types_of},
    model::{Schema, TypeId},
};
use store::{Require, Revision};

pub use convert::{Call, ClientConfig, NoWebhooks, Webhooks};
pub use definition::ScalePaths;
pub use follow::Follower;
pub use report::{custom_prefix, definition_key};

pub(crate) use columns::Printed;
pub(crate) use frozen::check_frozen;
pub(crate) use install::Installer;
pub(crate) use present::Presenter;

use crate::{Registry, Target, strategy::Special};

/// The group of definitions.
pub(crate) const GROUP: &str = "apiextensions.k8s.io";

/// The resource of definitions.
pub(crate) fn definitions() -> GroupResource {
    GroupResource::new(GROUP, "customresourcedefinitions")
}

/// What a kind has that a user defined.
pub struct Custom {
    /// The definition as it is stored. Its text is what schemas are compiled from; its revision is the fence.
    pub(crate) stored: Arc<Item>,
    /// Objects written later, in the version that is stored now, have been through the schemas of today.
    pub(crate) since: Revision,
    pub(crate) generation: i64,
    pub(crate) storage: GroupVersion,
    /// Whether `status.storedVersions` has that version. Nothing is written before it does.
    pub(crate) lists_storage: bool,
    pub(crate) versions: Vec<CustomVersion>,
    pub(crate) conversion: Conversion,
    pub(crate) is_terminating: bool,
    /// Compiled when first asked for, and shared by all revisions of a definition that have the same spec.
    pub(crate) shapes: Arc<OnceLock<Vec<Shape>>>,
}

/// One version of a custom kind.
pub(crate) struct CustomVersion {
    pub(crate) name: ApiVersion,
    /// `None` if the version is only stored.
    pub(crate) served: Option<Arc<Served>>,
    pub(crate) has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    pub(crate) columns: Vec<Printed>,
    /// `spec.color`
    pub(crate) selectable: Vec<String>,
    /// What every answer in this version warns of.
    pub(crate) warning: Option<String>,
}

/// How objects get from one version to another.
pub(crate) enum Conversion {
    /// Only their `apiVersion` changes.
    None,
    /// A webhook is asked.
    Webhook(Arc<ClientConfig>),
}

/// The schema of one version.
pub(crate) struct Shape {
    pub(crate) root: Node,
    /// An object without a status has one by default: it is dropped from new objects, and then filled in.
    pub(crate) fills_status: bool,
    /// As apply sees it.
    types: OnceLock<(Arc<Schema>, TypeId)>,
    /// Whether its patterns may take long to compile, or to match.
    is_costly: bool,
}

/// Patterns of a schema that have more states than this together take milliseconds to compile.
const COSTLY_PATTERNS: u64 = 2_000;

impl Custom {
    /// The version of this name.
    pub(crate) fn version(&self, version: &str) -> Option<&CustomVersion> {
        self.versions.iter().find(|it| it.name.as_str() == version)
    }

    /// What objects look like in this version.
    pub(crate) fn shape(&self, version: &str) -> Option<&Shape> {
        let at = self.versions.iter().position(|it| it.name.as_str() == version)?;
        self.shapes.get_or_init(|| compile(self.stored.text(), self.versions.len())).get(at)
    }

    /// What objects look like in this version, as apply sees it.
    pub(crate) fn types(&self, version: &str, schemas: &Schemas) -> Option<(&Schema, TypeId)> {
        let shape = self.shape(version)?;
        let metadata = schemas.schema().find("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
        let (types, root) = shape.types.get_or_init(|| {
            let (types, root) = types_of(&shape.root, (schemas.schema(), metadata));
            (Arc::new(types), root)
        });
        Some((types, *root))
    }

    /// Whether even a small object of this version may take long to check: its schema has yet to be compiled, or has large
    /// patterns.
    pub fn is_costly(&self, version: &str) -> bool {
        self.shapes.get().is_none() || self.shape(version).is_some_and(|it| it.is_costly)
    }

    /// What ties a put to this very state of the definition.
    pub(crate) fn as_stored(&self) -> Require {
        Require::At(self.stored.key().clone(), self.stored.revision())
    }

    /// The definition as it is stored.
    pub fn text(&self) -> &Bytes {
        self.stored.text()
    }

    /// What every answer in this version warns of.
    pub fn warning(&self, version: &ApiVersion) -> Option<&str> {
        self.version(version.as_str())?.warning.as_deref()
    }

    /// The versions that can be asked for.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.versions.iter().filter_map(|it| it.served.as_ref())
    }

    /// The version in which objects are stored now.
    pub fn storage(&self) -> &GroupVersion {
        &self.storage
    }

    /// The definition is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.is_terminating
    }
}

/// What a client is told whose definition has rules that nothing enforces.
pub(crate) fn unenforced_rules(target: &Target, object: &Value) -> Option<String> {
    let is_definition = target.kind.strategy.special == Special::Definition && target.subresource.is_empty();
    (is_definition && rules::has_cel(object)).then(|| {
        "x-kubernetes-validations are not enforced by this server; the rules are only stored".to_owned()
    })
}

/// 405: nothing new while the definition goes.
pub fn terminating(target: &Target) -> Status {
    let mut status = Status::method_not_supported(&target.kind.resource, "create");
    "create not allowed while custom resource definition is terminating".clone_into(&mut status.message);
    status
}

impl Registry {
    /// What only the server can say about a new definition: what is stored under its prefix, and whether the resource is
    /// built in.
    pub(crate) async fn prepare_definition(&self, target: &Target, object: &mut Value) -> Result<(), Status> {
        if target.kind.strategy.special != Special::Definition {
            return Ok(());
        }
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = GroupResource::new(text("/spec/group"), text("/spec/names/plural"));
        if self.kinds.is_built_in(&resource) {
            let detail = format!("{resource} is built into this server and cannot be defined");
            let error = FieldError::invalid("spec.names.plural", &resource.resource, detail);
            return Err(Status::invalid(&target.kind.group_kind, meta::object::name(object), error));
        }
        self.note_found_versions(object).await
    }
}

/// The schemas of all versions. A definition that cannot be read says nothing about its objects.
fn compile(text: &[u8], n_versions: usize) -> Vec<Shape> {
    let definition: Value = serde_json::from_slice(text).unwrap_or_default();
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
    let schemas = versions.into_iter().flatten().map(|it| it.pointer("/schema/openAPIV3Schema"));
    let mut shapes: Vec<Shape> =
        schemas.map(|schema| Shape::of(Node::compile(schema.unwrap_or(&Value::Null)).into_root())).collect();
    shapes.resize_with(n_versions, || Shape::of(Node::default().into_root()));
    shapes
}

impl Shape {
    fn of(root: Node) -> Self {
        let mut bare = Value::Object(meta::Map::new());
        fill(&root, &mut bare);
        let is_costly = root.pattern_weight() > COSTLY_PATTERNS;
        Self { root, fills_status: bare.get("status").is_some(), types: OnceLock::new(), is_costly }
    }
}
