//! Webhooks for tests: real HTTPS servers in the test process that answer well, badly, or not at all.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// What a webhook shows to prove who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// A certificate of its authority, for `127.0.0.1`, `localhost` and `hook.default.svc`.
    Good,
    /// One that ended in the last century.
    Expired,
    /// One for another name.
    OtherName,
    /// One that is its own authority, as `openssl req -x509` makes it.
    SelfSigned,
    /// One of an authority that nobody is told of: the bundle holds the certificate itself.
    Listed,
    /// One whose only name is its common name.
    CommonName,
}

/// What a webhook answers.
#[derive(Debug, Clone)]
pub enum Reply {
    /// 200 with this JSON.
    Json(Value),
    /// Any status with any text.
    Text(u16, String),
    /// 302 to this address.
    Redirect(String),
    /// Nothing, for ever.
    Hang,
    /// Ends the connection instead of answering.
    Close,
    /// 200, and then spaces without end.
    Endless,
    /// This reply, after the gate was opened.
    After(Arc<tokio::sync::Semaphore>, Box<Reply>),
}

/// A webhook that is being served; it ends when it is dropped.
pub struct Webhook {
    /// Where it listens.
    pub address: SocketAddr,
    /// The authority that vouches for it.
    pub ca_pem: String,
    calls: Arc<Mutex<Vec<Value>>>,
    _tasks: JoinSet<()>,
}

type Answering = dyn Fn(&Value) -> Reply + Send + Sync;

impl Webhook {
    /// Serves what `answer` says.
    pub async fn start(
        identity: Identity,
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Result<Webhook> {
        let (acceptor, ca_pem) = certified(identity)?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let calls: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (seen, answer): (_, Arc<Answering>) = (Arc::clone(&calls), Arc::new(answer));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, answer) = (acceptor.clone(), Arc::clone(&seen), Arc::clone(&answer));
                connections.spawn(async move { drop(serve(acceptor, stream, seen, answer).await) });
            }
        });
        Ok(Webhook { address, ca_pem, calls, _tasks: tasks })
    }

    /// `https://127.0.0.1:port/path`
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The authority as a `caBundle` holds it.
    pub fn ca_bundle(&self) -> String {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(&self.ca_pem)
    }

    /// What was asked so far.
    pub fn calls(&self) -> Vec<Value> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    seen: Arc<Mutex<Vec<Value>>>,
    answer: Arc<Answering>,
) -> Result<()> {
    let stream = acceptor.accept(stream).await?;
    let service = service_fn(|request: Request<Incoming>| {
        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
        async move {
            let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
            let asked: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
            respond(answer(&asked)).await
        }
    });
    let connection =
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    pin!(connection).await?;
    Ok(())
}

type Body = BoxBody<Bytes, Infallible>;

async fn respond(mut reply: Reply) -> io::Result<Response<Body>> {
    while let Reply::After(gate, next) = reply {
        drop(gate.acquire().await.map_err(io::Error::other)?);
        reply = *next;
    }
    let plain = |code: u16, text: String| {
        let mut response = Response::new(Full::new(Bytes::from(text)).boxed());
        *response.status_mut() = code.try_into().unwrap_or_default();
        response
    };
    Ok(match reply {
        Reply::Json(value) => plain(200, value.to_string()),
        Reply::Text(code, text) => plain(code, text),
        Reply::Redirect(to) => {
            let mut response = plain(302, String::new());
            response.headers_mut().insert("location", to.parse().map_err(io::Error::other)?);
            response
        }
        Reply::Endless => {
            let spaces = Bytes::from(vec![b' '; 64 << 10]);
            let frames = forever(spaces);
            Response::new(StreamBody::new(frames).boxed())
        }
        Reply::Close => return Err(io::Error::other("closed by the test")),
        Reply::Hang | Reply::After(..) => std::future::pending().await,
    })
}

fn forever(bytes: Bytes) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync {
    futures_util::stream::repeat_with(move || Ok(Frame::data(bytes.clone())))
}

/// What the webhook shows, and the authority to believe.
fn certified(identity: Identity) -> Result<(TlsAcceptor, String)> {
    let names = match identity {
        Identity::OtherName => vec!["other.example".to_owned()],
        Identity::CommonName => Vec::new(),
        Identity::Good | Identity::Expired | Identity::SelfSigned | Identity::Listed => {
            vec!["127.0.0.1".to_owned(), "localhost".to_owned(), "hook.default.svc".to_owned()]
        }
    };
    let mut params = CertificateParams::new(names)?;
    if identity == Identity::Expired {
        params.not_before = rcgen::date_time_ymd(1998, 1, 1);
        params.not_after = rcgen::date_time_ymd(1999, 1, 1);
    }
    if identity == Identity::CommonName {
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "127.0.0.1");
    }
    let key = KeyPair::generate()?;
    let (certificate, ca_pem) = if identity == Identity::SelfSigned {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&key)?;
        (own.der().clone(), own.pem())
    } else {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "webhooks of a test");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let signed = params.signed_by(&key, &authority)?;
        let pem = if identity == Identity::Listed { signed.pem() } else { authority.pem() };
        (signed.der().clone(), pem)
    };
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .context("the certificate of a webhook")?;
    Ok((TlsAcceptor::from(Arc::new(config)), ca_pem))
}

/// Long enough for anything that will happen, short enough for a test that fails.
pub const PATIENCE: Duration = Duration::from_secs(30);
