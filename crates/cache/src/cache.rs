//! The cache as a whole: started once in front of a store, shared by everything that reads.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use store::{ReadError, Revision, SharedClock, SharedStore};
use tokio::sync::{mpsc, oneshot};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    AddError, Behind, CacheConfig, Collection, CollectionSpec, StartError,
    catch_up::{Asker, Questions},
    feed::{Add, Feed, install},
    load::load,
    progress::Progress,
    routes::Routes,
};

/// How many collections may wait to be added.
const MAX_ADDS: usize = 16;

/// Serves reads of one store from memory. Cheap to clone; when the last clone goes, its tasks end.
#[derive(Clone)]
pub struct Cache {
    routes: Arc<Routes>,
    progress: Arc<Progress>,
    questions: Arc<Questions>,
    adds: mpsc::Sender<Add>,
    config: Arc<CacheConfig>,
    clock: SharedClock,
    tasks: TaskTracker,
    cancel: CancellationToken,
    _cancel_when_dropped: Arc<DropGuard>,
}

impl Cache {
    /// Lists everything under the root, then follows the store until stopped.
    pub async fn start(
        store: SharedStore,
        clock: SharedClock,
        config: CacheConfig,
        specs: Vec<CollectionSpec>,
    ) -> Result<Cache, StartError> {
        if !config.root.ends_with('/') {
            return Err(StartError::BadPrefix {
                prefix: config.root,
                why: "it does not end in a slash".into(),
            });
        }
        let routes = Arc::new(Routes::new(config.root.clone()));
        let progress = Arc::new(Progress::new(Arc::clone(&clock)));
        for spec in specs {
            routes.check(&spec).map_err(|why| StartError::BadPrefix { prefix: spec.prefix.clone(), why })?;
            routes.insert(Arc::new(Collection::new(spec, &config, Arc::clone(&progress))));
        }
        install(load(&store, &config.root, config.page, &routes).await?, &routes, &progress);
        Ok(Self::follow(store, clock, config, routes, progress))
    }

    /// Starts the tasks.
    fn follow(
        store: SharedStore,
        clock: SharedClock,
        config: CacheConfig,
        routes: Arc<Routes>,
        progress: Arc<Progress>,
    ) -> Cache {
        let (adds, receiver) = mpsc::channel(MAX_ADDS);
        let questions = Arc::new(Questions::new());
        let feed = Feed {
            store: store.clone(),
            clock: Arc::clone(&clock),
            config: config.clone(),
            routes: Arc::clone(&routes),
            progress: Arc::clone(&progress),
            adds: receiver,
        };
        let asker = Asker {
            store,
            clock: Arc::clone(&clock),
            timeout: config.timeout,
            progress: Arc::clone(&progress),
            questions: Arc::clone(&questions),
        };
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(cancel.clone().run_until_cancelled_owned(feed.run()));
        tasks.spawn(cancel.clone().run_until_cancelled_owned(asker.run()));
        tasks.close();
        let guard = Arc::new(cancel.clone().drop_guard());
        let config = Arc::new(config);
        Cache { routes, progress, questions, adds, config, clock, tasks, cancel, _cancel_when_dropped: guard }
    }

    /// The collection at this prefix.
    pub fn collection(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.routes.get(prefix)
    }

    /// Lists and follows one more collection.
    pub async fn add(&self, spec: CollectionSpec) -> Result<Arc<Collection>, AddError> {
        let (reply, added) = oneshot::channel();
        let not_live = || AddError::NotLive(self.health().err().unwrap_or_else(|| "no connection".into()));
        let added = async {
            self.adds.send(Add { spec, reply }).await.map_err(|_| not_live())?;
            added.await.map_err(|_| not_live())?
        };
        tokio::select! {
            added = added => added,
            // The feed gives up first on a list that takes too long; this is for a feed that is not connected.
            () = self.clock.sleep(self.config.timeout * 2) => Err(not_live()),
        }
    }

    /// Forgets a collection and ends its watchers.
    pub fn remove(&self, prefix: &str) {
        if let Some(collection) = self.routes.remove(prefix) {
            collection.close();
        }
    }

    /// Everything up to this revision is in the collections.
    pub fn applied(&self) -> Revision {
        self.progress.applied()
    }

    /// Waits until everything up to `revision` is in the collections. Fails at once if the cache has failed.
    pub async fn wait_for(&self, revision: Revision, timeout: Duration) -> Result<(), Behind> {
        self.progress.wait_for(revision, timeout).await
    }

    /// Makes a following read consistent: returns once everything is in the collections that was
    /// committed before the call. The result is the store's revision at a moment after the call.
    ///
    /// Callers share questions to the store, so this costs about one round trip however many call.
    pub async fn catch_up(&self) -> Result<Revision, ReadError> {
        if let Err(why) = self.failure() {
            return Err(ReadError::Unavailable(why));
        }
        let revision = self.questions.ask().await?;
        let reached = self.wait_for(revision, self.config.timeout).await;
        reached.map_err(|Behind { current }| {
            let behind = || format!("the cache is at revision {current}, the store at {revision}");
            ReadError::Unavailable(self.failure().err().unwrap_or_else(behind))
        })?;
        Ok(revision)
    }

    /// Why the cache should not be read from, if so: it failed, was stopped, or has had no connection
    /// to the store for longer than the grace period.
    pub fn health(&self) -> Result<(), String> {
        self.progress.health(self.config.grace)
    }

    /// Returns the reason once the cache has failed for good, after which only a new one helps.
    pub async fn failed(&self) -> String {
        self.progress.failed().await
    }

    /// How many keys under the root belong to no collection, by the first two segments of their paths.
    pub fn unclaimed(&self) -> BTreeMap<String, u64> {
        self.routes.unclaimed.lock().places()
    }

    /// All values that cannot be served, and why.
    pub fn unreadable(&self) -> Vec<(store::Key, String)> {
        self.routes.all().iter().flat_map(|it| it.unreadable()).collect()
    }

    /// Ends the tasks and all watchers. Reads fail from now on.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// Returns once the tasks have ended.
    pub async fn stopped(&self) {
        self.tasks.wait().await;
    }

    fn failure(&self) -> Result<(), String> {
        self.progress.health(Duration::MAX)
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} at revision {})", self.config.root, self.applied())
    }
}
