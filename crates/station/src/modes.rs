//! The modes of the cluster: recorded by the first server, read by all.

use bytes::Bytes;
use fleet::{
    cluster::{self, ClusterRecord, Modes},
    keys, record,
};
use store::{CommitError, Require, Revision, Store, Txn};

use crate::{board, life::NotJoined, station::Inner};

impl Inner {
    /// What is recorded of the cluster, and since which revision; records what this server wants if nothing is, and names the
    /// cluster if nobody has.
    pub(crate) async fn settle_modes(&self) -> Result<(ClusterRecord, Revision), NotJoined> {
        let key = keys::cluster();
        loop {
            let entry = self.store.get(&key).await.map_err(|it| NotJoined::Failed(it.to_string()))?;
            let recorded = board::read::<ClusterRecord>(entry.as_ref()).map_err(NotJoined::Refused)?;
            let fresh = &self.config.fresh_cluster;
            let wanted = cluster::check_modes(recorded.as_ref(), self.config.wanted, fresh);
            let modes = wanted.map_err(|it| NotJoined::Refused(it.to_string()))?;
            let (cluster, modified) = match (modes, entry) {
                (Modes::Same(cluster), entry) => (cluster, entry.map(|it| it.modified).unwrap_or_default()),
                (Modes::Record(cluster) | Modes::Name(cluster), entry) => {
                    let unchanged = match entry {
                        None => Require::Absent(key.clone()),
                        Some(entry) => Require::At(key.clone(), entry.modified),
                    };
                    let txn = Txn::new().require(unchanged).put(&key, written(&cluster)?);
                    match self.store.commit(txn).await {
                        Ok(revision) => (cluster, revision),
                        // Another server was faster: do as it does.
                        Err(CommitError::Unmet { .. }) => continue,
                        Err(error) => return Err(NotJoined::Failed(error.to_string())),
                    }
                }
            };
            self.board.write().set_cluster(Some(cluster.clone()), modified);
            return Ok((cluster, modified));
        }
    }
}

fn written(cluster: &ClusterRecord) -> Result<Bytes, NotJoined> {
    record::write(&keys::cluster(), cluster).map_err(|it| NotJoined::Failed(it.to_string()))
}
