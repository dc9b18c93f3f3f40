//! How a connection to one webhook is made: find the machine, connect, agree on TLS.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{Address, Resolve, failure};

/// Makes connections to one webhook.
#[derive(Clone)]
pub(crate) struct Connector {
    pub(crate) address: Arc<Address>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) tls: Arc<rustls::ClientConfig>,
}

/// A connection that is ready for requests.
pub(crate) struct Stream(TokioIo<TlsStream<TcpStream>>);

impl Connector {
    /// Where to connect to, and the name that the certificate must have.
    fn destination(&self, uri: &Uri) -> io::Result<(String, ServerName<'static>)> {
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::other(format!("{host} is not a name that a certificate could have")))?;
        let authority = match &*self.address {
            Address::Url(_) => {
                let host = uri.host().unwrap_or_default();
                format!("{host}:{}", uri.port_u16().unwrap_or(443))
            }
            Address::Service { namespace, name, port, .. } => {
                self.resolver.resolve(namespace, name, *port).map_err(io::Error::other)?
            }
        };
        Ok((authority, name))
    }

    async fn connect(self, uri: Uri) -> io::Result<Stream> {
        let (authority, name) = self.destination(&uri)?;
        let stream = TcpStream::connect(&authority)
            .await
            .map_err(|it| io::Error::other(failure::of_connect(&it, &authority)))?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(self.tls).connect(name, stream).await?;
        Ok(Stream(TokioIo::new(stream)))
    }
}

impl tower::Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, buffer)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
