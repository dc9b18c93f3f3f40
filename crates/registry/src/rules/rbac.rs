//! Roles and bindings. Whether somebody may grant what a role grants is not decided here.

use meta::{FieldError, FieldErrors, Value, name};

use super::{
    selector,
    value::{GoStruct, at, complain, items, text, texts},
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// A new role or binding.
pub(super) fn validate(resource: &str, object: &Value, errors: &mut FieldErrors) {
    match resource {
        "roles" | "clusterroles" => {
            for (index, rule) in items(object, &["rules"]).iter().enumerate() {
                check_rule(rule, resource == "roles", &format!("rules[{index}]"), errors);
            }
            if resource == "clusterroles" {
                check_aggregation(object, errors);
            }
        }
        "rolebindings" => check_binding(object, &["Role", "ClusterRole"], errors),
        "clusterrolebindings" => check_binding(object, &["ClusterRole"], errors),
        _ => {}
    }
}

/// A changed role or binding. What a binding binds to stays: who may bind was checked for that role alone.
pub(super) fn validate_changed(resource: &str, new: &Value, old: &Value, errors: &mut FieldErrors) {
    validate(resource, new, errors);
    if !matches!(resource, "rolebindings" | "clusterrolebindings") {
        return;
    }
    let role = |it| ["apiGroup", "kind", "name"].map(|field| text(it, &["roleRef", field]));
    let [group, kind, name] = role(new);
    if [group, kind, name] != role(old) {
        let shown = GoStruct(&[("APIGroup", group), ("Kind", kind), ("Name", name)]).to_string();
        errors.push(FieldError::invalid_shown("roleRef", shown, "cannot change roleRef"));
    }
}

fn check_rule(rule: &Value, is_namespaced: bool, path: &str, errors: &mut FieldErrors) {
    let is_empty = |field: &str| items(rule, &[field]).is_empty();
    if is_empty("verbs") {
        let detail = "verbs must contain at least one value";
        errors.push(FieldError::required(format!("{path}.verbs"), detail));
    }
    if !is_empty("nonResourceURLs") {
        let urls = Value::from(texts(rule, &["nonResourceURLs"])).to_string();
        let mut refuse = |detail: &str| {
            let field = format!("{path}.nonResourceURLs");
            errors.push(FieldError::invalid_shown(field, urls.clone(), detail));
        };
        if is_namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if ["apiGroups", "resources", "resourceNames"].iter().any(|it| !is_empty(it)) {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if is_empty("apiGroups") {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(format!("{path}.apiGroups"), detail));
    }
    if is_empty("resources") {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(format!("{path}.resources"), detail));
    }
}

fn check_aggregation(role: &Value, errors: &mut FieldErrors) {
    if at(role, &["aggregationRule"]).is_none() {
        return;
    }
    const FIELD: &str = "aggregationRule.clusterRoleSelectors";
    let selectors = items(role, &["aggregationRule", "clusterRoleSelectors"]);
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(FIELD, detail));
    }
    for (index, it) in selectors.iter().enumerate() {
        let path = format!("{FIELD}[{index}]");
        selector::validate(it, &path, errors);
        if let Some(why) = selector::unusable(it) {
            errors.push(FieldError::invalid(path, "null", format!("invalid label selector: {why}")));
        }
    }
}

fn check_binding(binding: &Value, kinds: &[&str], errors: &mut FieldErrors) {
    let [group, kind, role] = ["apiGroup", "kind", "name"].map(|field| text(binding, &["roleRef", field]));
    if group != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", group, &[GROUP]));
    }
    if !kinds.contains(&kind) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, kinds));
    }
    if role.is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    } else {
        complain(errors, "roleRef.name", role, name::path_segment(role));
    }
    let is_namespaced = kinds.contains(&"Role");
    for (index, subject) in items(binding, &["subjects"]).iter().enumerate() {
        check_subject(subject, is_namespaced, &format!("subjects[{index}]"), errors);
    }
}

