//! Keys and certificates that are replaced while servers run, as docs/high-availability.md tells operators to do it.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use convoy::{Keep, Options as Embedded, Release, Server};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use serde_json::json;
use server::pki::{self, Pki, ServingNames};
use tempfile::TempDir;
use testkit::{
    Client, Convoy, Options,
    etcd::{self, Etcd, EtcdTls},
};

use crate::fixture::{self, BINARY, config_map};

/// Files are looked at every 5 s.
const SOON: Duration = Duration::from_secs(40);

const NOT_USED: &str = "changed files are not used";

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let deadline = tokio::time::Instant::now() + SOON;
    while !is_so().await? {
        if tokio::time::Instant::now() > deadline {
            bail!("{what} must come within {SOON:?}");
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Keys and certificates that nobody uses yet.
pub fn made() -> (TempDir, Pki) {
    let folder = tempfile::tempdir().unwrap();
    let made = pki::ensure(folder.path(), &ServingNames::standard(), jiff::Timestamp::now()).unwrap();
    (folder, made)
}

/// Replaces a file as a whole, as `mv` does.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) {
    let draft = path.with_extension("draft");
    fs::write(&draft, contents).unwrap();
    fs::rename(draft, path).unwrap();
}

pub fn both(first: &Path, second: &Path) -> Vec<u8> {
    [fs::read(first).unwrap(), fs::read(second).unwrap()].concat()
}

/// A token of the default account, and whether it is believed.
async fn token(server: &Convoy) -> Result<String> {
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let made = server.admin().post(path, &request).await?.expect(201)?;
    Ok(made["status"]["token"].as_str().unwrap_or_default().to_owned())
}

async fn code(server: &Convoy, token: &str) -> Result<u16> {
    Ok(server.client(Some(token)).get("/api/v1/namespaces/default/secrets").await?.status.as_u16())
}

/// The key's id, which is the hash of its public half, stands in the head of every token.
fn head(token: &str) -> &str {
    token.split('.').next().unwrap_or_default()
}

/// Keys of tokens were read once, at the start.
#[tokio::test]
async fn the_key_of_tokens_is_replaced_while_the_server_runs() -> Result<()> {
    let server = fixture::embedded().await;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    until("the account", async || Ok(server.admin().get(account).await?.status == 200)).await?;
    let (_folder, new) = made();
    let (key, public) = (server.cert_dir().join("sa.key"), server.cert_dir().join("sa.pub"));
    let first = token(&server).await?;
    assert_eq!(code(&server, &first).await?, 403);

    // A file that is not whole is told once, and changes nothing.
    let whole = fs::read(&key)?;
    fs::write(&key, &whole[..whole.len() / 2])?;
    until("a line in the log", async || Ok(server.log().contains(NOT_USED))).await?;
    tokio::time::sleep(Duration::from_secs(6)).await;
    let told = server.log().lines().filter(|it| it.contains("keys of service account tokens")).count();
    assert_eq!(told, 1, "{}", server.log_tail());
    assert_eq!(head(&token(&server).await?), head(&first));
    replace(&key, &whole);

    // Both keys are believed, then the new one signs, then the old one goes.
    replace(&public, both(&public, &new.service_account_public_key));
    until("the other key", async || Ok(server.log().contains("changed files are in use"))).await?;
    replace(&key, fs::read(&new.service_account_key)?);
    until("tokens of the new key", async || Ok(head(&token(&server).await?) != head(&first))).await?;
    let second = token(&server).await?;
    assert_eq!((code(&server, &first).await?, code(&server, &second).await?), (403, 403));
    replace(&public, fs::read(&new.service_account_public_key)?);
    until("the end of the old key", async || Ok(code(&server, &first).await? == 401)).await?;
    assert_eq!(code(&server, &second).await?, 403);
    Ok(())
}

/// Files that flags name are followed, too.
#[tokio::test]
async fn keys_of_tokens_that_flags_name_are_read_again() -> Result<()> {
    let ((folder, old), (_other, new)) = (made(), made());
    let (signing, checking) = (folder.path().join("signing.key"), folder.path().join("checking.pub"));
    fs::copy(&old.service_account_key, &signing)?;
    fs::copy(&old.service_account_public_key, &checking)?;
    let options = Options::embedded(BINARY)
        .flag(&format!("--service-account-signing-key-file={}", signing.display()))
        .flag(&format!("--service-account-key-file={}", checking.display()));
    let server = Convoy::start(options).await?;
    let account = "/api/v1/namespaces/default/serviceaccounts/default";
    until("the account", async || Ok(server.admin().get(account).await?.status == 200)).await?;
    let first = token(&server).await?;
    assert_eq!(code(&server, &first).await?, 403);
    replace(&checking, both(&old.service_account_public_key, &new.service_account_public_key));
    replace(&signing, fs::read(&new.service_account_key)?);
    until("tokens of the new key", async || {
        let second = token(&server).await?;
        Ok(head(&second) != head(&first) && code(&server, &second).await? == 403)
    })
    .await?;
    assert_eq!(code(&server, &first).await?, 403);
    Ok(())
}

/// The certificate for etcd was read once: when etcd was restarted after it had expired, so had every server to be.
#[tokio::test]
async fn certificates_for_etcd_are_replaced_while_the_server_runs() -> Result<()> {
    if etcd::is_missing() {
        return Ok(());
    }
    let ((_a, old), (_b, new)) = (made(), made());
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name);
    let copy = |from: &Path, name: &str| fs::copy(from, path(name)).map(drop);
    // What etcd uses, and what the server uses to reach it.
    copy(&old.ca, "etcd-ca.crt")?;
    copy(&old.serving_certificate, "etcd.crt")?;
    copy(&old.serving_key, "etcd.key")?;
    copy(&old.ca, "ca.crt")?;
    copy(&old.admin_certificate, "client.crt")?;
    copy(&old.admin_key, "client.key")?;
    let tls = EtcdTls { ca: path("etcd-ca.crt"), cert: path("etcd.crt"), key: path("etcd.key") };
    let mut etcd = Etcd::start_tls(tls).await?;
    let mut options = Options::etcd(BINARY, &etcd.url(), "/registry");
    for (flag, name) in [("cafile", "ca.crt"), ("certfile", "client.crt"), ("keyfile", "client.key")] {
        options = options.flag(&format!("--etcd-{flag}={}", path(name).display()));
    }
    let server = Convoy::start(options).await?;
    let objects = "/api/v1/namespaces/default/configmaps";
    server.admin().post(objects, &config_map("before", "1", "red")).await?.expect(201)?;

    // etcd trusts another authority from its next start on, and shows a certificate of that.
    copy(&new.ca, "etcd-ca.crt")?;
    copy(&new.serving_certificate, "etcd.crt")?;
    copy(&new.serving_key, "etcd.key")?;
    etcd.kill9()?;
    etcd.restart().await?;
    until("an etcd that cannot be reached", async || {
        Ok(server.client(None).get("/livez").await?.status != 200)
    })
    .await?;
    replace(&path("ca.crt"), fs::read(&new.ca)?);
    replace(&path("client.crt"), fs::read(&new.admin_certificate)?);
    replace(&path("client.key"), fs::read(&new.admin_key)?);
    until("a server that works again", async || Ok(server.client(None).get("/readyz").await?.status == 200))
        .await?;
    server.admin().post(objects, &config_map("after", "1", "red")).await?.expect(201)?;
    assert!(server.log().contains("authority, certificate and key for etcd"), "{}", server.log_tail());
    Ok(())
}

