//! The flags of `convoy serve`. Defaults stand here and nowhere else; what the values mean is checked in `settings`.

use std::{fmt, net::IpAddr, path::PathBuf, str::FromStr};

use clap::{ArgAction, Args};
use controllers::Selection;
use fleet::{
    cluster::{Agreement, Guarantee},
    stored::Allowed,
};
use meta::Release;
use server::{documents::PeerDiscovery, pki::is_dns_name};

use crate::{duration::GoDuration, logging::LogFormat};

/// All of them, by topic.
#[derive(Clone, Debug, Args)]
pub struct ServeFlags {
    #[command(flatten)]
    pub storage: StorageFlags,
    #[command(flatten)]
    pub serving: ServingFlags,
    #[command(flatten)]
    pub api: ApiFlags,
    #[command(flatten)]
    pub fleet: FleetFlags,
    #[command(flatten)]
    pub controllers: ControllerFlags,
    #[command(flatten)]
    pub authentication: AuthenticationFlags,
    #[command(flatten)]
    pub authorization: AuthorizationFlags,
    #[command(flatten)]
    pub audit: AuditFlags,
    #[command(flatten)]
    pub requests: RequestFlags,
    #[command(flatten)]
    pub logging: LoggingFlags,
}

/// How much may be stored without a flag: what etcd's documentation calls its practical limit.
pub const DEFAULT_QUOTA: u64 = 8 << 30;

/// Where objects are kept.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Storage")]
pub struct StorageFlags {
    /// Keep objects in this directory, in the embedded store. One process at a time [default: ./convoy-data]
    #[arg(long, value_name = "DIR", conflicts_with = "etcd_servers")]
    pub data_dir: Option<PathBuf>,

    #[command(flatten)]
    pub etcd: EtcdFlags,

    /// How often history is dropped, in either store; at least this much is kept. 0 keeps all of it
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(300))]
    pub etcd_compaction_interval: GoDuration,

    /// How many bytes may be stored in the data directory, old versions included; 0 is no limit. Beyond it, and on a disk
    /// that is nearly full, only what frees space is written (500 mvcc: database space exceeded) until there is space
    /// again. etcd has this flag itself
    #[arg(long, value_name = "BYTES", default_value_t = DEFAULT_QUOTA)]
    pub quota_backend_bytes: u64,

    /// How long events are kept
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(3600))]
    pub event_ttl: GoDuration,
}

/// Which etcd, and how to be believed there.
#[derive(Clone, Debug, Args)]
pub struct EtcdFlags {
    /// Objects are in etcd instead: the members' URLs (scheme://host:port), separated by commas
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    pub etcd_servers: Vec<String>,

    /// The prefix of all keys in etcd
    #[arg(long, value_name = "PREFIX", default_value = "/registry", requires = "etcd_servers")]
    pub etcd_prefix: String,

    /// The authorities that etcd's certificate must come from (PEM). A server reloads it when it changes
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,

    /// The certificate to show to etcd (PEM). A server reloads it when it changes
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub etcd_certfile: Option<PathBuf>,

    /// The key of that certificate (PEM). A server reloads it when it changes
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub etcd_keyfile: Option<PathBuf>,
}

impl EtcdFlags {
    /// No etcd.
    pub fn none() -> Self {
        Self {
            etcd_servers: Vec::new(),
            etcd_prefix: String::new(),
            etcd_cafile: None,
            etcd_certfile: None,
            etcd_keyfile: None,
        }
    }
}

/// Where clients find the server, and what it shows them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Secure serving")]
pub struct ServingFlags {
    /// The address to listen on; 0.0.0.0 and :: are all
    #[arg(long, value_name = "IP", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,

    /// The port to listen on; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value_t = 6443)]
    pub secure_port: u16,

    /// The address that clients are told, and that the serving certificate is valid for
    /// [default: the bind address, else the machine's]
    #[arg(long, value_name = "IP")]
    pub advertise_address: Option<IpAddr>,

    /// The name of this server among several [default: the machine's name]
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,

