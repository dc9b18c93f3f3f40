//! Every namespace has a ConfigMap `kube-root-ca.crt` with the certificates by which clients recognise the API server, also
//! when those change.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use meta::{Value, object};
use serde_json::json;

use crate::api::Collection;
use crate::changes::{Change, Watched, changes};
use crate::error::Error;
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{AT_ONCE, Next, work};

const NAME: &str = "kube-root-ca.crt";

/// In upstream's words.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
    endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
    distributions of Kubernetes clusters.";

const NAMESPACES: Watched =
    Watched { group: "", version: "v1", kind: "Namespace", resource: "namespaces", fields: "" };

const CONFIG_MAPS: Watched = Watched {
    group: "",
    version: "v1",
    kind: "ConfigMap",
    resource: "configmaps",
    fields: "metadata.name=kube-root-ca.crt",
};

pub(crate) async fn run(ctx: Ctx) {
    let Some(mut bundles) = ctx.root_ca.clone() else { return std::future::pending().await };
    loop {
        let bundle = Arc::clone(&bundles.borrow_and_update());
        let changed = async {
            if bundles.changed().await.is_err() {
                // Whoever knew of changes is gone: the last one stays.
                std::future::pending::<()>().await;
            }
        };
        // All namespaces are looked at again.
        tokio::select! {
            () = publish(&ctx, &bundle) => return,
            () = changed => tracing::info!("{NAME} changes in all namespaces"),
        }
    }
}

/// Keeps one bundle in all namespaces.
async fn publish(ctx: &Ctx, bundle: &Arc<str>) {
    let namespaces = changes(&ctx.client, NAMESPACES).filter_map(|it| {
        let name = match it {
            Change::Listed(object) | Change::Applied(object) if !object.is_deleting => Some(object.name),
            _ => None,
        };
        std::future::ready(name)
    });
    // What is listed here belongs to a namespace that is listed, too.
    let config_maps = changes(&ctx.client, CONFIG_MAPS).filter_map(|it| {
        let namespace = match it {
            Change::Applied(object) | Change::Deleted(object) => Some(object.namespace),
            Change::Listed(_) | Change::ListBegins | Change::ListEnds => None,
        };
        std::future::ready(namespace)
    });
    let triggers = stream::select(namespaces.boxed(), config_maps.boxed());
    let reconcile = |namespace: String| reconcile(ctx.clone(), namespace, bundle.to_string());
    work(ctx.counted(Controller::RootCaCertPublisher), AT_ONCE, triggers, reconcile).await;
}

/// One pass over one namespace.
async fn reconcile(ctx: Ctx, namespace: String, bundle: String) -> Result<Next, Error> {
    let config_maps = Collection::namespaced("", "v1", &namespace, "configmaps");
    let outcome = match config_maps.get(&ctx.client, NAME).await? {
        Some(config_map) => match corrected(config_map, &bundle) {
            Some(corrected) => config_maps.replace(&ctx.client, NAME, &corrected).await.map(drop),
            None => Ok(()),
        },
        None if is_active(&ctx, &namespace).await? => {
            config_maps.create(&ctx.client, &config_map(&namespace, &bundle)).await
        }
        None => Ok(()),
    };
    match outcome {
        Err(error) if error.is(404) || error.is_namespace_terminating() => Ok(Next::OnChange),
        Err(error) => Err(error),
        Ok(()) => Ok(Next::OnChange),
    }
}

async fn is_active(ctx: &Ctx, namespace: &str) -> Result<bool, Error> {
    let found = Collection::cluster("", "v1", "namespaces").get(&ctx.client, namespace).await?;
    Ok(found.is_some_and(|it| !object::is_deleting(&it)))
}

fn config_map(namespace: &str, bundle: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": NAME, "namespace": namespace, "annotations": {"kubernetes.io/description": DESCRIPTION},
        },
        "data": {"ca.crt": bundle},
    })
}

/// The ConfigMap as it should be; `None` if it is.
fn corrected(mut config_map: Value, bundle: &str) -> Option<Value> {
    let annotation = config_map.pointer("/metadata/annotations/kubernetes.io~1description");
    let data = json!({"ca.crt": bundle});
    if config_map.get("data") == Some(&data) && annotation.is_some() {
        return None;
    }
    config_map["data"] = data;
    let annotations = object::child_mut(object::metadata_mut(&mut config_map), "annotations");
    annotations.insert("kubernetes.io/description".to_owned(), Value::from(DESCRIPTION));
    Some(config_map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wrong_is_corrected() {
        let right = config_map("a", "PEM");
        assert_eq!(corrected(right.clone(), "PEM"), None);
        assert_eq!(corrected(right.clone(), "NEW"), Some(config_map("a", "NEW")));
        let mut meddled = right.clone();
        meddled["data"]["more"] = json!("x");
        meddled["metadata"]["labels"] = json!({"mine": "yes"});
        let corrected = corrected(meddled, "PEM").unwrap();
        assert_eq!(corrected["data"], right["data"]);
        assert_eq!(corrected["metadata"]["labels"], json!({"mine": "yes"}));
    }
}
