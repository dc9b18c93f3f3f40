//! The server as its own client: requests of controllers in this process take the same path as all others, without a
//! network in between.

use std::{
    convert::Infallible,
    future::Future,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::USER_AGENT};
use http_body_util::BodyExt;

use crate::{
    body::{Body, BoxError},
    chain::{Caller, Chain},
    listen::Peer,
    route::COMPATIBILITY,
};

/// Who the controllers in this process are, unless they say otherwise.
const AGENT: HeaderValue = HeaderValue::from_static("convoy-controllers");

/// Hands requests to a chain as one user.
#[derive(Clone)]
pub struct Local {
    chain: Arc<Chain>,
    caller: Caller,
    peer: Arc<Peer>,
    /// The release that clients of this process are made for.
    release: HeaderValue,
}

impl Local {
    /// Calls as `user`.
    pub fn new(chain: Arc<Chain>, user: access::User) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let caller = Caller::of(Arc::new(user));
        let release = chain.dispatch.catalog.release().to_string();
        let release = HeaderValue::try_from(release).expect("a release must fit into a header");
        Self { chain, caller, peer: Arc::new(Peer::without_certificate(address)), release }
    }
}

impl<B> tower::Service<Request<B>> for Local
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { chain, caller, peer, release } = self.clone();
        let mut request = request.map(|it| it.map_err(Into::into).boxed_unsync());
        // Audit and managedFields name writers after their agents.
        request.headers_mut().entry(USER_AGENT).or_insert(AGENT);
        request.headers_mut().entry(COMPATIBILITY).or_insert(release);
        Box::pin(async move { Ok(chain.serve(request, peer, Some(caller)).await) })
    }
}
