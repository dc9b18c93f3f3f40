//! The controllers that run inside a server, seen from outside: what they make, empty and keep up to date.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use testkit::client::Client;
use testkit::{Convoy, Options};

use crate::fixture::{self, BINARY, config_map};

/// Debug builds on busy machines are slow; nothing here needs a second of its own.
const PATIENCE: Duration = Duration::from_secs(60);

const MERGE: &str = "application/merge-patch+json";

/// Asks until the answer is as wanted.
async fn until(convoy: &Convoy, path: &str, is_wanted: impl Fn(u16, &Value) -> bool) -> Result<Value> {
    let admin = convoy.admin();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let answer = admin.get(path).await?;
        let body = answer.json()?;
        if is_wanted(answer.status.as_u16(), &body) {
            return Ok(body);
        }
        if tokio::time::Instant::now() > deadline {
            bail!("{path} still answers {body:#}\n{}", convoy.log_tail());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn until_gone(convoy: &Convoy, path: &str) -> Result<()> {
    until(convoy, path, |status, _| status == 404).await.map(drop)
}

/// The condition of this type, if it says `True`.
fn trouble<'a>(namespace: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = namespace["status"]["conditions"].as_array()?;
    conditions.iter().find(|it| it["type"] == kind && it["status"] == "True")
}

async fn accounts(convoy: &Convoy) -> Result<()> {
    let admin = convoy.admin();
    fixture::namespace(convoy, "fresh").await?;
    let path = "/api/v1/namespaces/fresh/serviceaccounts/default";
    let first = until(convoy, path, |status, _| status == 200).await?;
    admin.delete(path).await?.expect(200)?;
    let uid = first["metadata"]["uid"].clone();
    until(convoy, path, |status, body| status == 200 && body["metadata"]["uid"] != uid).await?;
    // A change of the namespace is no reason for another one.
    let second = admin.get(path).await?.expect(200)?;
    admin
        .patch("/api/v1/namespaces/fresh", MERGE, &json!({"metadata": {"labels": {"a": "b"}}}))
        .await?
        .expect(200)?;
    admin.delete("/api/v1/namespaces/fresh").await?;
    until_gone(convoy, "/api/v1/namespaces/fresh").await?;
    assert_eq!(admin.get(path).await?.status, 404, "{second}");
    Ok(())
}

#[tokio::test]
async fn every_namespace_gets_a_default_account_and_gets_it_back() -> Result<()> {
    accounts(&fixture::embedded().await).await
}

async fn fill(admin: &Client, namespace: &str) -> Result<()> {
    let root = format!("/api/v1/namespaces/{namespace}");
    for n in 0..20 {
        admin
            .post(&format!("{root}/configmaps"), &config_map(&format!("m-{n}"), "1", "red"))
            .await?
            .expect(201)?;
    }
    for fact in fixture::kinds() {
        let (kind, api_version) = (fact["kind"].as_str().unwrap(), fact["apiVersion"].as_str().unwrap());
        let mut object = fact["object"].clone();
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": format!("of-{}", kind.to_lowercase())});
        let top = if api_version.contains('/') { "apis" } else { "api" };
        let plural =
            if kind == "Ingress" { "ingresses".to_owned() } else { format!("{}s", kind.to_lowercase()) };
        admin
            .post(&format!("/{top}/{api_version}/namespaces/{namespace}/{plural}"), &object)
            .await?
            .expect(201)?;
    }
    Ok(())
}

async fn deletion(convoy: &Convoy) -> Result<()> {
    let admin = convoy.admin();
    for name in ["full", "kept"] {
        fixture::namespace(convoy, name).await?;
        fill(&admin, name).await?;
    }
    admin.delete("/api/v1/namespaces/full").await?;
    until_gone(convoy, "/api/v1/namespaces/full").await?;
    // Nothing of it is left under its name, and nothing of its neighbour is gone.
    fixture::namespace(convoy, "full").await?;
    let left = admin.get("/api/v1/namespaces/full/configmaps").await?.expect(200)?;
    let names: Vec<&str> = left["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["metadata"]["name"].as_str())
        .collect();
    assert!(names.iter().all(|it| *it == "kube-root-ca.crt"), "{names:?}");
    let kept = admin.get("/api/v1/namespaces/kept/configmaps").await?.expect(200)?;
    let is_ours = |it: &&Value| it["metadata"]["name"] != "kube-root-ca.crt";
    assert_eq!(kept["items"].as_array().map(|it| it.iter().filter(is_ours).count()), Some(21));
    Ok(())
}

#[tokio::test]
async fn a_deleted_namespace_is_emptied_and_goes_on_the_embedded_store() -> Result<()> {
    deletion(&fixture::embedded().await).await
}

#[tokio::test]
async fn a_deleted_namespace_is_emptied_and_goes_on_etcd() -> Result<()> {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return Ok(()) };
    deletion(&convoy).await
}

#[tokio::test]
async fn a_held_object_holds_its_namespace_and_no_other() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    for name in ["held", "free"] {
        fixture::namespace(&convoy, name).await?;
    }
    let mut held = config_map("held", "1", "red");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    admin.post("/api/v1/namespaces/held/configmaps", &held).await?.expect(201)?;
    admin.post("/api/v1/namespaces/held/configmaps", &config_map("loose", "1", "red")).await?.expect(201)?;
    admin.delete("/api/v1/namespaces/held").await?;
    let is_reported = |_, body: &Value| trouble(body, "NamespaceFinalizersRemaining").is_some();
    let namespace = until(&convoy, "/api/v1/namespaces/held", is_reported).await?;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let finalizers = trouble(&namespace, "NamespaceFinalizersRemaining").unwrap();
    assert_eq!(finalizers["reason"], "SomeFinalizersRemain");
    let message =
        "Some content in the namespace has finalizers remaining: example.org/hold in 1 resource instances";
    assert_eq!(finalizers["message"], message);
    let remaining = trouble(&namespace, "NamespaceContentRemaining").unwrap();
    assert_eq!(remaining["reason"], "SomeResourcesRemain");
    assert_eq!(remaining["message"], "Some resources are remaining: configmaps. has 1 resource instances");
    assert!(trouble(&namespace, "NamespaceDeletionDiscoveryFailure").is_none(), "{namespace}");
    assert!(trouble(&namespace, "NamespaceDeletionContentFailure").is_none(), "{namespace}");
    assert_eq!(admin.get("/api/v1/namespaces/held/configmaps/loose").await?.status, 404);

    admin.delete("/api/v1/namespaces/free").await?;
    until_gone(&convoy, "/api/v1/namespaces/free").await?;
    let path = "/api/v1/namespaces/held/configmaps/held";
    admin.get(path).await?.expect(200)?;
    admin.patch(path, MERGE, &json!({"metadata": {"finalizers": null}})).await?.expect(200)?;
    until_gone(&convoy, "/api/v1/namespaces/held").await
}

