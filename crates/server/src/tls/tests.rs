//! Whom a server believes, before and after its files change.

use std::net::SocketAddr;

use store::{Clock, ManualClock, SystemClock};

use super::*;
use crate::{
    listen::Peer,
    pki::{self, Pki, ServingNames},
};

fn make(folder: &Path) -> Pki {
    pki::ensure(folder, &ServingNames::standard(), SystemClock::new().now()).unwrap()
}

fn files(pki: &Pki) -> TlsFiles {
    TlsFiles {
        certificate: pki.serving_certificate.clone(),
        private_key: pki.serving_key.clone(),
        client_ca: Some(pki.ca.clone()),
        front_proxy_ca: Some(pki.front_proxy_ca.clone()),
    }
}

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn each_authority_vouches_for_its_own() {
    let (folder, stranger) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let pki = make(folder.path());
    let trust = Tls::load(files(&pki), SystemClock::shared()).unwrap().trust();
    let by = |client_ca, front_proxy_ca| VerifiedBy { client_ca, front_proxy_ca };
    assert_eq!(trust.verified_by(&chain(&pki.admin_certificate)), by(true, false));
    assert_eq!(trust.verified_by(&chain(&pki.front_proxy_certificate)), by(false, true));
    // A serving certificate is signed by the right authority, but not for clients.
    assert_eq!(trust.verified_by(&chain(&pki.serving_certificate)), by(false, false));
    assert_eq!(trust.verified_by(&chain(&make(stranger.path()).admin_certificate)), by(false, false));
    assert_eq!(trust.verified_by(&[]), by(false, false));
    assert_eq!(trust.verified_by(&[CertificateDer::from(vec![0; 99])]), by(false, false));
}

/// The first element of DER: with its head, without it, and what follows.
fn element(der: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let n_length = if der[1] < 0x80 { 0 } else { usize::from(der[1] & 0x7f) };
    let length = match n_length {
        0 => usize::from(der[1]),
        _ => der[2..2 + n_length].iter().fold(0, |it, byte| it << 8 | usize::from(*byte)),
    };
    let (whole, rest) = der.split_at(2 + n_length + length);
    (whole, &whole[2 + n_length..], rest)
}

fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let length = match (high, low) {
        (0, 0..0x80) => vec![low],
        (0, _) => vec![0x81, low],
        _ => vec![0x82, high, low],
    };
    [&[tag], &*length, content].concat()
}

/// The same certificate, signed anew by its authority, without the parts that have these tags.
fn without(der: &[u8], tags: &[u8], authority: &rcgen::KeyPair) -> CertificateDer<'static> {
    let (_, content, _) = element(der);
    let (_, mut fields, rest) = element(content);
    let (algorithm, _, _) = element(rest);
    let mut kept = Vec::new();
    while !fields.is_empty() {
        let (whole, _, rest) = element(fields);
        if !tags.contains(&whole[0]) {
            kept.extend_from_slice(whole);
        }
        fields = rest;
    }
    let signed = encoded(0x30, &kept);
    let signature = [vec![0], rcgen::SigningKey::sign(authority, &signed).unwrap()].concat();
    encoded(0x30, &[signed, algorithm.to_vec(), encoded(0x03, &signature)].concat()).into()
}

/// It cannot say what it is for, so it would do for a user whatever it was made for.
#[test]
fn a_certificate_of_version_1_is_nobodys() {
    let folder = tempfile::tempdir().unwrap();
    let pki = make(folder.path());
    let tls = Tls::load(files(&pki), SystemClock::shared()).unwrap();
    let key = rcgen::KeyPair::from_pem(&fs::read_to_string(folder.path().join("ca.key")).unwrap()).unwrap();
    let admin = &chain(&pki.admin_certificate)[0];
    let same = without(admin, &[], &key);
    assert!(tls.trust().verified_by(std::slice::from_ref(&same)).client_ca);
    assert_eq!(access::user_from_certificate(&same).unwrap().name, "kubernetes-admin");
    let (version, extensions) = (0xa0, 0xa3);
    let old = without(admin, &[version, extensions], &key);
    assert!(!tls.trust().verified_by(std::slice::from_ref(&old)).any());
    let error = access::user_from_certificate(&old).unwrap_err();
    assert_eq!(error, access::CertificateError::OldVersion);
    // Without a token next to it that is a 401.
    let peer = Peer::with_certificates("192.0.2.1:1".parse().unwrap(), vec![old], &tls.trust());
    assert!(peer.certificates.is_some() && !peer.verified(&tls.trust()).any());
}

