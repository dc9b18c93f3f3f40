//! The kubeconfig of `convoy up`.

use std::path::Path;

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::servers::Servers;
use crate::failure::Failure;

/// A context for the common address, and one for each server.
pub(super) fn of(url: &str, servers: &Servers) -> Result<Kubeconfig, Failure> {
    let Some(first) = servers.kubeconfig(0) else { return Err(Failure::failed("the servers do not listen")) };
    let mut file = Kubeconfig::from_yaml(first).map_err(|it| Failure::because(&it))?;
    let mut contexts = Vec::new();
    let mut clusters = Vec::new();
    let (Some(context), Some(cluster)) = (file.contexts.first().cloned(), file.clusters.first().cloned())
    else {
        return Err(Failure::failed("the kubeconfig of a server is empty"));
    };
    let servers = (0..servers.len()).map(|at| (servers.name(at), servers.url(at)));
    for (name, url) in std::iter::once(("convoy".to_owned(), url.to_owned())).chain(servers) {
        let mut cluster = cluster.clone();
        cluster.name.clone_from(&name);
        if let Some(it) = &mut cluster.cluster {
            it.server = Some(url);
        }
        let mut context = context.clone();
        context.name.clone_from(&name);
        if let Some(it) = &mut context.context {
            it.cluster.clone_from(&name);
        }
        clusters.push(cluster);
        contexts.push(context);
    }
    (file.clusters, file.contexts, file.current_context) = (clusters, contexts, Some("convoy".to_owned()));
    Ok(file)
}

/// Writes it, for its owner alone.
pub(super) fn write(path: &Path, file: &Kubeconfig) -> Result<(), Failure> {
    // JSON is YAML.
    let text = serde_json::to_string_pretty(file).map_err(|it| Failure::because(&it))?;
    server::files::write(path, text.as_bytes(), server::files::Access::Private)
        .map_err(|it| Failure::because(&it))
}

/// For clients that take the same way as everybody, and do not hide what they are told.
pub(super) async fn config(file: &Kubeconfig) -> Result<kube::Config, Failure> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = kube::Config::from_custom_kubeconfig(file.clone(), &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|it| Failure::because(&it))?;
    config.default_retry = false;
    Ok(config)
}
