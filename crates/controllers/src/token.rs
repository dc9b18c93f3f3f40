//! Secrets with tokens of a ServiceAccount go when the account does, or when another takes its name.
//!
//! Deliberately not here: making such tokens; clients ask for them with TokenRequest.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use meta::{Fact, Value, grounds::Place, object};
use tracing::info;

use crate::api::{Collection, Exactly};
use crate::changes::{Change, Watched, changes};
use crate::error::Error;
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{AT_ONCE, Next, work};

const FIELDS: &str = "type=kubernetes.io/service-account-token";

const SECRETS: Watched =
    Watched { group: "", version: "v1", kind: "Secret", resource: "secrets", fields: FIELDS };

const ACCOUNTS: Watched =
    Watched { group: "", version: "v1", kind: "ServiceAccount", resource: "serviceaccounts", fields: "" };

pub(crate) async fn run(ctx: Ctx) {
    let secrets = changes(&ctx.client, SECRETS).map(|it| (Of::Secret, it));
    let accounts = changes(&ctx.client, ACCOUNTS).map(|it| (Of::Account, it));
    let news = stream::select(secrets.boxed(), accounts.boxed());
    let mut known = BTreeSet::new();
    let triggers = news.flat_map(move |(of, change)| stream::iter(note(&mut known, of, change)));
    work(ctx.counted(Controller::ServiceAccountToken), AT_ONCE, triggers, |it| reconcile(ctx.clone(), it))
        .await;
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Secret,
    Account,
}

/// The namespaces that are worth a look; `known` are those with such Secrets.
fn note(known: &mut BTreeSet<String>, of: Of, change: Change) -> Vec<String> {
    match (of, change) {
        (Of::Secret, Change::Listed(object) | Change::Applied(object)) => {
            known.insert(object.namespace.clone());
            vec![object.namespace]
        }
        (Of::Account, Change::Deleted(object)) => {
            Some(object.namespace).filter(|it| known.contains(it)).into_iter().collect()
        }
        // Accounts may have gone while nobody watched.
        (Of::Account, Change::ListEnds) => known.iter().cloned().collect(),
        _ => Vec::new(),
    }
}

/// One pass over one namespace.
async fn reconcile(ctx: Ctx, namespace: String) -> Result<Next, Error> {
    let client = &ctx.client;
    let secrets = Collection::namespaced("", "v1", &namespace, "secrets");
    let accounts = Collection::namespaced("", "v1", &namespace, "serviceaccounts");
    let mut token = None;
    loop {
        let (items, next) = secrets.list_where::<Value>(client, FIELDS, "", token.as_deref()).await?.open();
        token = next;
        for secret in items.iter().filter(|it| !object::is_deleting(it)) {
            let Some(account) = annotation(secret, "kubernetes.io/service-account.name") else { continue };
            // `get_metadata` and not `get`: only a proved absence counts.
            let found = accounts.get_metadata::<Value>(client, account).await?;
            if is_orphaned(secret, found.as_ref()) {
                let name = object::name(secret);
                info!(
                    namespace,
                    secret = name,
                    account,
                    "a token of a ServiceAccount that is gone is deleted"
                );
                let why = ctx.because([account_is_gone(&namespace, account, secret)]);
                let outcome = secrets.delete(client, name, Exactly::of(secret), &why).await;
                match outcome {
                    Err(error) if !error.is(404) => return Err(error),
                    _ => {}
                }
            }
        }
        if token.is_none() {
            return Ok(Next::OnChange);
        }
    }
}

fn is_orphaned(secret: &Value, account: Option<&Value>) -> bool {
    let uid = annotation(secret, "kubernetes.io/service-account.uid").filter(|it| !it.is_empty());
    account.is_none_or(|account| uid.is_some_and(|it| it != object::uid(account)))
}

/// The fact that a token's ServiceAccount is not there, or is another one. A token that names no uid belongs to whichever
/// account has the name, so none may have it.
fn account_is_gone(namespace: &str, account: &str, secret: &Value) -> Fact {
    let uid = annotation(secret, "kubernetes.io/service-account.uid").unwrap_or_default();
    let object = Place {
        group: String::new(),
        resource: "serviceaccounts".to_owned(),
        namespace: namespace.to_owned(),
        name: account.to_owned(),
    };
    Fact::Gone { object, uid: uid.to_owned(), kind: None }
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(name)?.as_str().filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_belongs_to_one_account_and_not_to_its_name() {
        let secret =
            |uid: &str| json!({"metadata": {"annotations": {"kubernetes.io/service-account.uid": uid}}});
        let account = json!({"metadata": {"uid": "1"}});
        assert!(is_orphaned(&secret("1"), None));
        assert!(is_orphaned(&secret("2"), Some(&account)));
        assert!(!is_orphaned(&secret("1"), Some(&account)));
        assert!(!is_orphaned(&secret(""), Some(&account)));
    }
}
