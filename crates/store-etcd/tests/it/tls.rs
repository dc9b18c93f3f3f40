//! https endpoints with client certificates.

use std::{fs, path::Path, path::PathBuf, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use store::Store;
use store_etcd::{ConnectError, EtcdConfig, EtcdStore};
use testkit::etcd::{self, Etcd, EtcdTls};

use crate::support::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path
}

/// A certificate for 127.0.0.1, for servers and clients alike; its files.
fn issue(dir: &Path, name: &str, authority: &Authority) -> (PathBuf, PathBuf) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".into()]).unwrap();
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
