//! What a namespace can hold.

use kube::Client;

use super::plan::Resource;
use crate::discovery::{self, Served, Undiscovered};

/// All namespaced resources that can be listed and deleted, each in its preferred version, pods first.
pub(crate) async fn discover(client: &Client) -> Result<Vec<Resource>, Undiscovered> {
    Ok(contents(&discovery::discover(client).await?))
}

/// What cannot be deleted is no content, and what cannot be listed cannot be waited for.
fn is_content(served: &Served) -> bool {
    served.is_namespaced && served.can("list") && (served.can("delete") || served.can("deletecollection"))
}

fn contents(served: &[Served]) -> Vec<Resource> {
    let mut found: Vec<Resource> = Vec::new();
    for it in served.iter().filter(|it| is_content(it)) {
        if !found.iter().any(|other| other.group == it.group && other.resource == it.resource) {
            found.push(Resource {
                group: it.group.clone(),
                version: it.version.clone(),
                resource: it.resource.clone(),
                can_delete_collection: it.can("deletecollection"),
            });
        }
    }
    found.sort_by_key(|it| !it.is_pods());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_what_can_be_listed_and_deleted_in_the_preferred_version_pods_first() {
        let all = ["create", "delete", "deletecollection", "get", "list"];
        let served = [
            Served::new("v1", "bindings", "Binding", true, &["create"]),
            Served::new("v1", "configmaps", "ConfigMap", true, &all),
            Served::new("v1", "namespaces", "Namespace", false, &all),
            Served::new("v1", "pods", "Pod", true, &all),
            Served::new("v1", "services", "Service", true, &["delete", "list"]),
            Served::new("example.org/v2", "widgets", "Widget", true, &all),
            Served::new("example.org/v1", "widgets", "Widget", true, &all),
            Served::new("example.org/v1", "gadgets", "Gadget", true, &all),
        ];
        let found = contents(&served);
        let found: Vec<String> = found
            .iter()
            .map(|it| format!("{}/{}/{} {}", it.group, it.version, it.resource, it.can_delete_collection))
            .collect();
        let expect = [
            "/v1/pods true",
            "/v1/configmaps true",
            "/v1/services false",
            "example.org/v2/widgets true",
            "example.org/v1/gadgets true",
        ];
        assert_eq!(found, expect);
    }
}
