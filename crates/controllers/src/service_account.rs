//! Every active namespace has a ServiceAccount `default`: it is made with the namespace, and again when it is deleted.
//!
//! Deliberately not here: tokens and their Secrets.

mod act;
mod observe;
mod plan;

use futures_util::{StreamExt, stream};
use kube::Client;

use crate::changes::{Watched, changes};
use crate::error::Error;
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{AT_ONCE, Next, work};
use plan::{Known, News, Plan};

/// The name of the account.
const NAME: &str = "default";

const NAMESPACES: Watched =
    Watched { group: "", version: "v1", kind: "Namespace", resource: "namespaces", fields: "" };

const ACCOUNTS: Watched = Watched {
    group: "",
    version: "v1",
    kind: "ServiceAccount",
    resource: "serviceaccounts",
    fields: "metadata.name=default",
};

pub(crate) async fn run(ctx: Ctx) {
    let counted = ctx.counted(Controller::ServiceAccount);
    let Ctx { client, .. } = ctx;
    let namespaces = changes(&client, NAMESPACES).map(News::Namespace);
    let accounts = changes(&client, ACCOUNTS).map(News::Account);
    let news = stream::select(namespaces.boxed(), accounts.boxed());
    let mut known = Known::default();
    let triggers = news.flat_map(move |it| stream::iter(known.note(it)));
    work(counted, AT_ONCE, triggers, |it| reconcile(client.clone(), it)).await;
}

/// One pass over one namespace.
async fn reconcile(client: Client, namespace: String) -> Result<Next, Error> {
    let seen = observe::observe(&client, &namespace).await?;
    match plan::plan(&seen) {
        Plan::Nothing => {}
        Plan::Create => act::create(&client, &namespace).await?,
    }
    Ok(Next::OnChange)
}
