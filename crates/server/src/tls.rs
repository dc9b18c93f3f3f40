//! The server's side of TLS: its certificate, and whom it believes.
//!
//! Responsible for: the rustls configuration, reading certificates and keys, reloading them when the files change,
//! and saying which authority vouches for a client's certificate.
//! Deliberately not here: making certificates (`pki`), what a certificate's name means (`access`).
//!
//! # Flow
//! A client may show a certificate; the handshake only proves that it holds the key. Which authority vouches for
//! it, if any, is decided afterwards by [`Trust`], so that a stranger's or an expired certificate is answered with
//! 401 as by kube-apiserver, not with a broken handshake, and a reloaded authority counts for open connections too.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms},
    server::{
        ProducesTickets, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use store::SharedClock;

use crate::follow;

/// Where certificates and keys are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then its intermediates.
    pub certificate: PathBuf,
    /// Its private key.
    pub private_key: PathBuf,
    /// The authorities that vouch for users.
    pub client_ca: Option<PathBuf>,
    /// The authorities that vouch for front proxies.
    pub front_proxy_ca: Option<PathBuf>,
}

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file is not there, or may not be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{} does not hold {expected}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What should be in it.
        expected: &'static str,
        /// Why not.
        #[source]
        source: Option<rustls_pki_types::pem::Error>,
    },
    /// Certificate and key do not belong together, or are of a kind that is not supported.
    #[error("{} and {} cannot be used together", certificate.display(), private_key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        private_key: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
    /// A certificate in the file cannot be an authority.
    #[error("{} holds a certificate that cannot be used as an authority", path.display())]
    BadAuthority {
        /// Which file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rustls::Error,
    },
}

/// Which authorities vouch for a certificate, now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifiedBy {
    /// One of `--client-ca-file`: the certificate names a user.
    pub client_ca: bool,
    /// One of `--requestheader-client-ca-file`: the certificate names a proxy.
    pub front_proxy_ca: bool,
}

impl VerifiedBy {
    /// Whether any does.
    pub fn any(self) -> bool {
        self.client_ca || self.front_proxy_ca
    }
}

/// The authorities of one moment.
pub struct Trust {
    generation: u64,
    client_ca: Option<Authority>,
    front_proxy_ca: Option<Authority>,
    clock: SharedClock,
}

struct Authority {
    verifier: Arc<dyn ClientCertVerifier>,
    pem: Vec<u8>,
}

impl Trust {
    /// Trusts no certificate: for servers without a network.
    pub fn nobody(clock: SharedClock) -> Self {
        Self { generation: 0, client_ca: None, front_proxy_ca: None, clock }
    }

    /// Which authorities vouch for this chain, the client's own certificate first.
    pub fn verified_by(&self, chain: &[CertificateDer<'_>]) -> VerifiedBy {
        let Some((end_entity, intermediates)) = chain.split_first() else { return VerifiedBy::default() };
        let seconds = u64::try_from(self.clock.now().as_second()).unwrap_or(0);
        let now = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let vouches = |authority: &Option<Authority>| {
            authority
                .as_ref()
                .is_some_and(|it| it.verifier.verify_client_cert(end_entity, intermediates, now).is_ok())
        };
        VerifiedBy { client_ca: vouches(&self.client_ca), front_proxy_ca: vouches(&self.front_proxy_ca) }
    }

    /// Grows with every reload: what was verified under another generation must be verified again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Monotonic time, for those who remember for how long something was verified.
    pub(crate) fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The authorities that vouch for users, as they stand in the file.
    pub fn client_ca_pem(&self) -> Option<&[u8]> {
        self.client_ca.as_ref().map(|it| it.pem.as_slice())
    }

    /// The authorities that vouch for front proxies, as they stand in the file.
    pub fn front_proxy_ca_pem(&self) -> Option<&[u8]> {
        self.front_proxy_ca.as_ref().map(|it| it.pem.as_slice())
    }
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// TLS as it is served now. Follows its files.
pub struct Tls {
    files: TlsFiles,
    clock: SharedClock,
    provider: Arc<CryptoProvider>,
    // Kept over reloads, so that sessions can be resumed.
    tickets: Option<Arc<dyn ProducesTickets>>,
    sessions: Arc<dyn StoresServerSessions>,
    current: ArcSwap<Loaded>,
}

struct Loaded {
    contents: Contents,
    config: Arc<ServerConfig>,
    trust: Arc<Trust>,
}

/// What stands in the files.
#[derive(PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    private_key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    front_proxy_ca: Option<Vec<u8>>,
}

impl Tls {
    /// Reads the files.
    pub fn load(files: TlsFiles, clock: SharedClock) -> Result<Self, TlsError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tickets = rustls::crypto::aws_lc_rs::Ticketer::new().ok();
        let sessions: Arc<dyn StoresServerSessions> = ServerSessionMemoryCache::new(1024);
        let contents = Contents::read(&files)?;
        let parts = Parts {
            files: &files,
            clock: &clock,
            provider: &provider,
            tickets: tickets.as_ref(),
            sessions: &sessions,
        };
        let loaded = parts.build(contents, 0)?;
        Ok(Self { current: ArcSwap::from_pointee(loaded), files, clock, provider, tickets, sessions })
    }

