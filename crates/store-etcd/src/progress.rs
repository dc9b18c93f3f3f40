//! Where etcd shows us only our own keys: how far a watch must get to be up to date.
//!
//! etcd counts all writes in one revision, foreign ones included, and tells a watch of our keys nothing of those: its
//! progress reports come every ten minutes, and etcd before 3.4.31 and 3.5.13 answers a request for one before it has sent
//! the events it covers. So a revision that may be foreign is followed by a write of our own, among the objects, whose watch
//! is waited for.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use store::{Key, ReadError, Revision, Txn};

use crate::{
    client::request,
    failure::{Failure, Harm, Refusal},
    layout::PROGRESS,
    proto::{RangeRequest, RangeResponse, kv_client::KvClient},
    read::unavailable,
    store::Inner,
};

impl Inner {
    /// Finds out whether there are keys that we may not see.
    pub(crate) async fn look_for_limits(&self) -> Result<(), ReadError> {
        // The smallest key there is: nobody keeps anything there, and no prefix holds it.
        let ask = RangeRequest { key: Bytes::from_static(b"\0"), limit: 1, ..Default::default() };
        let ask = &ask;
        let call = |channel| async move { KvClient::new(channel).range(request(ask.clone())).await };
        let answer: Result<RangeResponse, Failure> = self.client.call(Harm::None, call).await;
        match answer {
            Err(Failure::Refused(Refusal::Denied(_))) => {
                tracing::info!("etcd shows this server only the keys of its own prefixes");
                self.is_limited.store(true, Ordering::Release);
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(unavailable(&failure)),
        }
    }

    /// The newest revision that a watch of all objects reaches; linearizable.
    pub(crate) async fn reachable(&self) -> Result<Revision, ReadError> {
        let now = self.current().await?;
        if !self.is_limited.load(Ordering::Acquire) || now <= *self.reached.lock() {
            return Ok(now);
        }
        let txn = Txn::new().put(&Key::new(PROGRESS), Bytes::new());
        self.commit(txn).await.map_err(|it| ReadError::Unavailable(it.to_string()))
    }

    /// A watch of all objects has brought a change of this revision, so that every such watch does.
    pub(crate) fn has_reached(&self, revision: Revision) {
        let mut reached = self.reached.lock();
        *reached = (*reached).max(revision);
    }
}
