//! What one request looks like to admission, and what of its say reaches the client and the audit log.
//!
//! Deliberately not here: who is asked and in which order (`admission`), and when (`registry`).

use std::sync::Arc;

use access::{Attributes, Authorizer, OwnedAttributes, OwnedTarget, User, Verdict};
use admission::{Admission, Notes, Operation, Rights};
use futures_util::future::BoxFuture;
use meta::{GroupVersion, GroupVersionKind, GroupVersionResource, Release, Status, Value, freeze, object};
use registry::{Admit, DeleteOptions, Target};
use serde_json::json;
use store::Revision;

use crate::{api::Call, rbac_guard};

/// Everything of a request that admission may want to know.
pub(crate) struct Admitter {
    admission: Arc<Admission>,
    guard: Option<rbac_guard::Guard>,
    authorizer: Authorizer,
    /// What the request was authorized by, and the release that this server is.
    verb: String,
    release: Release,
    /// What else the caller must be allowed to do if the object turns out to be new.
    creation: Option<OwnedAttributes>,
    user: Arc<User>,
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    subresource: String,
    dry_run: bool,
    /// Without their kind, which depends on what the request turns out to do.
    options: Value,
    served: Vec<GroupVersion>,
    notes: Arc<Notes>,
    namespace_made: Option<Revision>,
}

impl Admitter {
    /// For a write.
    pub(crate) fn of(call: &Call<'_>) -> Self {
        let query = &call.exchange.query;
        let mut options = json!({});
        for field in ["fieldManager", "fieldValidation"] {
            if query.has(field) {
                options[field] = Value::from(query.get(field));
            }
        }
        let dry_run = query.has("dryRun");
        if dry_run {
            options["dryRun"] = json!(["All"]);
        }
        Self::new(call, options, dry_run)
    }

    /// For a deletion.
    pub(crate) fn of_delete(call: &Call<'_>, options: &DeleteOptions) -> Self {
        let mut shown = json!({});
        let DeleteOptions {
            grace_period_seconds,
            preconditions,
            propagation_policy,
            orphan_dependents,
            dry_run,
            ignore_store_read_error_with_cluster_breaking_potential: ignores_read_errors,
        } = options;
        if let Some(seconds) = grace_period_seconds {
            shown["gracePeriodSeconds"] = json!(seconds);
        }
        if let Some(it) = preconditions {
            let mut own = json!({});
            for (field, value) in [("uid", &it.uid), ("resourceVersion", &it.resource_version)] {
                if let Some(value) = value {
                    own[field] = json!(value);
                }
            }
            shown["preconditions"] = own;
        }
        if let Some(policy) = propagation_policy {
            shown["propagationPolicy"] = json!(policy);
        }
        if let Some(orphan) = orphan_dependents {
            shown["orphanDependents"] = json!(orphan);
        }
        if let Some(ignores) = ignores_read_errors {
            shown["ignoreStoreReadErrorWithClusterBreakingPotential"] = json!(ignores);
        }
        if !dry_run.is_empty() {
            shown["dryRun"] = json!(dry_run);
        }
        Self::new(call, shown, !dry_run.is_empty())
    }

    fn new(call: &Call<'_>, options: Value, dry_run: bool) -> Self {
        let definition = &call.served.definition;
        let version = &call.target.group_version;
        let subresource = call.served.subresource(&call.path.subresource);
        let kind = subresource.map_or(&definition.kind, |it| &it.kind);
        let of_kind = subresource.and_then(|it| it.group_version.as_ref()).unwrap_or(version);
        let served =
            |it: &meta::ApiVersion| GroupVersion { group: definition.group.clone(), version: it.clone() };
        // The same objects may be served in another group as well: events are.
        let catalog = &call.dispatch.catalog;
        let elsewhere = definition.decodable.iter().filter(|it| {
            it.group != definition.group
                && catalog.find(&it.group, it.version.as_str(), &definition.resource).is_some()
        });
        Self {
            admission: Arc::clone(&call.dispatch.admission),
            guard: rbac_guard::Guard::of(call),
            authorizer: call.dispatch.authorizer.clone(),
            verb: call.asked.verb().to_owned(),
            release: catalog.release(),
            creation: creation(call),
            user: Arc::clone(&call.caller.user),
            kind: GroupVersionKind {
                group: of_kind.group.clone(),
                version: of_kind.version.clone(),
                kind: kind.clone(),
            },
            resource: GroupVersionResource {
                group: version.group.clone(),
                version: version.version.clone(),
                resource: definition.resource.clone(),
            },
            subresource: call.path.subresource.clone(),
            dry_run,
            options,
            served: definition.versions.iter().map(served).chain(elsewhere.cloned()).collect(),
            notes: Arc::clone(&call.notes),
            namespace_made: call.asked.namespace_made(),
        }
    }

