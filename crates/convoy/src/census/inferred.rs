//! What can be known of a cluster that does not show its store: which versions its definitions list, and how many objects
//! there are.

use std::collections::BTreeMap;

use meta::{GroupResource, Value, freeze};
use server::census::{CensusView, ResourceCensus, UNKNOWN};

use crate::{cluster::request, failure::Failure};

/// Why nobody knows how many objects there are.
const UNCOUNTED: &str = "the objects could not be listed";

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The custom resources of a cluster. Nothing can be told of built-in ones.
pub(super) async fn infer(client: &kube::Client) -> Result<CensusView, Failure> {
    let definitions = request(client, "GET", CRDS, None).await?;
    let mut resources = Vec::new();
    for crd in items(&definitions) {
        let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = GroupResource::new(text("/spec/group"), text("/spec/names/plural"));
        // One that cannot be listed must not hide the others: its objects may be stored in any version.
        let objects = count(client, crd, &resource).await.unwrap_or_else(|failure| {
            tracing::warn!(%resource, why = failure.message, "the objects cannot be counted");
            None
        });
        resources.push(inferred(crd, &resource, objects));
    }
    Ok(CensusView { evidence: "ApiInference".to_owned(), resources, unknown: BTreeMap::new() })
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

/// How many objects there are, by one page of one and what the server says is behind it. `None` if no version is served.
async fn count(client: &kube::Client, crd: &Value, resource: &GroupResource) -> Result<Option<u64>, Failure> {
    let versions = crd["spec"]["versions"].as_array();
    let served = versions.into_iter().flatten().find(|it| it["served"] == true);
    let Some(version) = served.and_then(|it| it["name"].as_str()) else { return Ok(None) };
    let GroupResource { group, resource } = resource;
    let page = request(client, "GET", &format!("/apis/{group}/{version}/{resource}?limit=1"), None).await?;
    let behind = page["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    Ok(Some(items(&page).count() as u64 + behind))
}

/// One resource, from its definition and the number of its objects, if that is known.
fn inferred(crd: &Value, resource: &GroupResource, objects: Option<u64>) -> ResourceCensus {
    let written = freeze::storage_version(crd).map(|it| format!("{}/{it}", resource.group));
    let listed = ResourceCensus::default().defined_by(crd).stored_versions;
    let version = match listed.as_slice() {
        [only] => format!("{}/{only}", resource.group),
        _ => UNKNOWN.to_owned(),
    };
    let uncounted = objects.is_none().then(|| UNCOUNTED.to_owned());
    let versions = match objects {
        Some(0) | None => BTreeMap::new(),
        Some(n) => BTreeMap::from([(version, n)]),
    };
    ResourceCensus { written, uncounted, ..ResourceCensus::of(resource, versions) }.defined_by(crd)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::census::verdict;

    #[test]
    fn what_is_listed_beside_others_may_be_stored() {
        let resource = GroupResource::new("example.com", "widgets");
        let crd = |stored: &[&str]| {
            json!({
                "spec": {"versions": [{"name": "v1", "storage": false}, {"name": "v2", "storage": true}]},
                "status": {"storedVersions": stored},
            })
        };
        let judge = |stored: &[&str], objects: u64| {
            verdict(&inferred(&crd(stored), &resource, Some(objects)), "v1").0
        };
        assert!(!judge(&["v1", "v2"], 3));
        assert!(judge(&["v1", "v2"], 0), "there is nothing that could be stored in it");
        assert!(judge(&["v2"], 3));
        let uncounted = inferred(&crd(&["v1", "v2"]), &resource, None);
        let (is_safe, why) = verdict(&uncounted, "v1");
        assert!(!is_safe, "{why}");
        assert!(why.ends_with("the objects could not be listed, so that nobody knows"), "{why}");
    }
}
