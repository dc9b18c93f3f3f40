//! What must come of a request, told from its line, the policy and the discovery documents alone.
//!
//! It reads paths, selectors and RBAC rules by itself and uses nothing of the server's crates: whoever changes how the
//! server reads them must convince this reading, too.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What the cluster offers, from its discovery documents.
#[derive(Debug, Default)]
pub struct Offer {
    resources: BTreeMap<(String, String, String), Resource>,
}

/// One resource in one version.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    pub namespaced: bool,
    verbs: BTreeSet<String>,
    pub subresources: BTreeMap<String, BTreeSet<String>>,
}

impl Offer {
    /// Takes in an `APIResourceList`.
    pub fn add(&mut self, document: &Value) {
        let group_version = document["groupVersion"].as_str().unwrap();
        let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
        for described in document["resources"].as_array().unwrap() {
            let full = described["name"].as_str().unwrap();
            let (name, subresource) = full.split_once('/').map_or((full, None), |(a, b)| (a, Some(b)));
            let place = (group.to_owned(), version.to_owned(), name.to_owned());
            let resource = self.resources.entry(place).or_default();
            let verbs = texts(&described["verbs"]).map(str::to_owned).collect();
            match subresource {
                Some(it) => {
                    resource.subresources.insert(it.to_owned(), verbs);
                }
                None => (resource.namespaced, resource.verbs) = (described["namespaced"] == true, verbs),
            }
        }
    }

    /// Everything: group, version, resource.
    pub fn all(&self) -> impl Iterator<Item = (&(String, String, String), &Resource)> {
        self.resources.iter()
    }
}

/// What a request asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    pub verb: String,
    /// The path if it is not about a resource.
    url: Option<String>,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    /// Where it is authorized.
    namespace: String,
    /// Whether it leads through that namespace.
    inside: bool,
    name: String,
    /// Whether the path, and not a selector, names the object.
    in_path: bool,
    tail: bool,
    gap: bool,
    old_prefix: bool,
    selector: String,
}

/// What must come of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// 403.
    Forbidden,
    /// 404 or 405: nothing is there, or nothing like that can be done to it.
    NoRoute,
    /// 400: the path names one object and the selector another.
    Contradiction,
    /// It may be carried out, on these objects and on no others.
    Within(Scope),
    /// A document outside of resources.
    Document,
}

/// Objects of one resource: in one namespace or in all (empty), one or all (empty).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub group: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// A selector may leave out some of them.
    pub is_narrowed: bool,
}

impl Scope {
    /// Whether a mark (`group/resource:namespace/name`) is of one of them.
    pub fn covers(&self, mark: &str) -> bool {
        let Some((resource, place)) = mark.split_once(':') else { return false };
        let Some((namespace, name)) = place.split_once('/') else { return false };
        resource == format!("{}/{}", self.group, self.resource)
            && (self.namespace.is_empty() || self.namespace == namespace)
            && (self.name.is_empty() || self.name == name)
    }
}

/// The roles and bindings of the cluster, as the API shows them.
#[derive(Debug, Default)]
pub struct Policy {
    /// By namespace (empty for ClusterRoles) and name.
    roles: BTreeMap<(String, String), Vec<Value>>,
    bindings: Vec<Value>,
}

impl Policy {
    pub fn add_role(&mut self, role: &Value) {
        let of = |field: &str| role["metadata"][field].as_str().unwrap_or_default().to_owned();
        let rules = role["rules"].as_array().cloned().unwrap_or_default();
        self.roles.insert((of("namespace"), of("name")), rules);
    }

    pub fn add_binding(&mut self, binding: &Value) {
        self.bindings.push(binding.clone());
    }

    /// Whether some rule that is bound to the user allows it.
    pub fn allows(&self, user: &str, groups: &[&str], ask: &Ask) -> bool {
        self.bindings.iter().any(|binding| {
            let at = binding["metadata"]["namespace"].as_str().unwrap_or_default();
            let reaches = at.is_empty() || (ask.url.is_none() && at == ask.namespace);
            reaches && binds(binding, user, groups) && self.rules(binding, at).any(|it| permits(it, ask))
        })
    }

