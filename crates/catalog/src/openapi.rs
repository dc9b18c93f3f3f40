//! OpenAPI v3 documents, one per group and version, made from the same schemas that objects are checked by; and the one
//! document of v2, made of those.
//!
//! Responsible for what kubectl reads them for: `explain`, patch strategies, and which parameters an operation takes.
//! Deliberately not here: prose. Upstream's descriptions are its own; fields are listed with their types.
//! Start at [`OpenApi`].

pub mod gnostic;
pub mod v2;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use meta::{GroupVersion, Release};
use schema::model::{Field, ListKind, Scalar, Schema, Type, TypeId};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{Catalog, Origin, Schemas, Served, Verb};

const COMPONENTS: &str = "#/components/schemas/";
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The documents of one server. They are made when they are asked for: most are never. Making one takes long enough that
/// whoever serves them keeps them.
#[derive(Debug)]
pub struct OpenApi {
    catalog: Arc<Catalog>,
    schemas: Schemas,
    /// The hash of this build's tables: they are long, and the same for every document.
    table: [u8; 32],
}

impl OpenApi {
    /// For what this catalog serves.
    pub fn new(catalog: Arc<Catalog>, schemas: Schemas) -> Self {
        Self { catalog, schemas, table: Sha256::digest(crate::schemas::TABLE).into() }
    }

    /// `/openapi/v3`: where the documents are. The address holds a hash, so that clients can keep what they have read.
    pub fn index(&self) -> Bytes {
        let paths: BTreeMap<String, Value> = self
            .group_versions()
            .into_iter()
            .map(|it| {
                let path = path_of(&it);
                let url = format!("/openapi/v3/{path}?hash={}", self.hash(&it));
                (path, json!({ "serverRelativeURL": url }))
            })
            .collect();
        Bytes::from(json!({ "paths": paths }).to_string())
    }

    /// `/openapi/v3/apis/apps/v1`: the document of a path behind `/openapi/v3/`, and its hash.
    pub fn document(&self, path: &str) -> Option<(Bytes, String)> {
        let group_version = self.group_versions().into_iter().find(|it| path_of(it) == path)?;
        let document = Document::new(&self.schemas).build(&self.catalog, &group_version);
        Some((Bytes::from(document.to_string()), self.hash(&group_version)))
    }

    /// All documents, one after the other.
    pub fn documents(&self) -> impl Iterator<Item = Value> {
        let all = self.group_versions().into_iter();
        all.map(|it| Document::new(&self.schemas).build(&self.catalog, &it))
    }

    fn group_versions(&self) -> BTreeSet<GroupVersion> {
        self.catalog.served().iter().map(|it| it.group_version()).collect()
    }

    /// Changes whenever the document may have changed: with the release and with this build's tables.
    fn hash(&self, group_version: &GroupVersion) -> String {
        let mut hasher = Sha256::new();
        hasher.update(env!("CARGO_PKG_VERSION"));
        hasher.update(self.catalog.release().to_string());
        hasher.update(group_version.to_string());
        for served in self.catalog.served().iter().filter(|it| it.group_version() == *group_version) {
            hasher.update(served.to_string());
        }
        hasher.update(self.table);
        hasher.finalize().iter().take(16).map(|it| format!("{it:02X}")).collect()
    }
}

/// The document of a group and version that users define: their kinds, with their schemas.
pub fn custom_document(schemas: &Schemas, kinds: &[(Arc<Served>, Value)], release: Release) -> Bytes {
    Bytes::from(Document::new(schemas).build_custom(kinds, release).to_string())
}

/// `api/v1`, `apis/apps/v1`
pub fn path_of(group_version: &GroupVersion) -> String {
    if group_version.group.is_empty() {
        format!("api/{group_version}")
    } else {
        format!("apis/{group_version}")
    }
}

/// A document in the making: the types it has named so far, and those that still have to be described.
struct Document<'a> {
    schemas: &'a Schemas,
    schema: &'a Schema,
    pending: Vec<TypeId>,
    components: BTreeMap<String, Value>,
    kinds: BTreeMap<String, Value>,
}

