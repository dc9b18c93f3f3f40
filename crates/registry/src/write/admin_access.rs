//! Claims of devices with an administrator's access: only in namespaces that are labelled for it, as upstream's registry
//! checks it.

use meta::{FieldError, FieldErrors, GroupKind, Status, Value, object};

use crate::{Registry, Target, serve};

/// The label of namespaces in which such claims may be made.
const LABEL: &str = "resource.kubernetes.io/admin-access";

impl Registry {
    /// Refuses a new claim, or a change of one, that asks for an administrator's access where it may not.
    pub(super) async fn check_admin_access(
        &self,
        target: &Target,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let definition = &target.kind.definition;
        if &*definition.group != "resource.k8s.io" {
            return Ok(());
        }
        let fields = match target.subresource.as_str() {
            "" => {
                let known = old.map(|it| asked(&definition.resource, it)).unwrap_or_default();
                let mut fields = asked(&definition.resource, new);
                fields.retain(|it| !known.contains(it));
                fields
            }
            // An allocation does not change, so what was granted stays granted.
            "status" if old.is_none_or(|it| granted(it).is_none()) => granted(new).into_iter().collect(),
            _ => return Ok(()),
        };
        if fields.is_empty() || self.namespace_allows(target).await? {
            return Ok(());
        }
        let detail =
            format!("admin access to devices requires the `{LABEL}: true` label on the containing namespace");
        let errors = fields.into_iter().map(|it| FieldError::forbidden(it, detail.clone())).collect();
        let kind = GroupKind::new(definition.group.clone(), definition.kind.clone());
        Err(FieldErrors(errors).into_status(&kind, object::name(new)))
    }

    async fn namespace_allows(&self, target: &Target) -> Result<bool, Status> {
        let Some(namespace) = self.namespace_of(target) else { return Ok(false) };
        // Labels decide who gets at devices: what the store holds counts.
        let Some(item) = self.fresh(&namespace).await? else { return Ok(false) };
        let tree = serve::tree(&namespace, &item);
        let label = tree.get("metadata").and_then(|it| it.get("labels")).and_then(|it| it.get(LABEL));
        Ok(label.and_then(Value::as_str) == Some("true"))
    }
}

/// The first field in which the status of a claim grants it.
fn granted(claim: &Value) -> Option<String> {
    let results = claim.pointer("/status/allocation/devices/results").and_then(Value::as_array);
    let index = results?.iter().position(|it| it.get("adminAccess") == Some(&Value::Bool(true)))?;
    Some(format!("status.allocation.devices.results[{index}].adminAccess"))
}

/// The fields in which a claim, or the template of one, asks for it, in any version.
fn asked(resource: &str, object: &Value) -> Vec<String> {
    let (path, spec) = match resource {
        "resourceclaims" => ("spec", object.get("spec")),
        "resourceclaimtemplates" => ("spec.spec", object.get("spec").and_then(|it| it.get("spec"))),
        _ => return Vec::new(),
    };
    let requests = spec.and_then(|it| it.get("devices")).and_then(|it| it.get("requests"));
    let requests = requests.and_then(Value::as_array).into_iter().flatten();
    let is_asked = |it: Option<&Value>| it.and_then(|it| it.get("adminAccess")) == Some(&Value::Bool(true));
    let mut fields = Vec::new();
    for (index, request) in requests.enumerate() {
        let field = format!("{path}.devices.requests[{index}]");
        if is_asked(Some(request)) {
            fields.push(format!("{field}.adminAccess"));
        }
        if is_asked(request.get("exactly")) {
            fields.push(format!("{field}.exactly.adminAccess"));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_and_templates_ask_in_every_version() {
        let devices = json!({"devices": {"requests": [
            {"name": "a", "adminAccess": true},
            {"name": "b", "exactly": {"adminAccess": false}},
            {"name": "c", "exactly": {"adminAccess": true}},
        ]}});
        let claim = json!({"spec": devices});
        assert_eq!(
            asked("resourceclaims", &claim),
            ["spec.devices.requests[0].adminAccess", "spec.devices.requests[2].exactly.adminAccess"]
        );
        let template = json!({"spec": {"spec": devices}});
        assert_eq!(asked("resourceclaimtemplates", &template).len(), 2);
        assert_eq!(asked("deviceclasses", &claim), Vec::<String>::new());
        assert_eq!(asked("resourceclaims", &json!({})), Vec::<String>::new());
    }
}