fn owned(name: &str, owner: &Value) -> Value {
    let mut map = config_map(name, "1", "red");
    map["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
    }]);
    map
}

/// An owner, a child and a grandchild, in `family`.
async fn family(admin: &Client, suffix: &str) -> Result<[String; 3]> {
    let maps = "/api/v1/namespaces/family/configmaps";
    let names = ["owner", "child", "grandchild"].map(|it| format!("{it}-{suffix}"));
    let owner = admin.post(maps, &config_map(&names[0], "1", "red")).await?.expect(201)?;
    let child = admin.post(maps, &owned(&names[1], &owner)).await?.expect(201)?;
    admin.post(maps, &owned(&names[2], &child)).await?.expect(201)?;
    Ok(names.map(|it| format!("{maps}/{it}")))
}

async fn garbage(convoy: &Convoy) -> Result<()> {
    let admin = convoy.admin();
    fixture::namespace(convoy, "family").await?;
    for policy in ["Background", "Foreground"] {
        let paths = family(&admin, &policy.to_lowercase()).await?;
        admin.delete(&format!("{}?propagationPolicy={policy}", paths[0])).await?.expect(200)?;
        for path in &paths {
            until_gone(convoy, path).await?;
        }
    }
    let [owner, child, grandchild] = family(&admin, "orphan").await?;
    admin.delete(&format!("{owner}?propagationPolicy=Orphan")).await?.expect(200)?;
    until_gone(convoy, &owner).await?;
    let left = admin.get(&child).await?.expect(200)?;
    assert_eq!(left["metadata"].get("ownerReferences"), None, "{left}");
    admin.get(&grandchild).await?.expect(200)?;
    Ok(())
}

