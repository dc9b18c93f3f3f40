//! DELETE and DELETECOLLECTION.
//!
//! An object that nothing holds is removed at once. One with finalizers, or a pod that runs on a node, is only marked;
//! it goes when the last finalizer does or when its grace period is set to zero.

mod malformed;
mod propagation;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cache::Item;
use futures_util::{StreamExt, stream::FuturesUnordered};
use meta::{FieldError, FieldErrors, Grounds, GroupKind, GroupResource, Status, Value, object};
use serde::Deserialize;
use serde_json::json;
use store::{CommitError, Key, Require, Revision, Txn};

use crate::{
    ListOptions, ListPage, Registry, Target, WriteOptions,
    custom::prepare,
    grounds::Settled,
    limits, outcome,
    resource_version::Wanted,
    serve,
    strategy::Special,
    write::{Setback, admit::Admit, is_same},
};

/// A `DeleteOptions` body, with what the query string adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteOptions {
    /// How long the object may still run.
    pub grace_period_seconds: Option<i64>,
    /// What must hold.
    pub preconditions: Option<Preconditions>,
    /// What happens to dependents.
    pub propagation_policy: Option<String>,
    /// The older form of the same.
    pub orphan_dependents: Option<bool>,
    /// `["All"]` for a dry run.
    pub dry_run: Vec<String>,
    /// Removes an object that cannot be decoded, whatever it holds. The server asks who may.
    pub ignore_store_read_error_with_cluster_breaking_potential: Option<bool>,
}

impl DeleteOptions {
    /// Of this very object in this very state.
    pub fn exactly(object: &Value) -> Self {
        let preconditions = Preconditions {
            uid: Some(object::uid(object).to_owned()),
            resource_version: Some(object::resource_version(object).to_owned()),
        };
        Self { preconditions: Some(preconditions), ..Self::default() }
    }
}

/// What must hold for a deletion to happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Preconditions {
    /// This very object, not another of the same name.
    pub uid: Option<String>,
    /// In this very state.
    pub resource_version: Option<String>,
}

/// What a deletion led to.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone.
    Gone {
        /// What is told about it.
        uid: String,
    },
    /// The object is gone; this is what it was, in the client's version.
    Last(Bytes),
    /// The object is marked and still there, in the client's version.
    Marked(Bytes),
}

enum Plan {
    Remove,
    Mark(Value),
    /// It is marked already.
    Nothing,
}

