//! CREATE, UPDATE, PATCH.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use server::{body::BoxError, listen::Peer};
use tokio::sync::oneshot;

use crate::harness::{MAPS, TestServer, config_map};

#[tokio::test]
async fn a_created_object_can_be_read_back_with_everything_the_server_adds() {
    let server = TestServer::start().await;
    let created = server.post(MAPS, config_map("a")).await.expect(201).json();
    let read = server.get(&format!("{MAPS}/a")).await.expect(200).json();
    assert_eq!(created, read);
    for field in ["uid", "creationTimestamp", "resourceVersion", "namespace"] {
        assert!(read["metadata"][field].is_string(), "{field}: {read}");
    }
    assert_eq!(read["data"], json!({"k": "v"}));
    let again = server.post(MAPS, config_map("a")).await.expect(409);
    assert_eq!(again.message(), "configmaps \"a\" already exists");
}

#[tokio::test]
async fn names_are_made_up_on_request() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"generateName": "x-"}});
    let name =
        server.post(MAPS, body).await.expect(201).json()["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(name.starts_with("x-") && name.len() == 7, "{name}");
    let missing = server.post(MAPS, json!({"metadata": {}})).await.expect(422);
    assert_eq!(
        missing.message(),
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[tokio::test]
async fn namespaces_of_path_and_body_must_agree_and_exist() {
    let server = TestServer::start().await;
    let mut map = config_map("a");
    map["metadata"]["namespace"] = "other".into();
    server.post(MAPS, map).await.expect(400);
    let nowhere = server.post("/api/v1/namespaces/nowhere/configmaps", config_map("a")).await.expect(404);
    assert_eq!(nowhere.message(), "namespaces \"nowhere\" not found");
}

#[tokio::test]
async fn a_put_with_a_stale_resource_version_loses() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    let first = server.post(MAPS, config_map("a")).await.expect(201).json();
    let mut second = first.clone();
    second["data"]["k"] = "2".into();
    let second = server.ask("PUT", &path, second).await.expect(200).json();
    assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
    let stale = server.ask("PUT", &path, first).await.expect(409);
    assert_eq!(
        stale.message(),
        "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
    let unconditional = server.ask("PUT", &path, config_map("a")).await.expect(200).json();
    assert_eq!(unconditional["data"]["k"], "v");
    assert_eq!(unconditional["metadata"]["uid"], second["metadata"]["uid"]);
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_resource_version() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    let first = server.post(MAPS, config_map("a")).await.expect(201).json();
    let same = server.ask("PUT", &path, config_map("a")).await.expect(200).json();
    assert_eq!(first, same);
    let same = server.patch(&path, "merge", json!({"data": {"k": "v"}})).await.expect(200).json();
    assert_eq!(first, same);
}

#[tokio::test]
async fn wrong_names_uids_and_missing_objects_are_refused() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    server.ask("PUT", &path, config_map("a")).await.expect(404);
    server.post(MAPS, config_map("a")).await.expect(201);
    let wrong = server.ask("PUT", &path, config_map("b")).await.expect(400);
    assert_eq!(wrong.message(), "the name of the object (b) does not match the name on the URL (a)");
    let mut other = config_map("a");
    other["metadata"]["uid"] = "nope".into();
    let refused = server.ask("PUT", &path, other).await.expect(409);
    assert!(
        refused.message().contains("Precondition failed: UID in precondition: nope"),
        "{}",
        refused.message()
    );
}

#[tokio::test]
async fn patches_change_what_they_name() {
    let server = TestServer::start().await;
    let path = format!("{MAPS}/a");
    server.post(MAPS, config_map("a")).await.expect(201);
    let merged =
        server.patch(&path, "merge", json!({"data": {"n": "1", "k": null}})).await.expect(200).json();
    assert_eq!(merged["data"], json!({"n": "1"}));
    let operations = json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}]);
    let patched = server.patch(&path, "json", operations).await.expect(200).json();
    assert_eq!(patched["metadata"]["labels"], json!({"x": "y"}));
    server.patch(&path, "json", json!([{"op": "test", "path": "/data/n", "value": "2"}])).await.expect(422);
    server.patch(&path, "json", json!({"op": "add"})).await.expect(400);
    server.patch(&path, "other", json!({})).await.expect(415);
    server.patch(&format!("{MAPS}/none"), "merge", json!({})).await.expect(404);
    let renamed = json!([{"op": "replace", "path": "/metadata/name", "value": "q"}]);
    server.patch(&path, "json", renamed).await.expect(400);
    let stale = json!({"metadata": {"resourceVersion": "1"}});
    server.patch(&path, "merge", stale).await.expect(409);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let server = TestServer::start().await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let template =
        json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template});
    let body = json!({"metadata": {"name": "d"}, "spec": spec, "status": {"replicas": 9}});
    let created = server.post(all, body).await.expect(201).json();
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["status"], json!({}), "{created}");
    let path = format!("{all}/d");
    let status = json!({"status": {"replicas": 3}, "spec": {"replicas": 7}});
    let changed = server.patch(&format!("{path}/status"), "merge", status).await.expect(200).json();
    assert_eq!((&changed["status"]["replicas"], &changed["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(changed["metadata"]["generation"], 1);
    let spec = json!({"status": {"replicas": 5}, "spec": {"replicas": 2}});
    let changed = server.patch(&path, "merge", spec).await.expect(200).json();
    assert_eq!((&changed["status"]["replicas"], &changed["spec"]["replicas"]), (&json!(3), &json!(2)));
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = TestServer::start().await;
    server.post(&format!("{MAPS}?dryRun=All"), config_map("a")).await.expect(201);
    server.get(&format!("{MAPS}/a")).await.expect(404);
    server.post(&format!("{MAPS}?dryRun=Some"), config_map("a")).await.expect(422);
}

#[tokio::test]
async fn secrets_take_plain_text() {
    let server = TestServer::start().await;
    let body = json!({"metadata": {"name": "s"}, "stringData": {"a": "hello"}});
    let created = server.post("/api/v1/namespaces/default/secrets", body).await.expect(201).json();
    assert_eq!(created["data"]["a"], "aGVsbG8=");
    assert_eq!(created["type"], "Opaque");
    assert!(created.get("stringData").is_none());
}

#[tokio::test]
async fn what_is_not_enforced_never_passes_silently() {
    let server = TestServer::start().await;
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}});
    let refused = server.post("/api/v1/namespaces/default/resourcequotas", quota).await.expect(403);
    assert!(refused.message().contains("--allow-unenforced-policies"), "{}", refused.message());
    let policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}}});
    let path = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let warned = server.post(path, policy).await.expect(201);
    assert!(warned.headers["warning"].to_str().unwrap().contains("not enforced"));
}

