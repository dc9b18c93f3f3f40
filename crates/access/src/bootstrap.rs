//! The roles and bindings that every cluster starts with, as upstream has them, and how existing ones are brought up
//! to date.
//!
//! The facts are three text files in `bootstrap/`, one line a rule:
//!
//! ```text
//! role [NAMESPACE/]NAME [collects=X] [into=X] [since=MINOR]
//!   VERBS GROUPS RESOURCES [names=A,B] [since=MINOR]
//!   VERBS urls PATHS
//!   events
//! bind [NAMESPACE/]NAME[=ROLE] [user:NAME] [group:NAME] [account:NAMESPACE/NAME] [since=MINOR]
//! ```
//!
//! `R`, `W`, `RW` and `RU` among the verbs stand for reading, writing, both, and reading with update and patch;
//! `core` for the group without a name; `events` for the rule about writing events. `collects=X` is an aggregated
//! role, `into=X` the label that has it collected; `since=34` means from release 1.34 on.
//!
//! Deliberately not here: writing them to a store. Start reading at [`bootstrap()`] and [`reconcile()`].

mod reconcile;

#[cfg(test)]
mod tests;

use meta::{Release, Value, object};
use serde_json::json;

pub use reconcile::reconcile;

use crate::PolicyRule;
use crate::rbac::GROUP;
use crate::rbac::write::aggregate;

const CLUSTER_ROLES: &str = include_str!("bootstrap/cluster_roles.txt");
const CONTROLLER_ROLES: &str = include_str!("bootstrap/controller_roles.txt");
const NAMESPACED_ROLES: &str = include_str!("bootstrap/namespaced_roles.txt");

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
const CONTROLLER_PREFIX: &str = "system:controller:";
const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// The default policy: whole objects without the metadata that a server adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bootstrap {
    pub cluster_roles: Vec<Value>,
    pub cluster_role_bindings: Vec<Value>,
    /// In `kube-system` and `kube-public`.
    pub roles: Vec<Value>,
    pub role_bindings: Vec<Value>,
}

/// The default policy of a release. Aggregated roles already have the rules that a controller would collect.
pub fn bootstrap(release: Release) -> Bootstrap {
    let mut policy = Bootstrap::default();
    policy.sort_in(objects(CLUSTER_ROLES, release, ""));
    policy.sort_in(objects(NAMESPACED_ROLES, release, ""));
    let controllers = objects(CONTROLLER_ROLES, release, CONTROLLER_PREFIX);
    let bindings = controllers.iter().map(controller_binding).collect();
    policy.sort_in(controllers);
    policy.sort_in(bindings);
    // Inner ones first: `edit` collects what `view` has collected, and `admin` what `edit` has.
    for name in ["view", "edit", "admin"] {
        policy.collect(name);
    }
    policy
}

impl Bootstrap {
    fn sort_in(&mut self, objects: Vec<Value>) {
        for object in objects {
            let list = match object::kind(&object) {
                "ClusterRole" => &mut self.cluster_roles,
                "ClusterRoleBinding" => &mut self.cluster_role_bindings,
                "Role" => &mut self.roles,
                _ => &mut self.role_bindings,
            };
            list.push(object);
        }
    }

    fn collect(&mut self, name: &str) {
        let all: Vec<&Value> = self.cluster_roles.iter().collect();
        let role = all.iter().find(|it| object::name(it) == name).expect("an aggregated role must be there");
        let rules = aggregate(&role["aggregationRule"], name, &all);
        let rules: Vec<Value> = rules.iter().map(PolicyRule::to_json).collect();
        let role = self.cluster_roles.iter_mut().find(|it| object::name(it) == name);
        role.expect("an aggregated role must be there")["rules"] = json!(rules);
    }
}

/// The objects of one file, as far as the release has them.
fn objects(text: &str, release: Release, prefix: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = Vec::new();
    let mut is_left_out = false;
    for line in text.lines().filter(|it| !it.trim().is_empty() && !it.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_there = is_since(&words, release);
        match words.as_slice() {
            ["role", name, options @ ..] if !line.starts_with(' ') => {
                is_left_out = !is_there;
                if is_there {
                    objects.push(role(name, prefix, options));
                }
            }
            ["bind", name, subjects @ ..] => {
                if is_there {
                    objects.push(binding(name, subjects));
                }
            }
            _ if is_left_out || !is_there => {}
            rule_words => {
                let rule = rule(rule_words).expect("a line of the default policy must be a rule");
                let role = objects.last_mut().expect("a rule must stand below its role");
                role["rules"].as_array_mut().expect("a rule must stand below its role").push(rule.to_json());
            }
        }
    }
    objects
}

