//! Where admission meets a write: what it may change is made ready again, what it refuses is not stored.
//!
//! Deliberately not here: who is asked and in which order; whoever calls the registry hands in an [`Admit`].

use futures_util::future::{self, BoxFuture};
use meta::{Map, Status, Value, grounds::Place, object};
use store::Revision;

use super::{WriteOptions, accept, metadata};
use crate::{Registry, Target};

/// Who has a say in writes besides the registry.
pub trait Admit: Send + Sync {
    /// Whether [`Admit::mutate`] might do anything, for an object that is new or not.
    fn mutates(&self, target: &Target, is_new: bool) -> bool;

    /// May change a new object, or the new state of an old one. Says whether it did.
    fn mutate<'a>(
        &'a self,
        target: &'a Target,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<bool, Status>>;

    /// Has the last word before an object is stored.
    fn validate<'a>(
        &'a self,
        target: &'a Target,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>>;

    /// Whether [`Admit::delete`] might do anything: only then must the object be readable in the client's version.
    fn reviews_deletion(&self, target: &Target) -> bool;

    /// Has the last word before an object is deleted. It is in the client's version.
    fn delete<'a>(&'a self, target: &'a Target, old: &'a Value) -> BoxFuture<'a, Result<(), Status>>;

    /// What the last [`Admit::validate`] rests on: the write is committed only if all of it is still as it was read.
    fn basis(&self) -> Vec<Basis> {
        Vec::new()
    }

    /// The revision that made the namespace in which the request was authorized, if that is known. Nothing is created in
    /// another one that got its name since: the caller may have no rights there.
    fn namespace_made(&self) -> Option<Revision> {
        None
    }

    /// Who asks (`username`, `uid`, `groups`, `extra`), for kinds that keep it; `None` if the server itself does.
    fn requester(&self) -> Option<Map> {
        None
    }
}

/// An object that a decision rests on, and the revision at which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Basis {
    /// Where it is.
    pub place: Place,
    /// In which state it was read.
    pub revision: Revision,
}

/// Lets everything pass.
#[derive(Clone, Copy, Debug)]
pub struct Anything;

impl Admit for Anything {
    fn mutates(&self, _: &Target, _: bool) -> bool {
        false
    }

    fn mutate<'a>(
        &'a self,
        _: &'a Target,
        _: &'a mut Value,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<bool, Status>> {
        Box::pin(future::ready(Ok(false)))
    }

    fn validate<'a>(
        &'a self,
        _: &'a Target,
        _: &'a Value,
        _: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(future::ready(Ok(())))
    }

    fn reviews_deletion(&self, _: &Target) -> bool {
        false
    }

    fn delete<'a>(&'a self, _: &'a Target, _: &'a Value) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(future::ready(Ok(())))
    }
}

/// What the server decides about a new object; admission does not see it yet, as upstream.
pub(super) const DECIDED: [&str; 3] = ["uid", "creationTimestamp", "generation"];

/// The same, where the server chose the name, too.
pub(super) const DECIDED_AND_NAMED: [&str; 4] = ["uid", "creationTimestamp", "generation", "name"];

impl Registry {
    /// Lets admission change an object that is ready to be checked, and makes it ready again. Says whether it changed.
    /// What is hidden is not shown to admission, and stays.
    pub(super) async fn mutate(
        &self,
        target: &Target,
        options: &WriteOptions<'_>,
        object: &mut Value,
        old: Option<&Value>,
        hidden: &[&str],
    ) -> Result<bool, Status> {
        if !options.admit.mutates(target, old.is_none()) {
            return Ok(false);
        }
        let mut draft = object.clone();
        let metadata = object::metadata_mut(&mut draft);
        hidden.iter().for_each(|it| drop(metadata.remove(*it)));
        if !options.admit.mutate(target, &mut draft, old).await? {
            return Ok(false);
        }
        let mut new = accept::accept_mutated(self.body_kind(target), draft, old)?;
        metadata::settle_namespace(target, &mut new)?;
        // Who owns what was settled before: a client does not own what admission adds to its object.
        for field in hidden.iter().copied().chain(["managedFields"]) {
            let own = object.get("metadata").and_then(|it| it.get(field)).cloned();
            let metadata = object::metadata_mut(&mut new);
            match own {
                Some(own) => metadata.insert(field.to_owned(), own),
                None => metadata.remove(field),
            };
        }
        match old {
            Some(old) => {
                metadata::check_name(target, &new)?;
                self.prepare_changed(target, &mut new, old);
            }
            None => {
                let has_status = target.kind.has_status(&target.group_version.version);
                target.kind.strategy.prepare_create(&mut new, has_status);
            }
        }
        *object = new;
        Ok(true)
    }

    /// Takes from the old object what this write cannot change.
    pub(super) fn prepare_changed(&self, target: &Target, new: &mut Value, old: &Value) {
        let strategy = &target.kind.strategy;
        match target.subresource.as_str() {
            "status" => strategy.prepare_status_update(new, old),
            // Everything else was taken from the old object already.
            "finalize" | "binding" => {}
            _ => {
                let has_status = target.kind.has_status(&target.group_version.version);
                strategy.prepare_update(new, old, has_status);
            }
        }
        metadata::carry_over(new, old);
    }
}
