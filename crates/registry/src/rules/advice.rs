//! What is odd about an object that is accepted all the same: upstream's warnings, in its words and order.
//!
//! Deliberately not here: unknown fields, deprecated versions, and what this server does not enforce.

mod pods;

use base64::{Engine, engine::general_purpose::STANDARD};
use meta::{Value, field::quote, name, object};
use schema::check::quantity_nanos;

use super::{
    Subject,
    value::{at, items, number, text},
};

/// About a new object.
pub(crate) fn advise_new(subject: Subject<'_>, object: &Value) -> Vec<String> {
    let mut advice = Vec::new();
    match (subject.group, subject.resource) {
        ("" | "apps" | "batch", resource) => {
            if let Some(about) = name_in_pods(resource) {
                check_name(object, about, &mut advice);
            }
            check_content(resource, object, &mut advice);
        }
        ("networking.k8s.io", "ingresses") => check_ingress(object, &mut advice),
        _ => {}
    }
    advice
}

/// About an object that replaces another.
pub(crate) fn advise_changed(subject: Subject<'_>, new: &Value, old: &Value) -> Vec<String> {
    let mut advice = Vec::new();
    if !subject.subresource.is_empty() || !matches!(subject.group, "" | "apps" | "batch") {
        return advice;
    }
    let is_same = || object::meta_number(new, "generation") == object::meta_number(old, "generation");
    match subject.resource {
        // They change often, and seldom by hand.
        "pods" => {}
        "serviceaccounts" => {
            if !is_enforcing(old) {
                check_content(subject.resource, new, &mut advice);
            }
        }
        "deployments"
        | "replicasets"
        | "replicationcontrollers"
        | "statefulsets"
        | "daemonsets"
        | "jobs"
        | "cronjobs"
            if is_same() => {}
        resource => check_content(resource, new, &mut advice),
    }
    advice
}

fn name_in_pods(resource: &str) -> Option<&'static str> {
    match resource {
        "deployments" | "replicasets" | "replicationcontrollers" | "jobs" | "cronjobs" => {
            Some("this is used in Pod names and hostnames")
        }
        "pods" => Some("this is used in the Pod's hostname"),
        _ => None,
    }
}

fn check_name(object: &Value, about: &str, advice: &mut Vec<String>) {
    let complaints = name::dns_label(object::name(object));
    if !complaints.is_empty() {
        let complaints = complaints.join(" ");
        advice.push(format!(
            "metadata.name: {about}, which can result in surprising behavior; a DNS label is recommended: \
             [{complaints}]"
        ));
    }
}

fn check_content(resource: &str, object: &Value, advice: &mut Vec<String>) {
    let spec = at(object, &["spec"]).unwrap_or(&Value::Null);
    match resource {
        "deployments" | "replicasets" | "replicationcontrollers" | "daemonsets" => {
            pods::check_template(at(spec, &["template"]), "spec.template.", advice);
        }
        "statefulsets" => {
            pods::check_template(at(spec, &["template"]), "spec.template.", advice);
            for (index, claim) in items(spec, &["volumeClaimTemplates"]).iter().enumerate() {
                check_claim(claim, &format!("spec.volumeClaimTemplates[{index}]."), advice);
            }
            if number(spec, &["revisionHistoryLimit"]).is_some_and(|it| it < 0) {
                advice.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                     recommended"
                        .to_owned(),
                );
            }
        }
        "jobs" => check_job(spec, "spec", advice),
        "cronjobs" => {
            let job = at(spec, &["jobTemplate", "spec"]).unwrap_or(&Value::Null);
            check_job(job, "spec.jobTemplate.spec", advice);
        }
        "pods" => pods::check_template(Some(object), "", advice),
        "podtemplates" => pods::check_template(at(object, &["template"]), "template.", advice),
        "secrets" => check_secret(object, advice),
        "serviceaccounts" if is_enforcing(object) => advice.push(format!(
            "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to \
             mounted secrets"
        )),
        "services" => check_service(object, spec, advice),
        "persistentvolumeclaims" => check_claim(object, "", advice),
        "persistentvolumes" => check_volume(object, spec, advice),
        _ => {}
    }
}

const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";

fn is_enforcing(account: &Value) -> bool {
    at(account, &["metadata", "annotations", ENFORCE]).is_some()
}

