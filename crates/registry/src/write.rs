//! CREATE, UPDATE and PATCH, each as a list of steps; what happens in a step lives in a module of its own.
//!
//! A put is one store transaction: it requires the object at the state it was computed from, and the fence that
//! proves its encoding. When somebody else was faster the store says what is there now, and the change is computed anew.

pub(crate) mod accept;
mod admin_access;
pub(crate) mod admit;
pub(crate) mod decode;
mod encode;
pub(crate) mod metadata;
pub(crate) mod namespace;
mod owners;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use cache::Item;
use meta::{Grounds, GroupVersion, Status, Value, object};
use schema::{
    check::FieldValidation,
    model::{Schema, TypeId},
    patch::PatchKind,
};
use store::{CommitError, Entry, Key, Require, Revision, Store, Txn};

pub(crate) use owners::Owners;

use accept::{Accepted, Sent};
use admit::Admit;
use decode::BodyKind;
use encode::Encoded;

use crate::{
    Defaults, Registry, Target, Written, custom, grounds::Settled, limits, outcome, rules, serve,
    strategy::Special, unenforced,
};

/// What all writes have in common.
#[derive(Clone, Copy)]
pub struct WriteOptions<'a> {
    /// Do everything but commit.
    pub dry_run: bool,
    /// Who writes, as managedFields name it.
    pub manager: &'a str,
    /// What to do about fields that nobody knows, or that are there twice.
    pub field_validation: FieldValidation,
    /// May change an object, and has the last word before it is stored.
    pub admit: &'a dyn Admit,
    /// What must hold when the write is committed, beside the object's own state.
    pub grounds: &'a Grounds,
}

/// A change to an object in one of the patch languages.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Which language.
    pub kind: PatchKind,
    /// The patch.
    pub body: Bytes,
}

/// The state that a write is computed from.
#[derive(Clone)]
struct Current {
    item: Option<Arc<Item>>,
    /// Read from the store during this request, so that a refusal based on it is final.
    is_fresh: bool,
}

/// Why one attempt did not end the write.
pub(crate) enum Setback {
    /// By what was known of the object, which may have been too old.
    Refused(Status),
    /// The store was asked, and did not say that it is done. It may be: there is no second attempt, which would find its
    /// own traces, and be refused because of them or do everything twice.
    Ended(Status),
    /// The store holds something else by now.
    Raced(Option<Entry>),
}

