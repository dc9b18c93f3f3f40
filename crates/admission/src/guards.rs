//! Every guard that kube-apiserver 1.36 has by default, and what becomes of it here.
//!
//! A guard is a plugin that is on by default, or a check in upstream's registry that asks for more than the right to the
//! request itself. One row each, so that none is forgotten: docs/admission.md has the same table, and the integration
//! tests of `server` have a case for each row; a test fails if either is missing.
//!
//! When upstream adds a guard, it gets a row here, a row there, and a case.

use std::fmt;

use self::Here::{Enforced, NotApplicable, Refused, Warned};

/// Where upstream has a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An admission plugin that is on by default.
    Plugin,
    /// A check in the registry or in a handler, which nothing switches off.
    Check,
}

/// What becomes of a guard in this build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Here {
    /// It refuses, or does, what it refuses or does upstream.
    Enforced,
    /// What it would decide on is refused altogether.
    Refused,
    /// What relies on it is accepted, and the answer carries a warning.
    Warned,
    /// There is nothing that it could protect.
    NotApplicable,
}

impl fmt::Display for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enforced => "enforced",
            Self::Refused => "refused",
            Self::Warned => "a warning",
            Self::NotApplicable => "does not apply",
        })
    }
}

/// One guard.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// Where upstream has it.
    pub kind: Kind,
    /// Upstream's name of the plugin, or what the check is about.
    pub name: &'static str,
    /// What it does upstream.
    pub does: &'static str,
    /// What becomes of it here.
    pub here: Here,
    /// How that shows, or why it does not apply.
    pub how: &'static str,
}

const fn plugin(name: &'static str, does: &'static str, here: Here, how: &'static str) -> Guard {
    Guard { kind: Kind::Plugin, name, does, here, how }
}

const fn check(name: &'static str, does: &'static str, here: Here, how: &'static str) -> Guard {
    Guard { kind: Kind::Check, name, does, here, how }
}