#[tokio::test]
async fn racing_writers_lose_no_update() {
    let server = Arc::new(TestServer::start().await);
    server.post(MAPS, json!({"metadata": {"name": "n"}, "data": {}})).await.expect(201);
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..8 {
        let server = server.clone();
        writers.spawn(async move {
            for n in 0..25 {
                let key = format!("w{writer}-{n}");
                server.patch(&format!("{MAPS}/n"), "merge", json!({"data": {key: "x"}})).await.expect(200);
            }
        });
    }
    writers.join_all().await;
    let data = server.get(&format!("{MAPS}/n")).await.json()["data"].as_object().unwrap().len();
    assert_eq!(data, 200);
}

#[tokio::test]
async fn a_workload_is_scaled_through_its_scale() {
    let server = TestServer::start().await;
    let all = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"matchLabels": {"app": "d"}});
    let template =
        json!({"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let body =
        json!({"metadata": {"name": "d"}, "spec": {"replicas": 1, "selector": labels, "template": template}});
    server.post(all, body).await.expect(201);
    let scale = server.get(&format!("{all}/d/scale")).await.expect(200).json();
    assert_eq!(scale["kind"], "Scale");
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["selector"]), (&json!(1), &json!("app=d")));
    let scaled =
        server.patch(&format!("{all}/d/scale"), "merge", json!({"spec": {"replicas": 3}})).await.expect(200);
    assert_eq!(scaled.json()["spec"]["replicas"], 3);
    let workload = server.get(&format!("{all}/d")).await.json();
    assert_eq!((&workload["spec"]["replicas"], &workload["metadata"]["generation"]), (&json!(3), &json!(2)));
    let mut stale = scale;
    stale["spec"]["replicas"] = json!(9);
    server.ask("PUT", &format!("{all}/d/scale"), stale).await.expect(409);
    server.patch(&format!("{all}/d/scale"), "merge", json!({"spec": {"replicas": -1}})).await.expect(422);
    server.get(&format!("{all}/none/scale")).await.expect(404);
}

