//! How connections to other servers leave this machine: straight, or through an HTTP CONNECT proxy.
//!
//! The proxy is what `--egress-selector-config-file` names for the context `controlplane`, as upstream. Other contexts
//! (`cluster`, `etcd`) are checked and not used: nothing here connects to nodes, and the store has settings of its own.

use std::{fmt, net::IpAddr, path::PathBuf, sync::Arc};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde::Deserialize;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::body::BoxError;

/// The longest answer of a proxy to CONNECT.
const MAX_HEAD: usize = 8 * 1024;

/// Something to speak TLS over.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The way out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Egress {
    /// Straight.
    #[default]
    Direct,
    /// Through a proxy that is asked with CONNECT.
    Connect(Proxy),
}

/// Where the proxy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// At a `host:port`, over TLS if there are files for that.
    Tcp(String, Option<ProxyTls>),
    /// At a socket of this machine.
    Unix(PathBuf),
}

/// The files with which this server and a proxy prove themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyTls {
    /// The proxy's name.
    pub server_name: String,
    /// Its authority.
    pub ca: PathBuf,
    /// What this server shows, and its key.
    pub client: Option<(PathBuf, PathBuf)>,
}

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressError(String);

impl fmt::Display for EgressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EgressError {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Configuration {
    api_version: String,
    kind: String,
    #[serde(default)]
    egress_selections: Vec<Selection>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selection {
    name: String,
    connection: Connection,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Connection {
    proxy_protocol: String,
    transport: Option<Transport>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Transport {
    tcp: Option<Tcp>,
    uds: Option<Uds>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Tcp {
    url: String,
    tls_config: Option<TlsConfig>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TlsConfig {
    ca_bundle: Option<PathBuf>,
    client_key: Option<PathBuf>,
    client_cert: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Uds {
    uds_name: PathBuf,
}

impl Egress {
    /// Reads an `EgressSelectorConfiguration`, YAML or JSON.
    pub fn parse(text: &str) -> Result<Self, EgressError> {
        let wrong = |it: String| EgressError(it);
        let read: Configuration = serde_saphyr::from_str(text)
            .map_err(|it| wrong(it.to_string().lines().next().unwrap_or_default().to_owned()))?;
        let versions = ["v1", "v1beta1", "v1alpha1"].map(|it| format!("apiserver.k8s.io/{it}"));
        if read.kind != "EgressSelectorConfiguration" || !versions.contains(&read.api_version) {
            let (version, kind) = (&read.api_version, &read.kind);
            return Err(wrong(format!("{kind} of {version} is no EgressSelectorConfiguration")));
        }
        let mut controlplane = None;
        for selection in read.egress_selections {
            let name = selection.name.to_ascii_lowercase();
            if !matches!(name.as_str(), "controlplane" | "master" | "etcd" | "cluster") {
                return Err(wrong(format!("there is no context {name:?}: controlplane, cluster or etcd")));
            }
            let egress = selection.connection.read().map_err(|it| wrong(format!("{name}: {it}")))?;
            if name == "controlplane" && controlplane.replace(egress).is_some() {
                return Err(wrong("controlplane is there twice".to_owned()));
            }
        }
        Ok(controlplane.unwrap_or_default())
    }

    /// A connection to `host:port`.
    pub(crate) async fn connect(&self, address: &str) -> Result<Box<dyn Stream>, BoxError> {
        let proxy = match self {
            Self::Direct => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                return Ok(Box::new(stream));
            }
            Self::Connect(proxy) => proxy,
        };
        let mut stream: Box<dyn Stream> = match proxy {
            Proxy::Unix(path) => Box::new(UnixStream::connect(path).await?),
            Proxy::Tcp(proxy, tls) => {
                let stream = TcpStream::connect(proxy.as_str()).await?;
                stream.set_nodelay(true)?;
                match tls {
                    None => Box::new(stream),
                    Some(tls) => Box::new(tls.connect(stream).await?),
                }
            }
        };
        ask_for(&mut *stream, address).await?;
        Ok(stream)
    }
}

impl Connection {
    fn read(self) -> Result<Egress, String> {
        let transport = self.transport;
        match (self.proxy_protocol.as_str(), transport) {
            ("Direct", None) => Ok(Egress::Direct),
            ("Direct", Some(_)) => Err("Direct has no transport".to_owned()),
            ("HTTPConnect", Some(Transport { tcp: Some(tcp), uds: None })) => tcp.read(),
            ("HTTPConnect", Some(Transport { tcp: None, uds: Some(uds) })) => {
                Ok(Egress::Connect(Proxy::Unix(uds.uds_name)))
            }
            ("HTTPConnect", _) => Err("HTTPConnect needs one transport, tcp or uds".to_owned()),
            ("GRPC", _) => Err("GRPC is not supported: use HTTPConnect or Direct".to_owned()),
            (other, _) => Err(format!("there is no proxyProtocol {other:?}: HTTPConnect or Direct")),
        }
    }
}

impl Tcp {
    fn read(self) -> Result<Egress, String> {
        let (scheme, rest) = self.url.split_once("://").ok_or("the url needs a scheme: https://HOST:PORT")?;
        let authority = rest.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').ok_or("the url needs a port")?;
        if host.is_empty() || port.parse::<u16>().is_err() || authority.contains(['/', '?', '#', '@']) {
            return Err(format!("{:?} is no https://HOST:PORT", self.url));
        }
        let tls = match (scheme, self.tls_config) {
            ("http", None) => None,
            ("http", Some(_)) => return Err("http has no tlsConfig".to_owned()),
            ("https", Some(TlsConfig { ca_bundle: Some(ca), client_key, client_cert })) => {
                let client = match (client_cert, client_key) {
                    (Some(certificate), Some(key)) => Some((certificate, key)),
                    (None, None) => None,
                    _ => return Err("clientCert and clientKey belong together".to_owned()),
                };
                let server_name = host.trim_matches(['[', ']']).to_owned();
                Some(ProxyTls { server_name, ca, client })
            }
            ("https", _) => return Err("https needs a tlsConfig with a caBundle".to_owned()),
            (other, _) => return Err(format!("there is no scheme {other:?}: https or http")),
        };
        Ok(Egress::Connect(Proxy::Tcp(authority.to_owned(), tls)))
    }
}

impl ProxyTls {
    async fn connect(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, BoxError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&self.ca)? {
            roots.add(certificate?)?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_root_certificates(roots);
        let config = match &self.client {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>()?;
                config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(key)?)?
            }
        };
        let name = match self.server_name.parse::<IpAddr>() {
            Ok(ip) => ServerName::from(ip),
            Err(_) => ServerName::try_from(self.server_name.clone())?,
        };
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }
}

/// Asks the proxy for a connection to `address` and reads its answer, byte by byte so that nothing behind it is taken.
async fn ask_for(stream: &mut (impl Stream + ?Sized), address: &str) -> Result<(), BoxError> {
    let head = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut answer = Vec::with_capacity(128);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() >= MAX_HEAD {
            return Err("the egress proxy answers with too much".into());
        }
        answer.push(stream.read_u8().await?);
    }
    let line = answer.split(|it| *it == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let is_http = line.starts_with("HTTP/1.");
    if is_http && line.split(' ').nth(1) == Some("200") {
        return Ok(());
    }
    Err(format!("the egress proxy answers {line:?}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(selections: &str) -> Result<Egress, String> {
        let head =
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n";
        Egress::parse(&format!("{head}{selections}")).map_err(|it| it.to_string())
    }

    #[test]
    fn the_way_of_the_control_plane_is_read() {
        let uds = "- name: controlplane\n  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /run/p.sock}}}\n";
        assert_eq!(parse(uds), Ok(Egress::Connect(Proxy::Unix("/run/p.sock".into()))));
        let direct = "- name: controlplane\n  connection: {proxyProtocol: Direct}\n";
        assert_eq!(parse(direct), Ok(Egress::Direct));
        let other = "- name: cluster\n  connection: {proxyProtocol: Direct}\n";
        assert_eq!(parse(other), Ok(Egress::Direct));
        let tcp = "- name: controlplane\n  connection: {proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://proxy:8131', tlsConfig: {caBundle: ca, clientCert: c, clientKey: k}}}}\n";
        let tls = ProxyTls {
            server_name: "proxy".to_owned(),
            ca: "ca".into(),
            client: Some(("c".into(), "k".into())),
        };
        assert_eq!(parse(tcp), Ok(Egress::Connect(Proxy::Tcp("proxy:8131".to_owned(), Some(tls)))));
    }

    #[test]
    fn what_cannot_work_is_refused() {
        for (connection, expect) in [
            ("{proxyProtocol: GRPC}", "GRPC is not supported"),
            ("{proxyProtocol: HTTPConnect}", "needs one transport"),
            ("{proxyProtocol: Direct, transport: {uds: {udsName: x}}}", "no transport"),
            ("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://proxy:1'}}}", "caBundle"),
            ("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'proxy:1'}}}", "scheme"),
            ("{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://proxy'}}}", "port"),
            (
                "{proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://a@b:1/x'}}}",
                "no https://HOST:PORT",
            ),
            ("{proxyProtocol: Pigeon}", "there is no proxyProtocol"),
        ] {
            let error = parse(&format!("- name: controlplane\n  connection: {connection}\n")).unwrap_err();
            assert!(error.contains(expect), "{connection}: {error}");
        }
        assert!(parse("- name: moon\n  connection: {proxyProtocol: Direct}\n").unwrap_err().contains("moon"));
        assert!(Egress::parse("kind: Pod\napiVersion: v1\n").is_err());
    }

    #[tokio::test]
    async fn a_proxy_is_asked_and_believed_only_when_it_agrees() {
        for (answer, is_good) in [
            ("HTTP/1.1 200 Connection established\r\nX: y\r\n\r\nbehind", true),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", false),
            ("SSH-2.0\r\n\r\n", false),
            ("HTTP/1.1 200", false),
        ] {
            let (mut here, mut there) = tokio::io::duplex(1024);
            let proxy = async move {
                let mut asked = vec![0; 256];
                let n = there.read(&mut asked).await.unwrap();
                there.write_all(answer.as_bytes()).await.unwrap();
                String::from_utf8_lossy(&asked[..n]).into_owned()
            };
            let (result, asked) = tokio::join!(ask_for(&mut here, "10.0.0.1:6443"), proxy);
            assert_eq!(asked, "CONNECT 10.0.0.1:6443 HTTP/1.1\r\nHost: 10.0.0.1:6443\r\n\r\n");
            assert_eq!(result.is_ok(), is_good, "{answer}");
        }
    }
}
