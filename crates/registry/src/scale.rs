//! The `scale` subresource: how many replicas there are, and should be, in one shape for all workloads.

mod apply;

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use meta::{FieldError, GroupKind, GroupResource, GroupVersion, Status, Value, object};
use serde_json::json;

use crate::{
    Patch, Registry, Target, WriteOptions, Written, custom,
    write::{Owners, accept, decode::BodyKind, metadata},
};
use apply::ScaleVersions;

impl Registry {
    /// The scale of a workload.
    pub async fn scale(&self, target: &Target, resource_version: &str) -> Result<Bytes, Status> {
        let text = self.get(target, resource_version).await.map_err(|it| about_scale(target, it))?;
        let workload: Value = serde_json::from_slice(&text).map_err(Status::internal)?;
        if let Some(paths) = custom::scale::paths(target)
            && custom::scale::at(&workload, &paths.spec_replicas_path).is_none()
        {
            let path = meta::field::quote(&paths.spec_replicas_path);
            return Err(Status::internal(format!("the spec replicas field {path} does not exist")));
        }
        Ok(Bytes::from(of(target, &workload).to_string()))
    }

    /// Replaces the scale of a workload by one that was accepted.
    pub async fn update_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        scale: Value,
    ) -> Result<Bytes, Status> {
        let scale = settled(target, scale)?;
        self.change_scale(target, options, Owners::Scaled, |old| replaced(target, old, &scale)).await
    }

    /// Changes the scale of a workload.
    pub async fn patch_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        patch: &Patch,
    ) -> Result<Written, Status> {
        let (group_version, schemas) = (group_version(), self.kinds.schemas());
        let want =
            BodyKind { group_version: &group_version, kind: "Scale", schemas, defaults: self.defaults() };
        let typed = want.type_id().map(|ty| (&**schemas.schema(), ty));
        let found = Mutex::new(Vec::new());
        let text = self.change_scale(target, options, Owners::Scaled, |old| {
            let scale = of(target, old);
            let patched = schema::patch::apply_typed(patch.kind, &patch.body, &scale, typed);
            let patched = patched.map_err(|it| it.status())?;
            let validation = options.field_validation;
            let accepted = accept::accept_patched(want, validation, patch, patched, &scale)?;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = accepted.warnings;
            replaced(target, old, &settled(target, accepted.object)?)
        });
        let text = text.await?;
        let warnings = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Written { text, is_new: false, warnings })
    }

    /// Applies a configuration of the scale of a workload.
    pub async fn apply_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        config: &Value,
        force: bool,
    ) -> Result<Bytes, Status> {
        let now = meta::time::format_time(self.clock.now());
        let versions = ScaleVersions::new(self.kinds.schemas());
        self.change_scale(target, options, Owners::Settled, |old| {
            let request = versions.request(options.manager, &now);
            let workload_version = target.group_version.to_string();
            let before = apply::to_scale(old, &workload_version);
            let mut scale = of(target, old);
            if let Some(entries) = schema::apply::encode(&before) {
                object::metadata_mut(&mut scale).insert("managedFields".to_owned(), entries);
            }
            let applied = schema::apply::apply(&request, &scale, config, force).map_err(|it| it.status())?;
            let applied = settled(target, applied)?;
            let mut new = replaced(target, old, &applied)?;
            apply::to_workload(&mut new, &applied, &workload_version);
            Ok(new)
        })
        .await
    }

    async fn change_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        owners: Owners,
        change: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Bytes, Status> {
        // The workload itself is written; its scale is only a way to look at it.
        let workload = Target { subresource: String::new(), ..target.clone() };
        let not_found = || about_scale(target, Status::not_found(&target.kind.resource, &target.name));
        let written =
            self.modify_as(&workload, options, owners, |old| change(old.ok_or_else(not_found)?)).await?;
        let workload: Value = serde_json::from_slice(&written.text).map_err(Status::internal)?;
        Ok(Bytes::from(of(target, &workload).to_string()))
    }
}

/// A scale that is missing is missed under its own name.
fn about_scale(target: &Target, status: Status) -> Status {
    if status.code != 404 {
        return status;
    }
    let GroupResource { group, resource } = &target.kind.resource;
    // Upstream has the replication controller's in the group of the Scale.
    let group = if group.is_empty() { "autoscaling" } else { group };
    Status::not_found(&GroupResource::new(group, format!("{resource}/scale")), &target.name)
}

