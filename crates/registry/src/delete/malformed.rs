//! Removes an object that cannot be decoded, because somebody says so: upstream's
//! `ignoreStoreReadErrorWithClusterBreakingPotential`, behind the gate `AllowUnsafeMalformedObjectDeletion`.
//!
//! Neither finalizers nor preconditions nor a grace period are known of such an object, so none of them holds it. What can
//! be decoded is never removed this way. Deliberately not here: the gate, and who may; the server asks for both.

use meta::{FieldError, FieldErrors, GroupKind, Status};
use serde_json::json;
use store::Store;

use super::{DeleteOptions, Deleted};
use crate::{
    Registry, Target,
    grounds::Settled,
    outcome,
    write::{Setback, admit::Admit},
};

const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

impl DeleteOptions {
    /// Whether an object is to be removed that cannot be decoded.
    pub fn ignores_read_errors(&self) -> bool {
        self.ignore_store_read_error_with_cluster_breaking_potential == Some(true)
    }
}

impl Registry {
    pub(super) async fn delete_malformed(
        &self,
        target: &Target,
        admit: &dyn Admit,
        grounds: Settled,
    ) -> Result<Deleted, Status> {
        let key = target.key();
        let entry = self.store.get(&key).await.map_err(|it| outcome::read_failed(&it))?;
        let Some(entry) = entry.filter(|it| self.decode(target, it).is_err()) else {
            let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
            // Upstream names the resource where the kind should be.
            let resource = &target.kind.resource;
            let named = GroupKind::new(resource.group.clone(), resource.resource.clone());
            return Err(Status::invalid(
                &named,
                &target.name,
                FieldError::invalid_shown(OPTION, "true".to_owned(), why),
            ));
        };
        let known = json!({"metadata": {"name": target.name, "namespace": target.namespace}});
        admit.delete(target, &known).await?;
        tracing::warn!(%key, revision = %entry.modified, "a value that cannot be decoded is removed, as was asked for");
        // Exactly what was found: somebody may have mended it.
        match self.remove_key(target, &key, entry.modified, grounds).await {
            Ok(_) => Ok(Deleted::Gone { uid: String::new() }),
            Err(Setback::Raced(_)) => Err(Status::modified(&target.kind.resource, &target.name)),
            Err(Setback::Refused(status) | Setback::Ended(status)) => Err(status),
        }
    }
}

/// Options that mean nothing for an object that cannot be decoded.
pub(super) fn check_options(options: &DeleteOptions, errors: &mut FieldErrors) {
    if !options.ignores_read_errors() {
        return;
    }
    let set = [
        (!options.dry_run.is_empty(), ".dryRun"),
        (options.propagation_policy.is_some(), ".propagationPolicy"),
        (options.orphan_dependents.is_some(), ".orphanDependents"),
        (options.grace_period_seconds.is_some(), ".gracePeriodSeconds"),
        (options.preconditions.is_some(), ".preconditions"),
    ];
    for (_, other) in set.into_iter().filter(|(is_set, _)| *is_set) {
        errors.push(FieldError::invalid_shown(
            OPTION,
            "true".to_owned(),
            format!("cannot be set together with {other}"),
        ));
    }
}

/// Only one object at a time is removed this way.
pub(super) fn check_collection(target: &Target, options: &DeleteOptions) -> Result<(), Status> {
    if !options.ignores_read_errors() {
        return Ok(());
    }
    let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
    let error = FieldError::invalid_shown(OPTION, "true".to_owned(), why);
    Err(Status::invalid(&target.kind.group_kind, "", error))
}
