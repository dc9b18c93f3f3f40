//! Migrations on this server's own store: what the migrator asks for, in the registry's words.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use controllers::migration::engine::{
    Agreement, Batch, Class, Engine, Evidence, Failure, Look, Task, Trouble,
};
use futures_util::future::BoxFuture;
use meta::{GroupResource, GroupVersion, selector::LabelSelector};
use parking_lot::Mutex;
use registry::{
    Registry,
    rewrite::{Ahead, Rewrite, RewriteError, Rewritten},
};
use station::Station;

/// Rewrites in the store of one server.
pub(crate) struct InStore {
    registry: Arc<Registry>,
    /// What was read for migrations that are under way and not looked at yet.
    ahead: Mutex<HashMap<GroupResource, Ahead>>,
}

/// Of how many migrations something is kept. Those that were left in the middle read again.
const MAX_AHEAD: usize = 8;

impl InStore {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, ahead: Mutex::default() }
    }

    fn take_ahead(&self, resource: &GroupResource) -> Ahead {
        self.ahead.lock().remove(resource).unwrap_or_default()
    }

    /// Keeps what is left for the next step, if there is one.
    fn keep_ahead(&self, resource: &GroupResource, ahead: Ahead, step: &Rewritten) {
        let mut all = self.ahead.lock();
        if all.len() >= MAX_AHEAD {
            all.clear();
        }
        if step.next.is_some() {
            all.insert(resource.clone(), ahead);
        }
    }
}

impl Engine for InStore {
    fn name(&self) -> &'static str {
        "InStore"
    }

    fn agreement<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Result<Agreement, Trouble>> {
        Box::pin(async move {
            match self.registry.agreement(resource) {
                Ok((version, epoch)) => {
                    Ok(Agreement::Agreed { version, epoch: i64::try_from(epoch).unwrap_or(i64::MAX) })
                }
                Err(RewriteError::Disagreement(why)) => Ok(Agreement::Open(why)),
                Err(RewriteError::Unknown) => Ok(Agreement::Absent),
                Err(RewriteError::Unavailable(why)) => Err(Trouble::Later(why)),
            }
        })
    }

    fn rewrite<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Batch, Trouble>> {
        Box::pin(async move {
            let mut ahead = self.take_ahead(&task.resource);
            let done = self.registry.rewrite(&order(task)?, position, &mut ahead).await.map_err(trouble)?;
            self.keep_ahead(&task.resource, ahead, &done);
            let Rewritten { rewritten, unchanged, next, remaining, .. } = done;
            let failures = failures(done.raced, done.failed, done.unreadable);
            Ok(Batch { migrated: rewritten, unchanged, failures, next, remaining: Some(remaining) })
        })
    }

    fn verify<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Look, Trouble>> {
        Box::pin(async move {
            let mut ahead = self.take_ahead(&task.resource);
            let looked = self.registry.look_at_stored(&order(task)?, position, &mut ahead).await;
            let seen = looked.map_err(trouble)?;
            self.keep_ahead(&task.resource, ahead, &seen);
            let Rewritten { rewritten, unchanged, next, .. } = seen;
            let failures = failures(seen.raced, seen.failed, seen.unreadable);
            let objects = rewritten + unchanged + failures.len() as u64;
            Ok(Look { evidence: Evidence::StoreScan, objects, left: rewritten, failures, next, doubt: "" })
        })
    }

    fn stands<'a>(&'a self, task: &'a Task) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(async move { self.registry.stands(&order(task)?).await.map_err(trouble) })
    }

    fn resources(&self) -> BoxFuture<'_, Result<Vec<GroupResource>, Trouble>> {
        let kinds = self.registry.kinds().all();
        let stored = kinds.into_iter().filter(|it| it.collection().is_some());
        // Resources that share their keys share what is agreed on, too.
        let named = stored.filter(|it| it.resource == it.definition.record).map(|it| it.resource.clone());
        Box::pin(std::future::ready(Ok(named.collect())))
    }

    fn written<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Vec<String>> {
        let fence = self.registry.station().fence(resource);
        let entries = fence.iter().flat_map(|it| &it.record.entries).map(|it| it.encoding.to_string());
        let versions: BTreeSet<String> = entries.collect();
        Box::pin(std::future::ready(versions.into_iter().collect()))
    }

    fn stored<'a>(
        &'a self,
        resource: &'a GroupResource,
    ) -> BoxFuture<'a, Result<Option<BTreeMap<String, u64>>, Trouble>> {
        Box::pin(async move {
            let counts = self.registry.stored_versions(resource).await;
            let Some(counts) = counts.map_err(|it| Trouble::Later(it.message))? else { return Ok(None) };
            let stored = counts.into_iter().filter(|(_, n)| *n > 0);
            let mut stored: BTreeMap<String, u64> = stored.map(|(it, n)| (it.to_string(), n)).collect();
            let n_unknown = self.registry.n_unknown_versions(resource);
            let n_unknown = n_unknown.map_err(|it| Trouble::Later(it.message))?;
            if n_unknown > 0 {
                stored.insert(server::census::UNKNOWN.to_owned(), n_unknown);
            }
            for version in self.registry.listed_versions(resource) {
                stored.entry(version).or_default();
            }
            Ok(Some(stored))
        })
    }

    fn hash<'a>(&'a self, resource: &'a GroupResource, version: &'a str) -> BoxFuture<'a, Option<String>> {
        let kind = self.registry.kinds().get(resource);
        let hash = kind
            .zip(GroupVersion::parse(version))
            .map(|(kind, version)| catalog::discovery::storage_version_hash(&version, &kind.definition.kind));
        Box::pin(std::future::ready(hash))
    }

    fn is_told(&self) -> bool {
        true
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let station = self.registry.station();
            let counts = |it: &Station| (it.moves(), it.agreements(), it.memberships());
            let seen = counts(station);
            station.until(|it| counts(it) != seen).await;
        })
    }
}

