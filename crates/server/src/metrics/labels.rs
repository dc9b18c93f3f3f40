//! The label sets of the metrics. Names and order are upstream's; there is no behaviour here.

use prometheus_client::encoding::EncodeLabelSet;

use super::RequestKey;

macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
        pub(super) struct $name { $(pub(super) $field: $type),+ }
    )+};
}

labels! {
    Request {
        code: u16, component: &'static str, dry_run: &'static str, group: String, resource: String,
        scope: String, subresource: String, verb: String, version: String,
    }
    RequestDuration {
        component: &'static str, dry_run: &'static str, group: String, resource: String, scope: String,
        subresource: String, verb: String, version: String,
    }
    LongRunning {
        component: &'static str, group: String, resource: String, scope: String, subresource: String,
        verb: String, version: String,
    }
    Termination {
        code: u16, component: &'static str, group: String, resource: String, scope: String,
        subresource: String, verb: String, version: String,
    }
    Watched { group: String, kind: String, version: String }
    QueueName { name: &'static str }
    LeaseName { name: String }
    AgreementState { state: &'static str }
    WriteKind { kind: &'static str }
    RequestKind { request_kind: &'static str }
    AuthResult { result: &'static str }
    Resource { resource: String }
    FailureClass { resource: String, class: &'static str }
    MigrationStatus { resource: String, status: &'static str }
    Operation { operation: &'static str, r#type: String }
    Plugin { plugin: &'static str }
    AdmissionStep { name: String, operation: &'static str, rejected: &'static str, r#type: &'static str }
    Rejection {
        error_type: &'static str, name: String, operation: &'static str, rejection_code: u16,
        r#type: &'static str,
    }
    FailedOpen { name: String, r#type: &'static str }
    Check { name: String, r#type: &'static str }
    CheckOutcome { name: String, status: &'static str, r#type: &'static str }
    Build { git_version: String, major: u16, minor: u16, platform: String }
}

const COMPONENT: &str = "apiserver";

fn dry_run(key: &RequestKey<'_>) -> &'static str {
    if key.dry_run { "All" } else { "" }
}

impl Request {
    pub(super) fn new(key: &RequestKey<'_>) -> Self {
        Self {
            code: key.code,
            component: COMPONENT,
            dry_run: dry_run(key),
            group: key.group.to_owned(),
            resource: key.resource.to_owned(),
            scope: key.scope.to_owned(),
            subresource: key.subresource.to_owned(),
            verb: key.verb.to_owned(),
            version: key.version.to_owned(),
        }
    }
}

impl RequestDuration {
    pub(super) fn new(key: &RequestKey<'_>) -> Self {
        Self {
            component: COMPONENT,
            dry_run: dry_run(key),
            group: key.group.to_owned(),
            resource: key.resource.to_owned(),
            scope: key.scope.to_owned(),
            subresource: key.subresource.to_owned(),
            verb: key.verb.to_owned(),
            version: key.version.to_owned(),
        }
    }
}

impl LongRunning {
    pub(super) fn new(key: &RequestKey<'_>) -> Self {
        Self {
            component: COMPONENT,
            group: key.group.to_owned(),
            resource: key.resource.to_owned(),
            scope: key.scope.to_owned(),
            subresource: key.subresource.to_owned(),
            verb: key.verb.to_owned(),
            version: key.version.to_owned(),
        }
    }
}

impl Termination {
    pub(super) fn new(key: &RequestKey<'_>) -> Self {
        Self {
            code: key.code,
            component: COMPONENT,
            group: key.group.to_owned(),
            resource: key.resource.to_owned(),
            scope: key.scope.to_owned(),
            subresource: key.subresource.to_owned(),
            verb: key.verb.to_owned(),
            version: key.version.to_owned(),
        }
    }
}

impl Watched {
    pub(super) fn new(group: &str, version: &str, kind: &str) -> Self {
        Self { group: group.to_owned(), kind: kind.to_owned(), version: version.to_owned() }
    }
}

impl Build {
    pub(super) fn new(git_version: &str, release: meta::Release) -> Self {
        Self {
            git_version: git_version.to_owned(),
            major: release.major,
            minor: release.minor,
            platform: format!("{}/{}", std::env::consts::OS, go_arch()),
        }
    }
}

/// The architecture as Go calls it.
fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
