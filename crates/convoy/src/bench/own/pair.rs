//! Two servers on one embedded store, which belongs to one process: so both are in this one, beside the clients.

use std::{net::SocketAddr, path::Path, sync::Arc};

use store::SystemClock;

use super::{
    super::{Size, endpoint::Endpoint, report::Figure},
    THROUGH_ANOTHER, WITHOUT_MAPS,
};
use crate::{
    cluster::ClusterFlags,
    duration::GoDuration,
    embed::{Options, Server},
    failure::Failure,
    flags::{DEFAULT_QUOTA, EtcdFlags, StorageFlags},
    storage::Storage,
};

/// GET through the one that does not have what is asked for.
pub(super) async fn proxied(size: Size) -> Result<Vec<Figure>, Failure> {
    let home = tempfile::Builder::new().prefix("convoy-bench-").tempdir();
    let home = home.map_err(|it| Failure::failed(format!("no temporary directory: {it}")))?;
    let flags = StorageFlags {
        data_dir: Some(home.path().join("data")),
        etcd: EtcdFlags::none(),
        etcd_compaction_interval: GoDuration::from_secs(0),
        quota_backend_bytes: DEFAULT_QUOTA,
        event_ttl: GoDuration::from_secs(3_600),
    };
    let storage = Arc::new(Storage::open_or_make(&flags, &SystemClock::shared()).await?);
    let first = start(&storage, home.path(), "bench-1", &[]).await?;
    let second = start(&storage, home.path(), "bench-2", &[WITHOUT_MAPS]).await?;
    let figure = measure(home.path(), &first, &second, size).await;
    tokio::join!(first.stop(), second.stop());
    storage.close().await;
    Ok(vec![figure?])
}

async fn start(storage: &Arc<Storage>, home: &Path, name: &str, flags: &[&str]) -> Result<Server, Failure> {
    let options = Options {
        name: name.to_owned(),
        listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        cert_dir: Some(home.join("certs")),
        flags: flags.iter().map(|it| (*it).to_owned()).collect(),
        ..Options::default()
    };
    Server::start_on(storage, options).await.map_err(|it| Failure::failed(format!("{name}: {it}")))
}

async fn measure(home: &Path, first: &Server, second: &Server, size: Size) -> Result<Figure, Failure> {
    let first = endpoint(first, &home.join("first.kubeconfig")).await?;
    first.make_namespace().await?;
    first.make_objects(size).await?;
    let through = endpoint(second, &home.join("second.kubeconfig")).await?;
    let mut figure = through.get(size).await.map_err(|it| Failure::because(&it))?;
    THROUGH_ANOTHER.clone_into(&mut figure.name);
    figure.note = format!("{}; both servers and the clients in one process", figure.note);
    Ok(figure)
}

async fn endpoint(server: &Server, path: &Path) -> Result<Endpoint, Failure> {
    let text = server.kubeconfig().unwrap_or_default();
    server::files::write(path, text.as_bytes(), server::files::Access::Private)
        .map_err(|it| Failure::because(&it))?;
    Endpoint::of(&ClusterFlags::running(Some(path.to_owned()), None)).await
}
