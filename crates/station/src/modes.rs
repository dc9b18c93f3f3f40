//! The modes of the cluster: recorded by the first server, read by all.

use bytes::Bytes;
use fleet::{
    cluster::{self, ClusterRecord, Modes},
    keys, record,
};
use store::{CommitError, Store, Txn};

use crate::{board, life::NotJoined, station::Inner};

impl Inner {
    /// What is recorded of the cluster; records what this server wants if nothing is.
    pub(crate) async fn settle_modes(&self) -> Result<ClusterRecord, NotJoined> {
        let key = keys::cluster();
        loop {
            let entry = self.store.get(&key).await.map_err(|it| NotJoined::Failed(it.to_string()))?;
            let recorded = board::read::<ClusterRecord>(entry.as_ref()).map_err(NotJoined::Refused)?;
            let wanted = cluster::check_modes(recorded.as_ref(), self.config.wanted);
            let cluster = match wanted.map_err(|it| NotJoined::Refused(it.to_string()))? {
                Modes::Same(cluster) => cluster,
                Modes::Record(cluster) => {
                    let bytes = written(&cluster)?;
                    match self.store.commit(Txn::new().require_absent(&key).put(&key, bytes)).await {
                        Ok(_) => cluster,
                        // Another server was faster: do as it does.
                        Err(CommitError::Unmet { .. }) => continue,
                        Err(error) => return Err(NotJoined::Failed(error.to_string())),
                    }
                }
            };
            self.board.write().cluster = Some(cluster.clone());
            return Ok(cluster);
        }
    }
}

fn written(cluster: &ClusterRecord) -> Result<Bytes, NotJoined> {
    record::write(&keys::cluster(), cluster).map_err(|it| NotJoined::Failed(it.to_string()))
}
