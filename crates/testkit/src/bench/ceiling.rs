//! The yardstick: a bare hyper and rustls server that hands out constant bytes.
//!
//! It runs as a process of its own, as the measured server does, and does nothing a server could leave
//! out. What is between it and Convoy is what Convoy's work costs.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Serves `/N` as N bytes until it is killed; writes `PORT` and the certificate into `dir`.
pub async fn serve(dir: &Path) -> Result<()> {
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    std::fs::write(dir.join("ca.pem"), certified.cert.pem())?;
    let port = listener.local_addr()?.port().to_string();
    std::fs::write(dir.join("port.partial"), port)?;
    std::fs::rename(dir.join("port.partial"), dir.join("port")).context("cannot announce the port")?;
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let sizes = [Bytes::from(vec![b'x'; 1_250]), Bytes::from(vec![b'x'; 1_250_000])];
            let service = service_fn(move |request: Request<Incoming>| {
                let body = sizes[usize::from(request.uri().path() == "/list")].clone();
                async move { Ok::<_, Infallible>(constant(body)) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

fn constant(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn constant_bytes_are_counted_as_they_are_sent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let server = tokio::spawn(async move { serve(&path).await });
        let port = loop {
            if let Ok(port) = std::fs::read_to_string(dir.path().join("port")) {
                break port;
            }
            tokio::task::yield_now().await;
        };
        let ca = std::fs::read(dir.path().join("ca.pem")).unwrap();
        let target = crate::bench::plan::target(&format!("https://127.0.0.1:{port}"), &ca, "token").unwrap();
        let mut connection = target.connect().await.unwrap();
        for (path, size) in [("/get", 1_250), ("/list", 1_250_000), ("/get", 1_250)] {
            let reply = connection.exchange(&target.request("GET", path, b"")).await.unwrap();
            assert_eq!((reply.status, reply.bytes), (200, size));
        }
        server.abort();
    }
}