    /// Asks about an object that is answered and not stored. It may be changed.
    pub(crate) async fn answered(&self, target: &Target, object: &mut Value) -> Result<(), Status> {
        let options = self.options(Operation::Create);
        let attributes = self.attributes(Operation::Create, target, &target.name, &options);
        if self.admission.mutates(&attributes) {
            self.admission.mutate(&attributes, Some(&mut *object), None, &self.notes).await?;
        }
        if self.admission.validates(&attributes) {
            self.admission.validate(&attributes, Some(object), None, &self.notes).await?;
        }
        Ok(())
    }

    fn attributes<'a>(
        &'a self,
        operation: Operation,
        target: &'a Target,
        name: &'a str,
        options: &'a Value,
    ) -> admission::Attributes<'a> {
        let is_namespace = self.resource.group.is_empty() && &*self.resource.resource == "namespaces";
        admission::Attributes {
            operation,
            kind: self.kind.clone(),
            resource: self.resource.clone(),
            subresource: &self.subresource,
            namespace: if is_namespace { name } else { &target.namespace },
            name,
            user: &self.user,
            dry_run: self.dry_run,
            options,
            served: &self.served,
        }
    }

    fn options(&self, operation: Operation) -> Value {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = self.options.clone();
        options["kind"] = Value::from(kind);
        options["apiVersion"] = Value::from("meta.k8s.io/v1");
        options
    }

    /// Who may update or apply may not for that reason make something new.
    fn check_creation(&self) -> Result<(), Status> {
        let Some(creation) = &self.creation else { return Ok(()) };
        let attributes = creation.for_user(&self.user);
        self.ask(&attributes)
    }

    /// Asks the authorizer about something that the request itself does not say.
    fn ask(&self, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.authorizer.authorize(attributes) {
            Verdict::Allow(_) => Ok(()),
            Verdict::Deny(reason) | Verdict::NoOpinion(reason) => {
                Err(access::forbidden_status(attributes, &reason))
            }
        }
    }

    /// A definition is frozen and let go by migrators alone: by those who have the verb `freeze` on definitions.
    fn check_freeze(&self, object: &Value, old: Option<&Value>) -> Result<(), Status> {
        let is_definition = &*self.resource.group == "apiextensions.k8s.io"
            && &*self.resource.resource == "customresourcedefinitions";
        let differs =
            |key: &&str| freeze::annotation(object, key) != old.and_then(|it| freeze::annotation(it, key));
        if !is_definition || !freeze::ANNOTATIONS.iter().any(differs) {
            return Ok(());
        }
        let GroupVersionResource { group, version, resource } = &self.resource;
        let attributes = Attributes {
            user: &self.user,
            verb: "freeze",
            target: access::Target::Resource {
                group,
                version: version.as_str(),
                resource,
                subresource: "",
                namespace: "",
                name: object::name(object),
            },
        };
        self.ask(&attributes)
    }

    /// Decision 0023.
    fn warn_of_conditions(&self, object: &Value) {
        let is_configuration = &*self.resource.group == "admissionregistration.k8s.io"
            && self.resource.resource.ends_with("webhookconfigurations");
        if !is_configuration {
            return;
        }
        let webhooks = object.get("webhooks").and_then(Value::as_array).into_iter().flatten();
        for webhook in webhooks {
            let conditions = webhook.get("matchConditions").and_then(Value::as_array);
            if conditions.is_some_and(|it| !it.is_empty()) {
                let name = webhook.get("name").and_then(Value::as_str).unwrap_or_default();
                self.notes.warn(format!(
                    "webhook {name:?} has matchConditions, which this server does not evaluate: requests that it \
                     matches otherwise are refused, or pass without it being called if its failurePolicy is Ignore"
                ));
            }
        }
    }

    fn is_scale(&self) -> bool {
        self.subresource == "scale"
    }
}