/// A scale of the workload that the path names.
fn settled(target: &Target, mut scale: Value) -> Result<Value, Status> {
    metadata::settle_namespace(target, &mut scale)?;
    metadata::check_name(target, &scale)?;
    let replicas = replicas(&scale);
    if replicas < 0 {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid_shown("spec.replicas", replicas.to_string(), detail);
        return Err(Status::invalid(&GroupKind::new("autoscaling", "Scale"), &target.name, error));
    }
    Ok(scale)
}

/// The workload as the scale wants it.
fn replaced(target: &Target, old: &Value, scale: &Value) -> Result<Value, Status> {
    let (wanted, is) = (object::uid(scale), object::uid(old));
    if !wanted.is_empty() && wanted != is {
        let GroupResource { group, resource } = &target.kind.resource;
        let resource = GroupResource::new(group.clone(), format!("{resource}/scale"));
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {is}");
        return Err(Status::conflict(&resource, &target.name, &why));
    }
    let wanted = object::resource_version(scale);
    if !matches!(wanted, "" | "0") && wanted != object::resource_version(old) {
        return Err(Status::modified(&target.kind.resource, &target.name));
    }
    let mut new = old.clone();
    let path = custom::scale::paths(target).map_or(".spec.replicas", |it| &it.spec_replicas_path);
    custom::scale::put(&mut new, path, replicas(scale));
    Ok(new)
}

fn group_version() -> GroupVersion {
    GroupVersion::new("autoscaling", "v1")
}

/// The scale of a workload.
pub fn of(target: &Target, workload: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = workload.get("metadata").and_then(|it| it.get(field)) {
            metadata[field] = value.clone();
        }
    }
    let (spec, status) = match custom::scale::paths(target) {
        Some(paths) => custom::scale::of(paths, workload),
        None => parts(workload),
    };
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

/// `spec` and `status` of the scale of a built-in workload.
fn parts(workload: &Value) -> (Value, Value) {
    let number =
        |parent: &str| workload.get(parent).and_then(|it| it.get("replicas")).and_then(Value::as_i64);
    let mut status = json!({"replicas": number("status").unwrap_or(0)});
    let selector = selector(workload.get("spec").and_then(|it| it.get("selector")));
    if !selector.is_empty() {
        status["selector"] = json!(selector);
    }
    let mut spec = json!({});
    match number("spec") {
        Some(0) => {}
        Some(replicas) => spec["replicas"] = json!(replicas),
        None => spec["replicas"] = json!(1),
    }
    (spec, status)
}

fn replicas(scale: &Value) -> i64 {
    scale.get("spec").and_then(|it| it.get("replicas")).and_then(Value::as_i64).unwrap_or(0)
}

/// A selector as text: `app=web,tier in (a,b)`. Old kinds have just a map of labels.
fn selector(selector: Option<&Value>) -> String {
    let Some(Value::Object(selector)) = selector else { return String::new() };
    let is_plain = selector.values().all(Value::is_string);
    let labels =
        if is_plain { Some(selector) } else { selector.get("matchLabels").and_then(Value::as_object) };
    let mut parts: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    parts.extend(expressions.into_iter().flatten().map(expression));
    parts.sort();
    parts.join(",")
}

fn expression(expression: &Value) -> String {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array);
    let mut values: Vec<&str> = values.into_iter().flatten().filter_map(Value::as_str).collect();
    values.sort_unstable();
    let values = values.join(",");
    match text("operator") {
        "In" => format!("{} in ({values})", text("key")),
        "NotIn" => format!("{} notin ({values})", text("key")),
        "DoesNotExist" => format!("!{}", text("key")),
        _ => text("key").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_written_as_text() {
        let check = |value: Value, text: &str| assert_eq!(selector(Some(&value)), text);
        check(json!({"matchLabels": {"b": "2", "a": "1"}}), "a=1,b=2");
        check(json!({"app": "old"}), "app=old");
        let expressions = json!([{"key": "t", "operator": "In", "values": ["b", "a"]}, {"key": "x", "operator": "DoesNotExist"}]);
        check(json!({"matchExpressions": expressions}), "!x,t in (a,b)");
    }
}
