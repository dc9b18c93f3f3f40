//! https endpoints with client certificates.

use std::{fs, path::Path, path::PathBuf, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use store::Store;
use store_etcd::{ConnectError, EtcdConfig, EtcdStore};
use testkit::etcd::{self, Etcd, EtcdTls};

use crate::support::*;

pub type Authority = CertifiedIssuer<'static, KeyPair>;

pub fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

pub fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A certificate for 127.0.0.1 in this name, for servers and clients alike; its files.
pub fn issue(dir: &Path, name: &str, authority: &Authority) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let cert = params.signed_by(&key, authority).unwrap();
    (
        write(dir, &format!("{name}.crt"), &cert.pem()),
        write(dir, &format!("{name}.key"), &key.serialize_pem()),
    )
}

#[tokio::test]
async fn etcd_with_certificates_is_used_with_certificates_only() {
    if etcd::is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (ours, foreign) = (authority(), authority());
    let ca = write(dir.path(), "ca.crt", &ours.pem());
    let foreign_ca = write(dir.path(), "foreign-ca.crt", &foreign.pem());
    let (cert, key) = issue(dir.path(), "etcd", &ours);
    let etcd = Etcd::start_tls(EtcdTls { ca: ca.clone(), cert, key }).await.unwrap();
    let (cert, key) = issue(dir.path(), "client", &ours);
    let good = EtcdConfig {
        ca: Some(ca.clone()),
        cert: Some(cert),
        key: Some(key),
        request_timeout: Duration::from_secs(2),
        ..config(&[etcd.url()])
    };

    let store = EtcdStore::connect(good.clone()).await.unwrap();
    let written = put(&store, "a", "1").await;
    let mut events = store.watch(&everything(), written.previous()).await.unwrap();
    assert_eq!(next(&mut events).await.unwrap().revision, written);

    let (cert, key) = issue(dir.path(), "foreign", &foreign);
    for bad in [
        EtcdConfig { ca: Some(foreign_ca), ..good.clone() },
        EtcdConfig { cert: None, key: None, ..good.clone() },
        EtcdConfig { cert: Some(cert), key: Some(key), ..good.clone() },
        EtcdConfig { endpoints: vec![etcd.url().replace("https", "http")], ..good.clone() },
    ] {
        let error = soon(EtcdStore::connect(bad)).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable(_)), "{error:?}");
    }
    let missing = EtcdConfig { ca: Some(dir.path().join("nothing")), ..good };
    assert!(matches!(EtcdStore::connect(missing).await, Err(ConnectError::File { .. })));
    assert_eq!(store.current().await, Ok(written));
}

/// The certificate was read once: when it had expired, a server that lost its connection never got another one.
#[tokio::test]
async fn certificates_that_change_are_used_for_the_next_connection() {
    if etcd::is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (authority(), authority());
    // etcd believes both for a while; it is restarted with files that have changed.
    let trusted = write(dir.path(), "trusted.crt", &format!("{}{}", old.pem(), new.pem()));
    let (cert, key) = issue(dir.path(), "etcd", &old);
    let mut etcd = Etcd::start_tls(EtcdTls { ca: trusted.clone(), cert, key }).await.unwrap();
    let ca = write(dir.path(), "ca.crt", &old.pem());
    let (cert, key) = issue(dir.path(), "client", &old);
    let config = EtcdConfig {
        ca: Some(ca.clone()),
        cert: Some(cert.clone()),
        key: Some(key.clone()),
        request_timeout: Duration::from_secs(2),
        ..config(&[etcd.url()])
    };
    let store = EtcdStore::connect(config).await.unwrap();
    let written = put(&store, "a", "1").await;
    let mut events = store.watch(&everything(), written).await.unwrap();
    assert!(!store.reload_certificates().await.unwrap(), "nothing has changed");

    // Half a file, a certificate without its key, and one that etcd does not believe change nothing.
    let whole = fs::read_to_string(&cert).unwrap();
    write(dir.path(), "client.crt", &whole[..whole.len() / 2]);
    assert!(matches!(store.reload_certificates().await, Err(ConnectError::Endpoint { .. })));
    let (other_cert, other_key) = issue(dir.path(), "other", &new);
    fs::copy(&other_cert, &cert).unwrap();
    assert!(matches!(store.reload_certificates().await, Err(ConnectError::Endpoint { .. })));
    let stranger = authority();
    issue(dir.path(), "client", &stranger);
    assert!(matches!(store.reload_certificates().await, Err(ConnectError::Rejected(_))));
    let again = put(&store, "a", "2").await;
    assert_eq!(next(&mut events).await.unwrap().revision, again);

    // All of it is replaced: our certificate and whom we believe, then etcd's, which believes only the new ones.
    fs::copy(&other_cert, &cert).unwrap();
    fs::copy(&other_key, &key).unwrap();
    write(dir.path(), "ca.crt", &format!("{}{}", old.pem(), new.pem()));
    assert!(store.reload_certificates().await.unwrap());
    assert!(!store.reload_certificates().await.unwrap(), "it is in use already");
    let again = put(&store, "a", "3").await;
    assert_eq!(next(&mut events).await.unwrap().revision, again, "the watch goes on");
    issue(dir.path(), "etcd", &new);
    write(dir.path(), "trusted.crt", &new.pem());
    etcd.kill9().unwrap();
    etcd.restart().await.unwrap();
    put(&store, "a", "4").await;
    write(dir.path(), "ca.crt", &new.pem());
    assert!(store.reload_certificates().await.unwrap());
    put(&store, "a", "5").await;
}
