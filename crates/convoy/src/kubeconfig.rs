//! Reading a kubeconfig: where a server is, and how to be believed there.
//!
//! Only what an administrator's file holds: authority, client certificate, token. Programs that fetch credentials are
//! not run.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::failure::Failure;

/// What the current context points to.
pub struct Target {
    /// `https://host:port`.
    pub server: String,
    /// The authority of the server's certificate, PEM.
    pub certificate_authority: Vec<u8>,
    /// The user's certificate and key, PEM.
    pub client_certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// The user's token.
    pub token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<Named<ClusterEntry>>,
    #[serde(default)]
    users: Vec<Named<UserEntry>>,
    #[serde(default)]
    contexts: Vec<Named<ContextEntry>>,
}

#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(flatten)]
    value: T,
}

#[derive(Deserialize)]
struct ClusterEntry {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
}

#[derive(Deserialize)]
struct UserEntry {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    token: Option<String>,
}

#[derive(Deserialize)]
struct ContextEntry {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: String,
}

/// Reads the file's current context.
pub fn read(path: &Path) -> Result<Target, Failure> {
    let wrong = |what: &str| Failure::failed(format!("{} {what}", path.display()));
    let text = fs::read_to_string(path)
        .map_err(|it| Failure::failed(format!("cannot read {}: {it}", path.display())))?;
    let file: File = serde_saphyr::from_str(&text).map_err(|_| wrong("is not a kubeconfig"))?;
    let context =
        find(&file.contexts, &file.current_context).ok_or_else(|| wrong("has no current context"))?;
    let cluster =
        &find(&file.clusters, &context.context.cluster).ok_or_else(|| wrong("lacks its cluster"))?.cluster;
    let user = &find(&file.users, &context.context.user).ok_or_else(|| wrong("lacks its user"))?.user;

    let load = |data: &Option<String>, file: &Option<PathBuf>| load(path, data.as_deref(), file.as_deref());
    let certificate_authority = load(&cluster.certificate_authority_data, &cluster.certificate_authority)?
        .ok_or_else(|| wrong("names no authority of the server's certificate"))?;
    let certificate = load(&user.client_certificate_data, &user.client_certificate)?;
    let key = load(&user.client_key_data, &user.client_key)?;
    Ok(Target {
        server: cluster.server.clone(),
        certificate_authority,
        client_certificate: certificate.zip(key),
        token: user.token.clone(),
    })
}

fn find<'a, T>(list: &'a [Named<T>], name: &str) -> Option<&'a T> {
    list.iter().find(|it| it.name == name).map(|it| &it.value)
}

/// Embedded data counts more than a file; a file is looked for beside the kubeconfig.
fn load(kubeconfig: &Path, data: Option<&str>, file: Option<&Path>) -> Result<Option<Vec<u8>>, Failure> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    if let Some(data) = data {
        let decoded = STANDARD.decode(data.trim());
        return decoded
            .map(Some)
            .map_err(|_| Failure::failed(format!("{} holds data that is not base64", kubeconfig.display())));
    }
    let Some(file) = file else { return Ok(None) };
    let file = kubeconfig.parent().map_or_else(|| file.to_owned(), |it| it.join(file));
    fs::read(&file).map(Some).map_err(|it| Failure::failed(format!("cannot read {}: {it}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_write_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        let written = server::kubeconfig::Kubeconfig {
            server: "https://127.0.0.1:1",
            certificate_authority: b"ca",
            client_certificate: b"crt",
            client_key: b"key",
        };
        written.write(&path).unwrap();
        let target = read(&path).map_err(|it| it.message).unwrap();
        assert_eq!(target.server, "https://127.0.0.1:1");
        assert_eq!(target.certificate_authority, b"ca");
        assert_eq!(target.client_certificate, Some((b"crt".to_vec(), b"key".to_vec())));
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        for (text, complaint) in [
            ("a: [", "is not a kubeconfig"),
            ("current-context: x", "has no current context"),
            ("[]", "is not"),
        ] {
            fs::write(&path, text).unwrap();
            let failure = read(&path).map(drop).unwrap_err();
            assert!(failure.message.contains(complaint), "{text}: {failure}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