fn check_subject(subject: &Value, is_namespaced: bool, path: &str, errors: &mut FieldErrors) {
    let [group, kind, name] = ["apiGroup", "kind", "name"].map(|field| text(subject, &[field]));
    let field = |field: &str| format!("{path}.{field}");
    if name.is_empty() {
        errors.push(FieldError::required(field("name"), ""));
    }
    match kind {
        "ServiceAccount" => {
            if !name.is_empty() {
                complain(errors, &field("name"), name, name::dns_subdomain(name));
            }
            if !group.is_empty() {
                errors.push(FieldError::not_supported(field("apiGroup"), group, &[""]));
            }
            if !is_namespaced && text(subject, &["namespace"]).is_empty() {
                errors.push(FieldError::required(field("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if name.is_empty() {
                let detail = format!("{} name cannot be empty", kind.to_lowercase());
                errors.push(FieldError::invalid(field("name"), name, detail));
            }
            if group != GROUP {
                errors.push(FieldError::not_supported(field("apiGroup"), group, &[GROUP]));
            }
        }
        _ => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(field("kind"), kind, &kinds));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::rules::testing::{expect_changed, expect_new};

    const ROLES: &str = "rbac.authorization.k8s.io/v1/roles";
    const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/v1/clusterroles";
    const BINDINGS: &str = "rbac.authorization.k8s.io/v1/rolebindings";
    const CLUSTER_BINDINGS: &str = "rbac.authorization.k8s.io/v1/clusterrolebindings";
    const GROUP: &str = "rbac.authorization.k8s.io";

    #[test]
    fn ordinary_roles_pass() {
        expect_new(ROLES, &json!({}), &[]);
        let rules = json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "services"], "resourceNames": ["a"]},
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        ]);
        expect_new(ROLES, &json!({"rules": rules}), &[]);
        expect_new(CLUSTER_ROLES, &json!({"rules": rules}), &[]);
        expect_new(
            CLUSTER_ROLES,
            &json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]}),
            &[],
        );
        let aggregation = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}, {}]});
        expect_new(CLUSTER_ROLES, &json!({"aggregationRule": aggregation}), &[]);
    }

    #[test]
    fn rules_must_say_what_may_be_done_to_what() {
        expect_new(
            CLUSTER_ROLES,
            &json!({"rules": [{}]}),
            &[
                "Required rules[0].verbs: Required value: verbs must contain at least one value",
                "Required rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "Required rules[0].resources: Required value: resource rules must supply at least one resource",
            ],
        );
        let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/a", "/b"], "resources": ["pods"]});
        let both = "Invalid rules[1].nonResourceURLs: Invalid value: [\"/a\",\"/b\"]: rules cannot apply to both regular \
                    resources and non-resource URLs";
        let fine = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        expect_new(CLUSTER_ROLES, &json!({"rules": [fine, rule]}), &[both]);
        let namespaced = "Invalid rules[1].nonResourceURLs: Invalid value: [\"/a\",\"/b\"]: namespaced rules cannot apply \
                          to non-resource URLs";
        expect_new(ROLES, &json!({"rules": [fine, rule]}), &[namespaced, both]);
        expect_changed(ROLES, &json!({"rules": [fine, rule]}), &json!({}), &[namespaced, both]);
    }

    #[test]
    fn aggregation_needs_selectors_that_select() {
        expect_new(
            CLUSTER_ROLES,
            &json!({"aggregationRule": {}}),
            &[
                "Required aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required \
               if aggregationRule is non-nil",
            ],
        );
        let selectors = json!([
            {"matchExpressions": [{"key": "a", "operator": "Near"}]},
            {"matchExpressions": [{"key": "a", "operator": "In"}]},
            {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        ]);
        let path = "aggregationRule.clusterRoleSelectors";
        expect_new(
            CLUSTER_ROLES,
            &json!({"aggregationRule": {"clusterRoleSelectors": selectors}}),
            &[
                &format!(
                    "Invalid {path}[0].matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"
                ),
                &format!(
                    "Invalid {path}[0]: Invalid value: \"null\": invalid label selector: \"Near\" is not a valid label selector operator"
                ),
                &format!(
                    "Required {path}[1].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"
                ),
                &format!(
                    "Invalid {path}[1]: Invalid value: \"null\": invalid label selector: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
                ),
                &format!(
                    "Forbidden {path}[2].matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                ),
                &format!(
                    "Invalid {path}[2]: Invalid value: \"null\": invalid label selector: values: Invalid value: [\"b\"]: values set must be empty for exists and does not exist"
                ),
            ],
        );
    }

    #[test]
    fn ordinary_bindings_pass() {
        let subjects = json!([
            {"kind": "User", "name": "a b/c", "apiGroup": GROUP},
            {"kind": "Group", "name": "system:nodes", "apiGroup": GROUP},
            {"kind": "ServiceAccount", "name": "default", "namespace": "x"},
        ]);
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "system:node"});
        let binding = json!({"roleRef": role, "subjects": subjects});
        for kind in [BINDINGS, CLUSTER_BINDINGS] {
            expect_new(kind, &binding, &[]);
            expect_changed(kind, &json!({"roleRef": role}), &binding, &[]);
        }
        let role = json!({"apiGroup": GROUP, "kind": "Role", "name": "a"});
        expect_new(BINDINGS, &json!({"roleRef": role}), &[]);
    }

    #[test]
    fn bindings_bind_roles_only() {
        expect_new(
            BINDINGS,
            &json!({}),
            &[
                "NotSupported roleRef.apiGroup: Unsupported value: \"\": supported values: \"rbac.authorization.k8s.io\"",
                "NotSupported roleRef.kind: Unsupported value: \"\": supported values: \"Role\", \"ClusterRole\"",
                "Required roleRef.name: Required value",
            ],
        );
        expect_new(
            CLUSTER_BINDINGS,
            &json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "a%b/c"}}),
            &[
                "NotSupported roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\"",
                "Invalid roleRef.name: Invalid value: \"a%b/c\": may not contain '/'",
                "Invalid roleRef.name: Invalid value: \"a%b/c\": may not contain '%'",
            ],
        );
    }

    #[test]
    fn subjects_are_users_groups_and_service_accounts() {
        let role = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": "a"});
        let subjects = json!([
            {"kind": "ServiceAccount", "name": "Bad", "apiGroup": "x"},
            {"kind": "User"},
            {"kind": "Group", "name": "g", "apiGroup": ""},
            {"kind": "Robot", "name": "r"},
        ]);
        let mut expected = vec![
            "Invalid subjects[0].name: Invalid value: \"Bad\": a lowercase RFC 1123 subdomain must consist of lower case \
             alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
             'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "NotSupported subjects[0].apiGroup: Unsupported value: \"x\": supported values: \"\"",
            "Required subjects[0].namespace: Required value",
            "Required subjects[1].name: Required value",
            "Invalid subjects[1].name: Invalid value: \"\": user name cannot be empty",
            "NotSupported subjects[1].apiGroup: Unsupported value: \"\": supported values: \"rbac.authorization.k8s.io\"",
            "NotSupported subjects[2].apiGroup: Unsupported value: \"\": supported values: \"rbac.authorization.k8s.io\"",
            "NotSupported subjects[3].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \
             \"Group\"",
        ];
        let binding = json!({"roleRef": role, "subjects": subjects});
        expect_new(CLUSTER_BINDINGS, &binding, &expected);
        // A service account in a binding of a namespace needs no namespace of its own.
        expected.remove(2);
        expect_new(BINDINGS, &binding, &expected);
    }

    #[test]
    fn a_binding_keeps_its_role() {
        let old = json!({"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "a"}});
        let new = json!({"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "a"}});
        expect_changed(
            BINDINGS,
            &new,
            &old,
            &["Invalid roleRef: Invalid value: \
               {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"ClusterRole\",\"Name\":\"a\"}: cannot change roleRef"],
        );
    }
}
