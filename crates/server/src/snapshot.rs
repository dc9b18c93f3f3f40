//! `POST /convoy/snapshot`: a consistent copy of the store while it runs.
//!
//! How a copy is made is the store's business; here is only who may ask, and the answer.

use std::{future::Future, pin::Pin, sync::Arc};

use http::{HeaderValue, Method};
use meta::Status;

use crate::{
    answer::{self, Answer},
    body::Body,
    chain::Exchange,
    dispatch::Dispatch,
};

/// Makes a copy and hands out its bytes.
#[derive(Clone)]
pub struct Snapshots(Arc<dyn Fn() -> Making + Send + Sync>);

/// A copy in the making.
pub type Making = Pin<Box<dyn Future<Output = Result<Body, String>> + Send>>;

impl Snapshots {
    /// By calling `make`.
    pub fn new(make: impl Fn() -> Making + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }
}

pub(crate) async fn save(dispatch: &Dispatch, exchange: &Exchange) -> Result<Answer, Status> {
    if exchange.method != Method::POST {
        return Err(Status::method_not_allowed());
    }
    let Some(snapshots) = &dispatch.snapshots else {
        let message = "this server's store makes no snapshots; for etcd use `etcdctl snapshot save`";
        return Err(Status::not_implemented(message));
    };
    let body = (snapshots.0)().await.map_err(Status::internal)?;
    Ok(answer::plain(200, HeaderValue::from_static("application/octet-stream"), body))
}
