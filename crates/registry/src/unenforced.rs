//! Controls that this build stores but does not enforce never pass silently: the answer carries a warning, and
//! what people rely on for safety is refused unless the operator said otherwise.

use meta::Status;

use crate::{Registry, Target};

/// How a kind that restricts something is treated while nothing enforces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Warn(&'static str),
    Refuse(&'static str),
}

fn treatment(group: &str, resource: &str) -> Option<Treatment> {
    use Treatment::{Refuse, Warn};
    Some(match (group, resource) {
        (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies" | "validatingadmissionpolicybindings",
        ) => Refuse("validating admission policies"),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies" | "mutatingadmissionpolicybindings") => {
            Refuse("mutating admission policies")
        }
        ("", "resourcequotas") => Refuse("resource quotas"),
        ("", "limitranges") => Warn("limit ranges are not enforced"),
        ("networking.k8s.io", "networkpolicies") => Warn("network policies are not enforced"),
        ("policy", "poddisruptionbudgets") => Warn("pod disruption budgets are not enforced"),
        ("flowcontrol.apiserver.k8s.io", _) => Warn("API priority and fairness is not enforced"),
        ("apiregistration.k8s.io", "apiservices") => {
            Warn("requests are not forwarded to aggregated API servers")
        }
        ("certificates.k8s.io", "certificatesigningrequests") => Warn("certificates are not signed"),
        _ => return None,
    })
}

impl Registry {
    /// The warning that a create or update of this kind carries, or the refusal.
    pub(crate) fn unenforced(&self, target: &Target) -> Result<Option<String>, Status> {
        let definition = &target.kind.definition;
        match treatment(&definition.group, &definition.resource) {
            None => Ok(None),
            Some(Treatment::Warn(what)) => {
                Ok(Some(format!("{what} by this server; the object is only stored")))
            }
            Some(Treatment::Refuse(what)) if self.config.allow_unenforced_policies => {
                Ok(Some(format!("{what} are not enforced by this server; the object is only stored")))
            }
            Some(Treatment::Refuse(what)) => {
                let why = format!(
                    "this server does not enforce {what}; start it with --allow-unenforced-policies to store them all the same"
                );
                Err(Status::forbidden(&target.kind.resource, &target.name, &why))
            }
        }
    }
}
