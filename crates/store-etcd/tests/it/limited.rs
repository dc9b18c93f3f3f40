//! An etcd whose users see only the keys of their own prefixes.

use std::{path::Path, process::Command};

use store::{Leases, Range, ReadAt, Revision, Store, Txn};
use store_etcd::{EtcdConfig, EtcdStore};
use testkit::etcd::{self, Etcd, EtcdTls};

use crate::{support::*, tls};

/// Runs `etcdctl` as the user in whose name there is a certificate.
fn control(dir: &Path, etcd: &Etcd, user: &str, args: &[&str]) {
    let program = etcd::find_control();
    let program = program.expect("no etcdctl beside etcd or on the PATH; `cargo xtask test` fetches one");
    let file = |name: &str| dir.join(name).display().to_string();
    let status = Command::new(&program)
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &etcd.url(), "--cacert", &file("ca.crt")])
        .args(["--cert", &file(&format!("{user}.crt")), "--key", &file(&format!("{user}.key"))])
        .args(args)
        .status();
    let status = status.unwrap_or_else(|it| panic!("{} cannot be run: {it}", program.display()));
    assert!(status.success(), "etcdctl {args:?} ended with {status}");
}

/// Foreign keys move etcd's revision and are not shown: whoever waits for that revision must not wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_two_prefixes_is_up_to_date_although_others_write() {
    if etcd::is_missing() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let authority = tls::authority();
    let ca = tls::write(dir.path(), "ca.crt", &authority.pem());
    let (cert, key) = tls::issue(dir.path(), "etcd", &authority);
    let etcd = Etcd::start_tls(EtcdTls { ca: ca.clone(), cert, key }).await.unwrap();
    tls::issue(dir.path(), "root", &authority);
    let (cert, key) = tls::issue(dir.path(), "convoy", &authority);
    let root = |args: &[&str]| control(dir.path(), &etcd, "root", args);
    root(&["user", "add", "root", "--no-password"]);
    root(&["user", "grant-role", "root", "root"]);
    root(&["role", "add", "convoy"]);
    root(&["role", "grant-permission", "convoy", "readwrite", "--prefix=true", "/mine/"]);
    root(&["role", "grant-permission", "convoy", "readwrite", "--prefix=true", "/mine.convoy/"]);
    root(&["user", "add", "convoy", "--no-password"]);
    root(&["user", "grant-role", "convoy", "convoy"]);
    root(&["put", "/theirs/a", "1"]);
    root(&["auth", "enable"]);

    let config = EtcdConfig {
        ca: Some(ca),
        cert: Some(cert),
        key: Some(key),
        prefix: "/mine".to_owned(),
        ..config(&[etcd.url()])
    };
    let store = EtcdStore::connect(config).await.unwrap();
    let objects = Range::prefix("/registry/");
    let mut live = store.watch(&objects, Revision::ZERO).await.unwrap();
    let mut done = Revision::ZERO;
    for n in 0..5 {
        let written = put(&store, &n.to_string(), "v").await;
        root(&["put", "/theirs/a", &n.to_string()]);
        let now = soon(store.current()).await.unwrap();
        assert!(now > written);
        let events = collect_until(&mut live, done, now).await;
        assert_eq!(events.len(), 1, "only what a caller wrote is shown: {events:?}");
        done = now;
    }
    assert_eq!(soon(store.current()).await, Ok(done), "nothing is written where nothing was");
    let page = store.list(&objects, ReadAt::Latest, ALL).await.unwrap();
    assert_eq!(page.entries.len(), 5);
    let lease = store.grant(LIMIT).await.unwrap();
    store.commit(Txn::new().put_leased(&crate::support::key("leased"), "v".into(), lease)).await.unwrap();
    store.renew(lease).await.unwrap();
    store.revoke(lease).await.unwrap();
    store.compact(done).await.unwrap();
}
