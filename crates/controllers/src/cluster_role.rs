//! The rules of a ClusterRole with an `aggregationRule` are those of the roles that its selectors pick.
//!
//! Any change of any ClusterRole leads to one pass over all of them: they are few, they feed each other in chains
//! (`view` into `edit` into `admin`), and nothing has to be remembered in between.

mod act;
mod observe;
mod plan;

use futures_util::StreamExt;

use crate::api::Collection;
use crate::changes::{Change, Watched, changes};
use crate::error::Error;
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{AT_ONCE, Next, work};

const GROUP: &str = "rbac.authorization.k8s.io";

const CLUSTER_ROLES: Watched =
    Watched { group: GROUP, version: "v1", kind: "ClusterRole", resource: "clusterroles", fields: "" };

pub(crate) async fn run(ctx: Ctx) {
    let counted = ctx.counted(Controller::ClusterRoleAggregation);
    let changes = changes(&ctx.client, CLUSTER_ROLES).filter_map(|it| {
        // The end of a list stands for everything in it.
        let is_news = matches!(it, Change::ListEnds | Change::Applied(_) | Change::Deleted(_));
        std::future::ready(is_news.then(|| "all".to_owned()))
    });
    work(counted, AT_ONCE, changes, |_| reconcile(ctx.clone())).await;
}

/// One pass over all roles.
async fn reconcile(ctx: Ctx) -> Result<Next, Error> {
    let roles = observe::observe(&ctx.client).await?;
    act::replace(&ctx, plan::plan(roles)).await?;
    Ok(Next::OnChange)
}

fn collection() -> Collection {
    Collection::cluster(GROUP, "v1", "clusterroles")
}
