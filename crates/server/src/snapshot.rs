//! `POST /convoy/snapshot`: a consistent copy of the store while it runs.
//!
//! How a copy is made is the store's business; here is only who may ask, and the answer.

use std::{future::Future, pin::Pin, sync::Arc};

use http::{HeaderValue, Method};
use meta::{RetryAfter, Status};

use crate::{
    answer::{self, Answer},
    body::Body,
    chain::Envelope,
    dispatch::Dispatch,
};

/// Makes a copy and hands out its bytes.
#[derive(Clone)]
pub struct Snapshots(Arc<dyn Fn() -> Making + Send + Sync>);

/// A copy in the making.
pub type Making = Pin<Box<dyn Future<Output = Result<Body, NotMade>> + Send>>;

/// Why there is no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotMade {
    /// Another one is made or sent.
    Busy,
    /// It cannot be made.
    Failed(String),
}

impl Snapshots {
    /// By calling `make`.
    pub fn new(make: impl Fn() -> Making + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    /// Makes one.
    pub fn make(&self) -> Making {
        (self.0)()
    }
}

pub(crate) async fn save(dispatch: &Dispatch, exchange: &Envelope) -> Result<Answer, Status> {
    if exchange.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let Some(snapshots) = &dispatch.snapshots else {
        let message = "this server's store makes no snapshots; for etcd use `etcdctl snapshot save`";
        return Err(Status::not_implemented(message));
    };
    let body = snapshots.make().await.map_err(|why| match why {
        NotMade::Failed(why) => Status::internal(why),
        NotMade::Busy => Status::too_many_requests(
            "another snapshot of this store is being made or sent; there is one at a time",
            RetryAfter::not_begun(10),
        ),
    })?;
    // A copy of a large store takes long: it ends only if its receiver takes nothing of it.
    Ok(answer::plain(200, HeaderValue::from_static("application/octet-stream"), body.long()))
}
