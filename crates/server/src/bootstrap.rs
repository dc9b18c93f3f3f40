//! What a fresh cluster must have before it is of use: the system namespaces and the roles that everything refers to.
//!
//! Runs at every start; adds what is missing, never takes anything away. Everything is written at the same time, so that
//! an embedded store needs only a few disk syncs for it.

use std::sync::Arc;

use futures_util::future;
use meta::{Grounds, GroupResource, GroupVersion, Map, Release, RetryAfter, Status, Value, object};
use registry::{DeleteOptions, Registry, Target, WriteOptions};
use schema::check::FieldValidation;
use serde_json::json;

/// The namespaces that a cluster always has.
const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Makes the system namespaces.
pub async fn namespaces(registry: &Registry) -> Result<(), Status> {
    let objects =
        NAMESPACES.map(|it| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": it}}));
    ensure_all(registry, "", "namespaces", objects.into(), |_, _| None).await
}

/// Makes the bootstrap roles and bindings, and mends those that may be mended.
pub async fn roles(registry: &Registry, release: Release) -> Result<(), Status> {
    let access::Bootstrap { cluster_roles, cluster_role_bindings, roles, role_bindings } =
        access::bootstrap(release);
    let group = "rbac.authorization.k8s.io";
    let all = [
        ("clusterroles", cluster_roles),
        ("clusterrolebindings", cluster_role_bindings),
        ("roles", roles),
        ("rolebindings", role_bindings),
    ];
    let work =
        all.map(|(resource, objects)| ensure_all(registry, group, resource, objects, access::reconcile));
    future::try_join_all(work).await?;
    Ok(())
}

/// Creates what is not there; what is there is replaced where `mend` has something better.
async fn ensure_all(
    registry: &Registry,
    group: &str,
    resource: &str,
    objects: Vec<Value>,
    mend: fn(&Value, &Value) -> Option<Value>,
) -> Result<(), Status> {
    let kind =
        registry.kinds().get(&GroupResource::new(group, resource)).ok_or_else(Status::no_such_resource)?;
    let work = objects.into_iter().map(|object| {
        let target = Target {
            kind: Arc::clone(&kind),
            group_version: GroupVersion::new(group, "v1"),
            namespace: object::namespace(&object).to_owned(),
            name: object::name(&object).to_owned(),
            subresource: String::new(),
        };
        ensure(registry, target, object, mend)
    });
    future::try_join_all(work).await?;
    Ok(())
}

/// Takes out the rules that a role collects from other roles: the role as such does not have them.
fn take_derived(role: &mut Value) -> Map {
    let map = object::as_map_mut(role);
    let mut derived = Map::new();
    if map.contains_key("aggregationRule")
        && let Some(rules) = map.remove("rules")
    {
        derived.insert("rules".to_owned(), rules);
    }
    derived
}

/// Who writes what a cluster must have, as upstream.
const MANAGER: &str = "kube-apiserver";

async fn ensure(
    registry: &Registry,
    target: Target,
    mut object: Value,
    mend: fn(&Value, &Value) -> Option<Value>,
) -> Result<(), Status> {
    let options = WriteOptions {
        dry_run: false,
        manager: MANAGER,
        field_validation: FieldValidation::Ignore,
        admit: &registry::Anything,
        grounds: &Grounds::asked_for(),
    };
    let existing = match registry.get(&target, "").await {
        Ok(text) => serde_json::from_slice::<Value>(&text).map_err(Status::internal)?,
        Err(status) if status.code == 404 => {
            let derived = take_derived(&mut object);
            return match registry.create(&target, &options, object).await {
                Ok(_) if !derived.is_empty() => {
                    registry.derive(&target, &options, &derived).await.map(|_| ())
                }
                // Another server was faster.
                Err(status) if status.code == 409 => Ok(()),
                other => other.map(|_| ()),
            };
        }
        Err(status) => return Err(status),
    };
    let Some(mut better) = mend(&existing, &object) else { return Ok(()) };
    if better.get("roleRef") != existing.get("roleRef") {
        // What a binding binds to cannot be changed, so it is made anew.
        let (exactly, grounds) = (DeleteOptions::exactly(&existing), Grounds::asked_for());
        let deleted = registry.delete(&target, &exactly, &registry::Anything, &grounds).await;
        deleted.map_err(|status| match status.code {
            // Another server was faster, or somebody has changed it: it is looked at once more.
            404 | 409 => Status::unavailable(status.message, RetryAfter::not_begun(1)),
            _ => status,
        })?;
        object::metadata_mut(&mut better).remove("resourceVersion");
        return registry.create(&target, &options, better).await.map(|_| ());
    }
    match registry.update(&target, &options, better).await {
        Err(status) if status.code == 409 => Ok(()),
        other => other.map(|_| ()),
    }
}
