//! Which requests a webhook wants to see: operations, groups, versions, resources and scope.

use meta::{GroupVersionResource, Value};

use crate::{Attributes, Operation};

/// One rule of a webhook.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Rule {
    pub(crate) fn of(rule: &Value) -> Self {
        let texts = |field: &str| -> Vec<String> {
            let items = rule.get(field).and_then(Value::as_array).into_iter().flatten();
            items.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let split = |it: &String| match it.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (it.clone(), String::new()),
        };
        Self {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: texts("resources").iter().map(split).collect(),
            scope: match rule.get("scope").and_then(Value::as_str) {
                Some("Cluster") => Scope::Cluster,
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    /// Whether the rule names this operation on this resource; whether it is in the right scope comes later.
    pub(crate) fn names(
        &self,
        operation: Operation,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> bool {
        has(&self.operations, operation.as_str())
            && has(&self.groups, &resource.group)
            && has(&self.versions, resource.version.as_str())
            && self.resources.iter().any(|(name, sub)| {
                (name == "*" || **name == *resource.resource) && (sub == "*" || sub == subresource)
            })
    }

    /// Whether the request is about this resource, if it was about `resource`.
    pub(crate) fn matches(&self, attributes: &Attributes<'_>, resource: &GroupVersionResource) -> bool {
        // A request for a namespace has its name as its namespace, and yet belongs to the cluster.
        let is_of_cluster = attributes.is_namespace() || attributes.namespace.is_empty();
        let is_in_scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => is_of_cluster,
            Scope::Namespaced => !is_of_cluster,
        };
        is_in_scope && self.names(attributes.operation, resource, attributes.subresource)
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|it| it == "*" || it == wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_name_resources_and_subresources() {
        let check = |resources: &str, subresource: &str, names: bool| {
            let rule = Rule::of(&json!({
                "operations": ["UPDATE"], "apiGroups": ["*"], "apiVersions": ["v1"], "resources": [resources],
            }));
            let pods = GroupVersionResource::new("", "v1", "pods");
            assert_eq!(rule.names(Operation::Update, &pods, subresource), names, "{resources} {subresource}");
            assert!(!rule.names(Operation::Create, &pods, subresource));
            let beta = GroupVersionResource::new("", "v1beta1", "pods");
            assert!(!rule.names(Operation::Update, &beta, subresource));
        };
        check("pods", "", true);
        check("pods", "status", false);
        check("pods/status", "status", true);
        check("pods/status", "", false);
        check("pods/*", "status", true);
        check("pods/*", "", true);
        check("*", "", true);
        check("*", "status", false);
        check("*/*", "status", true);
        check("*/status", "status", true);
        check("services", "", false);
    }
}