impl<'a> Document<'a> {
    fn new(schemas: &'a Schemas) -> Self {
        let schema = schemas.schema();
        Self { schemas, schema, pending: Vec::new(), components: BTreeMap::new(), kinds: BTreeMap::new() }
    }

    fn build(mut self, catalog: &Catalog, group_version: &GroupVersion) -> Value {
        let mut paths = Map::new();
        for served in catalog.served().iter().filter(|it| it.group_version() == *group_version) {
            let definition = &served.definition;
            let version = served.version.as_str();
            let object = self.kind_reference(&definition.group, version, &definition.kind);
            let list = self.kind_reference(&definition.group, version, &definition.list_kind);
            self.add_paths(&mut paths, served, &object, &list);
        }
        self.finish(paths, catalog.release())
    }

    /// The document of a group and version that users define: their schemas as they wrote them.
    fn build_custom(mut self, kinds: &[(Arc<Served>, Value)], release: Release) -> Value {
        let mut paths = Map::new();
        for (served, schema) in kinds {
            let (object, list) = self.add_custom(served, schema);
            self.add_paths(&mut paths, served, &object, &list);
        }
        self.finish(paths, release)
    }

    /// Adds the components of a custom kind and of its list; the answer is references to them.
    fn add_custom(&mut self, served: &Served, schema: &Value) -> (Value, Value) {
        let definition = &served.definition;
        let (group, version) = (&*definition.group, served.version.as_str());
        let reversed: Vec<&str> = group.rsplit('.').collect();
        let name = |kind: &str| format!("{}.{version}.{kind}", reversed.join("."));
        let mut metadata = |kind: &str| match self.schema.find(&format!("{META}.{kind}")) {
            Some(id) => json!({ "allOf": [self.reference(id)] }),
            None => json!({"type": "object"}),
        };
        let (of_object, of_list) = (metadata("ObjectMeta"), metadata("ListMeta"));
        let text = |about: &str| json!({"type": "string", "description": about});
        let (about_version, about_kind) = (
            "The version of the schema of this object, such as apps/v1.",
            "The kind of this object, such as Deployment.",
        );
        let mut object = match schema {
            Value::Object(_) => schema.clone(),
            _ => json!({"type": "object"}),
        };
        for (field, described) in
            [("apiVersion", text(about_version)), ("kind", text(about_kind)), ("metadata", of_object)]
        {
            object["properties"][field] = described;
        }
        object["x-kubernetes-group-version-kind"] = json!([kind_value(group, version, &definition.kind)]);
        let reference = json!({ "$ref": format!("{COMPONENTS}{}", name(&definition.kind)) });
        let list = json!({
            "type": "object",
            "required": ["items"],
            "properties": {
                "apiVersion": text(about_version),
                "kind": text(about_kind),
                "metadata": of_list,
                "items": {"type": "array", "items": reference},
            },
            "x-kubernetes-group-version-kind": [kind_value(group, version, &definition.list_kind)],
        });
        self.components.insert(name(&definition.kind), object);
        self.components.insert(name(&definition.list_kind), list);
        (reference, json!({ "$ref": format!("{COMPONENTS}{}", name(&definition.list_kind)) }))
    }

