//! Deletes what has lost its owners, and carries out foreground and orphan deletions.
//!
//! # Flow
//! Every resource that can be listed, watched and deleted is watched, metadata only (`monitor.rs`). A graph of who owns
//! whom (`graph.rs`) says which objects are worth a look. A look (`look.rs`) asks the server for the object and for
//! every owner that it names, decides (`plan.rs`), and deletes, patches, or leaves it be (`act.rs`).
//!
//! # Guarantees
//! - Nothing is deleted because of what a watch said or did not say: each owner is asked for at the moment, by kind,
//!   namespace, name and uid.
//! - Only a `404 NotFound` that names the object says that it is absent, and only for a kind that discovery lists. Any other
//!   answer, or none, is "unknown": nothing happens, and the look is repeated later.
//! - While discovery is incomplete nothing is deleted.
//! - A deletion is conditional on the uid and the resourceVersion that the decision was made from; and on the owners, as
//!   they were found, and on our term as leader. The server requires all of that when it commits (`meta::grounds`): what a
//!   look has found decides what is tried, never what happens.
//! - Of a kind that nobody serves any more, owners that a watch had shown are taken for absent, and the server checks that.
//! - Dependents are released before an orphaning owner goes, all of them: they are listed afresh, not remembered.
//!
//! # Assumptions
//! A uid is never used twice.

mod act;
mod graph;
mod kinds;
mod look;
mod monitor;
mod plan;
mod queue;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::stream;
use graph::{Action, Graph, Invalid};
use kinds::Kinds;
use queue::Queue;

use crate::error::Error;
use crate::events::{self, Record};
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::work;

/// Looks that may run at the same time; most of their time they wait for the server.
const AT_ONCE: usize = 20;

pub(crate) async fn run(ctx: Ctx) {
    let shared = Arc::new(Shared::new(ctx));
    let triggers = stream::unfold(Arc::clone(&shared), |shared| async move {
        let uid = shared.queue.next().await;
        Some((uid.to_string(), shared))
    });
    let looking = work(shared.ctx.counted(Controller::GarbageCollector), AT_ONCE, triggers, |uid| {
        look::look(Arc::clone(&shared), uid)
    });
    let reporting = report(&shared);
    tokio::join!(monitor::follow(&shared), looking, reporting);
}

/// What the watches and the looks share.
struct Shared {
    ctx: Ctx,
    graph: Mutex<Graph>,
    /// What discovery said last; the error is why that is not the whole answer.
    kinds: Mutex<Result<Arc<Kinds>, String>>,
    queue: Queue,
    reports: tokio::sync::mpsc::Sender<Invalid>,
    to_report: tokio::sync::Mutex<tokio::sync::mpsc::Receiver<Invalid>>,
}

impl Shared {
    fn new(ctx: Ctx) -> Self {
        let (reports, to_report) = tokio::sync::mpsc::channel(100);
        Self {
            ctx,
            graph: Mutex::default(),
            kinds: Mutex::new(Err("discovery has not answered yet".to_owned())),
            queue: Queue::default(),
            reports,
            to_report: tokio::sync::Mutex::new(to_report),
        }
    }

    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kinds(&self) -> Result<Arc<Kinds>, Error> {
        let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.clone().map_err(Error::Unknown)
    }

    fn set_kinds(&self, kinds: Result<Arc<Kinds>, String>) {
        *self.kinds.lock().unwrap_or_else(PoisonError::into_inner) = kinds;
    }

    fn take_up(&self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Look(uid) => self.queue.push(uid),
                // More than people can read is left out.
                Action::Report(invalid) => drop(self.reports.try_send(invalid)),
            }
        }
    }
}

/// Tells people about owners that cannot be owners.
async fn report(shared: &Shared) {
    let mut to_report = shared.to_report.lock().await;
    while let Some(Invalid { dependent, owner }) = to_report.recv().await {
        let graph::Owner { api_version, kind, name, uid, .. } = owner;
        let namespace = &dependent.namespace;
        let owner = format!("[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]");
        let message = format!("ownerRef {owner} does not exist in namespace \"{namespace}\"");
        let record = Record {
            component: "garbage-collector-controller",
            is_warning: true,
            reason: "OwnerRefInvalidNamespace",
            message: &message,
        };
        let involved = serde_json::json!({
            "apiVersion": &*dependent.api_version, "kind": &*dependent.kind, "namespace": &*dependent.namespace,
            "name": &*dependent.name, "uid": &*dependent.uid,
        });
        events::record(&shared.ctx, involved, &record).await;
    }
}
