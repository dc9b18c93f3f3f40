//! The keys and certificates that a server makes for itself.
//!
//! Responsible for: a directory with two authorities, a serving certificate, an administrator, a front proxy and a
//! key for service account tokens; made on first start, renewed before they expire, shared by all servers that are
//! given the same directory.
//! Deliberately not here: using them (`tls`), and certificates that an operator brings along.
//! Start reading at [`ensure`].
//!
//! # Guarantees
//! - Servers that start at the same moment on one directory end up with the same files: a lock file orders them.
//! - Nobody reads half a file, and a power cut leaves either a usable directory or one that the next start repairs.
//! - What is there and usable is never replaced. A broken authority is never silently replaced: that would lock
//!   out everybody who trusts it.

mod issue;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use rcgen::KeyPair;

use self::issue::{Authority, Leaf, Purpose};
use crate::files::{self, Access, NewFile};

/// Under which names clients may reach the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServingNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub ips: Vec<IpAddr>,
}

impl ServingNames {
    /// The names by which every API server is known inside its cluster, and this machine to itself.
    pub fn standard() -> Self {
        let dns = [
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "localhost",
        ];
        let ips = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]), SERVICE_IP];
        Self { dns: dns.map(str::to_owned).into(), ips: ips.into() }
    }

    /// Adds a DNS name, unless it is there already or cannot be one.
    pub fn add_dns(&mut self, name: &str) {
        let is_name = !name.is_empty()
            && name.len() <= 253
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it));
        let name = name.to_ascii_lowercase();
        if is_name && !self.dns.contains(&name) {
            self.dns.push(name);
        }
    }

    /// Adds an address, unless it is there already or stands for all addresses.
    pub fn add_ip(&mut self, ip: IpAddr) {
        if !ip.is_unspecified() && !self.ips.contains(&ip) {
            self.ips.push(ip);
        }
    }

    fn contains(&self, other: &Self) -> bool {
        other.dns.iter().all(|it| self.dns.contains(it)) && other.ips.iter().all(|it| self.ips.contains(it))
    }
}

/// The address of the `kubernetes` service.
pub const SERVICE_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

/// The files of a directory that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pki {
    /// The authority of servers and users.
    pub ca: PathBuf,
    /// The server's certificate.
    pub serving_certificate: PathBuf,
    /// Its key.
    pub serving_key: PathBuf,
    /// The administrator's certificate.
    pub admin_certificate: PathBuf,
    /// Its key.
    pub admin_key: PathBuf,
    /// The authority of front proxies.
    pub front_proxy_ca: PathBuf,
    /// The certificate this server shows when it is the front proxy.
    pub front_proxy_certificate: PathBuf,
    /// Its key.
    pub front_proxy_key: PathBuf,
    /// What service account tokens are signed with.
    pub service_account_key: PathBuf,
    /// What they are checked with.
    pub service_account_public_key: PathBuf,
}

/// Why there are no usable keys.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The directory cannot be made, or not be locked.
    #[error("cannot use the certificate directory {}", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Unwritable(#[from] files::WriteError),
    /// A file is broken, and must not be replaced without its owner's knowledge.
    #[error("{} {problem}; put it right, or move it away and a new one is made", path.display())]
    Unusable {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The library refused.
    #[error("cannot make {what}")]
    Refused {
        /// What.
        what: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
}

/// Makes the directory complete: whatever is missing, broken beyond use or about to expire is made anew.
pub fn ensure(folder: &Path, names: &ServingNames, now: Timestamp) -> Result<Pki, PkiError> {
    let unusable = |source| PkiError::Directory { path: folder.to_owned(), source };
    // A directory that may only be read is fine as long as nothing in it must be made.
    let lock = match lock(folder) {
        Err(error) if !is_read_only(&error) => return Err(unusable(error)),
        lock => lock,
    };
    let mut drafts = Vec::new();

    let ca = Authority::ensure(folder, "ca", "convoy-ca", now, &mut drafts)?;
    let front_proxy_ca =
        Authority::ensure(folder, "front-proxy-ca", "convoy-front-proxy-ca", now, &mut drafts)?;
    let leaf = |name, common_name, organization, purpose| Leaf { name, common_name, organization, purpose };
    leaf("apiserver", "kube-apiserver", None, Purpose::Server(names)).ensure(
        folder,
        &ca,
        now,
        &mut drafts,
    )?;
    leaf("admin", "kubernetes-admin", Some("system:masters"), Purpose::Client).ensure(
        folder,
        &ca,
        now,
        &mut drafts,
    )?;
    leaf("front-proxy-client", "front-proxy-client", None, Purpose::Client).ensure(
        folder,
        &front_proxy_ca,
        now,
        &mut drafts,
    )?;
    ensure_service_account_key(folder, &mut drafts)?;

    // Authorities come before what they vouch for, so that a crash in between leaves nothing without its authority.
    if !drafts.is_empty() {
        let held = lock.map_err(unusable)?;
        files::write_all(&drafts)?;
        drop(held);
    }
    Ok(Pki {
        ca: folder.join("ca.crt"),
        serving_certificate: folder.join("apiserver.crt"),
        serving_key: folder.join("apiserver.key"),
        admin_certificate: folder.join("admin.crt"),
        admin_key: folder.join("admin.key"),
        front_proxy_ca: folder.join("front-proxy-ca.crt"),
        front_proxy_certificate: folder.join("front-proxy-client.crt"),
        front_proxy_key: folder.join("front-proxy-client.key"),
        service_account_key: folder.join("sa.key"),
        service_account_public_key: folder.join("sa.pub"),
    })
}

/// Makes the folder if need be, and waits until no other process works in it.
fn lock(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let lock =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(".lock"))?;
    lock.lock()?;
    Ok(lock)
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn ensure_service_account_key(folder: &Path, drafts: &mut Vec<NewFile>) -> Result<(), PkiError> {
    let (key_path, public_path) = (folder.join("sa.key"), folder.join("sa.pub"));
    let key = match read_optional(&key_path)? {
        Some(pem) => parse_key(&key_path, &pem)?,
        None => {
            let key = new_key("the key of service account tokens")?;
            drafts.push(private(key_path, key.serialize_pem()));
            key
        }
    };
    let public = key.public_key_pem();
    if read_optional(&public_path)?.as_deref() != Some(public.as_str()) {
        drafts.push(self::public(public_path, public));
    }
    Ok(())
}

/// The text of a file; none if there is no file, or an empty one as a power cut may leave it.
fn read_optional(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(unusable(path, "is not PEM text")),
        Err(source) => Err(PkiError::Unreadable { path: path.to_owned(), source }),
    }
}

fn parse_key(path: &Path, pem: &str) -> Result<KeyPair, PkiError> {
    KeyPair::from_pem(pem).map_err(|_| unusable(path, "does not hold a PEM private key"))
}

fn new_key(what: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
        .map_err(|source| PkiError::Refused { what: what.to_owned(), source })
}

fn unusable(path: &Path, problem: impl Into<String>) -> PkiError {
    PkiError::Unusable { path: path.to_owned(), problem: problem.into() }
}

fn private(path: PathBuf, contents: String) -> NewFile {
    NewFile { path, contents: contents.into_bytes(), access: Access::Private }
}

fn public(path: PathBuf, contents: String) -> NewFile {
    NewFile { path, contents: contents.into_bytes(), access: Access::Public }
}

#[cfg(test)]
mod tests;