impl From<Status> for Setback {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl Registry {
    /// Creates one object.
    pub async fn create(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        object: impl Into<Sent>,
    ) -> Result<Written, Status> {
        let typed = self.typed(target);
        let Accepted { mut object, mut warnings } =
            self.accept_sent(target, options.field_validation, object.into())?;
        let warning = self.unenforced(target)?;
        metadata::settle_namespace(target, &mut object)?;
        warnings.extend(metadata::drop_repeated_owners(&mut object, false));
        let namespace = self.check_namespace(&target.named(object::name(&object)), options.admit).await?;
        let has_status = target.kind.has_status(&target.group_version.version);
        let sent_version = object::resource_version(&object).to_owned();
        metadata::stamp_new(&mut object, self.clock.now());
        let generated = metadata::generated_name(&object);
        let mut sent = object;
        for _ in 0..limits::MAX_NAME_ATTEMPTS {
            // With a name of the server's choice there may be a second attempt; what is made of the name is made anew.
            let mut object = match &generated {
                Some(_) => sent.clone(),
                None => std::mem::take(&mut sent),
            };
            if let Some(prefix) = &generated {
                metadata::set_name(&mut object, &metadata::random_name(prefix));
            }
            target.kind.strategy.prepare_create(&mut object, has_status);
            self.prepare_definition(target, &mut object).await?;
            self.pass_through_storage(target, &mut object, None)?;
            self.own_new(target, options, &mut object);
            let hidden: &[&str] =
                if generated.is_some() { &admit::DECIDED_AND_NAMED } else { &admit::DECIDED };
            let mut repeated = None;
            if self.mutate(target, options, &mut object, None, hidden).await? {
                self.pass_through_storage(target, &mut object, None)?;
                repeated = metadata::drop_repeated_owners(&mut object, true);
            }
            target.kind.strategy.complete_new(&mut object);
            // Behind admission: nobody says for somebody else who they are.
            target.kind.strategy.note_requester(&mut object, options.admit.requester());
            metadata::validate_new(target, &object)?;
            let named = target.named(object::name(&object));
            self.check_admin_access(&named, &object, None).await?;
            options.admit.validate(&named, &object, None).await?;
            if !options.dry_run {
                metadata::check_unversioned(&sent_version)?;
            }
            accept::complete(typed, &mut object);
            match self.put_new(&named, options, &object, namespace.clone()).await {
                Err(Setback::Raced(_)) if generated.is_some() => {}
                Err(Setback::Raced(_)) => {
                    return Err(Status::already_exists(&target.kind.resource, &named.name));
                }
                Err(Setback::Refused(status) | Setback::Ended(status)) => return Err(status),
                Ok(text) => {
                    warnings.extend(repeated.into_iter().chain(rules::advise_new(target.into(), &object)));
                    warnings.extend(warning.into_iter().chain(custom::unenforced_rules(target, &object)));
                    warnings.extend(unenforced::relied_on(target, &object, true));
                    return Ok(Written { text, is_new: true, warnings });
                }
            }
        }
        Err(Status::already_exists(&target.kind.resource, generated.as_deref().unwrap_or_default()))
    }

    /// Replaces one object, or its status.
    pub async fn update(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        object: impl Into<Sent>,
    ) -> Result<Written, Status> {
        let typed = self.typed(target);
        let Accepted { mut object, mut warnings } =
            self.accept_sent(target, options.field_validation, object.into())?;
        metadata::settle_namespace(target, &mut object)?;
        metadata::check_name(target, &object)?;
        warnings.extend(metadata::drop_repeated_owners(&mut object, false));
        let warning = self.unenforced(target)?;
        let change = |old: Option<&Value>| {
            let mut new = metadata::check_put(target, &object, old)?;
            if let Some(old) = old {
                if target.kind.strategy.special == Special::Definition {
                    meta::freeze::keep(&mut new, old);
                }
                accept::keep_unknown(typed, &mut new, old);
            }
            Ok(new)
        };
        let mut written = self.modify(target, options, change).await?;
        warnings.append(&mut written.warnings);
        written.warnings = warnings.into_iter().chain(warning).collect();
        Ok(written)
    }

    /// Changes parts of one object, or of its status.
    pub async fn patch(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        patch: &Patch,
    ) -> Result<Written, Status> {
        let warning = self.unenforced(target)?;
        let typed = self.typed(target);
        let found = Mutex::new(Vec::new());
        let change = |old: Option<&Value>| {
            let old = old.ok_or_else(|| Status::not_found(&target.kind.resource, &target.name))?;
            let patched =
                schema::patch::apply_typed(patch.kind, &patch.body, old, typed).map_err(|it| it.status())?;
            let Accepted { mut object, warnings } =
                self.accept_patched(target, options.field_validation, patch, patched, old)?;
            *found.lock().unwrap_or_else(PoisonError::into_inner) = warnings;
            metadata::settle_namespace(target, &mut object)?;
            metadata::check_name(target, &object)?;
            metadata::check_patched(target, &object, old)?;
            Ok(object)
        };
        let mut written = self.modify(target, options, change).await?;
        let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.append(&mut written.warnings);
        written.warnings = found.into_iter().chain(warning).collect();
        Ok(written)
    }