#[tokio::test]
async fn one_answer_says_everything_that_is_wrong_and_nothing_is_written() {
    let server = TestServer::start().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let bad = json!({
        "metadata": {"name": "l", "labels": {"a": "-"}},
        "spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1},
    });
    let refused = server.post(leases, bad).await.expect(422).json();
    let causes = refused["details"]["causes"].as_array().unwrap();
    let fields: Vec<&str> = causes.iter().filter_map(|it| it["field"].as_str()).collect();
    assert_eq!(fields, ["metadata.labels", "spec.leaseDurationSeconds", "spec.leaseTransitions"]);
    assert_eq!(refused["details"]["group"], "coordination.k8s.io");
    server.get(&format!("{leases}/l")).await.expect(404);

    let fine = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 1}});
    let before = server.post(leases, fine).await.expect(201).json();
    let mut worse = before.clone();
    worse["spec"]["leaseDurationSeconds"] = json!(-1);
    let refused = server.ask("PUT", &format!("{leases}/l"), worse).await.expect(422);
    assert_eq!(
        refused.message(),
        "Lease.coordination.k8s.io \"l\" is invalid: spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0"
    );
    assert_eq!(server.get(&format!("{leases}/l")).await.expect(200).json(), before);
}

/// An administrator's access to devices that others use is for namespaces that an administrator labelled.
#[tokio::test]
async fn claims_with_admin_access_need_a_labelled_namespace() {
    let server = TestServer::start().await;
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true}});
    let devices = json!({"devices": {"requests": [request]}});
    let claim = json!({"metadata": {"name": "a"}, "spec": devices});
    let template = json!({"metadata": {"name": "a"}, "spec": {"spec": devices}});
    let path = "/apis/resource.k8s.io/v1/namespaces/default";
    for (resource, object, field) in
        [("resourceclaims", &claim, "spec"), ("resourceclaimtemplates", &template, "spec.spec")]
    {
        let refused = server.post(&format!("{path}/{resource}"), object.clone()).await.expect(422);
        let wanted = format!(
            "{field}.devices.requests[0].exactly.adminAccess: Forbidden: admin access to devices requires the \
             `resource.kubernetes.io/admin-access: true` label on the containing namespace"
        );
        assert!(refused.message().contains(&wanted), "{}", refused.message());
    }
    let label = json!({"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}});
    server.patch("/api/v1/namespaces/default", "merge", label).await.expect(200);
    server.post(&format!("{path}/resourceclaims"), claim).await.expect(201);
    server.post(&format!("{path}/resourceclaimtemplates"), template).await.expect(201);
}

#[tokio::test]
async fn a_namespace_that_relies_on_pod_security_is_warned_about() {
    let server = TestServer::start().await;
    let warned = |answered: &crate::harness::Answered| {
        answered.headers.get_all("warning").iter().any(|it| {
            String::from_utf8_lossy(it.as_bytes()).contains("pod-security.kubernetes.io/enforce=restricted")
        })
    };
    let namespace = |level: &str| json!({"metadata": {"name": level, "labels": {"pod-security.kubernetes.io/enforce": level}}});
    let made = server.post("/api/v1/namespaces", namespace("restricted")).await.expect(201);
    assert!(warned(&made), "{:?}", made.headers);
    let open = server.post("/api/v1/namespaces", namespace("privileged")).await.expect(201);
    assert!(!open.headers.contains_key("warning"));
    let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    let changed = server.patch("/api/v1/namespaces/privileged", "merge", label).await.expect(200);
    assert!(warned(&changed), "{:?}", changed.headers);
}

/// Rights in a namespace are not rights in the next one of its name: whoever sends slowly enough would create in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_create_does_not_end_in_the_next_namespace_of_that_name() {
    const TEAM: &str = "/api/v1/namespaces/team";
    let server = Arc::new(TestServer::start().await);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}});
    server.post("/api/v1/namespaces", namespace.clone()).await.expect(201);
    // From now on the server knows which one it is.
    server.get(TEAM).await.expect(200);
    let (asked, is_asked) = oneshot::channel();
    let (rest, all) = oneshot::channel::<()>();
    let body = futures_util::stream::once(async move {
        asked.send(()).unwrap();
        all.await.unwrap();
        Ok::<_, BoxError>(http_body::Frame::data(Bytes::from(config_map("late").to_string())))
    });
    let body = http_body_util::StreamBody::new(body).boxed_unsync();
    let request =
        http::Request::post(format!("{TEAM}/configmaps")).header("authorization", "Bearer admintoken");
    let request = request.body(body).unwrap();
    let peer = Arc::new(Peer::without_certificate(([127, 0, 0, 1], 0).into()));
    let create = {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.server.chain().serve(request, peer, None).await.status() })
    };
    is_asked.await.unwrap();
    let mut ended = server.ask("DELETE", TEAM, Value::Null).await.expect(200).json();
    ended["spec"]["finalizers"] = json!([]);
    server.ask("PUT", &format!("{TEAM}/finalize"), ended).await.expect(200);
    server.get(TEAM).await.expect(404);
    server.post("/api/v1/namespaces", namespace).await.expect(201);
    rest.send(()).unwrap();
    assert_eq!(create.await.unwrap().as_u16(), 409);
    server.get(&format!("{TEAM}/configmaps/late")).await.expect(404);
}