fn order(task: &Task) -> Result<Rewrite, Trouble> {
    let selector = LabelSelector::parse(&task.selector);
    let selector = selector.map_err(|it| Trouble::Never(format!("the selector cannot be read: {it}")))?;
    Ok(Rewrite {
        resource: task.resource.clone(),
        version: task.version.clone(),
        epoch: u64::try_from(task.epoch).unwrap_or_default(),
        namespaces: task.namespaces.clone(),
        selector,
        dry_run: task.dry_run,
        limit: task.batch,
        at_once: task.at_once,
    })
}

fn trouble(error: RewriteError) -> Trouble {
    match error {
        RewriteError::Disagreement(why) => Trouble::Disagreement(why),
        RewriteError::Unknown => Trouble::Gone,
        RewriteError::Unavailable(why) => Trouble::Later(why),
    }
}

fn failures(
    raced: Vec<String>,
    failed: Vec<(String, String)>,
    unreadable: Vec<(String, String)>,
) -> Vec<Failure> {
    let raced = raced.into_iter().map(|object| Failure {
        class: Class::Conflict,
        object,
        message: "somebody else wrote it at the same moment".to_owned(),
    });
    let failed = failed.into_iter().map(|(object, message)| {
        let class = class_of(&message);
        Failure { class, object, message }
    });
    let unreadable = unreadable.into_iter().map(|(object, message)| Failure {
        class: Class::Undecodable,
        object,
        message,
    });
    raced.chain(failed).chain(unreadable).collect()
}

/// What kind of trouble it is with an object that could not be converted. A webhook that does not answer at all is none
/// of an object.
fn class_of(message: &str) -> Class {
    let is_webhook = message.contains("conversion webhook for ");
    let is_passing =
        ["an error on the server", "the server is currently unable", "the server has received too many"];
    match is_webhook {
        true if is_passing.iter().any(|it| message.contains(it)) => Class::WebhookUnreachable,
        true => Class::Denied,
        false => Class::Undecodable,
    }
}