    /// Applies a configuration: sets what it names, and removes what it named before. Makes the object if need be.
    pub async fn apply(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        config: &Value,
        force: bool,
    ) -> Result<Written, Status> {
        let warning = self.unenforced(target)?;
        let change = |old: Option<&Value>| {
            let is_created = old.is_none();
            if is_created && !target.subresource.is_empty() {
                return Err(Status::not_found(&target.kind.resource, &target.name));
            }
            let applied = self.applied(target, options, config, force, old)?;
            let mut object = self.accept_applied(target, applied, old)?;
            metadata::settle_namespace(target, &mut object)?;
            metadata::check_name(target, &object)?;
            match old {
                Some(old) => metadata::check_patched(target, &object, old)?,
                None if !object::uid(&object).is_empty() => {
                    let uid = object::uid(&object);
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&target.kind.resource, &target.name, &why));
                }
                None if matches!(object::resource_version(&object), "" | "0") => {}
                None => return Err(Status::modified(&target.kind.resource, &target.name)),
            }
            Ok(object)
        };
        let mut written = self.modify_as(target, options, Owners::Settled, change).await?;
        written.warnings.extend(warning);
        Ok(written)
    }

    /// Computes a change from the current state and commits it, until it is in or refused on fresh data.
    /// `change` is handed the old object in the client's version.
    pub(crate) async fn modify(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        change: impl Fn(Option<&Value>) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        self.modify_as(target, options, Owners::Tracked, change).await
    }

    /// The same, where somebody else says who owns what.
    pub(crate) async fn modify_as(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        owners: Owners,
        change: impl Fn(Option<&Value>) -> Result<Value, Status>,
    ) -> Result<Written, Status> {
        let (item, is_fresh) = self.known(target).await?;
        let mut current = Current { item, is_fresh };
        for _ in 0..limits::MAX_ATTEMPTS {
            match self.attempt(target, options, &current, owners, &change).await {
                Ok(written) => return Ok(written),
                Err(Setback::Ended(status)) => return Err(status),
                Err(Setback::Refused(status)) if current.is_fresh => return Err(status),
                // The cache may be behind the store: only what the store says now can refuse a write.
                Err(Setback::Refused(status)) => {
                    let fresh = self.fresh(target).await?;
                    if is_same(current.item.as_deref(), fresh.as_deref()) {
                        return Err(status);
                    }
                    current = Current { item: fresh, is_fresh: true };
                }
                Err(Setback::Raced(entry)) => {
                    let item = match entry {
                        Some(entry) => Some(self.decode(target, &entry)?),
                        // A dry run asks nothing of the store that could tell what is there.
                        None if options.dry_run => self.fresh(target).await?,
                        None => None,
                    };
                    current = Current { item, is_fresh: true };
                }
            }
        }
        Err(Status::modified(&target.kind.resource, &target.name))
    }

    async fn attempt(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        current: &Current,
        owners: Owners,
        change: &impl Fn(Option<&Value>) -> Result<Value, Status>,
    ) -> Result<Written, Setback> {
        let Some(item) = &current.item else {
            let object = change(None)?;
            return self.create_on_update(target, options, owners, object).await;
        };
        let old = serve::tree(target, &*self.presented(target, item).await?);
        let mut new = change(Some(&old))?;
        self.prepare_changed(target, &mut new, &old);
        self.pass_through_storage(target, &mut new, Some(item))?;
        match owners {
            Owners::Tracked => self.own_changed(target, options, &mut new, &old),
            Owners::Scaled => self.own_scaled(target, options, &mut new, &old),
            Owners::Settled => {}
        }
        if self.mutate(target, options, &mut new, Some(&old), &[]).await? {
            self.pass_through_storage(target, &mut new, Some(item))?;
        }
        let repeated = metadata::drop_repeated_owners(&mut new, true);
        metadata::validate_changed(target, &new, &old)?;
        if target.kind.strategy.special == Special::Definition {
            custom::check_frozen(target, &new, &old, self.clock.now())?;
            self.check_dropped_versions(target, &new, &old).await?;
        }
        self.check_unserved_dependents(target, &new, &old, options.grounds).await?;
        self.check_admin_access(target, &new, Some(&old)).await?;
        options.admit.validate(target, &new, Some(&old)).await?;
        accept::complete(self.typed(target), &mut new);
        schema::apply::keep_times(&mut new, &old);
        let text = self.put_changed(target, options, current, &new).await?;
        let advice = rules::advise_changed(target.into(), &new, &old);
        let warnings = repeated.into_iter().chain(advice).chain(custom::unenforced_rules(target, &new));
        let warnings = warnings.chain(unenforced::relied_on(target, &new, false)).collect();
        Ok(Written { text, is_new: false, warnings })
    }

    async fn create_on_update(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        owners: Owners,
        mut object: Value,
    ) -> Result<Written, Setback> {
        let namespace = self.check_namespace(target, options.admit).await?;
        metadata::stamp_new(&mut object, self.clock.now());
        let has_status = target.kind.has_status(&target.group_version.version);
        target.kind.strategy.prepare_create(&mut object, has_status);
        self.prepare_definition(target, &mut object).await?;
        self.pass_through_storage(target, &mut object, None)?;
        if owners != Owners::Settled {
            self.own_new(target, options, &mut object);
        }
        if self.mutate(target, options, &mut object, None, &admit::DECIDED).await? {
            self.pass_through_storage(target, &mut object, None)?;
        }
        let repeated = metadata::drop_repeated_owners(&mut object, true);
        metadata::check_name(target, &object)?;
        target.kind.strategy.complete_new(&mut object);
        target.kind.strategy.note_requester(&mut object, options.admit.requester());
        metadata::validate_new(target, &object)?;
        self.check_admin_access(target, &object, None).await?;
        options.admit.validate(target, &object, None).await?;
        accept::complete(self.typed(target), &mut object);
        let text = self.put_new(target, options, &object, namespace).await?;
        let advice = rules::advise_new(target.into(), &object);
        let warnings = repeated.into_iter().chain(advice).chain(custom::unenforced_rules(target, &object));
        let warnings = warnings.chain(unenforced::relied_on(target, &object, true)).collect();
        Ok(Written { text, is_new: true, warnings })
    }

    /// Writes an object that must not be there yet.
    async fn put_new(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        object: &Value,
        namespace: Settled,
    ) -> Result<Bytes, Setback> {
        let grounds = namespace.and(self.settle(options.grounds).await?).and(self.rests_on(options)?);
        let key = target.key();
        if options.dry_run {
            return match self.fresh(target).await? {
                Some(_) => Err(Setback::Raced(None)),
                None => Ok(decode::to_text(object)),
            };
        }
        self.put(target, object, None, Require::Absent(key), grounds).await
    }

    /// Writes the new state of an object that is there, or removes it when this was the last thing it waited for.
    async fn put_changed(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        current: &Current,
        object: &Value,
    ) -> Result<Bytes, Setback> {
        let Some(item) = &current.item else { return Err(Setback::Raced(None)) };
        if is_finished(target, object) {
            return self.remove_finished(target, options, item, object).await;
        }
        let value = self.encoded(&mut target.clone(), object, Some(item)).await?.0;
        let entry = Entry {
            key: target.key(),
            value,
            created: item.created(),
            modified: item.revision(),
            lease: item.lease(),
        };
        // What hangs on a lease that its kind does not have is written anew without it.
        let keeps_lease = item.lease().is_none() || target.kind.expires();
        if keeps_lease && self.decode(target, &entry)?.text() == item.text() {
            // Nothing would change, so nothing is written: a repeated apply leaves the resourceVersion alone.
            if !current.is_fresh {
                self.check_stored(target, item).await?;
            }
            return Ok(serve::object(target, &*self.presented(target, item).await?));
        }
        if options.dry_run {
            return Ok(decode::to_text(object));
        }
        let grounds = self.settle(options.grounds).await?.and(self.rests_on(options)?);
        self.put(target, object, Some(item), Require::At(target.key(), item.revision()), grounds).await
    }

    /// Whoever answers that there is nothing to do speaks of what the store holds; the cache may be behind it.
    pub(crate) async fn check_stored(&self, target: &Target, item: &Item) -> Result<(), Setback> {
        let now = self.store.get(&target.key()).await.map_err(|it| outcome::read_failed(&it))?;
        if now.as_ref().map(|it| it.modified) == Some(item.revision()) {
            return Ok(());
        }
        Err(Setback::Raced(now))
    }

    /// The one place where objects enter the store: in `state`, and while all of `grounds` hold.
    pub(crate) async fn put(
        &self,
        target: &Target,
        object: &Value,
        was: Option<&Item>,
        state: Require,
        mut grounds: Settled,
    ) -> Result<Bytes, Setback> {
        let mut target = target.clone();
        for _ in 0..limits::MAX_ATTEMPTS {
            // The version agreed on, and the fence that proves it when the store commits.
            let (bytes, fences) = self.encoded(&mut target, object, was).await?;
            if matches!(state, Require::Absent(_)) && self.is_ending(&mut target).await? {
                return Err(custom::terminating(&target).into());
            }
            if bytes.len() > limits::MAX_OBJECT_BYTES {
                return Err(Status::too_large(format!("limit is {}", limits::MAX_OBJECT_BYTES)).into());
            }
            let key = state.key().clone();
            let lease = self.lease_for(&target).await?;
            let mut txn = Txn::new().require(state.clone());
            txn = match lease {
                Some(lease) => txn.put_leased(&key, bytes.clone(), lease),
                None => txn.put(&key, bytes.clone()),
            };
            txn.require.extend(fences);
            let n_proven = txn.require.len();
            txn.require.extend(grounds.requirements());
            match self.commit_or_find_out(txn).await {
                Ok(revision) => {
                    let text = self.text_of(&target, key, bytes, revision).await;
                    return text.map_err(|it| Setback::Ended(it.after_the_fact()));
                }
                Err(CommitError::Unmet { failed: 0, current, .. }) => {
                    return Err(Setback::Raced(current.into_iter().next().flatten()));
                }
                Err(CommitError::Unmet { failed, current, .. }) if failed >= n_proven => {
                    let now = current.get(failed).and_then(Option::as_ref);
                    grounds.judge_again(failed - n_proven, now).map_err(Setback::Ended)?;
                }
                // The definition or the agreement changed: what is stored now is encoded as they say now.
                Err(CommitError::Unmet { failed, mut current, revision }) => {
                    let found = current.swap_remove(failed);
                    // Boxed: it is rare, and every write would carry its size.
                    Box::pin(self.refenced(&mut target, failed, found.as_ref(), revision)).await?;
                }
                Err(error) => {
                    if matches!(error, CommitError::NoLease(_)) {
                        self.forget_event_lease();
                    }
                    return Err(Setback::Ended(outcome::commit_failed(&target, &error)));
                }
            }
        }
        Err(Setback::Ended(outcome::fences_lost(&target)))
    }

    fn encoding(&self, target: &Target) -> Result<fleet::Encoding, Status> {
        self.station.encoding(&target.kind.definition.record).map_err(|it| outcome::shut(&it))
    }

    /// The bytes to store, and what proves that they are in the right version: of a custom object first its definition,
    /// then the fence. The kind is brought up to date where the fence asks for it.
    async fn encoded(
        &self,
        target: &mut Target,
        object: &Value,
        was: Option<&Item>,
    ) -> Result<(Bytes, Vec<Require>), Status> {
        if target.kind.custom.is_none() {
            let Encoded { bytes, encoding } = self.encode(target, object, was)?;
            return Ok((bytes, encoding.fence.into_iter().collect()));
        }
        let (custom, encoding) = self.custom_encoding(target).await?;
        let bytes = self.custom_to_storage(&custom, object, &encoding.version).await?;
        Ok((bytes, [custom.as_stored()].into_iter().chain(encoding.fence).collect()))
    }

    /// Goes on after a put was refused by what proves its version: `failed` says which requirement it was.
    async fn refenced(
        &self,
        target: &mut Target,
        failed: usize,
        found: Option<&Entry>,
        revision: Revision,
    ) -> Result<(), Status> {
        if let Some(custom) = target.kind.custom.clone()
            && failed == 1
        {
            target.kind = self.renewed(&custom, &target.kind.resource, found).await?;
            return Ok(());
        }
        let record = &target.kind.definition.record;
        self.station.after_failed_put(record, found, revision).await.map_err(|it| outcome::shut(&it))
    }

    async fn remove_finished(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        item: &Item,
        object: &Value,
    ) -> Result<Bytes, Setback> {
        if options.dry_run {
            return Ok(decode::to_text(object));
        }
        let grounds = self.settle(options.grounds).await?;
        let revision = self.remove(target, item.revision(), grounds).await?;
        let mut last = object.clone();
        let text = Value::from(revision.to_string());
        object::metadata_mut(&mut last).insert("resourceVersion".to_owned(), text);
        Ok(decode::to_text(&last))
    }

    /// A body that is not stored, brought into shape, and warnings for its client.
    pub fn accept(
        &self,
        group_version: &GroupVersion,
        kind: &str,
        validation: FieldValidation,
        sent: impl Into<Sent>,
    ) -> Result<(Value, Vec<String>), Status> {
        let want = BodyKind { group_version, kind, schemas: self.kinds.schemas(), defaults: self.defaults() };
        let Accepted { object, warnings } = accept::accept(want, validation, sent.into())?;
        Ok((object, warnings))
    }

    /// Sets fields that the server works out from other objects. Nobody owns them.
    pub async fn derive(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        fields: &meta::Map,
    ) -> Result<Written, Status> {
        self.modify_as(target, options, Owners::Settled, |old| {
            let mut new =
                old.cloned().ok_or_else(|| Status::not_found(&target.kind.resource, &target.name))?;
            object::as_map_mut(&mut new).extend(fields.clone());
            Ok(new)
        })
        .await
    }

    pub(crate) fn body_kind<'a>(&'a self, target: &'a Target) -> BodyKind<'a> {
        BodyKind::of(target, self.kinds.schemas(), self.defaults())
    }

    /// What is filled in now, where an object says nothing.
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults::new(self.kinds.release(), self.clock.now())
    }

    /// What the target's objects look like in the client's version; `None` if nothing is known of it.
    pub(crate) fn typed<'a>(&'a self, target: &'a Target) -> Option<(&'a Schema, TypeId)> {
        if let Some(custom) = &target.kind.custom {
            return custom.types(target.group_version.version.as_str(), self.kinds.schemas());
        }
        let ty = self.type_of(target)?;
        Some((self.kinds.schemas().schema(), ty))
    }

    async fn text_of(
        &self,
        target: &Target,
        key: Key,
        value: Bytes,
        revision: Revision,
    ) -> Result<Bytes, Status> {
        let entry = Entry { key, value, created: revision, modified: revision, lease: None };
        let item = self.decode(target, &entry)?;
        Ok(serve::object(target, &*self.presented(target, &item).await?))
    }
}

/// Whether the cache was not behind: nobody is asked twice about the same state.
pub(crate) fn is_same(cached: Option<&Item>, fresh: Option<&Item>) -> bool {
    cached.map(Item::revision) == fresh.map(Item::revision)
}

/// The object is being deleted and nothing holds it any more.
fn is_finished(target: &Target, object: &Value) -> bool {
    object::is_deleting(object)
        && object::finalizers(object).is_empty()
        && object::meta_number(object, "deletionGracePeriodSeconds") == 0
        && !crate::delete::has_spec_finalizers(target, object)
}
