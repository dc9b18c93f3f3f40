//! Runs the selected controllers side by side until they are told to stop.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use jiff::Timestamp;
use kube::Client;
use tracing::{error, info};

use crate::backoff::Backoff;
use crate::selection::{Controller, Selection};
use crate::{cluster_role, namespace, service_account};

/// The time of day, for timestamps in objects.
pub type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What every controller is handed.
#[derive(Clone)]
pub(crate) struct Ctx {
    pub(crate) client: Client,
    pub(crate) now: Now,
}

/// Runs the controllers in `selection` until `stop` ends. Then everything is dropped where it stands: each pass can be
/// cut off anywhere and taken up by the next, here or in another process.
///
/// The client's server does not have to be up yet. No controller's failure ends another.
pub async fn run(client: Client, selection: Selection, now: Now, stop: impl Future<Output = ()>) {
    let ctx = Ctx { client, now };
    let running = async {
        join_all(selection.controllers().map(|it| keep_running(it, ctx.clone()))).await;
        // With nothing selected there is only the stop to wait for.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop => info!("controllers stop"),
        () = running => {}
    }
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
        Controller::Namespace => namespace::run(ctx).await,
        Controller::ServiceAccount => service_account::run(ctx).await,
    }
}
