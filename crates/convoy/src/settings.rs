//! From flags to what a server is told: reads the files that flags name, and refuses what makes no sense.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use access::{Mode, Policy, RequestHeaderConfig, TokenFile};
use admission::Plugins;
use catalog::{Catalog, FeatureGates, Gate, RuntimeConfig};
use controllers::Controller;
use fleet::cluster::Wanted;
use server::{
    audit::Auditor,
    audit_log::{AuditLog, Destination, Rotation},
    membership::FleetSettings,
    metrics::Metrics,
    peers::{Peers, egress::Egress},
    pki::{Pki, ServingNames},
    tls::TlsFiles,
};
use store::SharedClock;

use crate::{
    failure::Failure,
    flags::{ApiFlags, AuditFlags, AuthenticationFlags, FleetFlags, San, ServeFlags, ServingFlags},
    machine,
    storage::DEFAULT_DATA_DIR,
};

/// Upstream's bounds for `--service-account-max-token-expiration`.
const SHORTEST_TOKEN: Duration = Duration::from_secs(3600);
const LONGEST_TOKEN: Duration = Duration::from_secs(1 << 32);

/// What can be told from the flags alone; wrong ones are refused here, before anything is made or opened.
pub struct Checked {
    /// What is served.
    pub catalog: Catalog,
    /// Who is asked.
    pub authorization_modes: Vec<Mode>,
    /// Who has a say in writes.
    pub admission_plugins: Plugins,
    /// `--service-account-max-token-expiration`.
    pub max_token_expiration: Option<Duration>,
}

impl Checked {
    /// Checks the flags.
    pub fn of(flags: &ServeFlags) -> Result<Self, Failure> {
        let modes = &flags.authorization.authorization_mode;
        let max_token_expiration = flags.authentication.service_account_max_token_expiration.map(|it| it.0);
        if let Some(longest) = max_token_expiration.filter(|it| !it.is_zero())
            && !(SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&longest)
        {
            return Err(Failure::usage(
                "--service-account-max-token-expiration must be between 1h and 2^32 seconds",
            ));
        }
        if flags.authentication.service_account_issuer.iter().any(String::is_empty) {
            return Err(Failure::usage("--service-account-issuer must not be empty"));
        }
        let catalog = catalog(&flags.api)?;
        check_peers(&flags.fleet, &catalog)?;
        Ok(Self {
            catalog,
            admission_plugins: Plugins::choose(
                &flags.api.enable_admission_plugins,
                &flags.api.disable_admission_plugins,
            )
            .map_err(|it| Failure::usage(it.to_string()))?,
            authorization_modes: Mode::parse_list(modes).map_err(|it| Failure::usage(it.to_string()))?,
            max_token_expiration: max_token_expiration.filter(|it| !it.is_zero()),
        })
    }
}

/// Flags about other servers make no sense where this one does not hand requests on. Upstream's sentences.
fn check_peers(flags: &FleetFlags, catalog: &Catalog) -> Result<(), Failure> {
    if catalog.gates().enabled(Gate::UnknownVersionInteroperabilityProxy) {
        return Ok(());
    }
    let given = [
        ("peer-ca-file", flags.peer_ca_file.is_some()),
        ("peer-advertise-ip", flags.peer_advertise_ip.is_some()),
        ("peer-advertise-port", flags.peer_advertise_port.is_some()),
    ];
    match given.iter().find(|it| it.1) {
        None => Ok(()),
        Some((flag, _)) => Err(Failure::usage(format!(
            "--{flag} requires UnknownVersionInteroperabilityProxy feature to be turned on"
        ))),
    }
}

fn catalog(flags: &ApiFlags) -> Result<Catalog, Failure> {
    let usage = |flag: &str, error: &dyn std::error::Error| Failure::usage(format!("--{flag}: {error}"));
    let runtime_config =
        RuntimeConfig::parse(&flags.runtime_config.join(",")).map_err(|it| usage("runtime-config", &it))?;
    let gates = FeatureGates::parse(&flags.feature_gates.join(","), flags.emulated_version)
        .map_err(|it| usage("feature-gates", &it))?;
    Catalog::new(flags.emulated_version, &runtime_config, &gates).map_err(|it| usage("runtime-config", &it))
}