    /// For the next connection.
    pub fn acceptor(&self) -> tokio_rustls::TlsAcceptor {
        tokio_rustls::TlsAcceptor::from(Arc::clone(&self.current.load().config))
    }

    /// Whom the server believes now.
    pub fn trust(&self) -> Arc<Trust> {
        Arc::clone(&self.current.load().trust)
    }

    /// Reads the files again. Says whether something changed; on an error everything stays as it was.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let contents = Contents::read(&self.files)?;
        let current = self.current.load();
        if current.contents == contents {
            return Ok(false);
        }
        let parts = Parts {
            files: &self.files,
            clock: &self.clock,
            provider: &self.provider,
            tickets: self.tickets.as_ref(),
            sessions: &self.sessions,
        };
        let loaded = parts.build(contents, current.trust.generation + 1)?;
        self.current.store(Arc::new(loaded));
        Ok(true)
    }

    /// Reloads for ever, whenever the files have changed.
    pub async fn follow_files(self: Arc<Self>) {
        let clock = Arc::clone(&self.clock);
        follow::files("serving certificate and client authorities", clock, move || {
            let tls = Arc::clone(&self);
            follow::aside(move || tls.reload())
        })
        .await;
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Contents {
    fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let optional = |path: &Option<PathBuf>| path.as_deref().map(read).transpose();
        Ok(Self {
            certificate: read(&files.certificate)?,
            private_key: read(&files.private_key)?,
            client_ca: optional(&files.client_ca)?,
            front_proxy_ca: optional(&files.front_proxy_ca)?,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

/// The certificates in a PEM file, at least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let malformed =
        |source| TlsError::Malformed { path: path.to_owned(), expected: "a PEM certificate", source };
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|it| malformed(Some(it)))?;
    if chain.is_empty() { Err(malformed(None)) } else { Ok(chain) }
}

struct Parts<'a> {
    files: &'a TlsFiles,
    clock: &'a SharedClock,
    provider: &'a Arc<CryptoProvider>,
    tickets: Option<&'a Arc<dyn ProducesTickets>>,
    sessions: &'a Arc<dyn StoresServerSessions>,
}

impl Parts<'_> {
    fn build(&self, contents: Contents, generation: u64) -> Result<Loaded, TlsError> {
        let chain = certificates(&self.files.certificate, &contents.certificate)?;
        let key =
            PrivateKeyDer::from_pem_slice(&contents.private_key).map_err(|source| TlsError::Malformed {
                path: self.files.private_key.clone(),
                expected: "a PEM private key",
                source: Some(source),
            })?;

        let mut hints = Vec::new();
        let client_ca =
            self.authority(self.files.client_ca.as_deref(), contents.client_ca.as_deref(), &mut hints)?;
        let front_proxy_ca = self.authority(
            self.files.front_proxy_ca.as_deref(),
            contents.front_proxy_ca.as_deref(),
            &mut hints,
        )?;

        let builder = ServerConfig::builder_with_provider(Arc::clone(self.provider))
            .with_safe_default_protocol_versions()
            .expect("the provider must support TLS 1.2 and 1.3");
        let builder = if client_ca.is_none() && front_proxy_ca.is_none() {
            builder.with_no_client_auth()
        } else {
            let algorithms = self.provider.signature_verification_algorithms;
            builder.with_client_cert_verifier(Arc::new(AskForCertificate { hints, algorithms }))
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|source| TlsError::Unusable {
            certificate: self.files.certificate.clone(),
            private_key: self.files.private_key.clone(),
            source,
        })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.session_storage = Arc::clone(self.sessions);
        if let Some(tickets) = self.tickets {
            config.ticketer = Arc::clone(tickets);
        }
        let trust = Trust { generation, client_ca, front_proxy_ca, clock: Arc::clone(self.clock) };
        Ok(Loaded { contents, config: Arc::new(config), trust: Arc::new(trust) })
    }

    fn authority(
        &self,
        path: Option<&Path>,
        pem: Option<&[u8]>,
        hints: &mut Vec<DistinguishedName>,
    ) -> Result<Option<Authority>, TlsError> {
        let (Some(path), Some(pem)) = (path, pem) else { return Ok(None) };
        let bad = |source| TlsError::BadAuthority { path: path.to_owned(), source };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path, pem)? {
            roots.add(certificate).map_err(bad)?;
        }
        hints.extend(roots.subjects());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(self.provider))
                .build()
                .map_err(|it| bad(rustls::Error::General(it.to_string())))?;
        Ok(Some(Authority { verifier, pem: pem.to_vec() }))
    }
}

/// Asks for a certificate, takes any, and has the client prove that it holds the key. Who vouches for the
/// certificate is [`Trust`]'s to say.
#[derive(Debug)]
struct AskForCertificate {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AskForCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // What cannot even be read would fail later in a place that says less.
        match x509_parser::parse_x509_certificate(end_entity) {
            Ok(_) => Ok(ClientCertVerified::assertion()),
            Err(_) => Err(CertificateError::BadEncoding.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