    /// Where keys and certificates are made on first start, for whatever no flag names a file: authorities, serving,
    /// administrator's and front proxy's certificates, the key of service account tokens. Servers given the same
    /// directory share them [default: pki in the data directory; with etcd, ./convoy-pki]
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,

    /// More names and addresses that the self-made serving certificate is to be valid for, such as a load balancer's; may
    /// be given several times, or separated by commas. A certificate that lacks one is made anew. No effect on
    /// certificates that were not made here
    #[arg(long, value_name = "NAME_OR_IP", value_delimiter = ',')]
    pub tls_san: Vec<San>,

    /// The serving certificate and its intermediates (PEM). Reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,

    /// The key of the serving certificate (PEM). Reloaded when it changes
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,

    /// Write an administrator's kubeconfig to this file, readable by its owner only
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tls_cert_file", "client_ca_file"])]
    pub write_kubeconfig: Option<PathBuf>,

    /// How long to go on serving, unready, after being told to stop
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(0))]
    pub shutdown_delay_duration: GoDuration,
}

/// Something that a certificate can be valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum San {
    /// A DNS name.
    Name(String),
    /// An address.
    Ip(IpAddr),
}

impl FromStr for San {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let address = text.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(text);
        match address.parse::<IpAddr>() {
            Ok(ip) if ip.is_unspecified() => Err("an address that stands for all is nobody's".to_owned()),
            Ok(ip) => Ok(Self::Ip(ip)),
            Err(_) if is_dns_name(text) => Ok(Self::Name(text.to_owned())),
            Err(_) => {
                Err("neither a DNS name nor an address; schemes and ports do not belong here".to_owned())
            }
        }
    }
}

impl fmt::Display for San {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

/// What is served.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "API")]
pub struct ApiFlags {
    /// The release of Kubernetes to be, 1.30 to 1.36
    #[arg(long, value_name = "X.Y", value_parser = parse_release, default_value_t = catalog::LAST_RELEASE)]
    pub emulated_version: Release,

    /// Switch API versions and resources on or off: api/all, api/ga, api/beta, api/alpha, GROUP/VERSION or
    /// GROUP/VERSION/RESOURCE, each with =true or =false, separated by commas. StorageVersions, StorageStates and
    /// StorageVersionMigrations are always on: general keys do not touch them, and a key that switches them off by name
    /// is refused
    #[arg(long, value_name = "KEY=BOOL,...", value_delimiter = ',')]
    pub runtime_config: Vec<String>,

    /// Switch features on or off: NAME=true or NAME=false, separated by commas
    #[arg(long, value_name = "NAME=BOOL,...", value_delimiter = ',')]
    pub feature_gates: Vec<String>,

    /// Admission plugins to run besides those that run anyway. There are CertificateApproval, CertificateSigning,
    /// CertificateSubjectRestriction, ClusterTrustBundleAttest, MutatingAdmissionWebhook, NamespaceLifecycle,
    /// PersistentVolumeClaimResize, ServiceAccount and ValidatingAdmissionWebhook, all on by default; others of
    /// kube-apiserver are refused
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub enable_admission_plugins: Vec<String>,

    /// Admission plugins not to run, separated by commas
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub disable_admission_plugins: Vec<String>,

    /// Let policies and quotas be created although this server does not enforce them
    #[arg(long, value_name = "BOOL", default_value_t = false, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub allow_unenforced_policies: bool,
}

/// How several servers of one cluster agree.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Several servers")]
pub struct FleetFlags {
    /// How the servers of a cluster agree on the version in which a resource is stored: vote (all write the selected
    /// one, which moves when all vote for another) or report (each writes its own). Recorded by the first server; a
    /// server with another value stays unready [default: what is recorded, else vote]
    #[arg(long, value_name = "vote|report")]
    pub storage_version_agreement: Option<Agreement>,

    /// What is promised of every write: strict (it is in the version that was agreed on when it was committed) or loose
    /// (within a minute). Recorded by the first server [default: what is recorded, else strict]
    #[arg(long, value_name = "strict|loose")]
    pub storage_version_guarantee: Option<Guarantee>,

