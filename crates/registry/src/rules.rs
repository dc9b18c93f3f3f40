//! What is wrong with the content of an object: upstream's rules for single kinds, in its words, paths and order.
//!
//! One file per family of kinds, pure functions over trees. A kind gets rules by one arm in [`validate_new`] and one in
//! [`validate_changed`]. Metadata is checked before, see [`meta::validate`]; both together make one answer.
//! Deliberately not here: types and unknown fields (the schema's part), and defaults, which are in place by now.

mod advice;
mod choices;
mod conditions;
mod config;
mod cron;
mod endpoints;
mod event;
mod fixed;
mod lease;
mod limits;
mod migration;
mod namespace;
mod pods;
mod priority_class;
mod rbac;
mod replicas;
mod secret;
mod selector;
mod signing_request;
mod storage_version;
#[cfg(test)]
mod testing;
mod trust_bundle;
mod value;
mod webhooks;
mod workloads;

use meta::{FieldErrors, Value};

use crate::{Target, custom};

pub(crate) use advice::{advise_changed, advise_new};
pub use endpoints::check_leads_elsewhere;

/// What is written, and in which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject<'a> {
    pub(crate) group: &'a str,
    pub(crate) version: &'a str,
    pub(crate) resource: &'a str,
    /// Empty for the object itself.
    pub(crate) subresource: &'a str,
}

impl<'a> From<&'a Target> for Subject<'a> {
    fn from(target: &'a Target) -> Self {
        Self {
            group: &target.group_version.group,
            version: target.group_version.version.as_str(),
            resource: &target.kind.definition.resource,
            subresource: &target.subresource,
        }
    }
}

/// What is wrong with an object that is to be created.
pub(crate) fn validate_new(subject: Subject<'_>, object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    match (subject.group, subject.resource) {
        ("", "namespaces") => namespace::validate(object, &mut errors),
        ("", "configmaps") => config::validate(object, &mut errors),
        ("", "secrets") => secret::validate(object, &mut errors),
        (group @ ("" | "events.k8s.io"), "events") => event::validate(group, object, &mut errors),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            custom::rules::validate(object, &mut errors);
        }
        ("certificates.k8s.io", "clustertrustbundles") => trust_bundle::validate(object, &mut errors),
        ("coordination.k8s.io", "leases") => lease::validate(object, &mut errors),
        ("", resource @ "endpoints") | ("discovery.k8s.io", resource @ "endpointslices") => {
            endpoints::validate(resource, object, &mut errors);
        }
        ("", "services") => endpoints::validate_service(object, &mut errors),
        (group @ ("migration.k8s.io" | "storagemigration.k8s.io"), resource) => {
            migration::validate(group, resource, object, &mut errors);
        }
        ("rbac.authorization.k8s.io", resource) => rbac::validate(resource, object, &mut errors),
        ("scheduling.k8s.io", "priorityclasses") => priority_class::validate(object, &mut errors),
        ("" | "apps" | "batch", resource) => workloads::validate(resource, object, &mut errors),
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => webhooks::validate(subject.resource, object, &mut errors),
        _ => {}
    }
    limits::validate(subject.group, subject.resource, object, &mut errors);
    choices::validate(subject.group, subject.resource, object, &mut errors);
    errors
}

/// What is wrong with an object that is to replace `old`, or with the part of it that the subresource writes.
pub(crate) fn validate_changed(subject: Subject<'_>, new: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::default();
    match (subject.group, subject.resource, subject.subresource) {
        ("", "namespaces", "finalize") => namespace::validate_finalize(new, &mut errors),
        ("", "namespaces", "status") => namespace::validate_status(new, &mut errors),
        ("", "configmaps", "") => config::validate_changed(new, old, &mut errors),
        ("", "secrets", "") => secret::validate_changed(new, old, &mut errors),
        (group @ ("" | "events.k8s.io"), "events", "") => {
            event::validate_changed(group, new, old, &mut errors);
        }
        ("apiextensions.k8s.io", "customresourcedefinitions", "") => {
            custom::rules::validate_changed(new, old, &mut errors);
        }
        ("apiextensions.k8s.io", "customresourcedefinitions", "status") => {
            custom::rules::validate_status(new, &mut errors);
        }
        ("certificates.k8s.io", "certificatesigningrequests", "status") => {
            signing_request::validate_status(new, old, &mut errors);
        }
        ("coordination.k8s.io", "leases", "") => lease::validate(new, &mut errors),
        ("", resource @ "endpoints", "") | ("discovery.k8s.io", resource @ "endpointslices", "") => {
            endpoints::validate_changed(resource, new, old, &mut errors);
        }
        ("", "services", "") => endpoints::validate_changed_service(new, old, &mut errors),
        (group @ ("migration.k8s.io" | "storagemigration.k8s.io"), resource, "") => {
            migration::validate_changed(group, resource, new, old, &mut errors);
        }
        ("migration.k8s.io", _, "status") => migration::validate_status(new, &mut errors),
        ("storagemigration.k8s.io", _, "status") => {
            migration::validate_final_status(new, old, &mut errors);
        }
        ("rbac.authorization.k8s.io", resource, "") => {
            rbac::validate_changed(resource, new, old, &mut errors)
        }
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
            "",
        ) => webhooks::validate_changed(subject.resource, new, old, &mut errors),
        ("internal.apiserver.k8s.io", "storageversions", "status") => {
            storage_version::validate_status(new, &mut errors);
        }
        ("scheduling.k8s.io", "priorityclasses", "") => {
            priority_class::validate_changed(new, old, &mut errors);
        }
        ("" | "apps", resource, "status") => replicas::validate_status(resource, new, old, &mut errors),
        ("" | "apps" | "batch", resource, "") => workloads::validate_changed(resource, new, old, &mut errors),
        _ => {}
    }
    if subject.subresource.is_empty() {
        limits::validate(subject.group, subject.resource, new, &mut errors);
        choices::validate(subject.group, subject.resource, new, &mut errors);
        fixed::validate(subject.group, subject.resource, new, old, &mut errors);
    }
    errors
}