    fn finish(mut self, mut paths: Map<String, Value>, release: Release) -> Value {
        for (path, item) in &mut paths {
            item["parameters"] = path_parameters(path);
        }
        for options in ["DeleteOptions", "Status"] {
            if let Some(id) = self.schema.find(&format!("{META}.{options}")) {
                self.reference(id);
            }
        }
        while let Some(id) = self.pending.pop() {
            self.describe(id);
        }
        json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": format!("v{release}.0")},
            "paths": paths,
            "components": {
                "schemas": self.components,
                "securitySchemes": {
                    "BearerToken": {
                        "type": "apiKey",
                        "description": "Bearer Token authentication",
                        "name": "authorization",
                        "in": "header",
                    },
                },
            },
        })
    }

    fn add_paths(&mut self, paths: &mut Map<String, Value>, served: &Served, object: &Value, list: &Value) {
        let definition = &served.definition;
        let origin = definition.origin;
        let gvk = kind_value(&definition.group, served.version.as_str(), &definition.kind);
        let root = format!("/{}", path_of(&served.group_version()));
        let scope = if definition.namespaced { "/namespaces/{namespace}" } else { "" };
        let all = format!("{root}{scope}/{}", definition.resource);
        let verbs = |wanted: &[Verb]| -> Vec<Verb> {
            wanted.iter().copied().filter(|it| served.verbs.contains(*it)).collect()
        };
        let on_all = verbs(&[Verb::List, Verb::Create, Verb::DeleteCollection]);
        let on_one = verbs(&[Verb::Get, Verb::Update, Verb::Patch, Verb::Delete]);
        if definition.namespaced && served.verbs.contains(Verb::List) {
            let path = format!("{root}/{}", definition.resource);
            paths.insert(path, path_item(origin, &[Verb::List], &gvk, object, list));
        }
        if !on_all.is_empty() {
            paths.insert(all.clone(), path_item(origin, &on_all, &gvk, object, list));
        }
        if !on_one.is_empty() {
            paths.insert(format!("{all}/{{name}}"), path_item(origin, &on_one, &gvk, object, list));
        }
        for subresource in &served.subresources {
            let own = subresource.group_version.clone().unwrap_or_else(|| served.group_version());
            let gvk = kind_value(&own.group, own.version.as_str(), &subresource.kind);
            let object = match &subresource.group_version {
                None if origin == Origin::User => object.clone(),
                _ => self.kind_reference(&own.group, own.version.as_str(), &subresource.kind),
            };
            let verbs: Vec<Verb> = subresource.verbs.iter().collect();
            let path = format!("{all}/{{name}}/{}", subresource.name);
            paths.insert(path, path_item(origin, &verbs, &gvk, &object, &object));
        }
    }

    /// A reference to a kind; its type is described later, and marked as this kind.
    fn kind_reference(&mut self, group: &str, version: &str, kind: &str) -> Value {
        let Some(id) = self.schemas.kind(group, version, kind) else { return json!({"type": "object"}) };
        if let Some(object) = self.schema.object(id) {
            self.kinds.insert(object.name.to_string(), kind_value(group, version, kind));
        }
        self.reference(id)
    }

    fn reference(&mut self, id: TypeId) -> Value {
        match self.schema.get(id) {
            Type::Object(object) if !object.name.is_empty() => {
                let name = object.name.to_string();
                if !self.components.contains_key(&name) {
                    self.components.insert(name.clone(), Value::Null);
                    self.pending.push(id);
                }
                json!({ "$ref": format!("{COMPONENTS}{name}") })
            }
            Type::Object(_) => self.object(id),
            Type::Map(map) => {
                let value = self.reference(map.value);
                let mut described = json!({"type": "object", "additionalProperties": value});
                if map.is_atomic {
                    described["x-kubernetes-map-type"] = json!("atomic");
                }
                described
            }
            Type::List(list) => {
                let items = self.reference(list.element);
                let mut described = json!({"type": "array", "items": items});
                match &list.kind {
                    ListKind::Atomic => described["x-kubernetes-list-type"] = json!("atomic"),
                    ListKind::Set => described["x-kubernetes-list-type"] = json!("set"),
                    ListKind::Map(keys) => {
                        described["x-kubernetes-list-type"] = json!("map");
                        described["x-kubernetes-list-map-keys"] = json!(keys);
                    }
                }
                described
            }
            Type::Scalar(scalar) => self.scalar(*scalar),
            Type::Any => json!({"type": "object"}),
        }
    }

    fn describe(&mut self, id: TypeId) {
        let Some(name) = self.schema.object(id).map(|it| it.name.to_string()) else { return };
        let mut described = self.object(id);
        if let Some(kind) = self.kinds.get(&name) {
            described["x-kubernetes-group-version-kind"] = json!([kind]);
        }
        self.components.insert(name, described);
    }

    fn object(&mut self, id: TypeId) -> Value {
        let Some(object) = self.schema.object(id) else { return json!({"type": "object"}) };
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in object.fields.iter().filter(|it| it.is_known) {
            if field.is_required {
                required.push(field.name.to_string());
            }
            properties.insert(field.name.to_string(), self.property(field));
        }
        let mut described = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            described["required"] = json!(required);
        }
        if object.is_atomic {
            described["x-kubernetes-map-type"] = json!("atomic");
        }
        if object.keeps_unknown {
            described["x-kubernetes-preserve-unknown-fields"] = json!(true);
        }
        described
    }

    fn property(&mut self, field: &Field) -> Value {
        let mut described = self.reference(field.ty);
        let mut extras = Map::new();
        if let Some(default) = &field.default {
            extras.insert("default".to_owned(), default.clone());
        }
        let strategies = [
            (field.patch.is_merged, "merge"),
            (field.patch.retains_keys, "retainKeys"),
            (field.patch.is_replaced, "replace"),
        ];
        let strategies: Vec<&str> =
            strategies.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        if !strategies.is_empty() {
            extras.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategies.join(",")));
        }
        if let Some(key) = &field.patch.merge_key {
            extras.insert("x-kubernetes-patch-merge-key".to_owned(), json!(key));
        }
        if extras.is_empty() {
            return described;
        }
        if described.get("$ref").is_some() {
            // Nothing may stand beside a reference.
            described = json!({ "allOf": [described] });
        }
        if let Value::Object(map) = &mut described {
            map.append(&mut extras);
        }
        described
    }

    /// Text and numbers; those with rules of their own have names.
    fn scalar(&mut self, scalar: Scalar) -> Value {
        let (name, described) = match scalar {
            Scalar::String => return json!({"type": "string"}),
            Scalar::Bool => return json!({"type": "boolean"}),
            Scalar::Int32 | Scalar::Uint32 => return json!({"type": "integer", "format": "int32"}),
            Scalar::Int64 | Scalar::Uint64 => return json!({"type": "integer", "format": "int64"}),
            Scalar::Double => return json!({"type": "number", "format": "double"}),
            Scalar::Bytes => return json!({"type": "string", "format": "byte"}),
            Scalar::Time => (format!("{META}.Time"), json!({"type": "string", "format": "date-time"})),
            Scalar::MicroTime => {
                (format!("{META}.MicroTime"), json!({"type": "string", "format": "date-time"}))
            }
            Scalar::Duration => (format!("{META}.Duration"), json!({"type": "string"})),
            Scalar::Quantity => (
                "io.k8s.apimachinery.pkg.api.resource.Quantity".to_owned(),
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            Scalar::IntOrString => (
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString".to_owned(),
                json!({"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"}),
            ),
        };
        self.components.insert(name.clone(), described);
        json!({ "$ref": format!("{COMPONENTS}{name}") })
    }
}

