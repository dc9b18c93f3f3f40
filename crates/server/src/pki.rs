//! The keys and certificates that a server makes for itself.
//!
//! Responsible for: a directory with two authorities, a serving certificate, an administrator, a front proxy and a
//! key for service account tokens; made on first start, renewed before they expire, shared by all servers that are
//! given the same directory.
//! Deliberately not here: using them (`tls`), certificates that an operator brings along, and noticing that files changed.
//! Start reading at [`ensure`].
//!
//! # Flow
//! An authority is replaced by its operator in three steps (docs/high-availability.md, decision 0055), all of which are
//! files that change while servers run: its certificate file may hold several certificates, all of which are trusted;
//! the one that belongs to the key beside it signs. With another key, what it has to sign is made anew.
//!
//! # Guarantees
//! - Servers that start at the same moment on one directory end up with the same files: a lock file orders them.
//! - Nobody reads half a file, and a power cut leaves either all new files or none: they are put into a directory beside
//!   first, and the next start finishes what was begun.
//! - What somebody brought along is used and never replaced: only certificates that were made here are renewed, as a mark
//!   in them tells. A running server makes no authority and no key of tokens ([`renew`]): what is missing then is being
//!   replaced by somebody. Half a pair, or two files that do not belong together, is an error that says so. A broken authority is
//!   never silently replaced: that would lock out everybody who trusts it.

mod issue;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    net::IpAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use rcgen::{KeyPair, PublicKeyData};
use rustls_pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};

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
        let is_name = is_dns_name(name);
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

/// Whether a certificate can be valid for this name; all names below another one are written `*.example.com`.
pub fn is_dns_name(name: &str) -> bool {
    let below = name.strip_prefix("*.").unwrap_or(name);
    !below.is_empty()
        && name.len() <= 253
        && below.bytes().all(|it| it.is_ascii_alphanumeric() || b"-._".contains(&it))
}

/// The address of the `kubernetes` service.
pub const SERVICE_IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 96, 0, 1));

/// The files of a directory that is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pki {
    /// The authorities of servers and users.
    pub ca: PathBuf,
    /// The server's certificate.
    pub serving_certificate: PathBuf,
    /// Its key.
    pub serving_key: PathBuf,
    /// Who made the server's certificate.
    pub serving: Origin,
    /// By what clients recognise the server (PEM): the authorities, and the serving certificate with what came along with it
    /// where they do not vouch for it.
    pub authorities_for_clients: String,
    /// The administrator's certificate.
    pub admin_certificate: PathBuf,
    /// Its key.
    pub admin_key: PathBuf,
    /// The authorities of front proxies.
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
    /// A file that only a first start makes has gone.
    #[error("{} is missing or empty, and a running server makes no new one", path.display())]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// A certificate or its key is missing or broken, or they do not belong together. They may be somebody's who wants
    /// them back.
    #[error("{} {problem}; put the pair that belongs together there, or move both away and new ones are made", path.display())]
    Unpaired {
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

/// Where a certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A server made it; else somebody brought it along.
    pub is_made_here: bool,
    /// An authority in the same directory vouches for it; it need not if somebody brought it along.
    pub is_vouched_for: bool,
}

/// Makes the directory complete: what is missing is made, and what was made here and is about to expire, or must be signed
/// by another authority, is made anew.
pub fn ensure(folder: &Path, names: &ServingNames, now: Timestamp) -> Result<Pki, PkiError> {
    complete(folder, names, now, Founding::MakesMissing)
}

/// The same while a server runs: what others rely on, authorities and the key of tokens, must be there.
pub fn renew(folder: &Path, names: &ServingNames, now: Timestamp) -> Result<Pki, PkiError> {
    complete(folder, names, now, Founding::RefusesMissing)
}

/// What becomes of authorities and keys of tokens that are not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Founding {
    MakesMissing,
    RefusesMissing,
}

impl Founding {
    fn may_make(self, path: &Path) -> Result<(), PkiError> {
        match self {
            Self::MakesMissing => Ok(()),
            Self::RefusesMissing => Err(PkiError::Missing { path: path.to_owned() }),
        }
    }
}

/// What decides on all that is made in a directory: if it changes, [`renew`] has work to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots(Vec<Option<Vec<u8>>>);

impl Roots {
    /// As they are now.
    pub fn read(folder: &Path) -> Result<Self, PkiError> {
        let read = |name: &str| {
            let path = folder.join(name);
            match fs::read(&path) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(source) => Err(PkiError::Unreadable { path, source }),
            }
        };
        let names = ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key"];
        names.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }
}

