//! One rule of a role: what it reads from JSON and how it is written in messages.

use meta::Value;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::user::quote_list;

/// A `PolicyRule` of `rbac.authorization.k8s.io/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    pub verbs: Vec<String>,
}

impl PolicyRule {
    /// A rule about resources.
    pub fn resources(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Self {
        Self {
            api_groups: owned(groups),
            resources: owned(resources),
            verbs: owned(verbs),
            ..Self::default()
        }
    }

    /// A rule about paths.
    pub fn urls(urls: &[&str], verbs: &[&str]) -> Self {
        Self { non_resource_urls: owned(urls), verbs: owned(verbs), ..Self::default() }
    }

    /// Reads what is there; what does not have the right type grants nothing.
    pub fn from_json(value: &Value) -> Self {
        Self {
            api_groups: texts(value, "apiGroups"),
            non_resource_urls: texts(value, "nonResourceURLs"),
            resource_names: texts(value, "resourceNames"),
            resources: texts(value, "resources"),
            verbs: texts(value, "verbs"),
        }
    }

    /// The rules of a role, in order.
    pub fn all_from_json(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::from_json).collect()
    }

    /// The rule as it is stored.
    pub fn to_json(&self) -> Value {
        let mut rule = json!({"verbs": self.verbs});
        let parts = [
            ("apiGroups", &self.api_groups),
            ("nonResourceURLs", &self.non_resource_urls),
            ("resourceNames", &self.resource_names),
            ("resources", &self.resources),
        ];
        for (name, values) in parts {
            if !values.is_empty() {
                rule[name] = json!(values);
            }
        }
        rule
    }

    /// `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`
    pub fn compact_string(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let written: Vec<String> = parts
            .iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(name, values)| format!("{name}:{}", quote_list(values)))
            .collect();
        format!("{{{}}}", written.join(", "))
    }
}

pub(crate) fn has(list: &[String], text: &str) -> bool {
    list.iter().any(|it| it == text)
}

/// Whether a pattern of paths (`*`, `/x`, `/x/*`) matches the path.
pub(crate) fn url_matches(pattern: &str, path: &str) -> bool {
    pattern == "*"
        || pattern == path
        || (pattern.ends_with('*') && path.starts_with(pattern.trim_end_matches('*')))
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    let items = value.get(field).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::{Attributes, Target};
    use crate::{User, rbac::HeldRule};

    fn check(rule: &PolicyRule, verb: &str, target: Target<'_>, want: bool) {
        let user = User::named("u");
        assert_eq!(
            HeldRule::of(rule).allows(&Attributes { user: &user, verb, target }),
            want,
            "{rule:?} {verb} {target:?}"
        );
    }

    fn resource<'a>(group: &'a str, resource: &'a str, subresource: &'a str, name: &'a str) -> Target<'a> {
        Target::Resource { group, version: "v1", resource, subresource, namespace: "ns", name }
    }

    #[test]
    fn resources_match_as_upstream() {
        let exact = PolicyRule::resources(&[""], &["pods", "pods/log"], &["get"]);
        check(&exact, "get", resource("", "pods", "", "a"), true);
        check(&exact, "get", resource("", "pods", "log", "a"), true);
        check(&exact, "get", resource("", "pods", "exec", "a"), false);
        check(&exact, "list", resource("", "pods", "", ""), false);
        check(&exact, "get", resource("apps", "pods", "", "a"), false);
        check(&exact, "get", Target::Path("pods"), false);

        let every_scale = PolicyRule::resources(&["*"], &["*/scale"], &["*"]);
        check(&every_scale, "patch", resource("apps", "deployments", "scale", "a"), true);
        check(&every_scale, "patch", resource("apps", "deployments", "", "a"), false);
        check(&every_scale, "patch", resource("apps", "deployments", "status", "a"), false);

        let everything = PolicyRule::resources(&["*"], &["*"], &["*"]);
        check(&everything, "escalate", resource("x", "y", "z", "n"), true);
        check(&everything, "get", Target::Path("/metrics"), false);

        let mut named = PolicyRule::resources(&[""], &["configmaps"], &["get", "list"]);
        named.resource_names = vec!["a".to_owned()];
        check(&named, "get", resource("", "configmaps", "", "a"), true);
        check(&named, "get", resource("", "configmaps", "", "b"), false);
        check(&named, "list", resource("", "configmaps", "", ""), false);
    }

    #[test]
    fn paths_match_as_upstream() {
        let rule = PolicyRule::urls(&["/healthz", "/api/*"], &["get"]);
        for (path, want) in
            [("/healthz", true), ("/healthz/x", false), ("/api/", true), ("/api/v1", true), ("/api", false)]
        {
            check(&rule, "get", Target::Path(path), want);
        }
        check(&PolicyRule::urls(&["*"], &["*"]), "post", Target::Path("/x"), true);
    }

    #[test]
    fn json_is_read_and_written() {
        let json =
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]});
        assert_eq!(PolicyRule::from_json(&json).to_json(), json);
        assert_eq!(
            PolicyRule::from_json(&json).compact_string(),
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}"#
        );
        assert_eq!(PolicyRule::from_json(&json!({"verbs": 1, "resources": "x"})), PolicyRule::default());
    }
}