#[test]
fn an_expired_certificate_stops_counting_on_an_open_connection() {
    let folder = tempfile::tempdir().unwrap();
    let pki = make(folder.path());
    let clock = ManualClock::at(SystemClock::new().now());
    let tls = Tls::load(files(&pki), clock.clone()).unwrap();
    let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let peer = Peer::with_certificates(address, chain(&pki.admin_certificate), &tls.trust());
    assert!(peer.certificates.is_some() && peer.verified(&tls.trust()).client_ca);
    clock.advance(Duration::from_secs(366 * 86_400));
    assert!(!peer.verified(&tls.trust()).any());
    let peer = Peer::with_certificates(address, chain(&pki.admin_certificate), &tls.trust());
    assert!(peer.certificates.is_some() && !peer.verified(&tls.trust()).any());
}

/// Whoever connects with a certificate of a new authority a moment before the server has read that authority is recognized
/// from then on, without connecting again: connections between servers are kept for long.
#[test]
fn an_authority_that_is_added_counts_on_open_connections() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pki, other) = (make(folder.path()), make(other.path()));
    let tls = Tls::load(files(&pki), SystemClock::shared()).unwrap();
    let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let peer = Peer::with_certificates(address, chain(&other.admin_certificate), &tls.trust());
    assert!(!peer.verified(&tls.trust()).any());
    let authority = files(&pki).client_ca.unwrap();
    let both = fs::read_to_string(&authority).unwrap()
        + &fs::read_to_string(files(&other).client_ca.unwrap()).unwrap();
    fs::write(&authority, both).unwrap();
    assert!(tls.reload().unwrap());
    assert!(peer.verified(&tls.trust()).client_ca);
}

#[test]
fn changed_files_are_reloaded_and_broken_ones_are_not() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pki, other) = (make(folder.path()), make(other.path()));
    let tls = Tls::load(files(&pki), SystemClock::shared()).unwrap();
    let address: SocketAddr = "192.0.2.1:1".parse().unwrap();
    let peer = Peer::with_certificates(address, chain(&pki.admin_certificate), &tls.trust());
    assert!(!tls.reload().unwrap());

    fs::write(&pki.serving_certificate, "half a certif").unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Malformed { .. })));
    assert!(peer.verified(&tls.trust()).client_ca);

    // A certificate whose key has not been written yet.
    fs::copy(&other.serving_certificate, &pki.serving_certificate).unwrap();
    assert!(matches!(tls.reload(), Err(TlsError::Unusable { .. })));

    fs::copy(&other.serving_key, &pki.serving_key).unwrap();
    fs::copy(&other.ca, &pki.ca).unwrap();
    assert!(tls.reload().unwrap());
    assert!(!peer.verified(&tls.trust()).any(), "the old authority is gone, for open connections too");
    assert!(tls.trust().verified_by(&chain(&other.admin_certificate)).client_ca);
}

#[tokio::test]
async fn files_are_followed() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (pki, other) = (make(folder.path()), make(other.path()));
    let clock = ManualClock::at(SystemClock::new().now());
    let tls = Arc::new(Tls::load(files(&pki), clock.clone()).unwrap());
    let following = tokio::spawn(Arc::clone(&tls).follow_files());
    fs::copy(&other.ca, &pki.ca).unwrap();
    while tls.trust().generation() == 0 {
        clock.advance(Duration::from_secs(5));
        tokio::task::yield_now().await;
    }
    following.abort();
}

#[test]
fn unusable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let pki = make(folder.path());
    let load = |files| Tls::load(files, SystemClock::shared()).unwrap_err().to_string();
    let nowhere = folder.path().join("nowhere");
    let error = load(TlsFiles { certificate: nowhere.clone(), ..files(&pki) });
    assert_eq!(error, format!("cannot read {}", nowhere.display()));
    let error = load(TlsFiles { private_key: pki.ca.clone(), ..files(&pki) });
    assert_eq!(error, format!("{} does not hold a PEM private key", pki.ca.display()));
    let error = load(TlsFiles { client_ca: Some(pki.admin_key.clone()), ..files(&pki) });
    assert_eq!(error, format!("{} does not hold a PEM certificate", pki.admin_key.display()));
    let error = load(TlsFiles { private_key: pki.admin_key.clone(), ..files(&pki) });
    assert!(error.ends_with("cannot be used together"), "{error}");
}
