//! The plugins that there are, those that upstream has besides, and which of them are on.

use std::collections::BTreeSet;

/// A plugin of this server, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Plugin {
    /// Nothing is made in a namespace that is not there or goes away; some namespaces stay.
    NamespaceLifecycle,
    /// Pods run as a service account and get its token.
    ServiceAccount,
    /// Only bound claims grow, and only if their storage class lets them.
    PersistentVolumeClaimResize,
    /// Who approves a certificate may approve for its signer.
    CertificateApproval,
    /// Who signs a certificate may sign for its signer.
    CertificateSigning,
    /// Who says which authorities a signer has may say it for that signer.
    ClusterTrustBundleAttest,
    /// Nobody becomes an administrator by a client certificate.
    CertificateSubjectRestriction,
    /// Webhooks that change objects.
    MutatingAdmissionWebhook,
    /// Webhooks that refuse objects.
    ValidatingAdmissionWebhook,
}

impl Plugin {
    /// All of them; all are on by default.
    pub const ALL: [Self; 9] = [
        Self::NamespaceLifecycle,
        Self::ServiceAccount,
        Self::PersistentVolumeClaimResize,
        Self::CertificateApproval,
        Self::CertificateSigning,
        Self::ClusterTrustBundleAttest,
        Self::CertificateSubjectRestriction,
        Self::MutatingAdmissionWebhook,
        Self::ValidatingAdmissionWebhook,
    ];

    /// Upstream's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NamespaceLifecycle => "NamespaceLifecycle",
            Self::ServiceAccount => "ServiceAccount",
            Self::PersistentVolumeClaimResize => "PersistentVolumeClaimResize",
            Self::CertificateApproval => "CertificateApproval",
            Self::CertificateSigning => "CertificateSigning",
            Self::ClusterTrustBundleAttest => "ClusterTrustBundleAttest",
            Self::CertificateSubjectRestriction => "CertificateSubjectRestriction",
            Self::MutatingAdmissionWebhook => "MutatingAdmissionWebhook",
            Self::ValidatingAdmissionWebhook => "ValidatingAdmissionWebhook",
        }
    }
}

/// What kube-apiserver has and this server does not.
const ELSEWHERE: [&str; 32] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DefaultIngressClass",
    "DefaultStorageClass",
    "DefaultTolerationSeconds",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "JobValidation",
    "LimitPodHardAntiAffinityTopology",
    "LimitRanger",
    "MutatingAdmissionPolicy",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "NodeDeclaredFeatureValidator",
    "NodeRestriction",
    "OwnerReferencesPermissionEnforcement",
    "PodGroupProtection",
    "PodGroupWorkloadExists",
    "PodNodeSelector",
    "PodResizeValidator",
    "PodSecurity",
    "PodTolerationRestriction",
    "PodTopologyLabels",
    "Priority",
    "ResourceQuota",
    "RuntimeClass",
    "StorageObjectInUseProtection",
    "TaintNodesByCondition",
    "ValidatingAdmissionPolicy",
];

/// The plugins that are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugins(BTreeSet<Plugin>);

/// Why a choice of plugins is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// Nobody has it.
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown {
        /// The flag that names it.
        flag: &'static str,
        /// The plugin.
        name: String,
    },
    /// kube-apiserver has it.
    #[error(
        "enable-admission-plugins plugin {0:?} is not available in this build, and nothing would enforce what it \
         enforces; there are {there_are}",
        there_are = there_are()
    )]
    Unavailable(String),
    /// Both on and off.
    #[error("[{0}] in enable-admission-plugins and disable-admission-plugins overlapped")]
    Overlap(String),
}

impl Default for Plugins {
    fn default() -> Self {
        Self(Plugin::ALL.into())
    }
}

impl Plugins {
    /// What `--enable-admission-plugins` and `--disable-admission-plugins` leave on.
    pub fn choose(enable: &[String], disable: &[String]) -> Result<Self, PluginError> {
        for (flag, names) in [("enable-admission-plugins", enable), ("disable-admission-plugins", disable)] {
            for name in names {
                if find(name).is_none() && !ELSEWHERE.contains(&name.as_str()) {
                    return Err(PluginError::Unknown { flag, name: name.clone() });
                }
            }
        }
        let both: Vec<&str> = enable.iter().filter(|it| disable.contains(it)).map(String::as_str).collect();
        if !both.is_empty() {
            return Err(PluginError::Overlap(both.join(" ")));
        }
        if let Some(name) = enable.iter().find(|it| find(it).is_none()) {
            return Err(PluginError::Unavailable(name.clone()));
        }
        let mut on = Self::default();
        on.0.retain(|it| !disable.iter().any(|name| name == it.name()));
        Ok(on)
    }

    /// Whether this one is on.
    pub fn has(&self, plugin: Plugin) -> bool {
        self.0.contains(&plugin)
    }
}

/// The names of all plugins of this server, for people.
fn there_are() -> String {
    let mut names = Plugin::ALL.map(Plugin::name);
    names.sort_unstable();
    match names.split_last() {
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
        None => String::new(),
    }
}

fn find(name: &str) -> Option<Plugin> {
    Plugin::ALL.into_iter().find(|it| it.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(enable: &str, disable: &str) -> Result<Plugins, PluginError> {
        let list = |text: &str| -> Vec<String> {
            text.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect()
        };
        Plugins::choose(&list(enable), &list(disable))
    }

    #[test]
    fn plugins_are_switched_off_by_name() {
        assert_eq!(choose("", "").unwrap(), Plugins::default());
        assert_eq!(choose("ServiceAccount", "").unwrap(), Plugins::default());
        let some = choose("", "ServiceAccount,PodSecurity").unwrap();
        assert!(!some.has(Plugin::ServiceAccount) && some.has(Plugin::NamespaceLifecycle));
    }

    #[test]
    fn what_nobody_enforces_cannot_be_switched_on() {
        let message = |enable: &str, disable: &str| choose(enable, disable).unwrap_err().to_string();
        assert!(message("PodSecurity", "").contains("\"PodSecurity\" is not available in this build"));
        assert_eq!(message("Podsecurity", ""), "enable-admission-plugins plugin \"Podsecurity\" is unknown");
        assert_eq!(message("", "X"), "disable-admission-plugins plugin \"X\" is unknown");
        assert_eq!(
            message("ServiceAccount", "ServiceAccount"),
            "[ServiceAccount] in enable-admission-plugins and disable-admission-plugins overlapped"
        );
    }
}
