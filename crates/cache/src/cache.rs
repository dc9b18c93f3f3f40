//! The cache as a whole: started once in front of a store, shared by everything that reads.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use parking_lot::Mutex;
use store::{ReadError, Revision, SharedClock, SharedStore};
use tokio::sync::Semaphore;
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    AddError, Behind, CacheConfig, Closed, Collection, CollectionSpec, StartError,
    catch_up::{Asker, Questions},
    feed::{Feed, install},
    load::load,
    open::{Around, Load, MAX_LOADS, Opening, Swap},
    progress::Progress,
    routes::Routes,
};

/// Serves reads of one store from memory. Cheap to clone; when the last clone goes, its tasks end.
#[derive(Clone)]
pub struct Cache {
    routes: Arc<Routes>,
    progress: Arc<Progress>,
    questions: Arc<Questions>,
    loads: Arc<Mutex<BTreeMap<String, Load>>>,
    turns: Arc<Semaphore>,
    store: SharedStore,
    config: Arc<CacheConfig>,
    clock: SharedClock,
    tasks: TaskTracker,
    cancel: CancellationToken,
    _cancel_when_dropped: Arc<DropGuard>,
}

/// Held by the tasks: a cache whose tasks panicked answers nothing any more.
struct Guard(Arc<Progress>);

impl Drop for Guard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a task of the cache panicked; see the log");
        }
    }
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
            let prefix = spec.prefix.clone();
            let inserted = routes.check(&spec).and_then(|()| {
                routes.insert(Arc::new(Collection::new(spec, &config, Arc::clone(&progress))))
            });
            inserted.map_err(|why| StartError::BadPrefix { prefix, why })?;
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
        let questions = Arc::new(Questions::new());
        let feed = Feed {
            store: store.clone(),
            clock: Arc::clone(&clock),
            config: config.clone(),
            routes: Arc::clone(&routes),
            progress: Arc::clone(&progress),
        };
        let asker = Asker {
            store: store.clone(),
            clock: Arc::clone(&clock),
            timeout: config.timeout,
            progress: Arc::clone(&progress),
            questions: Arc::clone(&questions),
        };
        let (tasks, cancel) = (TaskTracker::new(), CancellationToken::new());
        let guards = [Guard(Arc::clone(&progress)), Guard(Arc::clone(&progress))];
        let [feeding, asking] = guards;
        tasks.spawn(cancel.clone().run_until_cancelled_owned(async move {
            let _guard = feeding;
            feed.run().await;
        }));
        tasks.spawn(cancel.clone().run_until_cancelled_owned(async move {
            let _guard = asking;
            asker.run().await;
        }));
        tasks.close();
        let guard = Arc::new(cancel.clone().drop_guard());
        let config = Arc::new(config);
        let (loads, turns) = (Arc::default(), Arc::new(Semaphore::new(MAX_LOADS)));
        Cache {
            routes,
            progress,
            questions,
            loads,
            turns,
            store,
            config,
            clock,
            tasks,
            cancel,
            _cancel_when_dropped: guard,
        }
    }

    /// The collection at this prefix.
    pub fn collection(&self, prefix: &str) -> Option<Arc<Collection>> {
        self.routes.get(prefix)
    }

    /// Loads a collection beside the one that there may be at its prefix, which answers meanwhile. Once everything is
    /// loaded `swap` is called, to end with [`Swap::finish`]. `order` says which of two collections with the same prefix
    /// is the right one: the greater. Nothing is loaded if there is one like it already, or one with a greater order is
    /// loaded.
    pub fn open(
        &self,
        spec: CollectionSpec,
        order: Revision,
        swap: impl FnOnce(Swap) + Send + 'static,
    ) -> Result<Opening, AddError> {
        let bad = |why| AddError::BadPrefix { prefix: spec.prefix.clone(), why };
        self.routes.check(&spec).map_err(bad)?;
        self.failure().map_err(AddError::NotLive)?;
        let mut loads = self.loads.lock();
        if let Some(load) = loads.get(&spec.prefix).filter(|it| !it.is_over()) {
            if load.serves(&spec, order) {
                return Ok(load.opening());
            }
            load.cancel();
        }
        if let Some(current) = self.routes.get(&spec.prefix).filter(|it| *it.spec() == spec) {
            return Ok(Opening::done(current));
        }
        let (load, loader) = Load::new(spec.clone(), order);
        let opening = load.opening();
        loads.insert(spec.prefix.clone(), load);
        let around = Around {
            store: self.store.clone(),
            clock: Arc::clone(&self.clock),
            config: Arc::clone(&self.config),
            routes: Arc::clone(&self.routes),
            progress: Arc::clone(&self.progress),
            turns: Arc::clone(&self.turns),
        };
        let under_way = Arc::clone(&self.loads);
        let load = async move {
            around.run(loader, spec, swap).await;
            // What came of it is kept by those who wait for it alone: it would keep a collection that is long gone.
            under_way.lock().retain(|_, it| !it.is_over());
        };
        self.tasks.spawn(self.cancel.clone().run_until_cancelled_owned(load));
        Ok(opening)
    }

    /// Loads a collection and waits until it answers.
    pub async fn add(&self, spec: CollectionSpec) -> Result<Arc<Collection>, AddError> {
        let finish = |swap: Swap| {
            swap.finish();
        };
        self.open(spec, self.applied(), finish)?.wait().await
    }

    /// Forgets a collection, also one that is being loaded, and ends its watchers.
    pub fn remove(&self, prefix: &str) {
        if let Some(load) = self.loads.lock().remove(prefix) {
            load.cancel();
        }
        self.routes.remove(prefix);
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

    /// Whether the cache has failed for good, or was stopped.
    pub fn is_failed(&self) -> bool {
        self.failure().is_err()
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
        loop {
            let named: Result<Vec<_>, Closed> = self.routes.all().iter().map(|it| it.unreadable()).collect();
            match named {
                Ok(named) => return named.into_iter().flatten().collect(),
                Err(Closed) if self.failure().is_err() => return Vec::new(),
                // It was closed in between: another one is in its place, or none.
                Err(Closed) => {}
            }
        }
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