fn role(name: &str, prefix: &str, options: &[&str]) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let mut role = new_object(kind, namespace, &format!("{prefix}{name}"));
    role["rules"] = json!([]);
    for option in options {
        match option.split_once('=') {
            Some(("collects", into)) => {
                let selector = json!({"matchLabels": {aggregation_label(into): "true"}});
                role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
            }
            Some(("into", into)) => role["metadata"]["labels"][aggregation_label(into)] = json!("true"),
            _ => {}
        }
    }
    role
}

fn binding(name: &str, subjects: &[&str]) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let (name, role) = name.split_once('=').unwrap_or((name, name));
    let (kind, role_kind) =
        if namespace.is_empty() { ("ClusterRoleBinding", "ClusterRole") } else { ("RoleBinding", "Role") };
    let mut binding = new_object(kind, namespace, name);
    binding["roleRef"] = json!({"apiGroup": GROUP, "kind": role_kind, "name": role});
    let subjects: Vec<Value> = subjects.iter().filter_map(|it| subject(it)).collect();
    if !subjects.is_empty() {
        binding["subjects"] = json!(subjects);
    }
    binding
}

fn controller_binding(role: &Value) -> Value {
    let name = object::name(role);
    let account = name.strip_prefix(CONTROLLER_PREFIX).expect("a controller's role must have the prefix");
    binding(name, &[&format!("account:kube-system/{account}")])
}

fn new_object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut metadata = json!({
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {reconcile::AUTO_UPDATE: "true"},
    });
    if !namespace.is_empty() {
        metadata["namespace"] = json!(namespace);
    }
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata})
}

fn aggregation_label(into: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{into}")
}

fn subject(word: &str) -> Option<Value> {
    match word.split_once(':')? {
        ("user", name) => Some(json!({"apiGroup": GROUP, "kind": "User", "name": name})),
        ("group", name) => Some(json!({"apiGroup": GROUP, "kind": "Group", "name": name})),
        ("account", path) => {
            let (namespace, name) = path.split_once('/')?;
            Some(json!({"kind": "ServiceAccount", "namespace": namespace, "name": name}))
        }
        _ => None,
    }
}

fn rule(words: &[&str]) -> Option<PolicyRule> {
    let sorted = |text: &str| {
        let mut list: Vec<String> = text.split(',').map(str::to_owned).collect();
        list.sort();
        list
    };
    let (verbs, groups, things, options) = match words {
        ["events", ..] => ("create,update,patch", "core,events.k8s.io", "events", &[][..]),
        [verbs, groups, things, options @ ..] => (*verbs, *groups, *things, options),
        _ => return None,
    };
    let mut rule = PolicyRule { verbs: spelled_out(verbs), ..PolicyRule::default() };
    if groups == "urls" {
        rule.non_resource_urls = sorted(things);
        return Some(rule);
    }
    rule.api_groups = groups.split(',').map(|it| if it == "core" { "" } else { it }.to_owned()).collect();
    rule.api_groups.sort();
    rule.resources = sorted(things);
    if let Some(names) = options.iter().find_map(|it| it.strip_prefix("names=")) {
        rule.resource_names = sorted(names);
    }
    Some(rule)
}

fn spelled_out(verbs: &str) -> Vec<String> {
    let mut list = Vec::new();
    for verb in verbs.split(',') {
        match verb {
            "R" => list.extend(READ),
            "W" => list.extend(WRITE),
            "RW" => list.extend(READ.iter().chain(&WRITE)),
            "RU" => list.extend(READ.iter().chain(&["update", "patch"])),
            verb => list.push(verb),
        }
    }
    list.sort_unstable();
    list.dedup();
    list.into_iter().map(str::to_owned).collect()
}

fn is_since(words: &[&str], release: Release) -> bool {
    let since = words.iter().find_map(|it| it.strip_prefix("since="));
    since.is_none_or(|it| release >= Release::v1(it.parse().expect("since must be a minor release")))
}
