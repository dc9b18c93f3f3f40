//! The `scale` subresource: how many replicas there are, and should be, in one shape for all workloads.

use bytes::Bytes;
use meta::{FieldError, GroupKind, Status, Value, object};
use serde_json::json;

use crate::{Patch, Registry, Target, WriteOptions, write::Owners};

impl Registry {
    /// The scale of a workload.
    pub async fn scale(&self, target: &Target, resource_version: &str) -> Result<Bytes, Status> {
        let text = self.get(target, resource_version).await?;
        let workload: Value = serde_json::from_slice(&text).map_err(Status::internal)?;
        Ok(Bytes::from(of(&workload).to_string()))
    }

    /// Replaces the scale of a workload.
    pub async fn update_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        scale: &Value,
    ) -> Result<Bytes, Status> {
        if object::name(scale) != target.name && !object::name(scale).is_empty() {
            return Err(Status::bad_request(format!(
                "the name of the object ({}) does not match the name on the URL ({})",
                object::name(scale),
                target.name
            )));
        }
        self.change_scale(target, options, |_| Ok(scale.clone())).await
    }

    /// Changes the scale of a workload.
    pub async fn patch_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        patch: &Patch,
    ) -> Result<Bytes, Status> {
        self.change_scale(target, options, |old| {
            schema::patch::apply(patch.kind, &patch.body, old).map_err(|it| it.status())
        })
        .await
    }

    async fn change_scale(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        change: impl Fn(&Value) -> Result<Value, Status>,
    ) -> Result<Bytes, Status> {
        // The workload itself is written; its scale is only a way to look at it.
        let workload = Target { subresource: String::new(), ..target.clone() };
        let written = self
            .modify_as(&workload, options, Owners::Scaled, |old| {
                let old = old.ok_or_else(|| Status::not_found(&target.kind.resource, &target.name))?;
                let scale = change(&of(old))?;
                let wanted = object::resource_version(&scale);
                if !wanted.is_empty() && wanted != object::resource_version(old) {
                    return Err(Status::modified(&target.kind.resource, &target.name));
                }
                let replicas = replicas(&scale, &target.name)?;
                let mut new = old.clone();
                let spec = object::child_mut(object::as_map_mut(&mut new), "spec");
                spec.insert("replicas".to_owned(), json!(replicas));
                Ok(new)
            })
            .await?;
        let workload: Value = serde_json::from_slice(&written.text).map_err(Status::internal)?;
        Ok(Bytes::from(of(&workload).to_string()))
    }
}

/// The scale of a workload.
fn of(workload: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = workload.get("metadata").and_then(|it| it.get(field)) {
            metadata[field] = value.clone();
        }
    }
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
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    })
}

fn replicas(scale: &Value, name: &str) -> Result<i64, Status> {
    let replicas = match scale.get("spec").and_then(|it| it.get("replicas")) {
        None | Some(Value::Null) => 0,
        Some(value) => value.as_i64().ok_or_else(|| {
            Status::bad_request(
                "Scale in version \"v1\" cannot be handled as a Scale: spec.replicas must be a number",
            )
        })?,
    };
    if replicas < 0 {
        let error = FieldError::invalid_shown(
            "spec.replicas",
            replicas.to_string(),
            "must be greater than or equal to 0",
        );
        return Err(Status::invalid(&GroupKind::new("autoscaling", "Scale"), name, error));
    }
    Ok(replicas)
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