fn check_job(spec: &Value, path: &str, advice: &mut Vec<String>) {
    let count = |field: &str| number(spec, &[field]).unwrap_or_default();
    let is_large = count("completions") > 100_000 && count("parallelism") > 10_000;
    if text(spec, &["completionMode"]) == "Indexed" && is_large {
        advice.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    pods::check_template(at(spec, &["template"]), &format!("{path}.template."), advice);
}

/// Whether certificate and key are there at all. Upstream also looks whether they belong together.
fn check_secret(secret: &Value, advice: &mut Vec<String>) {
    if text(secret, &["type"]) != "kubernetes.io/tls" {
        return;
    }
    let decoded = |key: &str| STANDARD.decode(text(secret, &["data", key])).unwrap_or_default();
    let titles = |key: &str| pem_titles(&String::from_utf8_lossy(&decoded(key)));
    let (certificates, keys) = (titles("tls.crt"), titles("tls.key"));
    let is_key = |it: &String| it == "PRIVATE KEY" || it.ends_with(" PRIVATE KEY");
    let why = if certificates.is_empty() {
        "tls: failed to find any PEM data in certificate input".to_owned()
    } else if !certificates.iter().any(|it| it == "CERTIFICATE") {
        match certificates.as_slice() {
            [only] if is_key(only) => {
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs \
                 may have been switched"
                    .to_owned()
            }
            all => format!(
                "tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                all.join(" ")
            ),
        }
    } else if keys.is_empty() {
        "tls: failed to find any PEM data in key input".to_owned()
    } else {
        return;
    };
    advice.push(why);
}

/// The titles of the blocks in a text: `CERTIFICATE`.
fn pem_titles(text: &str) -> Vec<String> {
    let begins =
        text.lines().filter_map(|it| it.trim_end().strip_prefix("-----BEGIN ")?.strip_suffix("-----"));
    begins.filter(|it| text.contains(&format!("-----END {it}-----"))).map(str::to_owned).collect()
}

fn check_ingress(ingress: &Value, advice: &mut Vec<String>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    let is_annotated = at(ingress, &["metadata", "annotations", CLASS]).is_some();
    if is_annotated && at(ingress, &["spec", "ingressClassName"]).is_none() {
        advice.push(format!(
            "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
            quote(CLASS)
        ));
    }
}

fn check_service(service: &Value, spec: &Value, advice: &mut Vec<String>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let mut say = |text: &str| advice.push(text.to_owned());
    if at(service, &["metadata", "annotations", HINTS]).is_some() {
        say(&format!(
            "annotation {HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    let kind = text(spec, &["type"]);
    let has_addresses = !items(spec, &["externalIPs"]).is_empty();
    let is_headless = kind == "ClusterIP" && text(spec, &["clusterIP"]) == "None";
    if is_headless {
        if !text(spec, &["loadBalancerIP"]).is_empty() {
            say("spec.loadBalancerIP is ignored for headless services");
        }
        if has_addresses {
            say("spec.externalIPs is ignored for headless services");
        }
        if text(spec, &["sessionAffinity"]) != "None" {
            say("spec.SessionAffinity is ignored for headless services");
        }
    }
    if has_addresses && !is_headless && kind != "ExternalName" {
        say("spec.externalIPs is deprecated and may no longer be implemented in some clusters");
    }
    if kind == "ExternalName" && has_addresses {
        say("spec.externalIPs is ignored when spec.type is \"ExternalName\"");
    }
    if kind != "ExternalName" && !text(spec, &["externalName"]).is_empty() {
        say("spec.externalName is ignored when spec.type is not \"ExternalName\"");
    }
    if text(spec, &["trafficDistribution"]) == "PreferClose" {
        say("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
}

const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn check_claim(claim: &Value, path: &str, advice: &mut Vec<String>) {
    if at(claim, &["metadata", "annotations", OLD_CLASS]).is_some() {
        advice.push(format!(
            "{path}metadata.annotations[{OLD_CLASS}]: deprecated since v1.8; use \"storageClassName\" attribute instead"
        ));
    }
    for part in ["requests", "limits"] {
        let amount = text(claim, &["spec", "resources", part, "storage"]);
        check_whole(amount, &format!("{path}spec.resources.{part}[storage]"), advice);
    }
}

fn check_volume(volume: &Value, spec: &Value, advice: &mut Vec<String>) {
    const OLD_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
    for (annotation, since, instead) in
        [(OLD_CLASS, "v1.8", "storageClassName"), (OLD_OPTIONS, "v1.31", "mountOptions")]
    {
        if at(volume, &["metadata", "annotations", annotation]).is_some() {
            advice.push(format!(
                "metadata.annotations[{annotation}]: deprecated since {since}; use \"{instead}\" attribute instead"
            ));
        }
    }
    if text(spec, &["persistentVolumeReclaimPolicy"]) == "Recycle" {
        advice.push(
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended \
             approach is to use dynamic provisioning."
                .to_owned(),
        );
    }
    pods::check_plugins(spec, "spec", advice);
}

/// Half a byte cannot be stored.
fn check_whole(amount: &str, path: &str, advice: &mut Vec<String>) {
    const NANOS: i128 = 1_000_000_000;
    if quantity_nanos(amount).is_some_and(|it| it % NANOS != 0) {
        let amount = quote(amount);
        advice.push(format!("{path}: fractional byte value {amount} is invalid, must be an integer"));
    }
}

#[cfg(test)]
mod tests;
