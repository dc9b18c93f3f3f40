//! Who owns what after a write, and what is left of the object when a manager stops applying a field.
//!
//! Managers name fields in the version that they wrote in. Where versions differ, objects are converted to the version
//! of the entry before they are compared; entries in versions that no longer exist are dropped.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    compare::{Comparison, compare},
    conflict::{ApplyError, Conflict},
    managers::{ManagerId, Managers, Owned},
    merge, reconcile, remove,
    set::FieldSet,
    shape::Ty,
    typed,
};
use crate::{
    Value,
    model::{Schema, TypeId},
};

/// A type in a schema.
#[derive(Clone, Copy, Debug)]
pub struct TypeRef<'a> {
    /// Where it is declared.
    pub schema: &'a Schema,
    /// Which it is.
    pub ty: TypeId,
}

/// The versions of a kind.
pub trait Versions {
    /// What objects of this version look like; nothing if there is no such version.
    fn type_of(&self, api_version: &str) -> Option<TypeRef<'_>>;

    /// The object in another version of the kind.
    fn convert(&self, object: &Value, api_version: &str) -> Result<Value, String>;
}

/// An object in one of its versions.
#[derive(Clone)]
pub(super) struct Versioned<'a> {
    pub value: Cow<'a, Value>,
    pub version: Cow<'a, str>,
}

pub(super) struct Engine<'a> {
    pub versions: &'a dyn Versions,
    /// Never owned by this write, nor taken from anybody.
    pub ignored: &'a FieldSet,
}

impl<'a> Versioned<'a> {
    pub(super) fn new(value: &'a Value, version: &'a str) -> Self {
        Self { value: Cow::Borrowed(value), version: Cow::Borrowed(version) }
    }
}

