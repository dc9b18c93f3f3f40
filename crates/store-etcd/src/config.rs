//! Where etcd is and how to reach it. Certificates are read when the store connects, and again when it is asked to look.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::layout::PrefixError;

/// How a server finds its etcd.
#[derive(Clone)]
pub struct EtcdConfig {
    /// The members, such as `https://10.0.0.1:2379`; without a scheme, `http`.
    pub endpoints: Vec<String>,
    /// Certificates (PEM) of the authorities that may have signed etcd's. Needed by `https` endpoints.
    pub ca: Option<PathBuf>,
    /// The client certificate (PEM), together with `key`.
    pub cert: Option<PathBuf>,
    /// The client certificate's private key (PEM).
    pub key: Option<PathBuf>,
    /// Where the objects live, see [`EtcdStore`](crate::EtcdStore).
    pub prefix: String,
    /// How long a connection may take to come about.
    pub dial_timeout: Duration,
    /// How long one request may take; reads are tried again within about twice this time.
    pub request_timeout: Duration,
    /// What timeouts and pauses run on.
    pub clock: store::SharedClock,
}

impl EtcdConfig {
    /// The defaults for everything but the place.
    pub fn new(endpoints: Vec<String>, clock: store::SharedClock) -> Self {
        Self {
            endpoints,
            ca: None,
            cert: None,
            key: None,
            prefix: "/registry".into(),
            dial_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(10),
            clock,
        }
    }
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdConfig({} under {})", self.endpoints.join(","), self.prefix)
    }
}

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The list of endpoints is empty.
    #[error("no etcd endpoint is given")]
    NoEndpoints,
    /// An endpoint is not an address.
    #[error("etcd endpoint {endpoint:?} cannot be used: {reason}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate or key cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Certificate and key come together or not at all.
    #[error("an etcd client certificate needs both a certificate file and a key file")]
    HalfIdentity,
    /// The prefix would mix two clusters.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Another cluster lies inside this one, or around it.
    #[error(
        "the etcd prefixes {prefix} and {other} lie inside each other, and a cluster uses {other} already: \
         each would take keys of the other for its own; choose an --etcd-prefix beside it"
    )]
    Nested {
        /// The prefix of this cluster.
        prefix: String,
        /// That of the other one.
        other: String,
    },
    /// No member answered.
    #[error("etcd cannot be reached: {0}")]
    Unreachable(String),
    /// No member answered over connections with certificates that have changed.
    #[error("etcd cannot be reached with the changed certificates: {0}")]
    Rejected(String),
}

/// One member, ready to be connected to.
pub(crate) struct Address {
    pub(crate) name: String,
    pub(crate) endpoint: Endpoint,
}

/// etcd drops clients that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(8);
const PING_TIMEOUT: Duration = Duration::from_secs(4);
/// So that a large list is not held up by round trips.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// What stands in the files: the authorities, the certificate and its key.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl EtcdConfig {
    /// Reads the certificates.
    pub(crate) fn credentials(&self) -> Result<Credentials, ConnectError> {
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            (None, None) => None,
            _ => return Err(ConnectError::HalfIdentity),
        };
        Ok(Credentials { ca: self.ca.as_deref().map(read).transpose()?, identity })
    }

    /// Checks the endpoints, and whether the certificates can be used with them.
    pub(crate) fn addresses(&self, credentials: &Credentials) -> Result<Vec<Address>, ConnectError> {
        if self.endpoints.is_empty() {
            return Err(ConnectError::NoEndpoints);
        }
        let tls = credentials.tls();
        self.endpoints.iter().map(|it| self.address(it, tls.as_ref())).collect()
    }

    fn address(&self, given: &str, tls: Option<&ClientTlsConfig>) -> Result<Address, ConnectError> {
        let refuse = |reason: String| ConnectError::Endpoint { endpoint: given.into(), reason };
        let name = given.trim().trim_end_matches('/');
        let name = if name.contains("://") { name.to_owned() } else { format!("http://{name}") };
        let mut endpoint = Endpoint::from_shared(name.clone()).map_err(|it| refuse(chain(&it)))?;
        match name.split("://").next() {
            Some("http") => {}
            Some("https") => {
                let tls = tls.ok_or_else(|| refuse("https needs a CA file".into()))?;
                endpoint = endpoint.tls_config(tls.clone()).map_err(|it| refuse(chain(&it)))?;
            }
            _ => return Err(refuse("the scheme must be http or https".into())),
        }
        let endpoint = endpoint
            .connect_timeout(self.dial_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        Ok(Address { name, endpoint })
    }
}

impl Credentials {
    /// Nothing without a CA: there are no system roots to fall back to.
    fn tls(&self) -> Option<ClientTlsConfig> {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(self.ca.as_ref()?));
        Some(match &self.identity {
            Some((cert, key)) => tls.identity(Identity::from_pem(cert, key)),
            None => tls,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    fs::read(path).map_err(|source| ConnectError::File { path: path.into(), source })
}

/// An error with everything behind it on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(endpoint: &str) -> Result<String, String> {
        let config = EtcdConfig::new(vec![endpoint.into()], store::SystemClock::shared());
        let addresses =
            config.credentials().and_then(|it| config.addresses(&it)).map_err(|it| it.to_string())?;
        Ok(addresses.into_iter().map(|it| it.name).collect())
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_plain_http() {
        assert_eq!(check("127.0.0.1:2379"), Ok("http://127.0.0.1:2379".into()));
        assert_eq!(check("http://[::1]:2379/"), Ok("http://[::1]:2379".into()));
    }

    #[test]
    fn endpoints_that_cannot_work_are_refused_at_once() {
        assert!(check("https://10.0.0.1:2379").unwrap_err().contains("needs a CA file"));
        assert!(check("unix:///run/etcd").unwrap_err().contains("http or https"));
        assert!(check("http://a b").is_err());
    }

    #[test]
    fn a_certificate_without_its_key_is_refused() {
        let mut config = EtcdConfig::new(vec!["http://a".into()], store::SystemClock::shared());
        config.cert = Some("a.crt".into());
        assert!(matches!(config.credentials(), Err(ConnectError::HalfIdentity)));
    }
}
