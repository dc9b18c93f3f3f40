//! Whether a request may pass while a resource has not been reported yet.
//!
//! Reads always pass, and so do the writes a server needs to come up. None of that lifts the fence: a put that
//! passes here still fails there if the server has no entry. Upstream's barrier, with its words.
//! Deliberately not here: readiness, and the HTTP answer.

use meta::GroupResource;

use crate::agree::Blocked;

/// How far a server is with a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// Not reported yet; why the last attempt failed.
    Closed(Option<String>),
    /// Reported, not persisted, or not ours to report.
    #[default]
    Open,
    /// This server must not write it (G6), and why.
    Refused(String),
}

/// What matters of a request. Subresources are judged by their resource.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The verb, as in authorization.
    pub verb: &'a str,
    /// The resource; `None` for paths that are none.
    pub resource: Option<&'a GroupResource>,
    /// The namespace, if any.
    pub namespace: &'a str,
    /// Whether a server asks on its own behalf (`system:apiserver` in `system:masters`).
    pub is_server: bool,
}

/// Why a request must wait: a 503.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shut {
    /// Upstream's text, which clients know.
    #[error(
        "wait for storage version registration to complete for resource: {resource}, last seen error: {}",
        .last_error.as_deref().unwrap_or("<nil>")
    )]
    Pending {
        /// The resource.
        resource: GroupResource,
        /// Why the last attempt failed.
        last_error: Option<String>,
    },
    /// Refused until an operator acts.
    #[error("{resource} cannot be written through this server: {reason}")]
    Refused {
        /// The resource.
        resource: GroupResource,
        /// What stands in the way.
        reason: String,
    },
}

impl Shut {
    /// When to try again, in seconds: pending resources are retried at once, a refusal needs a person.
    pub fn retry_after(&self) -> u32 {
        match self {
            Shut::Pending { .. } => 1,
            Shut::Refused { .. } => 30,
        }
    }
}

impl From<&Blocked> for Gate {
    /// What a report that could not be recorded does to the gate. A server that cannot read what the others write
    /// will not be able to by waiting; everything else passes by itself.
    fn from(blocked: &Blocked) -> Self {
        match blocked {
            Blocked::CannotRead { .. } => Gate::Refused(blocked.to_string()),
            Blocked::OthersCannotRead { .. }
            | Blocked::NothingCommon { .. }
            | Blocked::Full { .. }
            | Blocked::Behind { .. }
            | Blocked::Defined { .. }
            | Blocked::BuiltIn { .. } => Gate::Closed(Some(blocked.to_string())),
        }
    }
}

/// Lets a request pass, or says why it must wait.
pub fn check(gate: &Gate, asked: &Asked<'_>) -> Result<(), Shut> {
    let Some(resource) = asked.resource else { return Ok(()) };
    if is_exempt(asked, resource) {
        return Ok(());
    }
    let resource = resource.clone();
    match gate {
        Gate::Open => Ok(()),
        Gate::Closed(last_error) => Err(Shut::Pending { resource, last_error: last_error.clone() }),
        Gate::Refused(reason) => Err(Shut::Refused { resource, reason: reason.clone() }),
    }
}

fn is_exempt(asked: &Asked<'_>, resource: &GroupResource) -> bool {
    let Asked { verb, namespace, is_server, .. } = *asked;
    match (&*resource.group, &*resource.resource) {
        _ if matches!(verb, "get" | "list" | "watch") => true,
        ("internal.apiserver.k8s.io", "storageversions") => true,
        // The system namespaces must exist before the identity's Lease can.
        ("", "namespaces") => verb == "create" && is_server,
        ("coordination.k8s.io", "leases") => namespace == "kube-system",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(verb: &str, group: &str, resource: &str, namespace: &str, is_server: bool) -> Result<(), Shut> {
        let resource = GroupResource::new(group, resource);
        check(&Gate::Closed(None), &Asked { verb, resource: Some(&resource), namespace, is_server })
    }

    #[test]
    fn reads_and_what_a_start_needs_pass_a_closed_gate() {
        for (verb, group, resource, namespace, is_server, passes) in [
            ("get", "", "pods", "default", false, true),
            ("list", "", "namespaces", "", false, true),
            ("watch", "apps", "deployments", "default", false, true),
            ("create", "", "configmaps", "default", false, false),
            ("update", "", "configmaps", "default", true, false),
            ("patch", "apps", "deployments", "default", false, false),
            ("delete", "apps", "deployments", "default", false, false),
            ("deletecollection", "apps", "deployments", "default", false, false),
            ("create", "", "pods", "default", false, false),
            ("create", "apiextensions.k8s.io", "customresourcedefinitions", "", false, false),
            ("create", "internal.apiserver.k8s.io", "storageversions", "", false, true),
            ("delete", "internal.apiserver.k8s.io", "storageversions", "", false, true),
            ("create", "", "namespaces", "", true, true),
            ("create", "", "namespaces", "", false, false),
            ("delete", "", "namespaces", "", true, false),
            ("update", "coordination.k8s.io", "leases", "kube-system", false, true),
            ("update", "coordination.k8s.io", "leases", "default", true, false),
        ] {
            let answer = asks(verb, group, resource, namespace, is_server);
            assert_eq!(answer.is_ok(), passes, "{verb} {resource}.{group} {namespace} {is_server}");
        }
        let asked = Asked { verb: "post", resource: None, namespace: "", is_server: false };
        assert_eq!(check(&Gate::Closed(None), &asked), Ok(()));
    }

    #[test]
    fn a_report_that_is_blocked_keeps_the_gate_closed_and_says_why() {
        let resource = GroupResource::new("", "configmaps");
        let version = meta::StorageVersion::new("v2");
        let by = vec![crate::Identity::new("a"), crate::Identity::new("b")];
        let (r, v) = (resource.clone(), version.clone());
        let gate = Gate::from(&Blocked::OthersCannotRead { resource: r, version: v, by });
        let text = "configmaps would be written as v2, which a, b cannot read";
        assert_eq!(gate, Gate::Closed(Some(text.to_owned())));
        let gate = Gate::from(&Blocked::CannotRead { resource, version });
        assert!(matches!(gate, Gate::Refused(_)));
    }

    #[test]
    fn the_refusal_has_upstreams_words() {
        let shut = asks("create", "apps", "deployments", "default", false).unwrap_err();
        assert_eq!(
            shut.to_string(),
            "wait for storage version registration to complete for resource: deployments.apps, \
             last seen error: <nil>"
        );
        let resource = GroupResource::new("", "configmaps");
        let asked =
            Asked { verb: "create", resource: Some(&resource), namespace: "default", is_server: false };
        let shut = check(&Gate::Closed(Some("timed out".into())), &asked).unwrap_err();
        assert_eq!(
            shut.to_string(),
            "wait for storage version registration to complete for resource: configmaps, \
             last seen error: timed out"
        );
        assert!(check(&Gate::Open, &asked).is_ok());
        let shut = check(&Gate::Refused("it cannot be read".into()), &asked).unwrap_err();
        assert_eq!(shut.to_string(), "configmaps cannot be written through this server: it cannot be read");
    }
}