    /// How long a server that does not answer counts as a member
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(10))]
    pub member_lease_duration: GoDuration,

    /// How long the others wait for a server that left, before they move on to a version that it did not vote for
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(60))]
    pub departure_settle_time: GoDuration,

    /// Take part although objects are stored that this release cannot read: RESOURCE/VERSION, such as
    /// deviceclasses.resource.k8s.io/v1; may be given several times. They stay unreadable here
    #[arg(long, value_name = "RESOURCE/VERSION", value_delimiter = ',')]
    pub allow_undecodable: Vec<Allowed>,

    /// The address under which other servers reach this one [default: the advertised address]
    #[arg(long, value_name = "IP", requires = "peer_advertise_port")]
    pub peer_advertise_ip: Option<IpAddr>,

    /// The port under which other servers reach this one [default: the port it listens on]
    #[arg(long, value_name = "PORT", requires = "peer_advertise_ip")]
    pub peer_advertise_port: Option<u16>,

    /// The authorities that vouch for other servers' certificates, which must be valid for kubernetes.default.svc (PEM).
    /// Reloaded when it changes. Without it, servers with certificates of their own cannot hand each other requests
    /// [default: the self-made one]
    #[arg(long, value_name = "FILE")]
    pub peer_ca_file: Option<PathBuf>,

    /// What this server shows to other servers, a certificate of --requestheader-client-ca-file (PEM). Reloaded when it
    /// changes [default: the self-made one]
    #[arg(long, value_name = "FILE")]
    pub proxy_client_cert_file: Option<PathBuf>,

    /// The key of --proxy-client-cert-file (PEM). Reloaded when it changes
    #[arg(long, value_name = "FILE")]
    pub proxy_client_key_file: Option<PathBuf>,

    /// What discovery shows: merged (everything that any server of the cluster serves) or newest (what the newest one
    /// serves)
    #[arg(long, value_name = "merged|newest", default_value = "merged", value_parser = parse_peer_discovery)]
    pub peer_discovery: PeerDiscovery,

    /// How connections to other servers leave this machine: an EgressSelectorConfiguration of apiserver.k8s.io, whose
    /// context controlplane is used; HTTPConnect over TCP or a unix socket, or Direct
    #[arg(long, value_name = "FILE")]
    pub egress_selector_config_file: Option<PathBuf>,
}

fn parse_peer_discovery(text: &str) -> Result<PeerDiscovery, String> {
    match text {
        "merged" => Ok(PeerDiscovery::Merged),
        "newest" => Ok(PeerDiscovery::Newest),
        other => Err(format!("{other:?} is neither merged nor newest")),
    }
}

/// What keeps the cluster in order.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Controllers")]
pub struct ControllerFlags {
    /// The controllers to run: * is all, NAME switches one on, -NAME switches one off, separated by commas. There are
    /// clusterrole-aggregation, expiry, garbage-collector, namespace, root-ca-cert-publisher, serviceaccount,
    /// serviceaccount-token, storage-version-gc, storage-version-migrator and storage-version-trigger
    #[arg(long, value_name = "LIST", default_value = "*", value_parser = Selection::parse,
          allow_hyphen_values = true)]
    pub controllers: Selection,
}

/// Who is believed to be whom.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Authentication")]
pub struct AuthenticationFlags {
    /// The authorities whose client certificates name users (PEM); CN is the user, O the groups. Reloaded when it
    /// changes [default: the self-made one]
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,

    /// Users with static tokens: a CSV file of token,user,uid,"group1,group2"
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,

    /// Let requests without credentials pass as system:anonymous; they get no further than health and version
    #[arg(long, value_name = "BOOL", default_value_t = true, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", action = ArgAction::Set)]
    pub anonymous_auth: bool,

    /// Check service account tokens with these keys, public or private (PEM); may be given several times, and a file may
    /// hold several. Reloaded when they change [default: the signing key; with the self-made one, all keys in sa.pub]
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    pub service_account_key_file: Vec<PathBuf>,

    /// Sign service account tokens with this key (PEM). Reloaded when it changes [default: the self-made one]
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,

    /// Who issues service account tokens. If given several times the first one issues, all are accepted
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc", value_delimiter = ',')]
    pub service_account_issuer: Vec<String>,