/// All of them: plugins in upstream's order, then checks.
pub const GUARDS: [Guard; 42] = [
    plugin(
        "NamespaceLifecycle",
        "nothing is made in a namespace that is not there or is being deleted; `default`, `kube-system` and `kube-public` stay",
        Enforced,
        "as upstream",
    ),
    plugin(
        "LimitRanger",
        "fills in and limits what pods and claims ask for, by LimitRanges",
        Warned,
        "when a LimitRange is written",
    ),
    plugin(
        "ServiceAccount",
        "pods run as a service account that must exist, get its token mounted and its image pull secrets; `kubernetes.io/enforce-mountable-secrets`",
        Enforced,
        "as upstream",
    ),
    plugin(
        "TaintNodesByCondition",
        "a new Node is tainted as not ready until it is",
        Warned,
        "when a Node is made without that taint",
    ),
    plugin(
        "PodSecurity",
        "pods must fit the level that their namespace is labelled with",
        Warned,
        "when a namespace has such a label, but for `privileged`",
    ),
    plugin(
        "Priority",
        "the priority of a pod is that of its PriorityClass, which must exist; only one class is the default",
        Warned,
        "when a pod names a class or a priority, and when a class is to be the default",
    ),
    plugin(
        "DefaultTolerationSeconds",
        "pods stay for five minutes on nodes that are not ready",
        NotApplicable,
        "fills in a default; nothing here evicts pods from nodes",
    ),
    plugin(
        "DefaultStorageClass",
        "a claim without a class gets the default class",
        Warned,
        "when a StorageClass is made the default",
    ),
    plugin(
        "StorageObjectInUseProtection",
        "volumes and claims that are in use are not deleted",
        NotApplicable,
        "there are no nodes that would mount a volume",
    ),
    plugin(
        "PodGroupProtection",
        "pod groups that are in use are not deleted",
        Warned,
        "when a PodGroup is made (the API is off by default)",
    ),
    plugin(
        "PersistentVolumeClaimResize",
        "only bound claims grow, and only if their StorageClass has `allowVolumeExpansion`",
        Enforced,
        "as upstream",
    ),
    plugin(
        "RuntimeClass",
        "the RuntimeClass of a pod must exist; its overhead and scheduling are filled in",
        Warned,
        "when a pod names a class or an overhead",
    ),
    plugin(
        "CertificateApproval",
        "who writes the approval of a CertificateSigningRequest has the verb `approve` on its signer (`signers`, by name or `DOMAIN/*`)",
        Refused,
        "writing `approval` answers 501; the plugin is there for when it does not",
    ),
    plugin(
        "CertificateSigning",
        "who writes the certificate and conditions of a CertificateSigningRequest has the verb `sign` on its signer",
        Enforced,
        "as upstream",
    ),
    plugin(
        "ClusterTrustBundleAttest",
        "who writes a ClusterTrustBundle with a signer has the verb `attest` on it",
        Enforced,
        "as upstream (the API is off by default)",
    ),
    plugin(
        "CertificateSubjectRestriction",
        "nobody asks `kubernetes.io/kube-apiserver-client` for a certificate of `system:masters`",
        Enforced,
        "as upstream",
    ),
    plugin(
        "DefaultIngressClass",
        "an Ingress without a class gets the default class",
        Warned,
        "when an IngressClass is made the default",
    ),
    plugin(
        "PodTopologyLabels",
        "a pod that is bound to a node gets the node's topology labels",
        NotApplicable,
        "fills in labels; there are no nodes",
    ),
    plugin(
        "PodGroupWorkloadExists",
        "the Workload of a PodGroup must exist",
        Warned,
        "when a PodGroup is made (alpha and off by default, as upstream)",
    ),
    plugin(
        "NodeDeclaredFeatureValidator",
        "a running pod is not changed in a way that its node does not support",
        NotApplicable,
        "there are no nodes, and `resize` answers 501",
    ),
    plugin(
        "JobValidation",
        "what a Job says about its Workload fits together",
        NotApplicable,
        "alpha and off by default upstream; its feature gate is refused here",
    ),
    plugin(
        "PodResizeValidator",
        "pods are resized only where their node can",
        Refused,
        "`resize` answers 501",
    ),
    plugin(
        "MutatingAdmissionPolicy",
        "policies in CEL that change objects",
        Refused,
        "403 for policies and bindings",
    ),
    plugin(
        "MutatingAdmissionWebhook",
        "calls mutating webhooks",
        Enforced,
        "as upstream, [below](#webhooks)",
    ),
    plugin(
        "ValidatingAdmissionPolicy",
        "policies in CEL that refuse objects",
        Refused,
        "403 for policies and bindings",
    ),
    plugin(
        "ValidatingAdmissionWebhook",
        "calls validating webhooks",
        Enforced,
        "as upstream, [below](#webhooks)",
    ),
    plugin("ResourceQuota", "bounds what a namespace may use", Refused, "403 for ResourceQuotas"),
    check(
        "roles: `escalate`",
        "nobody writes a role with rights that they do not have",
        Enforced,
        "as upstream, and the rights are required again when the write is committed",
    ),
    check(
        "bindings: `bind`",
        "nobody binds a role with rights that they do not have",
        Enforced,
        "as upstream, and the rights are required again when the write is committed",
    ),
    check(
        "policies: parameters",
        "who writes an admission policy, or its binding, may read its parameters",
        Refused,
        "403 for policies and bindings",
    ),
    check(
        "signing requests: requester",
        "who asks for a certificate is the caller, whatever the object says",
        Enforced,
        "as upstream",
    ),
    check(
        "pod certificates: `sign`",
        "who writes the status of a PodCertificateRequest has the verb `sign` on its signer",
        Enforced,
        "as upstream (the API is off by default)",
    ),
    check(
        "device claims: `adminAccess`",
        "claims of devices, and what is allocated to them, have an administrator's access only in namespaces with the label `resource.kubernetes.io/admin-access: \"true\"`",
        Enforced,
        "as upstream",
    ),
    check(
        "device claims: `binding`",
        "who writes `status.allocation` or `status.reservedFor` may write `resourceclaims/binding`",
        Enforced,
        "as upstream, in 1.36",
    ),
    check(
        "device claims: `driver`",
        "who writes `status.devices` has `arbitrary-node:VERB` on `resourceclaims/driver` of each driver, or `associated-node:VERB` on its own node",
        Enforced,
        "as upstream, in 1.36",
    ),
    check(
        "pods: `exec`, `attach`, `portforward`",
        "opening one by GET needs the verb `create` as well",
        Refused,
        "501: there are no nodes",
    ),
    check(
        "create by update or apply",
        "who may update or patch may not for that reason make something new",
        Enforced,
        "as upstream",
    ),
    check(
        "deletion of what cannot be read",
        "`ignoreStoreReadErrorWithClusterBreakingPotential` needs the verb `unsafe-delete-ignore-read-errors`",
        Enforced,
        "as upstream",
    ),
    check(
        "impersonation",
        "to act as somebody else needs the verb `impersonate`; since 1.36 narrower verbs (`impersonate:…`) give a part of it",
        Enforced,
        "`impersonate` as upstream; the narrower verbs give nothing",
    ),
    check(
        "tokens: bound objects",
        "a token is bound to a Pod only of its own account, and to what exists with that uid",
        Enforced,
        "as upstream",
    ),
    check(
        "endpoints: addresses",
        "addresses of Endpoints and EndpointSlices are not loopback, link-local or unspecified: they would lead to a node's own ports",
        Enforced,
        "as upstream",
    ),
    check(
        "priority classes: `system-`",
        "names with this prefix, and values above 1000000000, are upstream's own",
        Enforced,
        "as upstream",
    ),
];

/// The table for people; docs/admission.md holds it.
pub fn table(kind: Kind) -> String {
    let first = match kind {
        Kind::Plugin => "plugin",
        Kind::Check => "check",
    };
    let mut table = format!("| {first} | what it does upstream | here | how |\n|---|---|---|---|\n");
    for guard in GUARDS.iter().filter(|it| it.kind == kind) {
        let Guard { kind: _, name, does, here, how } = guard;
        let name = if kind == Kind::Plugin { format!("`{name}`") } else { (*name).to_owned() };
        table += &format!("| {name} | {does} | {here} | {how} |\n");
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Plugin;

    const PAGE: &str = include_str!("../../../docs/admission.md");

    #[test]
    fn the_page_has_the_same_tables() {
        for kind in [Kind::Plugin, Kind::Check] {
            let table = table(kind);
            assert!(PAGE.contains(&table), "docs/admission.md must hold this table:\n\n{table}");
        }
    }

    #[test]
    fn what_is_enforced_by_a_plugin_has_that_plugin() {
        let ours: BTreeSet<&str> = Plugin::ALL.iter().map(|it| it.name()).collect();
        for guard in GUARDS.iter().filter(|it| it.kind == Kind::Plugin) {
            let (is_ours, name) = (ours.contains(guard.name), guard.name);
            assert!(is_ours || guard.here != Enforced, "{name} is not there to enforce anything");
            assert!(
                !is_ours || matches!(guard.here, Enforced | Refused),
                "{name} is there and enforces nothing"
            );
        }
    }

    #[test]
    fn each_guard_has_one_row() {
        let names: BTreeSet<&str> = GUARDS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), GUARDS.len());
    }
}
