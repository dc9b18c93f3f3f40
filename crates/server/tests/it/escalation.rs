//! Rights that change while somebody hands them on, and servers that do not hear of it.

use std::time::Duration;

use meta::Release;
use serde_json::{Value, json};
use store::{
    MemoryStore, SharedStore, SystemClock,
    fault::{Cut, FaultStore, Faults},
};

use crate::harness::{MAPS, TestServer};

const USER: (&str, &str) = ("authorization", "Bearer usertoken");
const GROUP: &str = "rbac.authorization.k8s.io";

fn path(resource: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/{resource}")
}

fn role(name: &str, resources: &[&str]) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": resources, "verbs": ["get"]}]})
}

fn binding(name: &str, role: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "Role", "name": role},
        "subjects": [{"kind": "User", "name": "user", "apiGroup": GROUP}]})
}

/// Two servers on one store, of which the second can be held up. The user may write roles and bindings in `default`, and
/// read config maps, by two roles.
async fn two() -> (TestServer, TestServer, Faults) {
    let inner = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let (held, faults) = FaultStore::new(inner.clone(), SystemClock::shared());
    let first = TestServer::start_on(inner, Release::v1(36), |_| {}).await;
    let second = TestServer::start_on(SharedStore::new(held), Release::v1(36), |_| {}).await;
    let writer = json!({"metadata": {"name": "writer"}, "rules": [{"apiGroups": [GROUP],
        "resources": ["roles", "rolebindings"], "verbs": ["create", "get", "update", "patch"]}]});
    first.post(&path("roles"), writer).await.expect(201);
    first.post(&path("roles"), role("reader", &["configmaps"])).await.expect(201);
    for name in ["writer", "reader"] {
        first.post(&path("rolebindings"), binding(name, name)).await.expect(201);
    }
    first.post(&path("roles"), role("small", &["configmaps"])).await.expect(201);
    let own = path("roles/small");
    while second.send("GET", &own, &[USER], Value::Null).await.code != 200
        || second.send("GET", MAPS, &[USER], Value::Null).await.code == 200
        || second.send("GET", &format!("{MAPS}/x"), &[USER], Value::Null).await.code != 404
    {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (first, second, faults)
}

/// The second server has decided and not yet committed when the first one changes what it decided on.
async fn meanwhile(
    second: &TestServer,
    faults: &Faults,
    (method, at, body): (&str, &str, Value),
    change: impl Future<Output = ()>,
) -> crate::harness::Answered {
    faults.pause_at_next_commit();
    let (answered, ()) = tokio::join!(second.send(method, at, &[USER], body), async {
        faults.wait_until_paused().await;
        change.await;
        faults.resume();
    });
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_grew_is_not_bound_by_somebody_who_holds_less() {
    let (first, second, faults) = two().await;
    let bindings = path("rolebindings");
    let grow = async {
        let grown = json!([{"op": "add", "path": "/rules/0/resources/-", "value": "secrets"}]);
        first.patch(&path("roles/small"), "json", grown).await.expect(200);
    };
    let answered = meanwhile(&second, &faults, ("POST", &bindings, binding("more", "small")), grow).await;
    assert!(
        answered.expect(403).message().contains("attempting to grant RBAC permissions not currently held")
    );
    first.get(&format!("{bindings}/more")).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_were_taken_away_are_not_handed_on() {
    let mut narrowed = role("small", &["configmaps"]);
    narrowed["rules"][0]["resourceNames"] = json!(["a"]);
    for (method, at, body) in [
        ("POST", path("rolebindings"), binding("more", "small")),
        ("POST", path("roles"), role("more", &["configmaps"])),
        ("PUT", path("roles/small"), narrowed),
    ] {
        let (first, second, faults) = two().await;
        let revoke = async {
            first.ask("DELETE", &path("rolebindings/reader"), Value::Null).await.expect(200);
        };
        let answered = meanwhile(&second, &faults, (method, &at, body), revoke).await;
        assert!(answered.expect(403).message().contains("attempting to grant"), "{method} {at}");
    }
}

/// What does not touch the justification does not stand in the way of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_is_written_anew_and_still_gives_enough_justifies_the_write() {
    let (first, second, faults) = two().await;
    let touch = async {
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        first.patch(&path("roles/reader"), "merge", label).await.expect(200);
    };
    let body = binding("more", "small");
    meanwhile(&second, &faults, ("POST", &path("rolebindings"), body), touch).await.expect(201);
}

/// Rights may have been taken away since it last heard of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_cut_off_decides_nothing_by_what_it_remembers() {
    let inner = SharedStore::new(MemoryStore::new(SystemClock::shared()));
    let (cut, faults) = FaultStore::new(inner, SystemClock::shared());
    let server = TestServer::start_on(SharedStore::new(cut), Release::v1(36), |settings| {
        settings.fleet.lease = Duration::from_millis(300);
    })
    .await;
    let reader = json!({"metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    server.post(&path("roles"), reader).await.expect(201);
    server.post(&path("rolebindings"), binding("reader", "reader")).await.expect(201);
    // The user may also act as an administrator, which must end with everything else.
    let everyone = json!({"metadata": {"name": "everyone"}, "rules": [
        {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]});
    server.post(&format!("/apis/{GROUP}/v1/clusterroles"), everyone).await.expect(201);
    let to_user = json!({"metadata": {"name": "everyone"}, "subjects": [{"kind": "User", "name": "user"}],
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "everyone"}});
    server.post(&format!("/apis/{GROUP}/v1/clusterrolebindings"), to_user).await.expect(201);
    // Any state will do, so that the store is not asked.
    let cached = format!("{MAPS}?resourceVersion=0");
    let code = async || server.send("GET", &cached, &[USER], Value::Null).await.code;
    let until = async |wanted: u16| {
        for _ in 0..6_000 {
            if code().await == wanted {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        false
    };
    assert!(until(200).await);
    let as_master = [USER, ("impersonate-user", "x"), ("impersonate-group", "system:masters")];
    while server.send("GET", &cached, &as_master, Value::Null).await.code != 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    faults.cut(Cut::Unsent);
    assert!(until(503).await, "it went on with what it remembered");
    let answered = server.send("GET", &cached, &[USER], Value::Null).await.expect(503);
    assert!(answered.headers.contains_key("retry-after"));
    server.send("GET", &cached, &as_master, Value::Null).await.expect(503);
    server.get(&cached).await.expect(200); // those who are administrators themselves
    let review = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "default"}}});
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    server.post(reviews, review).await.expect(503);
    server.send("GET", "/livez", &[], Value::Null).await;
    faults.heal();
    assert!(until(200).await, "it did not come back");
}
