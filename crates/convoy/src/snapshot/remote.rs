//! Asking a running server for a copy of its store.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use http::{Request, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::{
    failure::Failure,
    kubeconfig::{self, Target},
};

/// The largest answer that is read when it is not a snapshot.
const MAX_COMPLAINT: usize = 64 * 1024;

/// Saves what the server sends; the file is complete or not there. Returns its size.
pub async fn save(file: &Path, kubeconfig: &Path) -> Result<u64, Failure> {
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

    let draft = file.with_added_extension("part");
    let written = write(&draft, response.into_body()).await;
    connection.abort();
    let renamed = match written {
        Ok(n_bytes) => tokio::fs::rename(&draft, file).await.map(|()| n_bytes).map_err(|it| it.to_string()),
        Err(error) => Err(error),
    };
    match renamed {
        Ok(n_bytes) => Ok(n_bytes),
        Err(error) => {
            let _ = tokio::fs::remove_file(&draft).await;
            Err(Failure::failed(format!("the snapshot could not be written to {}: {error}", file.display())))
        }
    }
}

async fn write(path: &Path, mut body: hyper::body::Incoming) -> Result<u64, String> {
    // A store holds secrets.
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).await.map_err(|it| it.to_string())?;
    let mut n_bytes = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|it| crate::failure::chain(&it))?;
        let Ok(data) = frame.into_data() else { continue };
        file.write_all(&data).await.map_err(|it| it.to_string())?;
        n_bytes += u64::try_from(data.len()).unwrap_or(0);
    }
    file.sync_all().await.map_err(|it| it.to_string())?;
    Ok(n_bytes)
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
