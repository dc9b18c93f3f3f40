//! `pods/binding`: says on which node a pod runs. Happens once in the life of a pod.

use meta::{FieldError, GroupResource, Reason, Status, Value, object};
use serde_json::json;

use super::{set_condition, text};
use crate::{Registry, Target, WriteOptions, write::Owners};

impl Registry {
    /// Binds the pod that the target names to the node that the binding names.
    pub async fn bind(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        binding: &Value,
    ) -> Result<(), Status> {
        if object::name(binding) != target.name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        check(binding)?;
        let now = self.clock.now();
        let pod = Target { subresource: "binding".to_owned(), ..target.clone() };
        let change = |old: Option<&Value>| {
            let old = old.ok_or_else(|| Status::not_found(&target.kind.resource, &target.name))?;
            check_preconditions(target, binding, old)?;
            check_pod(old).map_err(|why| {
                Status::conflict(&GroupResource::new("", "pods/binding"), &target.name, &why)
            })?;
            let mut new = old.clone();
            let map = object::as_map_mut(&mut new);
            let node = text(binding, "target", "name");
            object::child_mut(map, "spec").insert("nodeName".to_owned(), Value::from(node));
            object::child_mut(map, "status").remove("nominatedNodeName");
            for field in ["annotations", "labels"] {
                if let Some(Value::Object(sent)) = binding["metadata"].get(field) {
                    object::child_mut(object::metadata_mut(&mut new), field).extend(sent.clone());
                }
            }
            set_condition(&mut new, json!({"type": "PodScheduled", "status": "True"}), now);
            Ok(new)
        };
        // As upstream: nobody comes to own fields by a binding.
        self.modify_as(&pod, options, Owners::Settled, change).await.map(drop)
    }
}

/// Upstream answers a wrong binding with a plain error, which is a 500.
fn check(binding: &Value) -> Result<(), Status> {
    let mut errors = Vec::new();
    let kind = text(binding, "target", "kind");
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]).to_string());
    }
    if text(binding, "target", "name").is_empty() {
        errors.push(FieldError::required("target.name", "").to_string());
    }
    match errors.as_slice() {
        [] => Ok(()),
        [only] => Err(Status::failure(500, Reason::Unknown, only)),
        all => Err(Status::failure(500, Reason::Unknown, format!("[{}]", all.join(", ")))),
    }
}

fn check_preconditions(target: &Target, binding: &Value, pod: &Value) -> Result<(), Status> {
    let pairs = [
        ("UID", object::uid(binding), object::uid(pod)),
        ("ResourceVersion", object::resource_version(binding), object::resource_version(pod)),
    ];
    for (what, wanted, is) in pairs {
        if !wanted.is_empty() && wanted != is {
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition \
                 failed: {what} in precondition: {wanted}, {what} in object meta: {is}",
                target.key()
            );
            return Err(Status::conflict(&target.kind.resource, &target.name, &why));
        }
    }
    Ok(())
}

fn check_pod(pod: &Value) -> Result<(), String> {
    let name = object::name(pod);
    if object::is_deleting(pod) {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = text(pod, "spec", "nodeName");
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {}", meta::field::quote(node)));
    }
    let gates = pod.get("spec").and_then(|it| it.get("schedulingGates")).and_then(Value::as_array);
    if gates.is_some_and(|it| !it.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    Ok(())
}
