//! The Lease of every server: who publishes one, and which of them are removed (ID-1 to ID-3).

use serde_json::{Value, json};

use super::{
    ground::{Ground, Ship, eventually},
    on_both_stores,
};

const IDENTITY: &str = "apiserver.kubernetes.io/identity";
const OFF: &str = "--feature-gates=APIServerIdentity=false";

on_both_stores!(
    a_server_that_starts_anew_renews_its_lease,
    only_expired_leases_of_servers_are_removed,
    leases_are_switched_off_server_by_server,
);

fn path(namespace: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases")
}

/// The Leases with the label, by name.
pub async fn identities(ship: &Ship) -> Vec<Value> {
    let path =
        format!("{}?labelSelector=apiserver.kubernetes.io%2Fidentity%3Dkube-apiserver", path("kube-system"));
    ship.get(&path).await["items"].take().as_array().cloned().unwrap()
}

/// ID-1 and ID-3: exactly one Lease; after a restart the same name, another holder, a later time, and still one.
async fn a_server_that_starts_anew_renews_its_lease(ground: Ground) {
    let ship = ground.launch("node-1", 36).await;
    eventually("the Lease is there", async || identities(&ship).await.len() == 1).await;
    let before = identities(&ship).await.remove(0);
    assert_eq!(before["metadata"]["name"], "apiserver-lgabes5ywnaqeagh5dny4zlzs4");
    // Also after a crash, when nobody removed it.
    ship.server.crash();
    let ship = ground.launch("node-1", 36).await;
    let text = |it: &Value, field: &str| it["spec"][field].as_str().unwrap_or_default().to_owned();
    eventually("it has another holder", async || {
        let leases = identities(&ship).await;
        leases.len() == 1 && text(&leases[0], "holderIdentity") != text(&before, "holderIdentity")
    })
    .await;
    let after = identities(&ship).await.remove(0);
    assert_eq!(after["metadata"]["name"], before["metadata"]["name"]);
    // Both have the same form, so that texts compare as times do.
    assert!(text(&after, "renewTime") > text(&before, "renewTime"), "{before} {after}");
}

/// ID-2: of Leases that people made, those go that are labelled, in kube-system, and have expired.
async fn only_expired_leases_of_servers_are_removed(ground: Ground) {
    let ship = ground.launch("a", 36).await;
    let lease = |name: &str, is_labelled: bool, renewed: &str| {
        let labels = if is_labelled { json!({IDENTITY: "kube-apiserver"}) } else { json!({}) };
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "labels": labels},
            "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 1, "renewTime": renewed}})
    };
    let (past, future) = ("2020-01-01T00:00:00.000000Z", "2100-01-01T00:00:00.000000Z");
    let never = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "never-renewed", "labels": {IDENTITY: "kube-apiserver"}}, "spec": {}});
    for (namespace, object) in [
        ("kube-system", lease("expired", true, past)),
        ("kube-system", never),
        ("kube-system", lease("fresh", true, future)),
        ("kube-system", lease("not-labelled", false, past)),
        ("default", lease("elsewhere", true, past)),
    ] {
        ship.expect(201, "POST", &path(namespace), object).await;
    }
    // They are looked at now and then, and whenever a server comes or goes.
    let other = ground.launch("b", 36).await;
    let is_there = async |namespace: &str, name: &str| {
        ship.ask("GET", &format!("{}/{name}", path(namespace)), Value::Null).await.0 == 200
    };
    for name in ["expired", "never-renewed"] {
        eventually("what has expired goes", async || !is_there("kube-system", name).await).await;
    }
    for (namespace, name) in
        [("kube-system", "fresh"), ("kube-system", "not-labelled"), ("default", "elsewhere")]
    {
        assert!(is_there(namespace, name).await, "{namespace}/{name}");
    }
    eventually("the Leases of the two stay", async || identities(&ship).await.len() == 3).await;
    drop(other);
}

/// The gate off on one server after the other: Leases of servers that have it on come and go as before, also when the
/// eldest has it off.
async fn leases_are_switched_off_server_by_server(ground: Ground) {
    let eldest = ground.launch_with("eldest", 36, &[OFF]).await;
    let (stops, dies) = (ground.launch("stops", 36).await, ground.launch("dies", 36).await);
    eventually("two have a Lease", async || identities(&eldest).await.len() == 2).await;
    assert_eq!(eldest.n_members(), 3);
    dies.server.crash();
    eventually("the Lease of the dead goes", async || identities(&eldest).await.len() == 1).await;
    stops.server.stop().await;
    eventually("that of the other goes, too", async || identities(&eldest).await.is_empty()).await;
    // It comes back without one, and nothing else depends on it.
    let stops = ground.launch_with("stops", 36, &[OFF]).await;
    eventually("both are members", async || eldest.n_members() == 2 && stops.n_members() == 2).await;
    assert_eq!(identities(&eldest).await, Vec::<Value>::new());
    stops.expect(201, "POST", super::ground::MAPS, super::ground::map("m")).await;
}
