//! Keeps the authorizer's view of roles and bindings equal to the stored objects.

use std::{collections::HashSet, sync::Arc, time::Duration};

use access::{Rbac, RbacKind};
use cache::{Collection, Step, Watcher};
use meta::{GroupResource, Value};
use registry::Registry;

use crate::lifecycle::Tasks;

const KINDS: [(RbacKind, &str); 4] = [
    (RbacKind::Role, "roles"),
    (RbacKind::ClusterRole, "clusterroles"),
    (RbacKind::RoleBinding, "rolebindings"),
    (RbacKind::ClusterRoleBinding, "clusterrolebindings"),
];

const RETRY: Duration = Duration::from_millis(100);

/// Fills `rbac` from what is stored and goes on following it.
pub fn start(registry: &Registry, rbac: &Arc<Rbac>, tasks: &Tasks) {
    for (kind, resource) in KINDS {
        let resource = GroupResource::new("rbac.authorization.k8s.io", resource);
        let Some(stored) = registry.kinds().get(&resource) else { continue };
        let Some(collection) = stored.collection() else { continue };
        let mut feed =
            Feed { kind, collection: Arc::clone(collection), rbac: Arc::clone(rbac), known: HashSet::new() };
        let watcher = feed.fill();
        tasks.spawn("rbac feed", async move { feed.follow(watcher).await });
    }
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
        let snapshot = self.collection.snapshot();
        let mut gone = std::mem::take(&mut self.known);
        let prefix = self.collection.spec().prefix.clone();
        for item in snapshot.range(&prefix, None) {
            let name = (item.namespace().to_owned(), item.name().to_owned());
            gone.remove(&name);
            self.upsert(name, item.text());
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
                        self.upsert(name, item.text());
                    } else {
                        self.rbac.remove(self.kind, &name.0, &name.1);
                        self.known.remove(&name);
                    }
                }
                Step::Progress(_) => {}
                Step::Ended(_) => watcher = self.fill(),
            }
        }
    }

    fn upsert(&mut self, name: (String, String), text: &[u8]) {
        if let Ok(object) = serde_json::from_slice::<Value>(text) {
            self.rbac.upsert(self.kind, &name.0, &name.1, &object);
            self.known.insert(name);
        }
    }
}
