//! Pods and their templates.

use std::collections::{BTreeMap, BTreeSet};

use meta::{Value, field::quote};

use super::check_whole;
use crate::rules::value::{at, entries, items, number, text};

/// Labels of nodes that have other names by now.
const OLD_LABELS: [(&str, &str, &str); 5] = [
    ("beta.kubernetes.io/arch", "v1.14", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "v1.14", "kubernetes.io/os"),
    ("failure-domain.beta.kubernetes.io/region", "v1.17", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "v1.17", "topology.kubernetes.io/zone"),
    ("beta.kubernetes.io/instance-type", "v1.17", "node.kubernetes.io/instance-type"),
];
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const OLD_PLUGINS: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
const CONTAINER_SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A template, or a Pod. `path` is empty, or ends with a dot.
pub(super) fn check_template(template: Option<&Value>, path: &str, advice: &mut Vec<String>) {
    let Some(template) = template else { return };
    let spec = at(template, &["spec"]).unwrap_or(&Value::Null);
    check_nodes(spec, path, advice);
    for (annotation, why) in OLD_ANNOTATIONS {
        if at(template, &["metadata", "annotations", annotation]).is_some() {
            advice.push(format!("{path}metadata.annotations[{annotation}]: {why}"));
        }
    }
    for (index, volume) in items(spec, &["volumes"]).iter().enumerate() {
        check_plugins(volume, &format!("{path}spec.volumes[{index}]"), advice);
    }
    items(spec, &["volumes"]).iter().for_each(|it| check_paths(it, advice));
    check_repeated(spec, path, "hostAliases", "ip", advice);
    check_repeated(spec, path, "imagePullSecrets", "name", advice);
    for (index, secret) in items(spec, &["imagePullSecrets"]).iter().enumerate() {
        if text(secret, &["name"]).is_empty() {
            advice.push(format!("{path}spec.imagePullSecrets[{index}].name: invalid empty name \"\""));
        }
    }
    for resource in ["memory", "ephemeral-storage"] {
        check_whole(text(spec, &["overhead", resource]), &format!("{path}spec.overhead[{resource}]"), advice);
    }
    if at(spec, &["securityContext", "seccompProfile"]).is_none()
        && at(template, &["metadata", "annotations", SECCOMP]).is_some()
    {
        advice.push(format!(
            "{path}metadata.annotations[{SECCOMP}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    for (place, container) in containers(spec, path) {
        check_container(template, container, path, &place, advice);
    }
    check_ports(spec, path, advice);
    if number(spec, &["terminationGracePeriodSeconds"]).is_some_and(|it| it < 0) {
        advice.push(format!(
            "{path}spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    check_affinity(spec, path, advice);
}

/// Kinds of volumes that came and went.
pub(super) fn check_plugins(volume: &Value, path: &str, advice: &mut Vec<String>) {
    for (plugin, why) in OLD_PLUGINS {
        if at(volume, &[plugin]).is_some() {
            advice.push(format!("{path}.{plugin}: {why}"));
        }
    }
}

/// All containers with their paths, those that run first in front.
fn containers<'a>(spec: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let kinds = ["initContainers", "containers", "ephemeralContainers"];
    let each = |kind: &'static str| items(spec, &[kind]).iter().enumerate().map(move |it| (kind, it));
    let all = kinds.into_iter().flat_map(each);
    all.map(|(kind, (index, it))| (format!("{path}spec.{kind}[{index}]"), it)).collect()
}

fn deprecated(label: &str) -> Option<String> {
    let (_, since, instead) = OLD_LABELS.iter().find(|it| it.0 == label)?;
    Some(format!("deprecated since {since}; use \"{instead}\" instead"))
}

fn check_nodes(spec: &Value, path: &str, advice: &mut Vec<String>) {
    for (label, _) in entries(spec, &["nodeSelector"]) {
        if let Some(why) = deprecated(label) {
            advice.push(format!("{path}spec.nodeSelector[{label}]: {why}"));
        }
    }
    let affinity = at(spec, &["affinity", "nodeAffinity"]).unwrap_or(&Value::Null);
    let place = format!("{path}spec.affinity.nodeAffinity");
    let mut check_term = |term: &Value, place: &str| {
        for (index, it) in items(term, &["matchExpressions"]).iter().enumerate() {
            let label = text(it, &["key"]);
            if let Some(why) = deprecated(label) {
                advice.push(format!("{place}.matchExpressions[{index}].key: {label} is {why}"));
            }
        }
    };
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    for (index, term) in items(affinity, &[REQUIRED, "nodeSelectorTerms"]).iter().enumerate() {
        check_term(term, &format!("{place}.{REQUIRED}.nodeSelectorTerms[{index}]"));
    }
    for (index, term) in items(affinity, &[PREFERRED]).iter().enumerate() {
        let preference = at(term, &["preference"]).unwrap_or(&Value::Null);
        check_term(preference, &format!("{place}.{PREFERRED}[{index}].preference"));
    }
    for (index, it) in items(spec, &["topologySpreadConstraints"]).iter().enumerate() {
        let place = format!("{path}spec.topologySpreadConstraints[{index}]");
        let key = text(it, &["topologyKey"]);
        if let Some(why) = deprecated(key) {
            advice.push(format!("{place}.topologyKey: {key} is {why}"));
        }
        if at(it, &["labelSelector"]).is_none() {
            advice.push(format!("{place}.labelSelector: a null labelSelector results in matching no pod"));
        }
    }
}

fn check_repeated(spec: &Value, path: &str, list: &str, field: &str, advice: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, it) in items(spec, &[list]).iter().enumerate() {
        let value = text(it, &[field]);
        if !seen.insert(value) {
            advice.push(format!("{path}spec.{list}[{index}].{field}: duplicate {field} {}", quote(value)));
        }
    }
}

fn check_container(template: &Value, container: &Value, path: &str, place: &str, advice: &mut Vec<String>) {
    let name = text(container, &["name"]);
    let annotated = |key: &str| at(template, &["metadata", "annotations", key]).is_some();
    let secured = |field: &str| at(container, &["securityContext", field]).is_some();
    let key = format!("{CONTAINER_SECCOMP}{name}");
    if !secured("seccompProfile") && annotated(&key) {
        advice.push(format!(
            "{path}metadata.annotations[{key}]: non-functional in v1.27+; use the \"seccompProfile\" field instead"
        ));
    }
    let key = format!("{APP_ARMOR}{name}");
    let is_armored =
        secured("appArmorProfile") || at(template, &["spec", "securityContext", "appArmorProfile"]).is_some();
    if !path.is_empty() && !is_armored && annotated(&key) {
        advice.push(format!(
            "{path}metadata.annotations[{key}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
        ));
    }
    for resource in ["memory", "ephemeral-storage"] {
        for part in ["limits", "requests"] {
            let amount = text(container, &["resources", part, resource]);
            check_whole(amount, &format!("{place}.resources.{part}[{resource}]"), advice);
        }
    }
    let mut names = BTreeSet::new();
    for (index, variable) in items(container, &["env"]).iter().enumerate() {
        let (name, value) = (text(variable, &["name"]), text(variable, &["value"]));
        let reference = format!("$({name})");
        // A value that extends the one before is meant.
        let is_extended =
            at(variable, &["valueFrom"]).is_none() && value != reference && value.contains(&reference);
        if !names.insert(name) && !is_extended {
            advice.push(format!(
                "{place}.env[{index}]: hides previous definition of {}, which may be dropped when using apply",
                quote(name)
            ));
        }
    }
}

struct Port<'a> {
    place: String,
    host_ip: &'a str,
    host_port: i64,
}

/// Ports of all containers together: they share one network.
fn check_ports(spec: &Value, path: &str, advice: &mut Vec<String>) {
    let mut known: BTreeMap<(i64, &str), Vec<Port<'_>>> = BTreeMap::new();
    for (place, container) in containers(spec, path) {
        for (index, port) in items(container, &["ports"]).iter().enumerate() {
            let place = format!("{place}.ports[{index}]");
            let whole = |field: &str| number(port, &[field]).unwrap_or_default();
            let (host_ip, host_port) = (text(port, &["hostIP"]), whole("hostPort"));
            let (inner, protocol) = (whole("containerPort"), text(port, &["protocol"]));
            if !host_ip.is_empty() && host_port == 0 {
                let name = text(port, &["name"]);
                advice.push(format!(
                    "{place}: hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{inner} \
                     Protocol:{protocol} HostIP:{host_ip}}}"
                ));
            }
            let others = known.entry((inner, protocol)).or_default();
            for other in others.iter() {
                let how = if host_ip == other.host_ip && host_port == other.host_port {
                    "duplicate"
                } else if host_port == 0 || other.host_port == 0 {
                    "overlapping"
                } else if host_port == other.host_port && host_ip.is_empty() != other.host_ip.is_empty() {
                    "dangerously ambiguous"
                } else {
                    continue;
                };
                advice.push(format!("{place}: {how} port definition with {}", other.place));
            }
            others.push(Port { place, host_ip, host_port });
        }
    }
}

fn check_affinity(spec: &Value, path: &str, advice: &mut Vec<String>) {
    const NOTHING: &str = "a null labelSelector results in matching no pod";
    for kind in ["podAffinity", "podAntiAffinity"] {
        let place = format!("{path}spec.affinity.{kind}");
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in items(spec, &["affinity", kind, required]).iter().enumerate() {
            if at(term, &["labelSelector"]).is_none() {
                advice.push(format!("{place}.{required}[{index}].labelSelector: {NOTHING}"));
            }
        }
        let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in items(spec, &["affinity", kind, preferred]).iter().enumerate() {
            if at(term, &["podAffinityTerm", "labelSelector"]).is_none() {
                advice.push(format!("{place}.{preferred}[{index}].podAffinityTerm.labelSelector: {NOTHING}"));
            }
        }
    }
}

/// Files of one volume that lie in each other's way.
fn check_paths(volume: &Value, advice: &mut Vec<String>) {
    let volume_name = quote(text(volume, &["name"]));
    let paths = |of: &'_ Value| -> Vec<String> {
        items(of, &["items"]).iter().map(|it| text(it, &["path"]).to_owned()).collect()
    };
    for (field, kind, named) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let Some(source) = at(volume, &[field]) else { continue };
        let title = match named {
            "" => kind.to_owned(),
            named => format!("{kind} {}", quote(text(source, &[named]))),
        };
        check_overlaps(&paths(source), &format!("volume {volume_name} ({title}): overlapping paths"), advice);
    }
    let mut known: BTreeSet<String> = BTreeSet::new();
    for source in items(volume, &["projected", "sources"]) {
        let named = |field: &str, kind: &str| {
            let source = at(source, &[field])?;
            let name = quote(text(source, &["name"]));
            Some((paths(source), format!("Projected {kind} {name}")))
        };
        let found = named("configMap", "ConfigMap")
            .or_else(|| named("secret", "Secret"))
            .or_else(|| Some((paths(at(source, &["downwardAPI"])?), "Projected DownwardAPI".to_owned())))
            .or_else(|| {
                let path = text(at(source, &["serviceAccountToken"])?, &["path"]).to_owned();
                Some((vec![path], "Projected ServiceAccountToken".to_owned()))
            });
        let Some((own, title)) = found.filter(|(own, _)| !own.is_empty()) else { continue };
        let title = format!("volume {volume_name} ({title}): overlapping paths");
        check_overlaps(&own, &title, advice);
        let unique: BTreeSet<String> = own.into_iter().collect();
        let mut all: Vec<String> = unique.iter().chain(&known).cloned().collect();
        all.sort();
        check_overlaps(&all, &title, advice);
        known.extend(unique);
    }
}

fn check_overlaps(paths: &[String], title: &str, advice: &mut Vec<String>) {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    for path in paths {
        let path = path.trim_end_matches('/');
        let meets = |it: &&&str| format!("{it}/").starts_with(path) || format!("{path}/").starts_with(**it);
        let is_said = path.is_empty() || known.contains("");
        if let Some(other) = known.iter().find(meets).filter(|_| !is_said) {
            advice.push(format!("{title}: {} with {}", quote(path), quote(other)));
        }
        known.insert(path);
    }
}