fn complete(
    folder: &Path,
    names: &ServingNames,
    now: Timestamp,
    founding: Founding,
) -> Result<Pki, PkiError> {
    let unusable = |source| PkiError::Directory { path: folder.to_owned(), source };
    // A directory that may only be read is fine as long as nothing in it must be made.
    let lock = match lock(folder) {
        Err(error) if !is_read_only(&error) => return Err(unusable(error)),
        lock => lock,
    };
    if lock.is_ok() {
        finish_install(folder)?;
    }
    let mut drafts = Vec::new();

    let authority = |name, common_name, drafts: &mut Vec<NewFile>| {
        Authority::ensure(folder, name, common_name, now, founding, drafts)
    };
    let ca = authority("ca", "convoy-ca", &mut drafts)?;
    let front_proxy_ca = authority("front-proxy-ca", "convoy-front-proxy-ca", &mut drafts)?;
    let leaf = |name, common_name, organization, purpose| Leaf { name, common_name, organization, purpose };
    let serving = leaf("apiserver", "kube-apiserver", None, Purpose::Server(names)).ensure(
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
    ensure_service_account_key(folder, founding, &mut drafts)?;

    if !drafts.is_empty() {
        let held = lock.map_err(unusable)?;
        let names = drafts.iter().filter_map(|it| it.path.file_name()).map(|it| it.to_string_lossy());
        tracing::info!(folder = %folder.display(), files = names.collect::<Vec<_>>().join(" "), "keys and certificates are made");
        install(folder, drafts)?;
        drop(held);
    }
    Ok(Pki {
        ca: folder.join("ca.crt"),
        serving_certificate: folder.join("apiserver.crt"),
        serving_key: folder.join("apiserver.key"),
        authorities_for_clients: joined(&ca.pem, serving.pem_to_trust.as_deref()),
        serving: serving.origin,
        admin_certificate: folder.join("admin.crt"),
        admin_key: folder.join("admin.key"),
        front_proxy_ca: folder.join("front-proxy-ca.crt"),
        front_proxy_certificate: folder.join("front-proxy-client.crt"),
        front_proxy_key: folder.join("front-proxy-client.key"),
        service_account_key: folder.join("sa.key"),
        service_account_public_key: folder.join("sa.pub"),
    })
}

/// One PEM text after another.
fn joined(pem: &str, more: Option<&str>) -> String {
    let mut all = pem.to_owned();
    if let Some(more) = more {
        if !all.ends_with('\n') {
            all.push('\n');
        }
        all.push_str(more);
    }
    all
}

/// Makes the folder if need be, and waits until no other process works in it.
fn lock(folder: &Path) -> io::Result<File> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let lock =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(".lock"))?;
    lock.lock()?;
    Ok(lock)
}

/// Where new files wait for each other, and its name once all are there.
const GATHERING: &str = ".new";
const GATHERED: &str = ".ready";

/// Puts new files into the folder, all of them or, if the process ends before they are complete, none.
fn install(folder: &Path, drafts: Vec<NewFile>) -> Result<(), PkiError> {
    let (gathering, gathered) = (folder.join(GATHERING), folder.join(GATHERED));
    let failed = |source| PkiError::Directory { path: folder.to_owned(), source };
    match fs::remove_dir_all(&gathering) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&gathering).map_err(failed)?;
    let moved = drafts.into_iter().map(|it| {
        let name = it.path.file_name().expect("a new file must have a name").to_owned();
        NewFile { path: gathering.join(name), ..it }
    });
    files::write_all(&moved.collect::<Vec<_>>())?;
    fs::rename(&gathering, &gathered).map_err(failed)?;
    files::sync_folder(folder)?;
    finish_install(folder)
}

/// Moves files that are complete to their places, also those that a server left which ended meanwhile.
fn finish_install(folder: &Path) -> Result<(), PkiError> {
    let gathered = folder.join(GATHERED);
    let failed = |source| PkiError::Directory { path: folder.to_owned(), source };
    let files = match fs::read_dir(&gathered) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        files => files.map_err(failed)?,
    };
    let mut names =
        files.map(|it| it.map(|it| it.file_name())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    // Authorities come before what they vouch for: servers that run read the folder meanwhile.
    names.sort_by_key(|it| (!it.to_string_lossy().contains("ca."), it.clone()));
    for name in names {
        fs::rename(gathered.join(&name), folder.join(&name)).map_err(failed)?;
    }
    fs::remove_dir(&gathered).map_err(failed)?;
    Ok(files::sync_folder(folder)?)
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The key that signs tokens, and a file with its public half. That may hold keys of others, too, by which tokens are
/// believed while the key that signs is replaced.
fn ensure_service_account_key(
    folder: &Path,
    founding: Founding,
    drafts: &mut Vec<NewFile>,
) -> Result<(), PkiError> {
    let (key_path, public_path) = (folder.join("sa.key"), folder.join("sa.pub"));
    let key = match read_optional(&key_path)? {
        Some(pem) => parse_key(&key_path, &pem)?,
        None => {
            founding.may_make(&key_path)?;
            let key = new_key("the key of service account tokens")?;
            drafts.push(private(key_path, key.serialize_pem()));
            key
        }
    };
    let is_there = match read_optional(&public_path)? {
        Some(pem) => has_public_key(&public_path, &pem, &key)?,
        None => false,
    };
    if !is_there {
        drafts.push(public(public_path, key.public_key_pem()));
    }
    Ok(())
}

/// Whether a file holds this key. One that begins as PEM and cannot be read is somebody's mistake, and not replaced: there
/// are other keys in it that are still needed.
fn has_public_key(path: &Path, pem: &str, key: &KeyPair) -> Result<bool, PkiError> {
    if !pem.contains("-----BEGIN ") {
        return Ok(false);
    }
    let all: Result<Vec<_>, _> = SubjectPublicKeyInfoDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.ok().filter(|it| !it.is_empty());
    let all = all.ok_or_else(|| unusable(path, "does not hold PEM public keys alone"))?;
    let wanted = key.subject_public_key_info();
    Ok(all.iter().any(|it| it.as_ref() == wanted))
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