/// Where keys and certificates are made.
pub fn cert_dir(flags: &ServeFlags) -> PathBuf {
    match (&flags.serving.cert_dir, flags.storage.etcd.etcd_servers.is_empty()) {
        (Some(folder), _) => folder.clone(),
        (None, true) => flags.storage.data_dir.clone().unwrap_or_else(|| DEFAULT_DATA_DIR.into()).join("pki"),
        (None, false) => PathBuf::from("./convoy-pki"),
    }
}

/// Whether some key or certificate must be made because no flag names a file.
pub fn needs_pki(flags: &ServeFlags) -> bool {
    flags.serving.tls_cert_file.is_none()
        || flags.authentication.service_account_signing_key_file.is_none()
        || flags.serving.write_kubeconfig.is_some()
}

/// The address that clients are told.
pub fn advertised(flags: &ServingFlags) -> IpAddr {
    let bind = flags.bind_address;
    flags
        .advertise_address
        .or_else(|| (!bind.is_unspecified()).then_some(bind))
        .or_else(machine::outbound_address)
        .unwrap_or(IpAddr::from([127, 0, 0, 1]))
}

/// What this server is called among several.
pub fn hostname(flags: &ServingFlags) -> String {
    flags.hostname_override.clone().unwrap_or_else(machine::hostname)
}

/// How the server takes part in a cluster of several. `listens` is where clients are told that it does.
pub fn fleet(
    flags: &ServeFlags,
    listens: Option<SocketAddr>,
    is_exclusive: bool,
    pki: Option<&Pki>,
) -> Result<FleetSettings, Failure> {
    let peers = peers(flags, pki)?;
    let FleetFlags {
        storage_version_agreement: agreement,
        storage_version_guarantee: guarantee,
        member_lease_duration,
        departure_settle_time,
        allow_undecodable,
        peer_advertise_ip,
        peer_advertise_port,
        peer_discovery,
        ..
    } = flags.fleet.clone();
    for allowed in &allow_undecodable {
        tracing::warn!(%allowed, "objects in this version may stay unreadable, as --allow-undecodable says");
    }
    let peer_address = match (peer_advertise_ip, peer_advertise_port) {
        (Some(ip), Some(port)) => Some(SocketAddr::new(ip, port)),
        _ => listens,
    };
    Ok(FleetSettings {
        peer_address: peer_address.map(|it| it.to_string()),
        wanted: Wanted { agreement, guarantee },
        lease: member_lease_duration.0,
        settle: departure_settle_time.0,
        allowed: allow_undecodable,
        is_exclusive,
        collects: flags.controllers.controllers.has(Controller::StorageVersionGc),
        peers,
        discovery: peer_discovery,
        ..FleetSettings::named(hostname(&flags.serving))
    })
}

/// How this server reaches the others; `None` if nothing says how they would prove themselves.
fn peers(flags: &ServeFlags, pki: Option<&Pki>) -> Result<Option<Peers>, Failure> {
    let FleetFlags { peer_ca_file, proxy_client_cert_file, proxy_client_key_file, .. } = &flags.fleet;
    let egress = match &flags.fleet.egress_selector_config_file {
        None => Egress::Direct,
        Some(path) => Egress::parse(&read(path)?).map_err(|it| wrong(path, &it))?,
    };
    // The self-made authority vouches for the self-made serving certificate, and hardly for another.
    let made = pki.filter(|it| flags.serving.tls_cert_file.is_none() && it.serving.is_vouched_for);
    let Some(ca) = peer_ca_file.clone().or_else(|| made.map(|it| it.ca.clone())) else { return Ok(None) };
    let missing = |what: &str| {
        Failure::usage(format!("error building peer proxy handler, proxy-{what}-file not specified"))
    };
    let (certificate, key) = match (proxy_client_cert_file, proxy_client_key_file, pki) {
        (Some(certificate), Some(key), _) => (certificate.clone(), key.clone()),
        (None, None, Some(pki)) => (pki.front_proxy_certificate.clone(), pki.front_proxy_key.clone()),
        (None, _, _) => return Err(missing("cert")),
        (Some(_), None, _) => return Err(missing("key")),
    };
    Ok(Some(Peers::new(ca, certificate, key, egress)))
}

