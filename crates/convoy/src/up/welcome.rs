//! What `convoy up` says when it is ready.

use std::{path::Path, time::Duration};

use meta::Release;

use super::servers::Servers;

/// What is worth knowing.
pub(super) struct Welcome<'a> {
    pub(super) url: &'a str,
    pub(super) servers: &'a Servers,
    /// Since the process started.
    pub(super) took: Duration,
    /// Where objects are: `in memory`.
    pub(super) keeps: &'a str,
    pub(super) data_dir: &'a Path,
    pub(super) kubeconfig: &'a Path,
    /// What remains when it ends.
    pub(super) stays: &'a str,
}

/// All of it, and what to try next.
pub(super) fn page(welcome: &Welcome<'_>) -> String {
    let Welcome { url, servers, took, keeps, data_dir, kubeconfig, stays } = welcome;
    let row = |at| format!("  {:<10} {}  {}\n", servers.name(at), servers.url(at), servers.release(at));
    let rows: String = (0..servers.len()).map(row).collect();
    let next = if servers.release(0).minor < catalog::LAST_RELEASE.minor { 1 } else { -1 };
    let other = Release::v1(servers.release(0).minor.saturating_add_signed(next));
    format!(
        "Convoy is ready at {url} after {} ms; it keeps everything {keeps}.\n\
         \n\
         {rows}\
         \n\
         In another terminal:\n\
         \n\
         \x20 export KUBECONFIG={kubeconfig}\n\
         \x20 kubectl get namespaces\n\
         \x20 kubectl create configmap hello --from-literal=who=world\n\
         \x20 convoy rollout --to {other} --data-dir {data}\n\
         \n\
         Ctrl-C stops it; {stays}.\n",
        took.as_millis(),
        data = data_dir.display(),
        kubeconfig = kubeconfig.display(),
    )
}
