//! Asking a running server for a copy of its store.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use store_embedded::SnapshotReport;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    failure::Failure,
    kubeconfig::{self, Target},
};

/// The largest answer that is read when it is not a snapshot.
const MAX_COMPLAINT: usize = 64 * 1024;

/// Saves what the server sends; the file is complete, checked and on disk, or as it was before.
pub async fn save(file: &Path, kubeconfig: &Path) -> Result<SnapshotReport, Failure> {
    let target = kubeconfig::read(kubeconfig)?;
    let uri: Uri =
        target.server.parse().map_err(|_| Failure::failed(format!("{:?} is not a URL", target.server)))?;
    let failed = |it: &dyn std::error::Error| {
        Failure::failed(format!("{} cannot be asked: {}", target.server, crate::failure::chain(it)))
    };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    let tcp = TcpStream::connect((host, uri.port_u16().unwrap_or(443))).await.map_err(|it| failed(&it))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|it| failed(&it))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(&target, kubeconfig)?));
    let stream = connector.connect(name, tcp).await.map_err(|it| failed(&it))?;
    let (mut send, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|it| failed(&it))?;
    let connection = tokio::spawn(connection);

    let mut request = Request::post("/convoy/snapshot").header(header::HOST, host);
    if let Some(token) = &target.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|it| failed(&it))?;
    let mut response = send.send_request(request).await.map_err(|it| failed(&it))?;
    if !response.status().is_success() {
        let complaint = complaint(&mut response).await;
        return Err(Failure::failed(format!(
            "{} refused with {}: {complaint}",
            target.server,
            response.status()
        )));
    }

    let name = file.file_name().ok_or_else(|| {
        Failure::failed(format!("the snapshot cannot be saved to {}: it has no name", file.display()))
    })?;
    // A name that nobody can guess, and put something else there.
    let draft = format!(".{}.{:032x}", name.to_string_lossy(), rand::random::<u128>());
    let draft = file.with_file_name(draft);
    let written = write(&draft, response.into_body()).await;
    connection.abort();
    let finished = match written {
        Ok(()) => finish(&draft, file).await,
        Err(error) => Err(error),
    };
    finished.map_err(|error| {
        // What is left is useless; if it cannot be removed either, the error says enough.
        std::fs::remove_file(&draft).ok();
        Failure::failed(format!("the snapshot could not be saved to {}: {error}", file.display()))
    })
}

/// Gives a draft its name once everything in it has been read again and found whole.
async fn finish(draft: &Path, file: &Path) -> Result<SnapshotReport, String> {
    let (draft, file) = (draft.to_owned(), file.to_owned());
    let finished = tokio::task::spawn_blocking(move || {
        let report = store_embedded::verify(&draft).map_err(|it| crate::failure::chain(&it))?;
        std::fs::rename(&draft, &file).map_err(|it| it.to_string())?;
        let folder = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = std::fs::File::open(folder).and_then(|it| it.sync_all());
        synced.map_err(|it| format!("{}: {it}", folder.display()))?;
        Ok(report)
    });
    finished.await.unwrap_or_else(|it| Err(it.to_string()))
}

async fn write(path: &Path, mut body: hyper::body::Incoming) -> Result<(), String> {
    // A store holds secrets.
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path).await.map_err(|it| it.to_string())?;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|it| crate::failure::chain(&it))?;
        let Ok(data) = frame.into_data() else { continue };
        file.write_all(&data).await.map_err(|it| it.to_string())?;
    }
    file.sync_all().await.map_err(|it| it.to_string())
}

/// The message of the Status that came instead.
async fn complaint(response: &mut http::Response<hyper::body::Incoming>) -> String {
    let body = http_body_util::Limited::new(response.body_mut(), MAX_COMPLAINT);
    let Ok(body) = body.collect().await else { return "no reason given".to_owned() };
    let status: Result<meta::Status, _> = serde_json::from_slice(&body.to_bytes());
    status.map_or_else(|_| "no reason given".to_owned(), |it| it.message)
}

fn tls(target: &Target, kubeconfig: &Path) -> Result<ClientConfig, Failure> {
    let wrong =
        |what: &str| Failure::failed(format!("{} holds {what} that cannot be used", kubeconfig.display()));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&target.certificate_authority) {
        let certificate = certificate.map_err(|_| wrong("an authority"))?;
        roots.add(certificate).map_err(|_| wrong("an authority"))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider must support TLS 1.2 and 1.3")
        .with_root_certificates(roots);
    let Some((certificate, key)) = &target.client_certificate else {
        return Ok(builder.with_no_client_auth());
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|_| wrong("a client certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| wrong("a client key"))?;
    builder.with_client_auth_cert(chain, key).map_err(|_| wrong("a client certificate"))
}
