//! Runs the selected controllers side by side until they are told to stop.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use jiff::Timestamp;
use kube::Client;
use meta::GroupResource;
use tokio::sync::watch;
use tracing::{error, info};

use crate::backoff::Backoff;
use crate::lead::{self, Election, Term};
use crate::migration::{self, engine::Engine};
use crate::observe::{Counted, Nobody, Observe};
use crate::selection::{Controller, Selection};
use crate::{cluster_role, expiry, gc, namespace, root_ca, service_account, token, trigger};

/// The time of day, for timestamps in objects.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What controllers are told when they are started.
#[derive(Clone)]
#[non_exhaustive]
pub struct Setup {
    /// Which of them run; all, unless this is changed.
    pub selection: Selection,
    /// The time of day.
    pub now: Now,
    /// The certificates (PEM) by which clients recognise the API server, for the ConfigMap `kube-root-ca.crt` in every
    /// namespace, and what they change to. Without them none is made.
    pub root_ca: Option<watch::Receiver<Arc<str>>>,
    /// How the one that works is chosen among several processes; without this, it is us.
    pub election: Option<Election>,
    /// Who counts; nobody, unless this is changed.
    pub observe: Arc<dyn Observe>,
    /// What rewrites stored objects; without it, no migration is made.
    pub engine: Option<Arc<dyn Engine>>,
    /// Evidence that is good enough to narrow `status.storedVersions`, for the migrations that are made here: names of
    /// [`migration::engine::Evidence`].
    pub accepted: Vec<String>,
    /// Only migrations of these resources are carried out; all if there are none.
    pub resources: Vec<GroupResource>,
    /// Whether the server is one that requires the facts that justify a request (`meta::grounds`).
    pub proves: bool,
}

impl Setup {
    /// Everything runs.
    pub fn new(now: Now) -> Self {
        let observe = Arc::new(Nobody);
        let (selection, accepted, resources) = (Selection::all(), Vec::new(), Vec::new());
        let (election, engine, proves) = (None, None, false);
        Self { selection, now, root_ca: None, election, observe, engine, accepted, resources, proves }
    }
}

/// What every controller is handed.
#[derive(Clone)]
pub(crate) struct Ctx {
    pub(crate) client: Client,
    pub(crate) now: Now,
    pub(crate) root_ca: Option<watch::Receiver<Arc<str>>>,
    pub(crate) observe: Arc<dyn Observe>,
    pub(crate) engine: Option<Arc<dyn Engine>>,
    pub(crate) accepted: Arc<[String]>,
    pub(crate) resources: Arc<[GroupResource]>,
    /// The term of the leader that this process is; `None` where nobody is chosen.
    pub(crate) term: Option<Term>,
    /// Whether the server requires the facts that justify a request, so that a fact may be stated before it is known.
    pub(crate) proves: bool,
}

impl Ctx {
    /// For whoever is no controller.
    pub(crate) fn bare(client: Client, now: Now) -> Self {
        let (accepted, resources) = (Vec::new().into(), Vec::new().into());
        let observe = Arc::new(Nobody);
        let (term, proves) = (None, false);
        Self { client, now, root_ca: None, observe, engine: None, accepted, resources, term, proves }
    }

    /// How the passes of a controller are counted.
    pub(crate) fn counted(&self, controller: Controller) -> Counted {
        Counted { controller: controller.name(), observe: Arc::clone(&self.observe) }
    }
}

/// Runs the selected controllers until `stop` ends. Then everything is dropped where it stands: each pass can be
/// cut off anywhere and taken up by the next, here or in another process.
///
/// The client's server does not have to be up yet. No controller's failure ends another.
pub async fn run(client: Client, setup: Setup, stop: impl Future<Output = ()>) {
    let Setup { selection, now, root_ca, election, observe, engine, accepted, resources, proves } = setup;
    let (accepted, resources) = (accepted.into(), resources.into());
    let ctx = Ctx { client, now, root_ca, observe, engine, accepted, resources, term: None, proves };
    let all = async |term: Option<Term>| {
        let ctx = Ctx { term, ..ctx.clone() };
        join_all(selection.controllers().map(|it| keep_running(it, ctx.clone()))).await;
        // With nothing selected there is only the stop to wait for.
        std::future::pending::<()>().await;
    };
    match &election {
        // Whoever holds the Lease keeps all others from working, so it is not for those who have nothing to do.
        Some(election) if selection.has_work() => {
            lead::lead(&ctx, election, stop, |term| all(Some(term))).await;
        }
        Some(_) => stop.await,
        None => tokio::select! {
            () = stop => {}
            () = all(None) => {}
        },
    }
    info!("controllers stop");
}

/// Starts the controller again whenever it ends, which it should not.
async fn keep_running(controller: Controller, ctx: Ctx) {
    let name = controller.name();
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        info!(controller = name, "controller starts");
        let outcome = AssertUnwindSafe(start(controller, ctx.clone())).catch_unwind().await;
        let why = if outcome.is_err() { "panicked" } else { "ended" };
        let pause = backoff.pause();
        error!(controller = name, why, ?pause, "a controller is started again");
        tokio::time::sleep(pause).await;
    }
}

async fn start(controller: Controller, ctx: Ctx) {
    match controller {
        Controller::ClusterRoleAggregation => cluster_role::run(ctx).await,
        Controller::Expiry => expiry::run(ctx).await,
        Controller::GarbageCollector => gc::run(ctx).await,
        Controller::Namespace => namespace::run(ctx).await,
        Controller::RootCaCertPublisher => root_ca::run(ctx).await,
        Controller::ServiceAccount => service_account::run(ctx).await,
        Controller::ServiceAccountToken => token::run(ctx).await,
        // The server around does it.
        Controller::StorageVersionGc => std::future::pending().await,
        Controller::StorageVersionMigrator => migration::run(ctx).await,
        Controller::StorageVersionTrigger => trigger::run(ctx).await,
    }
}
