//! PersistentVolumeClaimResize: a claim grows only when it is bound, and only if its storage class says so. Upstream's
//! rules and words.

use meta::{GroupResource, Status, Value, object};
use schema::check::quantity_nanos;

use crate::{Attributes, Operation, World};

/// The annotation that named the class of a claim before there was a field for it.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Whether this is a write that may be refused here.
pub(crate) fn is_about(attributes: &Attributes<'_>) -> bool {
    attributes.operation == Operation::Update
        && attributes.subresource.is_empty()
        && attributes.resource.group.is_empty()
        && &*attributes.resource.resource == "persistentvolumeclaims"
}

/// 403 if the claim grows and may not.
pub(crate) async fn validate(world: &dyn World, new: &Value, old: &Value) -> Result<(), Status> {
    if size(new) <= size(old) {
        return Ok(());
    }
    let refuse = |why: &str| {
        let claims = GroupResource::new("", "persistentvolumeclaims");
        Err(Status::forbidden(&claims, object::name(new), why))
    };
    if old.pointer("/status/phase").and_then(Value::as_str) != Some("Bound") {
        return refuse("Only bound persistent volume claims can be expanded");
    }
    let name = class(new);
    let may_grow = if name.is_empty() || name != class(old) {
        false
    } else {
        let found = world.storage_class(name).await?;
        found.is_some_and(|it| it.get("allowVolumeExpansion") == Some(&Value::Bool(true)))
    };
    if may_grow {
        return Ok(());
    }
    refuse(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

/// What is asked for; nothing if nothing can be read, which the schema has refused before.
fn size(claim: &Value) -> i128 {
    let asked = claim.pointer("/spec/resources/requests/storage").and_then(Value::as_str);
    asked.and_then(quantity_nanos).unwrap_or(0)
}

fn class(claim: &Value) -> &str {
    let annotations = claim.get("metadata").and_then(|it| it.get("annotations"));
    let by_annotation = annotations.and_then(|it| it.get(CLASS)).and_then(Value::as_str);
    let by_field = claim.pointer("/spec/storageClassName").and_then(Value::as_str);
    by_annotation.or(by_field).unwrap_or_default()
}