/// Somebody who was given a kubeconfig at some time.
struct Caller {
    trusts: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Caller {
    fn of(certs: &Path) -> Self {
        let read = |name: &str| fs::read(certs.join(name)).unwrap();
        Self { trusts: read("ca.crt"), certificate: read("admin.crt"), key: read("admin.key") }
    }

    /// Asks over a connection of its own.
    async fn asks(&self, server: &Server, path: &str) -> Result<u16> {
        let url = server.url().unwrap_or_default();
        let client = Client::with_certificate(url, &self.trusts, &self.certificate, &self.key)?;
        Ok(client.get(path).await?.status.as_u16())
    }
}

/// Two servers of different releases on one store, each with files of its own: what only one serves, it is asked for by the
/// other.
struct Pair {
    old: Server,
    new: Server,
    folders: [TempDir; 2],
}

/// Served since 1.34.
const ONLY_NEW: &str = "/apis/resource.k8s.io/v1/deviceclasses";
const BY_ALL: &str = "/api/v1/namespaces/default/configmaps";
const ROOTS: [&str; 6] = ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub"];

impl Pair {
    async fn start() -> Self {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let (_first, made) = made();
        let from = made.ca.parent().unwrap().to_owned();
        for (folder, name) in folders.iter().flat_map(|it| ROOTS.map(|name| (it, name))) {
            fs::copy(from.join(name), folder.path().join(name)).unwrap();
        }
        let keep = Keep::shared_memory();
        let options = |at: usize, release| Embedded {
            keep: keep.clone(),
            name: format!("server-{at}"),
            release,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            cert_dir: Some(folders[at].path().to_owned()),
            ..Embedded::default()
        };
        let new = Server::start(options(0, Release::v1(36))).await.unwrap();
        let old = Server::start(options(1, Release::v1(33))).await.unwrap();
        Self { old, new, folders }
    }

    fn certs(&self) -> [PathBuf; 2] {
        self.folders.each_ref().map(|it| it.path().to_owned())
    }

    /// Does the same to the files of each authority, on both servers, one after the other.
    fn each(&self, change: impl Fn(&Path, &str)) {
        for certs in self.certs() {
            ["ca", "front-proxy-ca"].iter().for_each(|it| change(&certs, it));
        }
    }

    /// Everything works for these callers, also what is handed on.
    async fn serves(&self, callers: &[&Caller]) -> Result<()> {
        for (n, caller) in callers.iter().enumerate() {
            for (server, path) in [(&self.old, BY_ALL), (&self.new, BY_ALL), (&self.old, ONLY_NEW)] {
                let code = caller.asks(server, path).await;
                ensure!(matches!(code, Ok(200)), "caller {n} at {path}: {code:?}");
            }
        }
        Ok(())
    }