impl Registry {
    /// Deletes one object, or marks it, on these grounds.
    pub async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
        admit: &dyn Admit,
        grounds: &Grounds,
    ) -> Result<Deleted, Status> {
        check_options(options)?;
        let grounds = self.settle(grounds).await?;
        if options.ignores_read_errors() {
            return self.delete_malformed(target, admit, grounds).await;
        }
        self.delete_on(target, options, admit, None, &grounds).await
    }

    /// The same for the object with this uid only, where one is given: 404 for another one of that name.
    async fn delete_on(
        &self,
        target: &Target,
        options: &DeleteOptions,
        admit: &dyn Admit,
        uid: Option<&str>,
        grounds: &Settled,
    ) -> Result<Deleted, Status> {
        let is_meant = |it: &Item| uid.is_none_or(|uid| it.uid() == uid);
        let (mut current, mut is_fresh) = self.known(target).await?;
        for _ in 0..limits::MAX_ATTEMPTS {
            let setback = match current.as_ref().filter(|it| is_meant(it)) {
                None => Setback::Refused(Status::not_found(&target.kind.resource, &target.name)),
                Some(item) => match self.delete_item(target, options, admit, item, grounds).await {
                    Ok(deleted) => return Ok(deleted),
                    Err(setback) => setback,
                },
            };
            match setback {
                Setback::Ended(status) => return Err(status),
                Setback::Refused(status) if is_fresh => return Err(status),
                Setback::Refused(status) => {
                    let fresh = self.fresh(target).await?;
                    if is_same(current.as_deref(), fresh.as_deref()) {
                        return Err(status);
                    }
                    current = fresh;
                }
                Setback::Raced(entry) => current = entry.map(|it| self.decode(target, &it)).transpose()?,
            }
            is_fresh = true;
        }
        Err(Status::modified(&target.kind.resource, &target.name))
    }

    async fn delete_item(
        &self,
        target: &Target,
        options: &DeleteOptions,
        admit: &dyn Admit,
        item: &Arc<Item>,
        grounds: &Settled,
    ) -> Result<Deleted, Setback> {
        // Only metadata changes, so an object of a built-in kind stays in the version in which it is.
        let shown = self.presented_at_best(target, item).await;
        let old = serve::stored_tree(&shown);
        check_preconditions(target, options, &old)?;
        if self.config.namespace_lifecycle && is_protected_namespace(target) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(&target.kind.resource, &target.name, why).into());
        }
        if admit.reviews_deletion(target) {
            // Who protects objects by their fields must see them: what cannot be shown is kept.
            let seen = self.presented(target, item).await?;
            admit.delete(target, &serve::tree(target, &seen)).await?;
        }
        let is_dry = !options.dry_run.is_empty();
        match self.plan(target, options, &old) {
            Plan::Nothing => {
                self.check_stored(target, item).await?;
                Ok(Deleted::Marked(serve::object(target, &shown)))
            }
            Plan::Mark(object) if is_dry => {
                let shown = target.kind.converter().convert(object, &target.group_version.to_string());
                Ok(Deleted::Marked(Bytes::from(serde_json::to_vec(&shown).expect("a tree must serialize"))))
            }
            Plan::Mark(object) => {
                let state = Require::At(target.key(), item.revision());
                self.put(target, &object, None, state, grounds.clone()).await.map(Deleted::Marked)
            }
            Plan::Remove => {
                if !is_dry {
                    self.remove(target, item.revision(), grounds.clone()).await?;
                }
                if target.kind.strategy.returns_deleted {
                    return Ok(Deleted::Last(serve::object(target, &shown)));
                }
                Ok(Deleted::Gone { uid: object::uid(&old).to_owned() })
            }
        }
    }

    /// The one place where objects leave the store: in this state, and while all of `grounds` hold.
    pub(crate) async fn remove(
        &self,
        target: &Target,
        revision: Revision,
        grounds: Settled,
    ) -> Result<Revision, Setback> {
        self.remove_key(target, &target.key(), revision, grounds).await
    }

    /// The same for a key of the collection whose value cannot be read.
    pub(crate) async fn remove_key(
        &self,
        target: &Target,
        key: &Key,
        revision: Revision,
        mut grounds: Settled,
    ) -> Result<Revision, Setback> {
        for _ in 0..limits::MAX_ATTEMPTS {
            let mut txn = Txn::new().require_at(key, revision).delete(key);
            txn.require.extend(grounds.requirements());
            match self.commit_or_find_out(txn).await {
                Ok(revision) => return Ok(revision),
                Err(CommitError::Unmet { failed: 0, current, .. }) => {
                    return Err(Setback::Raced(current.into_iter().next().flatten()));
                }
                Err(CommitError::Unmet { failed, current, .. }) => {
                    let now = current.get(failed).and_then(Option::as_ref);
                    grounds.judge_again(failed - 1, now).map_err(Setback::Ended)?;
                }
                Err(error) => return Err(Setback::Ended(outcome::commit_failed(target, &error))),
            }
        }
        Err(Setback::Ended(outcome::grounds_lost(target)))
    }

    fn plan(&self, target: &Target, options: &DeleteOptions, old: &Value) -> Plan {
        if target.kind.strategy.special == Special::Definition && !object::is_deleting(old) {
            // It stays until its objects are gone.
            return Plan::Mark(self.marked(target, old, 0));
        }
        let grace = grace_period(target, options, old);
        let is_deleting = object::is_deleting(old);
        let left = object::meta_number(old, "deletionGracePeriodSeconds");
        if is_deleting && left > 0 && grace >= left {
            return Plan::Nothing;
        }
        let finalizers = propagation::finalizers(target, options, old);
        if grace == 0 && finalizers.is_empty() && !has_spec_finalizers(target, old) {
            return Plan::Remove;
        }
        let is_refinalized = object::finalizers(old) != finalizers;
        if is_deleting && grace == left && !is_refinalized {
            return Plan::Nothing;
        }
        let mut object =
            if is_deleting && grace == left { old.clone() } else { self.marked(target, old, grace) };
        if is_refinalized {
            object::metadata_mut(&mut object).insert("finalizers".to_owned(), Value::from(finalizers));
        }
        Plan::Mark(object)
    }

    fn marked(&self, target: &Target, old: &Value, grace: i64) -> Value {
        let mut object = old.clone();
        let until = self.clock.now() + Duration::from_secs(grace.unsigned_abs());
        let generation = object::meta_number(old, "generation");
        let metadata = object::metadata_mut(&mut object);
        metadata.insert("deletionTimestamp".to_owned(), Value::from(meta::time::format_time(until)));
        metadata.insert("deletionGracePeriodSeconds".to_owned(), Value::from(grace));
        if generation > 0 {
            metadata.insert("generation".to_owned(), Value::from(generation + 1));
        }
        if target.kind.strategy.special == Special::Definition {
            metadata.insert("generation".to_owned(), Value::from(generation));
            prepare::mark_deleted(&mut object, &meta::time::format_time(until));
            return object;
        }
        if target.kind.strategy.special == Special::Namespace {
            metadata.remove("deletionGracePeriodSeconds");
            let status = object::child_mut(object::as_map_mut(&mut object), "status");
            status.insert("phase".to_owned(), Value::from("Terminating"));
        }
        object
    }

    /// What a client should know about a deletion with these options.
    pub fn warning_on_delete(&self, target: &Target, options: &DeleteOptions) -> Option<&'static str> {
        propagation::warning(target, options)
    }

    /// Deletes what a list would show, on these grounds, and says what that was.
    pub async fn delete_collection(
        &self,
        target: &Target,
        options: &DeleteOptions,
        admit: &dyn Admit,
        list: &ListOptions,
        grounds: &Grounds,
    ) -> Result<ListPage, Status> {
        malformed::check_collection(target, options)?;
        check_options(options)?;
        self.reach(Wanted::Consistent).await?;
        // What cannot be converted can be deleted.
        let page = self.list_at_best(target, list).await?;
        let mut running = FuturesUnordered::new();
        // Others may be gone already when one cannot be deleted.
        let ended = |it: Option<Result<(), Status>>| it.transpose().map_err(Status::after_the_fact);
        for item in page.items.clone() {
            if running.len() >= limits::DELETE_WORKERS {
                ended(running.next().await)?;
            }
            running.push(self.delete_listed(target, options, admit, item, grounds));
        }
        while ended(running.next().await)?.is_some() {}
        Ok(page)
    }

    async fn delete_listed(
        &self,
        target: &Target,
        options: &DeleteOptions,
        admit: &dyn Admit,
        item: Arc<Item>,
        grounds: &Grounds,
    ) -> Result<(), Status> {
        let one = target.at(item.namespace(), item.name());
        // Each time as the cache has them by now: the leader's Lease, for one, changes every few seconds.
        let grounds = &self.settle(grounds).await?;
        // By uid: what was made under that name after the list was taken is not in it.
        match self.delete_on(&one, options, admit, Some(item.uid()), grounds).await {
            // Somebody else deleted it meanwhile, which is what was asked for.
            Err(status) if status.code == 404 => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// `namespaces/finalize`: sets `spec.finalizers`; without any left a deleted namespace goes.
    pub async fn finalize(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        body: &Value,
    ) -> Result<Bytes, Status> {
        let finalizers = body.get("spec").and_then(|it| it.get("finalizers")).cloned();
        self.check_unserved(target, finalizers.as_ref(), options.grounds).await?;
        let written = self
            .modify(target, options, |old| {
                let old = old.ok_or_else(|| Status::not_found(&target.kind.resource, &target.name))?;
                let wanted = object::resource_version(body);
                if !wanted.is_empty() && wanted != object::resource_version(old) {
                    return Err(Status::modified(&target.kind.resource, &target.name));
                }
                let mut object = old.clone();
                let spec = object::child_mut(object::as_map_mut(&mut object), "spec");
                match &finalizers {
                    Some(finalizers) => spec.insert("finalizers".to_owned(), finalizers.clone()),
                    None => spec.remove("finalizers"),
                };
                Ok(object)
            })
            .await?;
        Ok(written.text)
    }
}

/// A namespace is held by the finalizers in its spec, too.
pub(crate) fn has_spec_finalizers(target: &Target, object: &Value) -> bool {
    target.kind.strategy.special == Special::Namespace
        && object
            .get("spec")
            .and_then(|it| it.get("finalizers"))
            .and_then(Value::as_array)
            .is_some_and(|it| !it.is_empty())
}

/// Only pods that run somewhere get time to stop.
fn grace_period(target: &Target, options: &DeleteOptions, object: &Value) -> i64 {
    if target.kind.strategy.special != Special::Pod {
        return 0;
    }
    let text =
        |parent: &str, field: &str| object.get(parent).and_then(|it| it.get(field)).and_then(Value::as_str);
    let runs = text("spec", "nodeName").is_some_and(|it| !it.is_empty());
    let has_ended = matches!(text("status", "phase"), Some("Succeeded" | "Failed"));
    if !runs || has_ended {
        return 0;
    }
    let own =
        object.get("spec").and_then(|it| it.get("terminationGracePeriodSeconds")).and_then(Value::as_i64);
    // Less than nothing is a second, as upstream.
    let wanted = options.grace_period_seconds.map(|it| if it < 0 { 1 } else { it });
    wanted.or(own).unwrap_or(30).max(0)
}

fn is_protected_namespace(target: &Target) -> bool {
    target.kind.resource == GroupResource::new("", "namespaces")
        && matches!(target.name.as_str(), "default" | "kube-system" | "kube-public")
}

fn check_options(options: &DeleteOptions) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    if let Some(policy) = &options.propagation_policy {
        if options.orphan_dependents.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", policy, detail));
        }
        if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(FieldError::not_supported("propagationPolicy", policy, &supported));
        }
    }
    if options.dry_run.iter().any(|it| it != "All") {
        errors.push(FieldError::not_supported_shown("dryRun", json!(options.dry_run).to_string(), &["All"]));
    }
    malformed::check_options(options, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(errors.into_status(&GroupKind::new("meta.k8s.io", "DeleteOptions"), ""))
}

fn check_preconditions(target: &Target, options: &DeleteOptions, old: &Value) -> Result<(), Status> {
    let Some(preconditions) = &options.preconditions else { return Ok(()) };
    // Upstream names the kind in these two answers.
    let kind = GroupResource::new(target.kind.resource.group.clone(), target.kind.definition.kind.clone());
    if let Some(uid) = &preconditions.uid
        && uid != object::uid(old)
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            object::uid(old)
        );
        return Err(Status::conflict(&kind, &target.name, &why));
    }
    if let Some(version) = &preconditions.resource_version
        && version != object::resource_version(old)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            object::resource_version(old)
        );
        return Err(Status::conflict(&kind, &target.name, &why));
    }
    Ok(())
}
