//! Everything that was ever stored of the widgets, judged: `status.storedVersions` is true at every revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt;
use parking_lot::Mutex;
use serde_json::Value;
use store::{Event, Key, Range, Revision, SharedStore, Store, Txn};

use super::widgets::PREFIX;
use crate::fleet::ground::{Ground, eventually};

const DEFINITION: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com";

/// Records what is stored from its making on.
pub struct History {
    events: Arc<Mutex<Vec<Event>>>,
    store: SharedStore,
    task: tokio::task::JoinHandle<()>,
}

/// What a history has shown.
#[derive(Debug, Default)]
pub struct Judged {
    /// Every value that `status.storedVersions` had, in order.
    pub stored_versions: Vec<Vec<String>>,
    /// How often each object was put, by its key below the prefix.
    pub puts: BTreeMap<String, usize>,
    /// The definition was frozen this often.
    pub n_freezes: usize,
    pub is_frozen: bool,
}

impl History {
    pub async fn of(ground: &Ground) -> Self {
        let from = ground.store.current().await.unwrap();
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let (seen, store) = (Arc::clone(&events), ground.store.clone());
        let task = tokio::spawn(async move {
            let mut batches = store.watch(&Range::prefix("/registry/"), from).await.unwrap();
            while let Some(batch) = batches.next().await {
                seen.lock().extend(batch.expect("the watch of a test must not break").events);
            }
        });
        Self { events, store: ground.store.clone(), task }
    }

    /// Every value that a key had so far; nothing once it was deleted.
    pub fn values_of(&self, key: &str) -> Vec<Value> {
        let events = self.events.lock();
        let values = events.iter().filter_map(|it| match it {
            Event::Put(it) if it.key.as_str() == key => serde_json::from_slice(&it.value).ok(),
            Event::Delete(it, _) if it.as_str() == key => Some(Value::Null),
            _ => None,
        });
        values.collect()
    }

    /// Waits until everything up to a revision is recorded.
    pub async fn reach(&self, revision: Revision) {
        eventually("the whole history is seen", async || {
            self.events.lock().last().is_some_and(|it| it.revision() >= revision)
        })
        .await;
    }

    /// Fails if at any revision something was stored in a version that was not listed.
    pub async fn judge(self) -> Judged {
        let end = Key::new("/registry/end-of-history");
        let last = self.store.commit(Txn::new().put(&end, "{}".into())).await.unwrap();
        self.reach(last).await;
        self.task.abort();
        let events = self.events.lock();
        let mut judged = Judged::default();
        let mut objects: BTreeMap<String, String> = BTreeMap::new();
        for together in events.chunk_by(|a, b| a.revision() == b.revision()) {
            let mut is_defined = true;
            for event in together {
                is_defined &= judged.see(event, &mut objects);
            }
            let found: BTreeSet<&String> = objects.values().collect();
            let listed = judged.stored_versions.last().cloned().unwrap_or_default();
            let is_true = found.iter().all(|it| listed.iter().any(|v| format!("example.com/{v}") == **it));
            let at = together[0].revision();
            assert!(!is_defined || is_true, "revision {at:?}: stored {found:?}, listed {listed:?}");
        }
        judged
    }
}

impl Judged {
    /// Whether the definition is still there.
    fn see(&mut self, event: &Event, objects: &mut BTreeMap<String, String>) -> bool {
        let (key, value) = match event {
            Event::Put(it) => (it.key.as_str(), Some(&it.value)),
            Event::Delete(key, _) => (key.as_str(), None),
        };
        let object = value.map(|it| serde_json::from_slice::<Value>(it).unwrap_or_default());
        if key == DEFINITION {
            let Some(crd) = object else {
                objects.clear();
                return false;
            };
            let listed = crd["status"]["storedVersions"].as_array().into_iter().flatten();
            let listed: Vec<String> = listed.map(|it| it.as_str().unwrap().to_owned()).collect();
            if self.stored_versions.last() != Some(&listed) {
                self.stored_versions.push(listed);
            }
            let is_frozen = super::widgets::is_frozen(&crd);
            self.n_freezes += usize::from(is_frozen && !self.is_frozen);
            self.is_frozen = is_frozen;
        } else if let Some(name) = key.strip_prefix(PREFIX) {
            match object {
                Some(object) => {
                    *self.puts.entry(name.to_owned()).or_default() += 1;
                    let version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
                    objects.insert(name.to_owned(), version);
                }
                None => drop(objects.remove(name)),
            }
        }
        true
    }
}