    /// Waits for something while everything works for these callers.
    async fn serves_until(
        &self,
        callers: &[&Caller],
        what: &str,
        mut is_so: impl AsyncFnMut() -> Result<bool>,
    ) -> Result<()> {
        until(what, async || {
            self.serves(callers).await?;
            is_so().await
        })
        .await?;
        // What follows its files a little later has done so.
        for _ in 0..60 {
            self.serves(callers).await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// What is published for pods.
    async fn published(&self) -> Result<String> {
        let api: kube::Api<k8s_openapi::api::core::v1::ConfigMap> =
            kube::Api::namespaced(self.new.client(), "kube-system");
        let found = api.get_opt("kube-root-ca.crt").await?;
        Ok(found.and_then(|it| it.data?.get("ca.crt").cloned()).unwrap_or_default())
    }
}

/// Authorities could not be replaced without restarts, and two at once not at all.
#[tokio::test]
async fn authorities_are_replaced_while_two_servers_run_and_everybody_works() -> Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let pair = Pair::start().await;
    let [certs, other_certs] = pair.certs();
    let (replacement, _) = made();
    let replacement = replacement.path();
    let read = |folder: &Path, name: &str| fs::read(folder.join(name)).unwrap();
    let from_before = Caller::of(&certs);
    pair.serves_until(&[&from_before], "the ConfigMap", async || Ok(!pair.published().await?.is_empty()))
        .await?;

    // 1. Both are trusted everywhere.
    pair.each(|certs, name| {
        let name = format!("{name}.crt");
        replace(&certs.join(&name), both(&certs.join(&name), &replacement.join(&name)));
    });
    let bundle = String::from_utf8(read(&certs, "ca.crt"))?;
    pair.serves_until(&[&from_before], "both authorities for pods", async || {
        Ok(pair.published().await? == bundle)
    })
    .await?;
    let from_between = Caller::of(&certs);
    assert_eq!(from_between.certificate, from_before.certificate, "the old authority signs");

    // 2. The new one signs, on one server first.
    let of_new_alone = |certs: &Path| Caller { trusts: read(replacement, "ca.crt"), ..Caller::of(certs) };
    for (certs, server) in [(&certs, &pair.new), (&other_certs, &pair.old)] {
        for name in ["ca.key", "front-proxy-ca.key"] {
            replace(&certs.join(name), read(replacement, name));
        }
        pair.serves_until(&[&from_between], "a certificate of the new authority", async || {
            Ok(of_new_alone(certs).asks(server, BY_ALL).await.is_ok_and(|it| it == 200))
        })
        .await?;
    }
    let from_after = of_new_alone(&certs);

    // 3. The old one goes.
    pair.each(|certs, name| {
        replace(&certs.join(format!("{name}.crt")), read(replacement, &format!("{name}.crt")))
    });
    pair.serves_until(&[&from_after], "the end of the old authority", async || {
        let codes =
            (from_between.asks(&pair.new, BY_ALL).await?, from_between.asks(&pair.old, BY_ALL).await?);
        Ok(codes == (401, 401))
    })
    .await?;
    assert_eq!(pair.published().await?.into_bytes(), read(replacement, "ca.crt"));
    Ok(())
}

/// Whether a server's certificate is valid for a name.
pub async fn is_valid_for(address: SocketAddr, ca: &Path, name: &str) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.is_ok()
}

#[tokio::test]
async fn the_serving_certificate_is_valid_for_the_names_that_are_asked_for() -> Result<()> {
    let mut server = Convoy::start(Options::embedded(BINARY).flag("--tls-san=lb.example,192.0.2.80")).await?;
    let (ca, certificate) = (server.cert_dir().join("ca.crt"), server.cert_dir().join("apiserver.crt"));
    let address = SocketAddr::from(([127, 0, 0, 1], server.port()));
    for name in ["lb.example", "192.0.2.80", "localhost"] {
        assert!(is_valid_for(address, &ca, name).await, "{name}");
    }
    assert!(!is_valid_for(address, &ca, "api.example").await);

    // One that lacks a name is made anew, and keeps the others.
    let before = fs::read(&certificate)?;
    server.term(Duration::from_secs(30)).await?;
    server.options_mut().flags = vec!["--tls-san=api.example".to_owned()];
    server.start_again().await?;
    for name in ["lb.example", "192.0.2.80", "api.example"] {
        assert!(is_valid_for(address, &ca, name).await, "{name}");
    }
    assert_ne!(fs::read(&certificate)?, before);

    // Somebody else's is used as it is, which is told.
    server.term(Duration::from_secs(30)).await?;
    let key = rcgen::KeyPair::generate()?;
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "theirs");
    let theirs = params.self_signed(&key)?.pem();
    fs::write(&certificate, &theirs)?;
    fs::write(server.cert_dir().join("apiserver.key"), key.serialize_pem())?;
    server.start_again().await?;
    assert_eq!(fs::read_to_string(&certificate)?, theirs);
    assert!(server.log().contains("--tls-san has no effect"), "{}", server.log_tail());
    Ok(())
}