/// The request as if it were a creation, for those that can become one.
fn creation(call: &Call<'_>) -> Option<OwnedAttributes> {
    let path = call.path;
    matches!(call.asked.verb(), "update" | "patch").then(|| OwnedAttributes {
        verb: "create".to_owned(),
        target: OwnedTarget::Resource {
            group: path.group.clone(),
            version: path.version.clone(),
            resource: path.resource.clone(),
            subresource: path.subresource.clone(),
            namespace: path.namespace.clone(),
            name: path.name.clone(),
        },
    })
}

impl Admit for Admitter {
    fn mutates(&self, target: &Target, is_new: bool) -> bool {
        let operation = if is_new { Operation::Create } else { Operation::Update };
        self.admission.mutates(&self.attributes(operation, target, &target.name, &Value::Null))
    }

    fn mutate<'a>(
        &'a self,
        target: &'a Target,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<bool, Status>> {
        Box::pin(async move {
            let operation = if old.is_none() { Operation::Create } else { Operation::Update };
            let name = object::name(object).to_owned();
            let options = self.options(operation);
            let attributes = self.attributes(operation, target, &name, &options);
            if !self.is_scale() {
                return self.admission.mutate(&attributes, Some(object), old, &self.notes).await;
            }
            let (mut scale, old) =
                (registry::scale::of(target, object), old.map(|it| registry::scale::of(target, it)));
            let changed =
                self.admission.mutate(&attributes, Some(&mut scale), old.as_ref(), &self.notes).await?;
            if changed {
                let replicas = scale.get("spec").and_then(|it| it.get("replicas")).cloned();
                let spec = object::child_mut(object::as_map_mut(object), "spec");
                spec.insert("replicas".to_owned(), replicas.unwrap_or_else(|| json!(0)));
            }
            Ok(changed)
        })
    }

    fn validate<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            if let Some(guard) = &self.guard {
                guard.check(object, old).await?;
            }
            if old.is_none() {
                self.check_creation()?;
            }
            self.check_freeze(object, old)?;
            self.warn_of_conditions(object);
            let operation = if old.is_none() { Operation::Create } else { Operation::Update };
            let attributes = self.attributes(operation, target, object::name(object), &Value::Null);
            let ask = |it: &Attributes<'_>| self.ask(it);
            let rights = Rights { verb: &self.verb, release: self.release, ask: &ask };
            self.admission.check_rights(&attributes, object, old, &rights)?;
            if !self.admission.validates(&self.attributes(operation, target, &target.name, &Value::Null)) {
                return Ok(());
            }
            let options = self.options(operation);
            let attributes = self.attributes(operation, target, object::name(object), &options);
            if self.is_scale() {
                let (new, old) =
                    (registry::scale::of(target, object), old.map(|it| registry::scale::of(target, it)));
                return self.admission.validate(&attributes, Some(&new), old.as_ref(), &self.notes).await;
            }
            self.admission.validate(&attributes, Some(object), old, &self.notes).await
        })
    }

    fn reviews_deletion(&self, target: &Target) -> bool {
        let attributes = self.attributes(Operation::Delete, target, &target.name, &Value::Null);
        self.admission.mutates(&attributes) || self.admission.validates(&attributes)
    }

    fn basis(&self) -> Vec<registry::Basis> {
        self.guard.as_ref().map(rbac_guard::Guard::basis).unwrap_or_default()
    }

    fn namespace_made(&self) -> Option<Revision> {
        self.namespace_made
    }

    fn requester(&self) -> Option<meta::Map> {
        match self.user.to_json() {
            Value::Object(map) => Some(map),
            _ => None,
        }
    }

    fn delete<'a>(&'a self, target: &'a Target, old: &'a Value) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(async move {
            let options = self.options(Operation::Delete);
            let attributes = self.attributes(Operation::Delete, target, &target.name, &options);
            if self.admission.mutates(&attributes) {
                self.admission.mutate(&attributes, None, Some(old), &self.notes).await?;
            }
            if self.admission.validates(&attributes) {
                self.admission.validate(&attributes, None, Some(old), &self.notes).await?;
            }
            Ok(())
        })
    }
}