/// The names that the self-made serving certificate is valid for.
pub fn serving_names(flags: &ServingFlags) -> ServingNames {
    let mut names = ServingNames::standard();
    names.add_dns(&machine::hostname());
    if let Some(name) = &flags.hostname_override {
        names.add_dns(name);
    }
    names.add_ip(flags.bind_address);
    names.add_ip(advertised(flags));
    for san in &flags.tls_san {
        match san {
            San::Name(name) => names.add_dns(name),
            San::Ip(ip) => names.add_ip(*ip),
        }
    }
    names
}

/// Why `--tls-san` changes nothing, if so: only what was made here is made for other names.
pub fn unused_tls_san(flags: &ServingFlags, pki: Option<&Pki>) -> Option<String> {
    let certificate = match (&flags.tls_cert_file, pki) {
        (Some(given), _) => given,
        (None, Some(pki)) if !pki.serving.is_made_here => &pki.serving_certificate,
        (None, _) => return None,
    };
    let is_unused = !flags.tls_san.is_empty();
    is_unused.then(|| {
        format!(
            "--tls-san has no effect: the serving certificate {} was not made by convoy and is used as it is",
            certificate.display()
        )
    })
}

/// The files of TLS: those that flags name, else the self-made ones.
pub fn tls_files(flags: &ServeFlags, pki: Option<&Pki>) -> Result<TlsFiles, Failure> {
    let own =
        |flag: &Option<PathBuf>, made: fn(&Pki) -> &PathBuf| flag.clone().or_else(|| pki.map(made).cloned());
    let missing = || Failure::usage("--tls-cert-file and --tls-private-key-file belong together");
    let (serving, authentication) = (&flags.serving, &flags.authentication);
    Ok(TlsFiles {
        certificate: own(&serving.tls_cert_file, |it| &it.serving_certificate).ok_or_else(missing)?,
        private_key: own(&serving.tls_private_key_file, |it| &it.serving_key).ok_or_else(missing)?,
        client_ca: own(&authentication.client_ca_file, |it| &it.ca),
        front_proxy_ca: own(&authentication.requestheader_client_ca_file, |it| &it.front_proxy_ca),
    })
}

/// `--token-auth-file`.
pub fn tokens(path: Option<&Path>) -> Result<Option<TokenFile>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = TokenFile::parse(&read(path)?).map_err(|it| wrong(path, &it))?;
    for warning in file.warnings() {
        tracing::warn!(file = %path.display(), "{warning}");
    }
    Ok(Some(file))
}

/// How front proxies name users.
pub fn request_header(flags: &AuthenticationFlags) -> RequestHeaderConfig {
    RequestHeaderConfig {
        username_headers: flags.requestheader_username_headers.clone(),
        uid_headers: flags.requestheader_uid_headers.clone(),
        group_headers: flags.requestheader_group_headers.clone(),
        extra_prefixes: flags.requestheader_extra_headers_prefix.clone(),
        allowed_names: flags.requestheader_allowed_names.clone(),
    }
}

/// The audit policy and its log.
pub fn auditor(flags: &AuditFlags, clock: &SharedClock, metrics: &Arc<Metrics>) -> Result<Auditor, Failure> {
    let mut auditor = Auditor::default();
    if let Some(path) = &flags.audit_policy_file {
        auditor.policy = Policy::parse(&read(path)?).map_err(|it| wrong(path, &it))?;
    }
    if let Some(path) = &flags.audit_log_path {
        let destination = if path.as_os_str() == "-" {
            Destination::StandardOutput
        } else {
            Destination::File(Rotation {
                path: path.clone(),
                max_bytes: flags.audit_log_maxsize.saturating_mul(1 << 20),
                max_backups: flags.audit_log_maxbackup,
                max_age: Duration::from_secs(flags.audit_log_maxage.saturating_mul(86_400)),
            })
        };
        let log = AuditLog::open(destination, Arc::clone(clock), Arc::clone(metrics));
        auditor.log =
            Some(log.map_err(|it| Failure::failed(format!("cannot write {}: {it}", path.display())))?);
    }
    Ok(auditor)
}

/// The text of a file that a flag names.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|it| Failure::failed(format!("cannot read {}: {it}", path.display())))
}

/// What is in a file cannot be used.
pub(crate) fn wrong(path: &Path, error: &dyn std::error::Error) -> Failure {
    // Parsers like to draw pictures below their first line.
    let reason = crate::failure::chain(error).lines().next().unwrap_or_default().to_owned();
    Failure::failed(format!("{} cannot be used: {reason}", path.display()))
}

#[cfg(test)]
mod tests;