fn kind_value(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "kind": kind, "version": version})
}

/// The operations of one path.
fn path_item(origin: Origin, verbs: &[Verb], gvk: &Value, object: &Value, list: &Value) -> Value {
    let mut item = Map::new();
    for verb in verbs {
        let (method, action) = match verb {
            Verb::List => ("get", "list"),
            Verb::Get => ("get", "get"),
            Verb::Create => ("post", "post"),
            Verb::Update => ("put", "put"),
            Verb::Patch => ("patch", "patch"),
            Verb::Delete => ("delete", "delete"),
            Verb::DeleteCollection => ("delete", "deletecollection"),
            Verb::Watch => continue,
        };
        let answered = if *verb == Verb::List { list } else { object };
        let mut operation = json!({
            "parameters": parameters(*verb),
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answered}}}},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        });
        let content = match verb {
            Verb::Create | Verb::Update => json!({"*/*": {"schema": object}}),
            Verb::Patch => {
                // kubectl sends a strategic patch wherever one is listed, and custom resources know none.
                let strategic = (origin != Origin::User).then_some("strategic-merge-patch+json");
                ["json-patch+json", "merge-patch+json", "apply-patch+yaml"]
                    .into_iter()
                    .chain(strategic)
                    .map(|it| (format!("application/{it}"), json!({"schema": {"type": "object"}})))
                    .collect()
            }
            Verb::Delete | Verb::DeleteCollection | Verb::Get | Verb::List | Verb::Watch => Value::Null,
        };
        if !content.is_null() {
            operation["requestBody"] = json!({"content": content, "required": true});
        }
        item.insert(method.to_owned(), operation);
    }
    Value::Object(item)
}

