//! The kubeconfig of `convoy up`.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};

use super::servers::Servers;
use crate::failure::Failure;

/// The file that clients are given, and what is in it.
pub(super) struct Contexts {
    /// The common address.
    url: String,
    path: PathBuf,
    file: Kubeconfig,
    text: String,
}

impl Contexts {
    /// Writes the file.
    pub(super) fn write(url: String, path: PathBuf, servers: &Servers) -> Result<Self, Failure> {
        let file = of(&url, servers)?;
        let text = text(&file)?;
        save(&path, &text)?;
        Ok(Self { text, url, path, file })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file anew if the certificates in it are no longer the ones that are used.
    pub(super) fn refresh(&mut self, servers: &Servers) -> Result<(), Failure> {
        // A server that is being replaced has no address.
        if !(0..servers.len()).all(|at| servers.runs(at)) {
            return Ok(());
        }
        let file = of(&self.url, servers)?;
        let text = text(&file)?;
        if text == self.text {
            return Ok(());
        }
        // First of all, so that what could not be written is written the next time.
        save(&self.path, &text)?;
        (self.file, self.text) = (file, text);
        tracing::info!(file = %self.path.display(), "the kubeconfig has new certificates");
        Ok(())
    }

    /// For clients that take the same way as everybody, and do not hide what they are told.
    pub(super) async fn config(&self) -> Result<kube::Config, Failure> {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config =
            kube::Config::from_custom_kubeconfig(self.file.clone(), &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|it| Failure::because(&it))?;
        config.default_retry = false;
        Ok(config)
    }
}

/// For its owner alone.
fn save(path: &Path, text: &str) -> Result<(), Failure> {
    server::files::write(path, text.as_bytes(), server::files::Access::Private)
        .map_err(|it| Failure::because(&it))
}

/// A context for the common address, and one for each server.
fn of(url: &str, servers: &Servers) -> Result<Kubeconfig, Failure> {
    let Some(one) = servers.kubeconfig()? else { return Err(Failure::failed("the servers do not listen")) };
    let mut file = Kubeconfig::from_yaml(&one).map_err(|it| Failure::because(&it))?;
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

fn text(file: &Kubeconfig) -> Result<String, Failure> {
    // JSON is YAML.
    serde_json::to_string_pretty(file).map_err(|it| Failure::because(&it))
}
