//! The modes of the cluster: recorded by the first server, read by all.

use bytes::Bytes;
use fleet::{
    cluster::{self, ClusterRecord, Modes},
    keys, record,
};
use store::{CommitError, Revision, Store, Txn};

use crate::{board, life::NotJoined, station::Inner};

impl Inner {
    /// What is recorded of the cluster, and since which revision; records what this server wants if nothing is.
    pub(crate) async fn settle_modes(&self) -> Result<(ClusterRecord, Revision), NotJoined> {
        let key = keys::cluster();
        loop {
            let entry = self.store.get(&key).await.map_err(|it| NotJoined::Failed(it.to_string()))?;
            let recorded = board::read::<ClusterRecord>(entry.as_ref()).map_err(NotJoined::Refused)?;
            let wanted = cluster::check_modes(recorded.as_ref(), self.config.wanted);
            let modes = wanted.map_err(|it| NotJoined::Refused(it.to_string()))?;
            let (cluster, modified) = match (modes, entry) {
                (Modes::Same(cluster), entry) => (cluster, entry.map(|it| it.modified).unwrap_or_default()),
                (Modes::Record(cluster), _) => {
                    let bytes = written(&cluster)?;
                    match self.store.commit(Txn::new().require_absent(&key).put(&key, bytes)).await {
                        Ok(revision) => (cluster, revision),
                        // Another server was faster: do as it does.
                        Err(CommitError::Unmet { .. }) => continue,
                        Err(error) => return Err(NotJoined::Failed(error.to_string())),
                    }
                }
            };
            self.board.write().cluster = Some(cluster.clone());
            return Ok((cluster, modified));
        }
    }
}

fn written(cluster: &ClusterRecord) -> Result<Bytes, NotJoined> {
    record::write(&keys::cluster(), cluster).map_err(|it| NotJoined::Failed(it.to_string()))
}