    fn rules(&self, binding: &Value, at: &str) -> impl Iterator<Item = &Value> {
        let role = &binding["roleRef"];
        let scope = if role["kind"] == "ClusterRole" { "" } else { at };
        let place = (scope.to_owned(), role["name"].as_str().unwrap_or_default().to_owned());
        self.roles.get(&place).into_iter().flatten()
    }
}

fn binds(binding: &Value, user: &str, groups: &[&str]) -> bool {
    binding["subjects"].as_array().into_iter().flatten().any(|it| {
        let name = it["name"].as_str().unwrap_or_default();
        match it["kind"].as_str() {
            Some("User") => name == user,
            Some("Group") => groups.contains(&name),
            _ => false,
        }
    })
}

fn permits(rule: &Value, ask: &Ask) -> bool {
    let has = |field: &str, wanted: &str| texts(&rule[field]).any(|it| it == "*" || it == wanted);
    if !has("verbs", &ask.verb) {
        return false;
    }
    if let Some(url) = &ask.url {
        return texts(&rule["nonResourceURLs"]).any(|it| match it.strip_suffix('*') {
            Some(start) => url.starts_with(start),
            None => it == url,
        });
    }
    let full = match ask.subresource.as_str() {
        "" => ask.resource.clone(),
        subresource => format!("{}/{subresource}", ask.resource),
    };
    let any = format!("*/{}", ask.subresource);
    let fits = |it: &str| it == "*" || it == full || (!ask.subresource.is_empty() && it == any);
    let names: Vec<&str> = texts(&rule["resourceNames"]).collect();
    has("apiGroups", &ask.group)
        && texts(&rule["resources"]).any(fits)
        && (names.is_empty() || names.contains(&ask.name.as_str()))
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Reads a request line.
pub fn read(method: &str, line: &str) -> Ask {
    let (raw, query) = line.split_once('?').unwrap_or((line, ""));
    let path = decode(raw);
    let trimmed = path.trim_matches('/');
    let gap = trimmed.contains("//");
    let mut words: std::collections::VecDeque<String> =
        trimmed.split('/').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let mut ask = Ask { gap, ..Ask::default() };
    let head = match words.front().map(String::as_str) {
        Some("api") => 2,
        Some("apis") => 3,
        _ => usize::MAX,
    };
    if words.len() <= head {
        let end = if path.ends_with('/') && !words.is_empty() { "/" } else { "" };
        ask.url = Some(format!("/{}{end}", Vec::from(words).join("/")));
        ask.verb = if method == "HEAD" { "get".to_owned() } else { method.to_lowercase() };
        return ask;
    }
    let front: Vec<String> = words.drain(..head).collect();
    ask.version.clone_from(&front[head - 1]);
    if head == 3 {
        ask.group.clone_from(&front[1]);
    }
    if words.len() > 1 && (words[0] == "watch" || words[0] == "proxy") {
        ask.old_prefix = true;
        ask.verb = words.pop_front().unwrap();
    }
    if words[0] == "namespaces" && words.len() > 1 {
        ask.namespace.clone_from(&words[1]);
        if words.len() > 2 && words[2] != "status" && words[2] != "finalize" {
            ask.inside = true;
            words.drain(..2);
        }
    }
    let mut next = || words.pop_front().unwrap_or_default();
    (ask.resource, ask.name, ask.subresource) = (next(), next(), next());
    ask.in_path = !ask.name.is_empty();
    ask.tail = !words.is_empty();
    ask.selector = parameter(query, "fieldSelector").unwrap_or_default();
    if !ask.old_prefix {
        let watches =
            parameter(query, "watch").is_some_and(|it| it != "0" && !it.eq_ignore_ascii_case("false"));
        ask.verb = match (method, ask.in_path) {
            ("GET" | "HEAD", true) => "get",
            ("GET" | "HEAD", false) if watches => "watch",
            ("GET" | "HEAD", false) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "",
        }
        .to_owned();
        if ask.verb == "list" || ask.verb == "watch" {
            ask.name = exact_name(&ask.selector).unwrap_or_default();
        }
    }
    ask
}

/// What must come of it if it was asked with this method.
pub fn judge(offer: &Offer, policy: &Policy, user: &str, method: &str, line: &str) -> Expect {
    let ask = read(method, line);
    if !policy.allows(user, &["system:authenticated"], &ask) {
        return Expect::Forbidden;
    }
    if ask.url.is_some() {
        return Expect::Document;
    }
    let place = (ask.group.clone(), ask.version.clone(), ask.resource.clone());
    let Some(resource) = offer.resources.get(&place) else { return Expect::NoRoute };
    let misplaced = ask.inside != resource.namespaced && (ask.inside || ask.in_path);
    let is_proxied = ask.tail && ask.subresource == "proxy";
    if ask.gap || misplaced || (ask.tail && !is_proxied) || ask.verb == "proxy" {
        return Expect::NoRoute;
    }
    let is_read = matches!(ask.verb.as_str(), "get" | "list" | "watch");
    let everywhere = resource.namespaced && !ask.inside;
    let verbs = match ask.subresource.as_str() {
        "" => Some(&resource.verbs),
        it => resource.subresources.get(it),
    };
    let is_offered = verbs.is_some_and(|it| it.contains(&ask.verb));
    let is_odd = (ask.verb == "create" && ask.in_path && ask.subresource.is_empty())
        || (matches!(ask.verb.as_str(), "update" | "patch") && !ask.in_path)
        || (ask.old_prefix && (method != "GET" || !ask.subresource.is_empty()))
        || (everywhere && !matches!(ask.verb.as_str(), "list" | "watch"))
        || (is_read && method != "GET");
    if !is_offered || is_odd {
        return Expect::NoRoute;
    }
    if ask.old_prefix
        && ask.in_path
        && !ask.selector.is_empty()
        && exact_name(&ask.selector).as_ref() != Some(&ask.name)
    {
        return Expect::Contradiction;
    }
    Expect::Within(Scope {
        group: ask.group,
        resource: ask.resource,
        namespace: if ask.inside { ask.namespace } else { String::new() },
        name: ask.name,
        is_narrowed: !ask.selector.is_empty(),
    })
}

/// The name that a field selector requires.
fn exact_name(selector: &str) -> Option<String> {
    let mut found: Vec<&str> = selector
        .split(',')
        .filter(|it| !it.contains("!="))
        .filter_map(|it| it.strip_prefix("metadata.name="))
        .map(|it| it.trim_start_matches('='))
        .collect();
    found.sort_unstable();
    found.first().filter(|it| !it.is_empty()).map(|it| (*it).to_owned())
}

/// The first value of a parameter.
fn parameter(query: &str, wanted: &str) -> Option<String> {
    query.split('&').find_map(|it| {
        let (key, value) = it.split_once('=').unwrap_or((it, ""));
        (decode(key) == wanted).then(|| decode(value))
    })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code =
            (*first == b'%').then(|| behind.get(..2)).flatten().and_then(|it| std::str::from_utf8(it).ok());
        match code.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn paths_are_read_by_hand() {
    let show = |method: &str, line: &str| {
        let ask = read(method, line);
        format!("{} {} {} {} {}", ask.verb, ask.namespace, ask.resource, ask.name, ask.subresource)
    };
    assert_eq!(show("GET", "/api/v1/namespaces/own/namespaces/other"), "get own namespaces other ");
    assert_eq!(show("GET", "/api/v1/namespaces/own/secrets/allowed?watch=true"), "get own secrets allowed ");
    assert_eq!(show("GET", "/api/v1/watch/namespaces/own/secrets/allowed"), "watch own secrets allowed ");
    assert_eq!(show("PUT", "/api/v1/namespaces/own/finalize"), "update own namespaces own finalize");
    assert_eq!(show("GET", "/apis/apps/v1/deployments?watch=0"), "list  deployments  ");
    assert_eq!(show("DELETE", "/api/v1/namespaces/own%2Fsecrets"), "deletecollection own secrets  ");
}
