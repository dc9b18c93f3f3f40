//! A migration is over only if whoever decides on the agreement says that it stands.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use controllers::migration::api::Reach;
use controllers::migration::engine::{Agreement, Batch, Engine, Look, Task, Trouble};
use futures_util::future::BoxFuture;
use meta::GroupResource;
use serde_json::json;

use crate::cluster::Cluster;
use crate::stock::EXTERNAL;

/// Another engine, whose memory of the agreement is old: what it remembers says yes, the store says no.
struct Forgetful {
    inner: Arc<dyn Engine>,
    stands: Arc<AtomicBool>,
    n_asked: Arc<AtomicUsize>,
}

impl Engine for Forgetful {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn agreement<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Result<Agreement, Trouble>> {
        self.inner.agreement(resource)
    }

    fn rewrite<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Batch, Trouble>> {
        self.inner.rewrite(task, position)
    }

    fn verify<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Look, Trouble>> {
        self.inner.verify(task, position)
    }

    fn stands<'a>(&'a self, _task: &'a Task) -> BoxFuture<'a, Result<(), Trouble>> {
        self.n_asked.fetch_add(1, Ordering::SeqCst);
        let stands = self.stands.load(Ordering::SeqCst);
        let answer = if stands { Ok(()) } else { Err(Trouble::Disagreement("it moved".to_owned())) };
        Box::pin(std::future::ready(answer))
    }

    fn n_looks(&self) -> u64 {
        self.inner.n_looks()
    }

    fn clients(&self) -> Vec<kube::Client> {
        self.inner.clients()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.inner.changed()
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_of_the_agreement_is_not_enough() {
    let cluster = Cluster::filled(&["a"], 20);
    let (stands, n_asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    cluster.run_with("storage-version-migrator", Reach::EveryServer, |it| {
        let inner = it.engine.take().unwrap();
        it.engine =
            Some(Arc::new(Forgetful { inner, stands: Arc::clone(&stands), n_asked: Arc::clone(&n_asked) }));
    });
    let path = cluster.ask(EXTERNAL, "m", &json!({}));
    let status = cluster.until(&path, "everything is looked at", |it| it["phase"] == "Pruning").await;
    assert_eq!(status["phase"], "Pruning");
    while n_asked.load(Ordering::SeqCst) < 3 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cluster.with(|it| {
        assert_eq!(it.stock.migrations[&path]["status"]["phase"], "Pruning");
        assert_eq!(it.definition.as_ref().unwrap().1, ["v1", "v2"], "nothing left status.storedVersions");
    });
    stands.store(true, Ordering::SeqCst);
    assert_eq!(cluster.ended(&path).await["phase"], "Succeeded");
}
