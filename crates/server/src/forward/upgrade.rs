//! Requests that turn a connection into something else: they are passed on byte by byte, in both directions.
//!
//! HTTP/2 has no such thing, so each gets a connection of its own; the caller's identity goes with it like with any
//! other request.

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyStream;
use hyper::{body::Incoming, client::conn::http1, upgrade::OnUpgrade};
use hyper_util::rt::TokioIo;

use super::{Candidate, Forwarder, Pools, Reachable, Unanswered, Undone, warn};
use crate::body::{Body, BoxError, RequestBody};

/// The protocols that the client wants to speak, and the promise of its connection.
#[derive(Debug)]
pub(crate) struct Upgrade {
    protocol: HeaderValue,
    connection: OnUpgrade,
}

impl Upgrade {
    /// What a request wants to make of its connection, if anything.
    pub(crate) fn of(parts: &mut http::request::Parts) -> Option<Self> {
        let protocol = parts.headers.get(header::UPGRADE)?.clone();
        Some(Self { protocol, connection: parts.extensions.remove::<OnUpgrade>()? })
    }
}

/// The answer of the first server that can be reached.
pub(super) async fn forward<'a>(
    forwarder: &Forwarder,
    pools: &Pools,
    order: &[Reachable<'a>],
    mut request: Request<RequestBody>,
    wanted: Upgrade,
) -> Result<(&'a Candidate, Response<Body>), Unanswered> {
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, wanted.protocol);
    for Reachable { candidate, address, .. } in order {
        let host: Result<HeaderValue, _> = address.parse();
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str()).parse();
        let opened = async {
            let stream = pools.peers().connect(address, b"http/1.1").await?;
            let opened = http1::handshake(TokioIo::new(stream)).await?;
            Ok::<_, BoxError>((opened, host?, path?))
        };
        let ((mut sender, connection), host, path) = match opened.await {
            Ok(opened) => opened,
            Err(error) => {
                warn(candidate, address, &error);
                continue;
            }
        };
        forwarder.tasks.spawn("upgraded connection to another server", async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to another server broke");
            }
        });
        request.headers_mut().insert(header::HOST, host);
        *request.uri_mut() = path;
        return match sender.send_request(request).await {
            Ok(response) => Ok((candidate, answer(forwarder, response, wanted.connection))),
            Err(error) => {
                warn(candidate, address, &error.into());
                Err(Unanswered::Unknown)
            }
        };
    }
    Err(Unanswered::Undone(Undone))
}

/// The answer; if it agrees to the change, bytes flow from here on.
fn answer(forwarder: &Forwarder, mut response: Response<Incoming>, client: OnUpgrade) -> Response<Body> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server = hyper::upgrade::on(&mut response);
        let draining = forwarder.lifecycle.draining();
        forwarder.tasks.spawn("upgraded request", async move {
            let joined = async {
                let (client, server) = tokio::try_join!(client, server)?;
                let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                tokio::io::copy_bidirectional(&mut client, &mut server).await?;
                Ok::<(), BoxError>(())
            };
            tokio::select! {
                result = joined => if let Err(error) = result {
                    tracing::debug!(%error, "an upgraded connection broke");
                },
                () = draining => {}
            }
        });
        return response.map(|_| Body::empty());
    }
    response.map(|incoming| Body::stream(pieces(incoming)))
}

/// A body as it comes, without what may follow behind it.
fn pieces(incoming: Incoming) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    BodyStream::new(incoming).filter_map(|frame| {
        std::future::ready(match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(BoxError::from(error))),
        })
    })
}
