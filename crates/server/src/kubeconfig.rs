//! The file that tells kubectl where the server is and who its user is.
//!
//! Responsible for: one cluster, one user, one context, everything embedded, readable by its owner only.
//! Deliberately not here: reading kubeconfigs.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::files::{self, Access, WriteError};

/// What stands in a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubeconfig<'a> {
    /// `https://host:port`.
    pub server: &'a str,
    /// The authority of the server's certificate, PEM.
    pub certificate_authority: &'a [u8],
    /// The user's certificate, PEM.
    pub client_certificate: &'a [u8],
    /// Its key, PEM.
    pub client_key: &'a [u8],
}

/// The name of the context, the cluster and, with `-admin`, the user.
pub const CONTEXT: &str = "convoy";

impl Kubeconfig<'_> {
    /// The YAML text.
    pub fn to_yaml(&self) -> String {
        let Self { server, certificate_authority, client_certificate, client_key } = self;
        format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: {CONTEXT}\n\
             \x20 cluster:\n\
             \x20   server: {server}\n\
             \x20   certificate-authority-data: {}\n\
             users:\n\
             - name: {CONTEXT}-admin\n\
             \x20 user:\n\
             \x20   client-certificate-data: {}\n\
             \x20   client-key-data: {}\n\
             contexts:\n\
             - name: {CONTEXT}\n\
             \x20 context:\n\
             \x20   cluster: {CONTEXT}\n\
             \x20   user: {CONTEXT}-admin\n\
             current-context: {CONTEXT}\n",
            STANDARD.encode(certificate_authority),
            STANDARD.encode(client_certificate),
            STANDARD.encode(client_key),
        )
    }

    /// Writes the file, replacing what is there.
    pub fn write(&self, path: &Path) -> Result<(), WriteError> {
        files::write(path, self.to_yaml().as_bytes(), Access::Private)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_kubeconfig_is_private_and_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("admin.kubeconfig");
        let kubeconfig = Kubeconfig {
            server: "https://127.0.0.1:6443",
            certificate_authority: b"ca",
            client_certificate: b"crt",
            client_key: b"key",
        };
        kubeconfig.write(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        for line in [
            "    server: https://127.0.0.1:6443",
            "    certificate-authority-data: Y2E=",
            "    client-certificate-data: Y3J0",
            "    client-key-data: a2V5",
            "    cluster: convoy",
            "    user: convoy-admin",
            "current-context: convoy",
        ] {
            assert!(text.lines().any(|it| it == line), "no {line:?} in\n{text}");
        }
    }
}
