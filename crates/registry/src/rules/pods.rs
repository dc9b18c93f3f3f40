//! Pods and templates of Pods: containers, their names and ports, and the volumes that they mount.
//!
//! Deliberately not all of upstream's rules: those that ordinary mistakes run into.

use std::collections::BTreeSet;

use meta::{FieldError, FieldErrors, Value, name};

use super::value::{at, complain, entries, items, number, text};

const MAX_PORT: i64 = 65_535;
const MAX_PORT_NAME: usize = 15;

/// A template at `path`.
pub(super) fn check_template(template: &Value, path: &str, errors: &mut FieldErrors) {
    let field = format!("{path}.labels");
    for (key, value) in entries(template, &["metadata", "labels"]) {
        complain(errors, &field, key, name::qualified(key));
        let value = value.as_str().unwrap_or_default();
        complain(errors, &field, value, name::label_value(value));
    }
    check_spec(at(template, &["spec"]).unwrap_or(&Value::Null), &format!("{path}.spec"), errors);
    if !items(template, &["spec", "ephemeralContainers"]).is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{path}.spec.ephemeralContainers"), detail));
    }
}

/// The spec of a Pod at `path`.
pub(super) fn check_spec(spec: &Value, path: &str, errors: &mut FieldErrors) {
    let volumes = check_volumes(spec, &format!("{path}.volumes"), errors);
    let mut names = BTreeSet::new();
    let containers = items(spec, &["containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    check_containers(containers, &format!("{path}.containers"), &volumes, &mut names, errors);
    let first = items(spec, &["initContainers"]);
    check_containers(first, &format!("{path}.initContainers"), &volumes, &mut names, errors);
    one_of(spec, path, "restartPolicy", &["Always", "OnFailure", "Never"], errors);
    one_of(spec, path, "dnsPolicy", &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"], errors);
    let account = text(spec, &["serviceAccountName"]);
    if !account.is_empty() {
        complain(errors, &format!("{path}.serviceAccountName"), account, name::dns_subdomain(account));
    }
}

/// The names of the volumes that can be mounted: those with which nothing is wrong.
fn check_volumes<'a>(spec: &'a Value, path: &str, errors: &mut FieldErrors) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in items(spec, &["volumes"]).iter().enumerate() {
        let name = text(volume, &["name"]);
        let field = format!("{path}[{index}].name");
        let n_before = errors.0.len();
        if name.is_empty() {
            errors.push(FieldError::required(&field, ""));
        } else {
            complain(errors, &field, name, name::dns_label(name));
        }
        if names.contains(name) {
            errors.push(FieldError::duplicate(&field, name));
        }
        if errors.0.len() == n_before {
            names.insert(name);
        }
    }
    names
}

fn check_containers<'a>(
    containers: &'a [Value],
    path: &str,
    volumes: &BTreeSet<&str>,
    names: &mut BTreeSet<&'a str>,
    errors: &mut FieldErrors,
) {
    for (index, container) in containers.iter().enumerate() {
        let path = format!("{path}[{index}]");
        check_container(container, &path, volumes, errors);
        let name = text(container, &["name"]);
        if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
    }
}

fn check_container(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let name = text(container, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        complain(errors, &format!("{path}.name"), name, name::dns_label(name));
    }
    if text(container, &["image"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    one_of(container, path, "terminationMessagePolicy", &["FallbackToLogsOnError", "File"], errors);
    check_ports(items(container, &["ports"]), &format!("{path}.ports"), errors);
    for (index, variable) in items(container, &["env"]).iter().enumerate() {
        if text(variable, &["name"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.env[{index}].name"), ""));
        }
    }
    check_mounts(items(container, &["volumeMounts"]), &format!("{path}.volumeMounts"), volumes, errors);
    one_of(container, path, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], errors);
}

fn check_ports(ports: &[Value], path: &str, errors: &mut FieldErrors) {
    let mut names = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name = text(port, &["name"]);
        let complaints = if name.is_empty() { Vec::new() } else { port_name(name) };
        if complaints.is_empty() && !name.is_empty() && !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        complain(errors, &format!("{path}.name"), name, complaints);
        match number(port, &["containerPort"]).unwrap_or_default() {
            0 => errors.push(FieldError::required(format!("{path}.containerPort"), "")),
            number => check_port(number, &format!("{path}.containerPort"), errors),
        }
        if let Some(number) = number(port, &["hostPort"]).filter(|it| *it != 0) {
            check_port(number, &format!("{path}.hostPort"), errors);
        }
        one_of(port, &path, "protocol", &["SCTP", "TCP", "UDP"], errors);
    }
}

fn check_port(number: i64, field: &str, errors: &mut FieldErrors) {
    if !(1..=MAX_PORT).contains(&number) {
        let detail = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid_shown(field, number.to_string(), detail));
    }
}

fn check_mounts(mounts: &[Value], path: &str, volumes: &BTreeSet<&str>, errors: &mut FieldErrors) {
    let mut places = BTreeSet::new();
    for (index, mount) in mounts.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let (name, place) = (text(mount, &["name"]), text(mount, &["mountPath"]));
        if name.is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if !volumes.contains(name) {
            errors.push(FieldError::not_found(format!("{path}.name"), name));
        }
        if place.is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
        if !places.insert(place) {
            errors.push(FieldError::invalid(format!("{path}.mountPath"), place, "must be unique"));
        }
    }
}

/// A field that holds one of a few words.
fn one_of(value: &Value, path: &str, field: &str, words: &[&str], errors: &mut FieldErrors) {
    let word = text(value, &[field]);
    if word.is_empty() {
        errors.push(FieldError::required(format!("{path}.{field}"), ""));
    } else if !words.contains(&word) {
        errors.push(FieldError::not_supported(format!("{path}.{field}"), word, words));
    }
}

/// What is wrong with the name of a port.
fn port_name(name: &str) -> Vec<String> {
    let is_plain = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit();
    let mut complaints = Vec::new();
    let mut say = |is_wrong: bool, what: &str| {
        if is_wrong {
            complaints.push(what.to_owned());
        }
    };
    say(name.len() > MAX_PORT_NAME, "must be no more than 15 characters");
    let is_wrong = !name.bytes().all(|it| is_plain(it) || it == b'-');
    say(is_wrong, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    say(!name.bytes().any(|it| it.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    say(name.contains("--"), "must not contain consecutive hyphens");
    say(name.starts_with('-') || name.ends_with('-'), "must not begin or end with a hyphen");
    complaints
}