impl Engine<'_> {
    /// Ownership after a new state was written: whatever changed belongs to `id`, and to nobody else.
    pub(super) fn update(
        &self,
        live: &Versioned<'_>,
        new: &Versioned<'_>,
        managers: Managers,
        id: &ManagerId,
    ) -> Result<(Managers, FieldSet), ApplyError> {
        let managers = self.reconcile(managers);
        let (managers, changes) = self.transfer(live, new, managers, id, true)?;
        Ok((managers, changes.changed().recursive_difference(self.ignored)))
    }

    /// The object with a configuration in it, and ownership after that.
    pub(super) fn apply(
        &self,
        live: &Versioned<'_>,
        config: &Value,
        managers: Managers,
        id: &ManagerId,
        force: bool,
    ) -> Result<(Value, Managers), ApplyError> {
        let version = live.version.as_ref();
        let (schema, ty) = self.type_of(version)?;
        let mut managers = self.reconcile(managers);
        let merged = merge::merge(schema, ty, &live.value, config);
        let set = typed::field_set(schema, ty, config).recursive_difference(self.ignored);
        let before = managers.remove(id);
        let time = before.as_ref().and_then(|it| it.time.clone());
        // Who applies all fields that they applied before leaves nothing to remove.
        let keeps_all =
            before.as_ref().is_some_and(|it| it.api_version == version && it.set.is_subset_of(&set));
        managers.insert(id.clone(), Owned { set, api_version: version.to_owned(), time });
        let merged = Versioned { value: Cow::Owned(merged), version: Cow::Borrowed(version) };
        let new = match before {
            Some(before) if !keeps_all && !before.set.is_empty() => {
                let is_same_version = before.api_version == version;
                let named =
                    if is_same_version { typed::empty_places(schema, ty, config) } else { FieldSet::new() };
                self.prune(merged, &managers, version, &before, named)?
            }
            Some(_) | None => merged,
        };
        let (managers, _) = self.transfer(live, &new, managers, id, force)?;
        Ok((new.value.into_owned(), managers))
    }

    /// Takes what changed from everybody but `id`, or tells who would have to give.
    fn transfer(
        &self,
        live: &Versioned<'_>,
        new: &Versioned<'_>,
        mut managers: Managers,
        id: &ManagerId,
        force: bool,
    ) -> Result<(Managers, Comparison), ApplyError> {
        let own = self.compare(live, new)?;
        let mut comparisons = BTreeMap::from([(live.version.to_string(), Some(own.clone()))]);
        let mut conflicts = Vec::new();
        let mut gone = Vec::new();
        for (manager, owned) in &mut managers {
            if manager == id {
                continue;
            }
            let changes = match comparisons.get(&owned.api_version) {
                Some(changes) => changes.clone(),
                None => {
                    let changes = self.compare_in(&owned.api_version, live, new)?;
                    comparisons.insert(owned.api_version.clone(), changes.clone());
                    changes
                }
            };
            let Some(changes) = changes else {
                gone.push(manager.clone());
                continue;
            };
            let taken = owned.set.intersection(&changes.changed());
            if !force {
                // Who owns a map or list that is not there any more has nothing against what others put into it.
                let touched = changes.modified.union(&changes.added.leaves());
                let paths = owned.set.intersection(&touched).paths().into_iter();
                conflicts.extend(paths.map(|path| Conflict { manager: manager.clone(), path }));
            }
            owned.set = owned.set.difference(&taken).difference(&changes.removed);
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
        managers.retain(|id, owned| !gone.contains(id) && !owned.set.is_empty());
        Ok((managers, own))
    }

    /// Removes what the manager applied last time, does not apply now, and nobody else owns. What is `named` stays,
    /// if only empty.
    fn prune<'v>(
        &self,
        merged: Versioned<'v>,
        managers: &Managers,
        version: &str,
        before: &Owned,
        named: FieldSet,
    ) -> Result<Versioned<'v>, ApplyError> {
        let Some(object) = self.convert(&merged, &before.api_version)? else { return Ok(merged) };
        let (schema, ty) = self.type_of(&before.api_version)?;
        let last = before.set.with_named_fields(schema, ty);
        let pruned = object.with(remove::remove(schema, ty, &object.value, &last));
        let pruned = self.add_back_owned(&object, pruned, managers, &before.api_version, &named)?;
        let mut pruned = self.add_back_dangling(&object, &pruned, &before.api_version, &last, &named)?;
        // What lost all of its parts is gone itself, unless somebody wants it, if only empty.
        let here = managers.values().filter(|it| it.api_version == before.api_version);
        let owned = here.fold(named, |all, it| all.union(&it.set));
        remove::settle_nulls(schema, ty, pruned.value.to_mut(), Some(&object.value), &owned);
        let pruned = self.convert(&pruned, version)?;
        Ok(pruned.map_or(merged, Versioned::into_owned))
    }

    /// Puts back what somebody owns.
    fn add_back_owned<'v>(
        &self,
        merged: &Versioned<'v>,
        pruned: Versioned<'v>,
        managers: &Managers,
        first: &str,
        named: &FieldSet,
    ) -> Result<Versioned<'v>, ApplyError> {
        let mut owned: BTreeMap<&str, FieldSet> = BTreeMap::from([(first, named.clone())]);
        for it in managers.values() {
            let set = owned.entry(&it.api_version).or_default();
            *set = set.union(&it.set);
        }
        let mut order: Vec<_> = owned.into_iter().collect();
        // In the version that was pruned first: what a conversion needs may have been removed.
        order.sort_by_key(|(version, _)| *version != first);
        let (mut merged, mut pruned) = (merged.clone().into_owned(), pruned.into_owned());
        for (version, set) in order {
            let Some(object) = self.convert(&merged, version)? else { continue };
            let Some(rest) = self.convert(&pruned, version)? else { continue };
            let (schema, ty) = self.type_of(version)?;
            let all = typed::field_set(schema, ty, &object.value).with_named_fields(schema, ty);
            let kept = typed::field_set(schema, ty, &rest.value).with_named_fields(schema, ty);
            let gone = all.difference(&kept.union(&set.with_named_fields(schema, ty)));
            let object = object.into_owned();
            pruned = object.with(remove::remove(schema, ty, &object.value, &gone)).into_owned();
            merged = object;
        }
        Ok(pruned)
    }

    /// Puts back what the manager did not own before.
    fn add_back_dangling<'v>(
        &self,
        merged: &Versioned<'v>,
        pruned: &Versioned<'_>,
        version: &str,
        last: &FieldSet,
        named: &FieldSet,
    ) -> Result<Versioned<'v>, ApplyError> {
        let Some(pruned) = self.convert(pruned, version)? else { return Ok(merged.clone()) };
        let (schema, ty) = self.type_of(version)?;
        let kept = typed::field_set(schema, ty, &pruned.value).union(named).with_named_fields(schema, ty);
        let all = typed::field_set(schema, ty, &merged.value).with_named_fields(schema, ty);
        let gone = all.difference(&kept).intersection(last);
        Ok(merged.with(remove::remove(schema, ty, &merged.value, &gone)))
    }

    /// What everybody owns, in terms of the schema of today.
    fn reconcile(&self, managers: Managers) -> Managers {
        let mut reconciled = Managers::new();
        for (id, mut owned) in managers {
            if let Some(TypeRef { schema, ty }) = self.versions.type_of(&owned.api_version) {
                owned.set = reconcile::reconcile(schema, Ty::Declared(ty), &owned.set);
                reconciled.insert(id, owned);
            }
        }
        reconciled
    }

    pub(super) fn compare(
        &self,
        live: &Versioned<'_>,
        new: &Versioned<'_>,
    ) -> Result<Comparison, ApplyError> {
        let (schema, ty) = self.type_of(&live.version)?;
        Ok(compare(schema, ty, &live.value, &new.value).without(self.ignored))
    }

    /// The same in another version; nothing if there is no such version.
    fn compare_in(
        &self,
        version: &str,
        live: &Versioned<'_>,
        new: &Versioned<'_>,
    ) -> Result<Option<Comparison>, ApplyError> {
        let (Some(live), Some(new)) = (self.convert(live, version)?, self.convert(new, version)?) else {
            return Ok(None);
        };
        self.compare(&live, &new).map(Some)
    }

    fn convert<'v>(
        &self,
        object: &Versioned<'v>,
        version: &str,
    ) -> Result<Option<Versioned<'v>>, ApplyError> {
        if object.version == version {
            return Ok(Some(object.clone()));
        }
        if self.versions.type_of(version).is_none() {
            return Ok(None);
        }
        let value = self
            .versions
            .convert(&object.value, version)
            .map_err(|it| ApplyError::Failed(format!("failed to convert object to {version}: {it}")))?;
        Ok(Some(Versioned { value: Cow::Owned(value), version: Cow::Owned(version.to_owned()) }))
    }

    pub(super) fn type_of(&self, version: &str) -> Result<(&Schema, Ty), ApplyError> {
        let TypeRef { schema, ty } = self
            .versions
            .type_of(version)
            .ok_or_else(|| ApplyError::Failed(format!("no type found for version {version}")))?;
        Ok((schema, Ty::Declared(ty)))
    }
}

impl<'a> Versioned<'a> {
    fn with(&self, value: Value) -> Self {
        Self { value: Cow::Owned(value), version: self.version.clone() }
    }

    fn into_owned<'b>(self) -> Versioned<'b> {
        Versioned {
            value: Cow::Owned(self.value.into_owned()),
            version: Cow::Owned(self.version.into_owned()),
        }
    }
}
