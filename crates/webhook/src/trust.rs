//! Whom to believe: the certificates of a bundle, or of the machine.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::CryptoProvider,
    server::ParsedCertificate,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use x509_parser::parse_x509_certificate;

/// More certificates than anybody has in one bundle.
const MAX_AUTHORITIES: usize = 1000;

/// The TLS side of calls to webhooks that these authorities vouch for.
pub(crate) fn config(ca_bundle: &[u8]) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let authorities = if ca_bundle.is_empty() { of_machine() } else { of_bundle(ca_bundle)? };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned());
    if roots.is_empty() {
        return Err("unable to load root certificates: unable to parse bytes as PEM block".to_owned());
    }
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .map_err(|it| it.to_string())?;
    let verifier = Verifier { inner, authorities, provider: Arc::clone(&provider) };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|it| it.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    // One request per connection at a time, as upstream: a balancer in front of webhooks can then spread calls.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn of_bundle(bundle: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let wrong = || "unable to load root certificates: unable to parse bytes as PEM block".to_owned();
    let found: Vec<_> = CertificateDer::pem_slice_iter(bundle)
        .take(MAX_AUTHORITIES)
        .collect::<Result<_, _>>()
        .map_err(|_| wrong())?;
    if found.is_empty() { Err(wrong()) } else { Ok(found) }
}

fn of_machine() -> Vec<CertificateDer<'static>> {
    // Single files that cannot be read are no reason to do without the others.
    rustls_native_certs::load_native_certs().certs
}

/// The usual checks, and one thing more that Go allows and many self-made set-ups rely on: a certificate that is
/// itself in the bundle is believed, whoever signed it and even if it says that it is an authority.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    authorities: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let checked =
            self.inner.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let is_listed = || self.authorities.iter().any(|it| it == end_entity);
        let checked = match checked {
            Err(Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_),
            )) if is_listed() => check_listed(end_entity, server_name, now),
            other => other,
        };
        match checked {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if relies_on_common_name(end_entity) => {
                Err(CertificateError::Other(OtherError(Arc::new(LegacyName))).into())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What remains to be checked of a certificate that is itself believed.
fn check_listed(
    certificate: &CertificateDer<'_>,
    server_name: &ServerName<'_>,
    now: UnixTime,
) -> Result<ServerCertVerified, Error> {
    check_dates(certificate, now)?;
    check_purpose(certificate)?;
    verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
    Ok(ServerCertVerified::assertion())
}

/// A certificate that says what it is for must be for servers.
fn check_purpose(certificate: &CertificateDer<'_>) -> Result<(), Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
    match usage {
        Some(it) if !it.value.any && !it.value.server_auth => Err(CertificateError::InvalidPurpose.into()),
        _ => Ok(()),
    }
}

/// A certificate whose only name is its common name, which nobody looks at any more.
#[derive(Debug, thiserror::Error)]
#[error("certificate relies on legacy Common Name field, use SANs instead")]
struct LegacyName;

fn relies_on_common_name(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, parsed)) = parse_x509_certificate(certificate) else { return false };
    let has_names = !matches!(parsed.subject_alternative_name(), Ok(None));
    let is_host = |name: &str| {
        !name.is_empty() && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-_.:*".contains(&it))
    };
    !has_names && parsed.subject().iter_common_name().any(|it| it.as_str().is_ok_and(is_host))
}

fn check_dates(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = parse_x509_certificate(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if now < parsed.validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if parsed.validity.not_after.timestamp() < now {
        return Err(CertificateError::Expired.into());
    }
    Ok(())
}