    /// Whom service account tokens are for, separated by commas [default: the issuers]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub api_audiences: Vec<String>,

    /// The longest life of a service account token, from 1h; longer requests get this much [default: no limit]
    #[arg(long, value_name = "DURATION")]
    pub service_account_max_token_expiration: Option<GoDuration>,

    /// The authorities whose certificates make a client a front proxy, which names users in headers (PEM). Reloaded
    /// when it changes [default: the self-made one]
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,

    /// The common names a front proxy's certificate may have, separated by commas; any if empty
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,

    /// Headers in which a front proxy names the user; the first one present counts
    #[arg(long, value_name = "HEADER,...", value_delimiter = ',', default_value = "X-Remote-User")]
    pub requestheader_username_headers: Vec<String>,

    /// Headers in which a front proxy gives the user's uid
    #[arg(long, value_name = "HEADER,...", value_delimiter = ',', default_value = "X-Remote-Uid")]
    pub requestheader_uid_headers: Vec<String>,

    /// Headers in which a front proxy names the user's groups
    #[arg(long, value_name = "HEADER,...", value_delimiter = ',', default_value = "X-Remote-Group")]
    pub requestheader_group_headers: Vec<String>,

    /// Prefixes of headers in which a front proxy gives extra attributes of the user
    #[arg(long, value_name = "PREFIX,...", value_delimiter = ',', default_value = "X-Remote-Extra-")]
    pub requestheader_extra_headers_prefix: Vec<String>,
}

/// Who may do what.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Authorization")]
pub struct AuthorizationFlags {
    /// Who is asked whether a request may pass, in this order: RBAC, AlwaysAllow, AlwaysDeny
    #[arg(long, value_name = "MODE,...", default_value = "RBAC")]
    pub authorization_mode: String,
}

/// What is recorded.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Audit")]
pub struct AuditFlags {
    /// Record requests in this file; - is standard output. Needs a policy
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub audit_log_path: Option<PathBuf>,

    /// What is recorded of which request: a Policy of audit.k8s.io/v1
    #[arg(long, value_name = "FILE")]
    pub audit_policy_file: Option<PathBuf>,

    /// The size in megabytes at which the audit log is put aside; 0 is never
    #[arg(long, value_name = "MB", default_value_t = 100)]
    pub audit_log_maxsize: u64,

    /// How many old audit logs are kept; 0 is all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub audit_log_maxbackup: usize,

    /// How many days old audit logs are kept; 0 is for ever
    #[arg(long, value_name = "DAYS", default_value_t = 0)]
    pub audit_log_maxage: u64,
}

/// How much at a time, and for how long.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct RequestFlags {
    /// Reading requests at a time; more are answered with 429. 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub max_requests_inflight: usize,

    /// Writing requests at a time; more are answered with 429. 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_mutating_requests_inflight: usize,

    /// How long a request may take; watches are exempt
    #[arg(long, value_name = "DURATION", default_value_t = GoDuration::from_secs(60))]
    pub request_timeout: GoDuration,

    /// How long a watch lasts at least, in seconds; a random part is added so that they do not all end at once
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub min_request_timeout: u64,
}

/// What the server says about itself.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub struct LoggingFlags {
    /// How log lines look
    #[arg(long, value_enum, default_value = "text")]
    pub logging_format: LogFormat,

    /// How much is logged: 0 is the ordinary, 2 and more for finding errors, 6 and more shows everything
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 0)]
    pub verbosity: u8,
}

/// `1.33`, or `kube=1.33` as kube-apiserver also takes it.
pub fn parse_release(text: &str) -> Result<Release, String> {
    let release: Release = text
        .strip_prefix("kube=")
        .unwrap_or(text)
        .parse()
        .map_err(|it: meta::version::ParseReleaseError| it.to_string())?;
    let (first, last) = (catalog::FIRST_RELEASE, catalog::LAST_RELEASE);
    if (first..=last).contains(&release) {
        Ok(release)
    } else {
        Err(format!("this build can be any release from {first} to {last}, not {release}"))
    }
}