#[tokio::test]
async fn dependents_go_or_stay_as_the_deletion_says_on_the_embedded_store() -> Result<()> {
    garbage(&fixture::embedded().await).await
}

#[tokio::test]
async fn dependents_go_or_stay_as_the_deletion_says_on_etcd() -> Result<()> {
    let Some((_etcd, convoy)) = fixture::on_etcd().await else { return Ok(()) };
    garbage(&convoy).await
}

/// The owner is gone before the dependent is made, so no watch ever shows it.
#[tokio::test]
async fn what_is_made_for_an_owner_that_is_gone_goes() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    fixture::namespace(&convoy, "late").await?;
    let maps = "/api/v1/namespaces/late/configmaps";
    let owner = admin.post(maps, &config_map("owner", "1", "red")).await?.expect(201)?;
    admin.delete(&format!("{maps}/owner")).await?.expect(200)?;
    admin.post(maps, &owned("child", &owner)).await?.expect(201)?;
    until_gone(&convoy, &format!("{maps}/child")).await
}

#[tokio::test]
async fn every_namespace_knows_its_servers_authority() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    fixture::namespace(&convoy, "trusting").await?;
    let path = "/api/v1/namespaces/trusting/configmaps/kube-root-ca.crt";
    let is_right = |status: u16, body: &Value| {
        status == 200
            && body["data"]["ca.crt"].as_str().is_some_and(|it| it.starts_with("-----BEGIN CERTIFICATE"))
    };
    until(&convoy, path, is_right).await?;
    admin.patch(path, MERGE, &json!({"data": {"ca.crt": "nonsense"}})).await?.expect(200)?;
    until(&convoy, path, is_right).await?;
    admin.delete(path).await?.expect(200)?;
    until(&convoy, path, is_right).await.map(drop)
}

#[tokio::test]
async fn tokens_of_an_account_that_is_gone_go() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    fixture::namespace(&convoy, "robots").await?;
    let root = "/api/v1/namespaces/robots";
    let accounts = format!("{root}/serviceaccounts");
    for name in ["one", "two"] {
        admin.post(&accounts, &json!({"metadata": {"name": name}})).await?.expect(201)?;
        let secret = json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": name}},
            "type": "kubernetes.io/service-account-token",
        });
        admin.post(&format!("{root}/secrets"), &secret).await?.expect(201)?;
    }
    admin.delete(&format!("{accounts}/one")).await?.expect(200)?;
    until_gone(&convoy, &format!("{root}/secrets/one")).await?;
    admin.get(&format!("{root}/secrets/two")).await?.expect(200)?;
    Ok(())
}

/// Taken at once, and given back on a stop: nobody has to wait for it to expire.
#[tokio::test]
async fn controllers_hold_a_lease_and_say_so() -> Result<()> {
    let convoy = fixture::embedded().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/convoy-controllers";
    let lease = until(&convoy, path, |status, _| status == 200).await?;
    assert!(lease["spec"]["holderIdentity"].as_str().is_some_and(|it| !it.is_empty()), "{lease}");
    assert_eq!(
        (&lease["spec"]["leaseDurationSeconds"], &lease["spec"]["leaseTransitions"]),
        (&json!(15), &json!(0))
    );
    let is_announced = |_, body: &Value| {
        let events = body["items"].as_array();
        events.is_some_and(|it| it.iter().any(|it| it["reason"] == "LeaderElection"))
    };
    until(&convoy, "/api/v1/namespaces/kube-system/events", is_announced).await.map(drop)
}

