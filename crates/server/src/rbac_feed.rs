//! Keeps the authorizer's view of roles and bindings equal to the stored objects.

use std::{collections::HashSet, sync::Arc, time::Duration};

use access::{Rbac, RbacKind};
use cache::{Collection, Item, Step, Watcher};
use meta::{GroupResource, RetryAfter, Status, Value};
use registry::Registry;

use crate::{lifecycle::Tasks, pool};

const KINDS: [(RbacKind, &str); 4] = [
    (RbacKind::Role, "roles"),
    (RbacKind::ClusterRole, "clusterroles"),
    (RbacKind::RoleBinding, "rolebindings"),
    (RbacKind::ClusterRoleBinding, "clusterrolebindings"),
];

const RETRY: Duration = Duration::from_millis(100);

/// How long somebody waits for rights that were stored a moment ago, and how often they look.
const PATIENCE: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(2);

/// Fills `rbac` from what is stored and goes on following it.
pub fn start(registry: &Registry, rbac: &Arc<Rbac>, tasks: &Tasks) {
    for (kind, resource) in KINDS {
        let resource = GroupResource::new("rbac.authorization.k8s.io", resource);
        let Some(stored) = registry.kinds().get(&resource) else { continue };
        let Some(collection) = stored.collection() else { continue };
        let mut feed =
            Feed { kind, collection: Arc::clone(collection), rbac: Arc::clone(rbac), known: HashSet::new() };
        let watcher = feed.fill();
        tasks.supervise("rbac feed", async move { feed.follow(watcher).await });
    }
}

/// Returns once `rbac` holds everything that was stored when this was called; 503 if that cannot be told.
pub(crate) async fn catch_up(registry: &Registry, rbac: &Rbac) -> Result<(), Status> {
    registry.catch_up().await?;
    let clock = registry.clock();
    let until = clock.monotonic() + PATIENCE;
    while !holds_all(registry, rbac) {
        if clock.monotonic() >= until {
            let why = "the roles and bindings of the cluster are not known yet";
            return Err(Status::unavailable(why, RetryAfter::not_begun(1)));
        }
        clock.sleep(POLL).await;
    }
    Ok(())
}

/// Whether all that the cache has was taken in, and nothing that it has not.
fn holds_all(registry: &Registry, rbac: &Rbac) -> bool {
    KINDS.iter().all(|(kind, resource)| {
        let resource = GroupResource::new("rbac.authorization.k8s.io", *resource);
        let Some(stored) = registry.kinds().get(&resource) else { return true };
        let Some(collection) = stored.collection() else { return true };
        let Ok(snapshot) = collection.snapshot() else { return false };
        let mut n = 0;
        let mut items = snapshot.readable(&collection.spec().prefix, None);
        let is_known = items.all(|it| {
            n += 1;
            rbac.is_at(*kind, it.namespace(), it.name(), it.revision().get())
        });
        is_known && rbac.count(*kind) == n
    })
}

struct Feed {
    kind: RbacKind,
    collection: Arc<Collection>,
    rbac: Arc<Rbac>,
    known: HashSet<(String, String)>,
}

impl Feed {
    /// Takes over all objects that are there; returns a watch that goes on from exactly that state.
    fn fill(&mut self) -> Option<Watcher> {
        // Whoever cannot read a role or binding gives no rights by it.
        let snapshot = self.collection.snapshot().ok()?;
        let mut gone = std::mem::take(&mut self.known);
        let prefix = self.collection.spec().prefix.clone();
        for item in snapshot.readable(&prefix, None) {
            let name = (item.namespace().to_owned(), item.name().to_owned());
            gone.remove(&name);
            self.upsert(name, item);
        }
        for (namespace, name) in gone {
            self.rbac.remove(self.kind, &namespace, &name);
        }
        self.collection.watch(snapshot.revision(), &prefix).ok()
    }

    async fn follow(&mut self, mut watcher: Option<Watcher>) {
        loop {
            let Some(running) = &mut watcher else {
                // The cache is starting over; until it is back the last known rules hold.
                tokio::time::sleep(RETRY).await;
                watcher = self.fill();
                continue;
            };
            match running.next().await {
                Step::Event(change) => {
                    let item = change.after.as_ref().or(change.before.as_ref());
                    let Some(item) = item else { continue };
                    let name = (item.namespace().to_owned(), item.name().to_owned());
                    if change.after.is_some() {
                        self.upsert(name, item);
                    } else {
                        self.rbac.remove(self.kind, &name.0, &name.1);
                        self.known.remove(&name);
                    }
                }
                Step::Progress(_) => {}
                Step::Undecodable(..) | Step::Ended(_) => watcher = self.fill(),
            }
        }
    }

    fn upsert(&mut self, name: (String, String), item: &Item) {
        let (kind, rbac) = (self.kind, &self.rbac);
        let take_in = || {
            let object = serde_json::from_slice::<Value>(item.text()).ok()?;
            rbac.upsert_at(kind, &name.0, &name.1, &object, item.revision().get());
            Some(())
        };
        let is_large = item.text().len() >= pool::LARGE;
        let is_taken_in = if is_large { pool::apart(take_in) } else { take_in() };
        if is_taken_in.is_some() {
            self.known.insert(name);
        }
    }
}