/// What stands in braces in a path.
fn path_parameters(path: &str) -> Value {
    let names = path.split('/').filter_map(|it| it.strip_prefix('{')?.strip_suffix('}'));
    names
        .map(|it| {
            json!({"name": it, "in": "path", "required": true, "schema": {"type": "string", "uniqueItems": true}})
        })
        .collect()
}

fn parameters(verb: Verb) -> Value {
    let (texts, numbers, flags): (&[&str], &[&str], &[&str]) = match verb {
        Verb::List | Verb::Watch => (
            &["continue", "fieldSelector", "labelSelector", "resourceVersion", "resourceVersionMatch"],
            &["limit", "timeoutSeconds"],
            &["allowWatchBookmarks", "sendInitialEvents", "watch"],
        ),
        Verb::Get => (&["resourceVersion"], &[], &[]),
        Verb::Create | Verb::Update => (&["dryRun", "fieldManager", "fieldValidation"], &[], &[]),
        Verb::Patch => (&["dryRun", "fieldManager", "fieldValidation"], &[], &["force"]),
        Verb::Delete => (&["dryRun", "propagationPolicy"], &["gracePeriodSeconds"], &["orphanDependents"]),
        Verb::DeleteCollection => (
            &["continue", "dryRun", "fieldSelector", "labelSelector", "propagationPolicy", "resourceVersion"],
            &["gracePeriodSeconds", "limit"],
            &["orphanDependents"],
        ),
    };
    let kinds = [(texts, "string"), (numbers, "integer"), (flags, "boolean")];
    kinds
        .into_iter()
        .flat_map(|(names, ty)| {
            names.iter().map(
                move |it| json!({"name": it, "in": "query", "schema": {"type": ty, "uniqueItems": true}}),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use meta::Release;

    use super::*;
    use crate::{FeatureGates, RuntimeConfig};

    fn open_api() -> OpenApi {
        let release = Release::v1(36);
        let catalog =
            Catalog::new(release, &RuntimeConfig::default(), &FeatureGates::defaults(release)).unwrap();
        OpenApi::new(Arc::new(catalog), Schemas::new(release))
    }

    #[test]
    fn every_address_in_the_index_leads_to_a_document_whose_references_all_lead_somewhere() {
        let open_api = open_api();
        let index: Value = serde_json::from_slice(&open_api.index()).unwrap();
        for (path, entry) in index["paths"].as_object().unwrap() {
            let (document, hash) = open_api.document(path).unwrap();
            assert!(entry["serverRelativeURL"].as_str().unwrap().ends_with(&hash), "{path}");
            let document: Value = serde_json::from_slice(&document).unwrap();
            let schemas = document["components"]["schemas"].as_object().unwrap();
            let text = document.to_string();
            for reference in text.split(&format!("\"$ref\":\"{COMPONENTS}")).skip(1) {
                let name = reference.split('"').next().unwrap();
                assert!(schemas.get(name).is_some_and(|it| it.is_object()), "{path}: {name}");
            }
        }
        assert!(open_api.document("apis/none/v1").is_none());
    }

    #[test]
    fn kinds_patch_strategies_and_parameters_are_told() {
        let (document, _) = open_api().document("apis/apps/v1").unwrap();
        let document: Value = serde_json::from_slice(&document).unwrap();
        let schemas = &document["components"]["schemas"];
        let kinds = &schemas["io.k8s.api.apps.v1.Deployment"]["x-kubernetes-group-version-kind"];
        assert_eq!(kinds, &json!([{"group": "apps", "kind": "Deployment", "version": "v1"}]));
        let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
        assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
        assert_eq!(containers["x-kubernetes-list-map-keys"], json!(["name"]));
        let patch = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
        let names: Vec<_> = patch["parameters"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
        assert!(names.contains(&&json!("fieldValidation")), "{names:?}");
    }
}