/// A definition of a kind without a schema to speak of.
fn definition(plural: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.many.example")},
        "spec": {
            "group": "many.example", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Ten built-in kinds and forty that users define, about a thousand objects.
#[tokio::test]
async fn a_namespace_with_a_thousand_objects_of_fifty_kinds_goes() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    fixture::namespace(&convoy, "large").await?;
    fill(&admin, "large").await?;
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for n in 0..40 {
        admin.post(crds, &definition(&format!("kinds{n}"), &format!("Kind{n}"))).await?.expect(201)?;
    }
    for n in 0..40 {
        let is_established = |_, crd: &Value| {
            let conditions = crd["status"]["conditions"].as_array();
            conditions
                .is_some_and(|it| it.iter().any(|it| it["type"] == "Established" && it["status"] == "True"))
        };
        until(&convoy, &format!("{crds}/kinds{n}.many.example"), is_established).await?;
        let path = format!("/apis/many.example/v1/namespaces/large/kinds{n}");
        for at in 0..24 {
            let object = json!({
                "apiVersion": "many.example/v1", "kind": format!("Kind{n}"), "metadata": {"name": format!("n-{at}")},
            });
            admin.post(&path, &object).await?.expect(201)?;
        }
    }
    let begin = tokio::time::Instant::now();
    admin.delete("/api/v1/namespaces/large").await?;
    until_gone(&convoy, "/api/v1/namespaces/large").await?;
    testkit::tools::report(&format!(
        "a namespace with 960 custom and 30 other objects went in {:?}",
        begin.elapsed()
    ));
    let left = admin.get("/apis/many.example/v1/kinds7").await?.expect(200)?;
    assert_eq!(left["items"], json!([]));
    Ok(())
}

#[tokio::test]
async fn aggregated_roles_follow_labels() -> Result<()> {
    let convoy = fixture::embedded().await;
    let admin = convoy.admin();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let role = |name: &str, extra: Value| {
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"});
        role["metadata"] = json!({"name": name});
        for (field, value) in extra.as_object().unwrap() {
            role[field] = value.clone();
        }
        role
    };
    let rules = json!([{"apiGroups": ["example.org"], "resources": ["widgets"], "verbs": ["get", "list"]}]);
    let selectors = json!({"clusterRoleSelectors": [{"matchLabels": {"example.org/part": "yes"}}]});
    admin.post(roles, &role("whole", json!({"aggregationRule": selectors}))).await?.expect(201)?;
    admin.post(roles, &role("part", json!({"rules": rules}))).await?.expect(201)?;

    let part = format!("{roles}/part");
    let labels = json!({"metadata": {"labels": {
        "example.org/part": "yes", "rbac.authorization.k8s.io/aggregate-to-view": "true",
    }}});
    admin.patch(&part, MERGE, &labels).await?.expect(200)?;
    until(&convoy, &format!("{roles}/whole"), |_, body| body["rules"] == rules).await?;
    // `view` feeds `edit`, and that feeds `admin`.
    let has_part = |_, body: &Value| body["rules"].as_array().is_some_and(|it| it.contains(&rules[0]));
    for name in ["view", "edit", "admin"] {
        until(&convoy, &format!("{roles}/{name}"), has_part).await?;
    }
    admin.patch(&part, MERGE, &json!({"metadata": {"labels": null}})).await?.expect(200)?;
    let is_empty = |_, body: &Value| body["rules"].as_array().is_none_or(Vec::is_empty);
    until(&convoy, &format!("{roles}/whole"), is_empty).await?;
    for name in ["view", "edit", "admin"] {
        until(&convoy, &format!("{roles}/{name}"), |status, body| !has_part(status, body)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn controllers_that_are_switched_off_do_nothing() -> Result<()> {
    let convoy = Convoy::start(Options::embedded(BINARY).flag("--controllers=*,-namespace")).await?;
    let admin = convoy.admin();
    fixture::namespace(&convoy, "stays").await?;
    let path = "/api/v1/namespaces/stays";
    until(&convoy, &format!("{path}/serviceaccounts/default"), |status, _| status == 200).await?;
    admin.delete(path).await?;
    fixture::namespace(&convoy, "later").await?;
    until(&convoy, "/api/v1/namespaces/later/serviceaccounts/default", |status, _| status == 200).await?;
    let stays = admin.get(path).await?.expect(200)?;
    assert_eq!(stays["spec"]["finalizers"], json!(["kubernetes"]));
    admin.get(&format!("{path}/serviceaccounts/default")).await?.expect(200)?;
    Ok(())
}
