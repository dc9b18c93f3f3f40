//! A namespace ends while somebody is held up: in the middle of emptying it, or of creating something in it.

use serde_json::{Value, json};
use store::Change;

use super::{
    gate::{Gate, Gated},
    scene::{Scene, gone},
};
use crate::fleet::{
    ground::{Ground, Ship, ask, eventually},
    on_both_stores,
};

on_both_stores!(
    a_namespace_that_is_forced_to_go_and_made_anew_keeps_its_new_content,
    a_leader_that_was_suspended_spares_the_next_namespace,
    a_create_that_arrives_after_its_namespace_went_is_refused,
    a_create_that_arrives_in_the_next_namespace_of_that_name_is_refused,
    a_create_that_arrives_while_its_namespace_goes_is_refused,
);

const WORK: &str = "namespace,storage-version-gc";
const REST: &str = "storage-version-gc";
const TENANT: &str = "/api/v1/namespaces/tenant";
const PODS: &str = "/registry/pods/tenant/";
const MAPS: &str = "/registry/configmaps/tenant/";
/// What those hold who run the controllers.
const LEADER: &str = "/registry/leases/kube-system/convoy-controllers";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/convoy-controllers";

async fn launch(scene: &Scene, name: &str, controllers: &str) -> (Ship, Gate) {
    let (store, gate) = Gated::over(scene.ground.store.clone());
    (scene.ground.launch_over(store, name, controllers, &[]).await, gate)
}

/// A namespace with a pod in it: pods are what is removed first.
async fn namespace_with_pod(scene: &Scene, ship: &Ship) -> Value {
    let namespace = scene.namespace(ship, "tenant").await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    scene.create(ship, &format!("{TENANT}/serviceaccounts"), account).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    scene.create(ship, &format!("{TENANT}/pods"), pod).await;
    namespace
}

/// Content of several kinds, each with where it is stored.
async fn fill(scene: &Scene, ship: &Ship) -> Vec<String> {
    let contents = [
        ("/api/v1/namespaces/tenant/configmaps", "v1", "ConfigMap"),
        ("/api/v1/namespaces/tenant/secrets", "v1", "Secret"),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/roles",
            "rbac.authorization.k8s.io/v1",
            "Role",
        ),
        ("/apis/coordination.k8s.io/v1/namespaces/tenant/leases", "coordination.k8s.io/v1", "Lease"),
    ];
    let mut stored = Vec::new();
    for (path, api_version, kind) in contents {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "new"}});
        scene.create(ship, path, object).await;
        stored.push(super::scene::key(path, "new")["/registry/".len()..].to_owned());
    }
    stored
}

/// The controller removes pods first and then the rest. It is held up with a pod in hand; meanwhile the namespace is
/// forced to go and made anew, and everything that comes next in the pass is somebody else's.
async fn a_namespace_that_is_forced_to_go_and_made_anew_keeps_its_new_content(ground: Ground) {
    let scene = Scene::on(ground);
    let (worker, gate) = launch(&scene, "worker", WORK).await;
    let first = namespace_with_pod(&scene, &worker).await;
    gate.hold_deletes(PODS);
    scene.delete(&worker, TENANT, &first).await;
    gate.wait_until_held(1).await;
    scene.force(&worker, &first).await;
    gone(&worker, TENANT).await;
    scene.namespace(&worker, "tenant").await;
    let content = fill(&scene, &worker).await;
    gate.open();
    scene.stay("/registry/", &content).await;
    let found = worker.get(TENANT).await;
    assert_eq!(found["status"]["phase"], "Active", "{found}");
    scene.judge().await;
}

/// A leader whose machine was suspended goes on where it was: its own clock tells it that no time has passed. Meanwhile
/// another one has taken over and finished what it was about.
async fn a_leader_that_was_suspended_spares_the_next_namespace(ground: Ground) {
    let scene = Scene::on(ground);
    let (leader, leader_gate) = launch(&scene, "leader", WORK).await;
    eventually("somebody leads", async || scene.stored(LEADER).await.len() == 1).await;
    let (other, other_gate) = launch(&scene, "other", WORK).await;
    let first = namespace_with_pod(&scene, &other).await;
    leader_gate.hold_deletes(PODS);
    other_gate.hold_deletes(PODS);
    scene.delete(&other, TENANT, &first).await;
    leader_gate.wait_until_held(1).await;
    // From now on it does not renew its lease either, and does not know it yet.
    leader_gate.hold(|it| match it {
        Change::Delete(key) => key.as_str().starts_with(PODS),
        Change::Put(key, ..) => key.as_str() == LEADER,
    });
    // Its lease has ended: nobody holds it.
    let freed = json!({"spec": {"holderIdentity": ""}});
    other.expect(200, "PATCH", LEASE, freed).await;
    other_gate.wait_until_held(1).await;
    other_gate.open();
    gone(&other, TENANT).await;
    scene.namespace(&other, "tenant").await;
    let content = fill(&scene, &other).await;
    // It goes on where it was, and has no reason yet to renew its lease.
    leader_gate.hold_puts(LEADER);
    scene.stay("/registry/", &content).await;
    leader_gate.open();
    scene.judge().await;
    drop(leader);
}

/// A create that was admitted and is under way.
struct UnderWay {
    scene: Scene,
    first: Value,
    late: Ship,
    worker: Ship,
    gate: Gate,
    create: tokio::task::JoinHandle<(u16, Value)>,
}

impl UnderWay {
    async fn start(ground: Ground) -> Self {
        let scene = Scene::on(ground);
        let (late, gate) = launch(&scene, "late", REST).await;
        let (worker, _) = launch(&scene, "worker", WORK).await;
        let first = scene.namespace(&worker, "tenant").await;
        gate.hold_puts(MAPS);
        let (client, path) = (late.server.client(), format!("{TENANT}/configmaps"));
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
        let create = tokio::spawn(async move { ask(&client, "POST", &path, object).await });
        gate.wait_until_held(1).await;
        Self { scene, first, late, worker, gate, create }
    }

    async fn end_namespace(&self) {
        self.scene.delete(&self.worker, TENANT, &self.first).await;
        gone(&self.worker, TENANT).await;
    }

    /// It arrives, and is refused.
    async fn end_in_refusal(self) {
        self.gate.open();
        let (code, answer) = self.create.await.unwrap();
        let stored = self.scene.stored(MAPS).await;
        assert!(!stored.contains(&"late".to_owned()), "{code} {answer}: it is stored: {stored:?}");
        assert!(matches!(code, 403 | 404 | 409), "{code} {answer}");
        self.scene.judge().await;
        drop(self.late);
    }
}

async fn a_create_that_arrives_after_its_namespace_went_is_refused(ground: Ground) {
    let under_way = UnderWay::start(ground).await;
    under_way.end_namespace().await;
    under_way.end_in_refusal().await;
}

async fn a_create_that_arrives_in_the_next_namespace_of_that_name_is_refused(ground: Ground) {
    let under_way = UnderWay::start(ground).await;
    under_way.end_namespace().await;
    under_way.scene.namespace(&under_way.worker, "tenant").await;
    under_way.end_in_refusal().await;
}

/// The namespace is marked and held by what is still in it.
async fn a_create_that_arrives_while_its_namespace_goes_is_refused(ground: Ground) {
    let under_way = UnderWay::start(ground).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "held", "finalizers": ["example.com/held"]}});
    under_way.scene.create(&under_way.worker, &format!("{TENANT}/secrets"), secret).await;
    under_way.scene.delete(&under_way.worker, TENANT, &under_way.first).await;
    under_way.end_in_refusal().await;
}
