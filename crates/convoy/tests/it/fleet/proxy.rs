//! Requests that another server must answer (scenarios PP of the specification), and one discovery for all (AD).

use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::{
    ground::{Ground, PATIENCE, Ship, ask, ask_with, eventually, map},
    on_both_stores,
};

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const ALL_JOBS: &str = "/apis/batch/v1/jobs";
const WITHOUT_BATCH: &str = "--runtime-config=batch/v1=false";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const REROUTED: &str = "apiserver_rerouted_request_total";
const ANSWERED: &str = "apiserver_request_total";
const FAILED: &str = "Error while proxying request to destination apiserver";

on_both_stores!(
    what_only_another_server_has_is_answered_by_it,
    a_third_server_answers_when_the_second_dies,
    a_dead_server_is_missed_but_not_denied,
    a_write_that_was_handed_on_and_lost_is_not_repeated,
    nobody_has_it,
    everything_passes_through,
    a_watch_passes_through_and_ends_with_either_server,
    who_asks_stays_who_asks,
    marks_are_believed_from_servers_only,
    a_wrong_address_costs_one_hop,
    clients_of_a_release_meet_that_release,
    a_server_and_a_definition_are_known_at_once,
    the_gate_decides_server_by_server,
    one_discovery_for_all,
    the_newest_server_speaks_for_all_if_told_to,
    documents_of_others_come_from_them,
    a_lease_that_looks_like_a_server_is_none,
);

fn job(name: &str) -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}})
}

/// One server with everything, one without batch.
async fn two(ground: &Ground) -> (Ship, Ship) {
    let a = ground.launch_reachable("a", 36, &[]).await;
    let b = ground.launch_reachable("b", 36, &[WITHOUT_BATCH]).await;
    (a, b)
}

/// The sum of all series of a name that have these labels.
async fn metric(ship: &Ship, name: &str, labels: &[&str]) -> f64 {
    let request = http::Request::get("/metrics").body(kube::client::Body::empty()).unwrap();
    let response = ship.server.client().send(request).await.unwrap();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let is_it = |it: &&str| {
        it.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| it.contains(label))
    };
    let lines = text.lines().filter(is_it);
    lines.filter_map(|it| it.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
}

/// PP-1.
async fn what_only_another_server_has_is_answered_by_it(ground: Ground) {
    let (a, b) = two(&ground).await;
    a.expect(201, "POST", JOBS, job("one")).await;
    let list = b.get(ALL_JOBS).await;
    assert_eq!(list["items"][0]["metadata"]["name"], "one");
    b.expect(201, "POST", JOBS, job("two")).await;
    assert_eq!(a.get(JOBS).await["items"].as_array().unwrap().len(), 2);
    let labels = ["code=\"200\"", "group=\"batch\"", "version=\"v1\"", "resource=\"jobs\""];
    assert_eq!(metric(&b, REROUTED, &labels).await, 1.0);
    assert_eq!(metric(&b, &format!("kubernetes_{REROUTED}"), &labels).await, 1.0);
    assert_eq!(metric(&a, REROUTED, &[]).await, 0.0);
}

/// PP-2 and PP-15: a dead server is passed over at once, and reads do not fail.
async fn a_third_server_answers_when_the_second_dies(ground: Ground) {
    let (a, b) = two(&ground).await;
    let c = ground.launch_reachable("c", 36, &[]).await;
    a.expect(201, "POST", JOBS, job("one")).await;
    for _ in 0..4 {
        assert_eq!(b.get(ALL_JOBS).await["items"].as_array().unwrap().len(), 1);
    }
    let served = async |it: &Ship| metric(it, ANSWERED, &["code=\"200\"", "group=\"batch\""]).await;
    assert!(served(&a).await >= 2.0 && served(&c).await >= 2.0, "chosen evenly");
    a.server.crash();
    for _ in 0..20 {
        assert_eq!(b.get(ALL_JOBS).await["items"].as_array().unwrap().len(), 1);
    }
    // Nothing was sent to the dead one, so that writes can be tried with the other, too.
    for n in 0..5 {
        b.expect(201, "POST", JOBS, job(&format!("after-{n}"))).await;
    }
}

/// PP-14.
async fn a_dead_server_is_missed_but_not_denied(ground: Ground) {
    let (a, b) = two(&ground).await;
    b.get(ALL_JOBS).await;
    a.server.crash();
    let client = b.server.client();
    let mut n_missed = 0;
    loop {
        let was_member = b.n_members() == 2;
        let (code, headers, answer) = ask_with(&client, "GET", ALL_JOBS, &[], Value::Null).await;
        if code == 503 {
            n_missed += 1;
            assert!(headers.contains_key("retry-after"), "{headers:?}");
            // A server of this process that crashed can still say so on a connection that was open.
            let message = answer["message"].as_str().unwrap();
            assert!(message == FAILED || message.starts_with("the store cannot be reached"), "{message}");
            assert_eq!(answer["reason"], "ServiceUnavailable");
        } else {
            assert_eq!(code, 404, "{answer}");
            assert!(!was_member || b.n_members() == 1, "denied while it was a member");
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(n_missed > 0);
    assert!(metric(&b, REROUTED, &["code=\"503\""]).await >= 1.0);
}

/// PP-11; and a lone server speaks as ever.
/// The other server may have done it: client-go would send it again if it were told when.
async fn a_write_that_was_handed_on_and_lost_is_not_repeated(ground: Ground) {
    let (a, b) = two(&ground).await;
    b.get(ALL_JOBS).await;
    a.faults.pause_at_next_commit();
    let client = b.server.client();
    let asked = tokio::spawn(async move { ask_with(&client, "POST", JOBS, &[], job("lost")).await });
    // The server itself writes now and then; then the request is held up behind that, which is as good.
    a.faults.wait_until_paused().await;
    eventually("it was handed on", async || {
        metric(&a, "apiserver_current_inflight_requests", &["mutating"]).await >= 1.0
    })
    .await;
    a.server.crash();
    let (code, headers, answer) = asked.await.unwrap();
    assert_eq!((code, &answer["reason"]), (504, &json!("Timeout")), "{answer}");
    assert!(!headers.contains_key("retry-after"), "{headers:?}");
    assert!(answer["details"]["retryAfterSeconds"].is_null(), "{answer}");
}

async fn nobody_has_it(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[WITHOUT_BATCH]).await;
    // A group that it has never heard of is no resource at all: plain text, as upstream.
    assert_eq!(b.ask("GET", ALL_JOBS, Value::Null).await, (404, Value::Null));
    let (code, answer) = b.ask("GET", "/apis/apps/v1/cars", Value::Null).await;
    let message = "the server could not find the requested resource";
    assert_eq!((code, answer["message"].as_str()), (404, Some(message)));
    let _c = ground.launch_reachable("c", 36, &[WITHOUT_BATCH]).await;
    let (code, answer) = b.ask("GET", ALL_JOBS, Value::Null).await;
    assert_eq!(code, 404);
    let expect = "GVR batch/v1, Resource=jobs is not served by anything in this cluster";
    assert_eq!((answer["message"].as_str(), answer["reason"].as_str()), (Some(expect), Some("NotFound")));
    // What is served, and has no such object, verb or subresource, is answered as ever.
    let (code, answer) = b.ask("GET", "/api/v1/namespaces/default/configmaps/none", Value::Null).await;
    assert_eq!((code, answer["details"]["name"].as_str()), (404, Some("none")));
    assert_eq!(b.ask("DELETE", "/apis/authentication.k8s.io/v1/tokenreviews", Value::Null).await.0, 405);
}

/// PP-12: all verbs, large bodies, compression, warnings, tables.
async fn everything_passes_through(ground: Ground) {
    let (_a, b) = two(&ground).await;
    let client = b.server.client();
    let mut large = job("large");
    large["metadata"]["annotations"] = json!({"big": "x".repeat(200_000)});
    b.expect(201, "POST", JOBS, large).await;
    let one = format!("{JOBS}/large");
    let (code, headers, _) =
        ask_with(&client, "GET", &one, &[("accept-encoding", "gzip")], Value::Null).await;
    assert_eq!((code, headers["content-encoding"].to_str().unwrap()), (200, "gzip"));
    let patched = b.expect(200, "PATCH", &one, json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(patched["metadata"]["labels"]["a"], "b");
    let apply =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "large", "labels": {"c": "d"}}});
    let (code, _, applied) = ask_with(
        &client,
        "PATCH",
        &format!("{one}?fieldManager=me&force=true"),
        &[("content-type", "application/apply-patch+yaml")],
        apply,
    )
    .await;
    assert_eq!((code, applied["metadata"]["labels"]["c"].as_str()), (200, Some("d")));
    let selected = b.get(&format!("{ALL_JOBS}?labelSelector=a%3Db%2Cc%20in%20%28d%29&limit=5")).await;
    assert_eq!(selected["items"].as_array().unwrap().len(), 1);
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let (_, _, table) = ask_with(&client, "GET", ALL_JOBS, &[("accept", table)], Value::Null).await;
    assert_eq!(table["kind"], "Table");
    let status = b.get(&format!("{one}/status")).await;
    assert_eq!(status["metadata"]["name"], "large");
    let (code, refused) =
        b.ask("POST", JOBS, json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}})).await;
    assert_eq!((code, refused["reason"].as_str()), (422, Some("Invalid")));
    assert_eq!(b.ask("DELETE", &one, json!({"propagationPolicy": "Background"})).await.0, 200);
    assert_eq!(b.ask("GET", &one, Value::Null).await.0, 404);
    let (code, _, answer) = ask_with(&client, "POST", JOBS, &[], json!("x".repeat(4 << 20))).await;
    assert_eq!((code, answer["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
}

async fn lines(ship: &Ship, path: &str) -> impl futures_util::Stream<Item = String> + Unpin + use<> {
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let response = ship.server.client().send(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let frames = http_body_util::BodyStream::new(response.into_body());
    Box::pin(frames.filter_map(|it| async move {
        let data = it.ok()?.into_data().ok()?;
        Some(String::from_utf8_lossy(&data).into_owned())
    }))
}

async fn next(stream: &mut (impl futures_util::Stream<Item = String> + Unpin)) -> Option<String> {
    tokio::time::timeout(PATIENCE, stream.next()).await.expect("a watch must bring something or end")
}

/// PP-12.
async fn a_watch_passes_through_and_ends_with_either_server(ground: Ground) {
    let (a, b) = two(&ground).await;
    let list = b.get(ALL_JOBS).await;
    let from = list["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{ALL_JOBS}?watch=true&resourceVersion={from}");
    let mut watch = lines(&b, &path).await;
    for n in 0..5 {
        let name = format!("job-{n}");
        a.expect(201, "POST", JOBS, job(&name)).await;
        let event = next(&mut watch).await.unwrap();
        assert!(event.contains("ADDED") && event.contains(&name), "{event}");
    }
    // A client that leaves takes its watch along.
    let open = async || metric(&a, "apiserver_longrunning_requests", &["group=\"batch\""]).await;
    assert_eq!(open().await, 1.0);
    drop(watch);
    eventually("the watch ends at the other server, too", async || open().await == 0.0).await;
    let mut watch = lines(&b, &path).await;
    for _ in 0..5 {
        next(&mut watch).await.unwrap();
    }
    let mut last = lines(&b, &path).await;
    next(&mut last).await.unwrap();
    b.server.stop().await;
    while next(&mut watch).await.is_some() {}
    a.server.stop().await;
    while next(&mut last).await.is_some() {}
}

/// PP-8: what a caller may do through another server is what it may do there.
async fn who_asks_stays_who_asks(ground: Ground) {
    let logs = tempfile::tempdir().unwrap();
    let policy = logs.path().join("policy");
    std::fs::write(&policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n")
        .unwrap();
    let log = |name: &str| logs.path().join(name);
    let audit = |name: &str| {
        [
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log(name).display()),
        ]
    };
    let (at_a, at_b) = (audit("a"), audit("b"));
    let a = ground.launch_reachable("a", 36, &[&at_a[0], &at_a[1]]).await;
    let b = ground.launch_reachable("b", 36, &[&at_b[0], &at_b[1], WITHOUT_BATCH]).await;
    let role = json!({"metadata": {"name": "jobs"}, "rules": [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]}]});
    a.expect(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({"metadata": {"name": "jobs"}, "subjects": [
        {"kind": "Group", "name": "Lister ü", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"kind": "ClusterRole", "name": "jobs", "apiGroup": "rbac.authorization.k8s.io"}});
    a.expect(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    eventually("both know the binding", async || {
        ask(&b.server.client_as("x", &["Lister ü"]), "GET", ALL_JOBS, Value::Null).await.0 == 200
    })
    .await;
    let id = "my-own-audit-id";
    let bob = b.server.client_as("Bob Ü", &["Lister ü"]);
    assert_eq!(ask_with(&bob, "GET", ALL_JOBS, &[("audit-id", id)], Value::Null).await.0, 200);
    for (method, path, body) in [("POST", JOBS, job("x")), ("GET", JOBS, Value::Null)] {
        let (own, other) = (a.server.client_as("Bob Ü", &["Lister ü"]), bob.clone());
        let (mut direct, mut through) =
            (ask(&own, method, path, body.clone()).await, ask(&other, method, path, body).await);
        for answer in [&mut direct.1, &mut through.1] {
            // Servers renew their Leases between the two.
            answer["metadata"]["resourceVersion"].take();
        }
        assert_eq!(direct, through);
    }
    // Impersonation happens once, and what arrives is who was impersonated.
    let admin = b.server.client();
    let as_bob = [("impersonate-user", "carol"), ("impersonate-group", "Lister ü")];
    let (code, _, answer) = ask_with(&admin, "POST", JOBS, &as_bob, job("x")).await;
    assert_eq!(
        (code, answer["message"].as_str().unwrap().contains("User \"carol\"")),
        (403, true),
        "{answer}"
    );
    assert_eq!(ask_with(&admin, "GET", ALL_JOBS, &as_bob, Value::Null).await.0, 200);
    drop((a, b));
    let line = |name: &str| -> Value {
        let text = std::fs::read_to_string(log(name)).unwrap();
        let lines = text.lines().map(|it| serde_json::from_str::<Value>(it).unwrap());
        lines.into_iter().rfind(|it| it["auditID"] == id && it["stage"] == "ResponseComplete").unwrap()
    };
    let (there, here) = (line("a"), line("b"));
    assert_eq!(there["user"]["username"], "Bob Ü");
    assert_eq!(there["user"]["groups"], here["user"]["groups"]);
    assert_eq!(
        here["annotations"]["convoy/forwarded-to"].as_str().map(|it| it.starts_with("apiserver-")),
        Some(true)
    );
    assert!(there["annotations"]["convoy/forwarded-by"].is_string(), "{there}");
}

/// PP-17.
async fn marks_are_believed_from_servers_only(ground: Ground) {
    let (a, b) = two(&ground).await;
    a.expect(201, "POST", JOBS, job("one")).await;
    let forged = [
        ("x-kubernetes-peer-proxied", "true"),
        ("x-remote-user", "root"),
        ("x-remote-group", "system:masters"),
    ];
    let (code, _, list) = ask_with(&b.server.client(), "GET", ALL_JOBS, &forged, Value::Null).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(1)));
    let nobody = b.server.client_as("nobody", &[]);
    let (code, _, answer) = ask_with(&nobody, "GET", ALL_JOBS, &forged, Value::Null).await;
    assert_eq!(code, 403);
    assert!(answer["message"].as_str().unwrap().contains("User \"nobody\""), "{answer}");
}

/// PP-9 and PP-10: a server that says it is where another one is.
async fn a_wrong_address_costs_one_hop(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[WITHOUT_BATCH]).await;
    let port = b.server.url().unwrap().rsplit(':').next().unwrap().to_owned();
    let lie = ["--peer-advertise-ip=127.0.0.1".to_owned(), format!("--peer-advertise-port={port}")];
    let a = ground.launch_reachable("a", 36, &[&lie[0], &lie[1]]).await;
    a.expect(201, "POST", JOBS, job("one")).await;
    // It calls itself.
    let (code, headers, answer) = ask_with(&b.server.client(), "GET", ALL_JOBS, &[], Value::Null).await;
    assert_eq!((code, headers.contains_key("retry-after")), (503, true), "{answer}");
    // It calls somebody who has it not.
    let c = ground.launch_reachable("c", 36, &[WITHOUT_BATCH]).await;
    let (code, headers, answer) = ask_with(&c.server.client(), "GET", ALL_JOBS, &[], Value::Null).await;
    assert_eq!((code, headers.contains_key("retry-after")), (503, true), "{answer}");
}

/// PP-18.
async fn clients_of_a_release_meet_that_release(ground: Ground) {
    let old = ground.launch_reachable("old", 34, &[]).await;
    let middle = ground.launch_reachable("middle", 35, &[]).await;
    let new = ground.launch_reachable("new", 36, &[]).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let from = async |ship: &Ship, version: &str| {
        let header = [("x-kubernetes-compatibility-version", version)];
        let (code, _, answer) = ask_with(&ship.server.client(), "GET", maps, &header, Value::Null).await;
        assert_eq!(code, 200, "{answer}");
    };
    let seen = async |it: &Ship| metric(it, ANSWERED, &["code=\"200\"", "resource=\"configmaps\""]).await;
    let rerouted = async |it: &Ship| metric(it, REROUTED, &["code=\"200\""]).await;
    for (asked, version, answers) in [
        (&middle, "1.35", &middle),
        (&middle, "1.34", &old),
        (&middle, "1.36", &new),
        (&old, "1.36", &new),
        // Nobody is newer: the one that was asked.
        (&old, "1.37", &old),
        (&new, "1.33", &new),
    ] {
        let (count, moved) = (seen(answers).await, rerouted(asked).await);
        from(asked, version).await;
        assert!(seen(answers).await > count, "{version}");
        let is_other = !std::ptr::eq(asked, answers);
        assert_eq!(rerouted(asked).await > moved, is_other, "{version}");
    }
    let (code, _, answer) = ask_with(
        &old.server.client(),
        "GET",
        maps,
        &[("x-kubernetes-compatibility-version", "newest")],
        Value::Null,
    )
    .await;
    assert_eq!((code, answer["reason"].as_str()), (400, Some("BadRequest")));
}

/// Nobody waits for news to travel.
async fn a_server_and_a_definition_are_known_at_once(ground: Ground) {
    let b = ground.launch_reachable("b", 36, &[WITHOUT_BATCH]).await;
    let c = ground.launch_reachable("c", 36, &[WITHOUT_BATCH]).await;
    for round in 0..3 {
        // The server of the last round has just gone. Until that is known it is asked, and cannot be reached.
        let mut code = 503;
        while code == 503 {
            (code, _) = b.ask("GET", ALL_JOBS, Value::Null).await;
        }
        assert_eq!(code, 404);
        let a = ground.launch_reachable("a", 36, &[]).await;
        for ship in [&b, &c] {
            ship.get(ALL_JOBS).await;
        }
        let plural = format!("things{round}");
        let kind = format!("Thing{round}");
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
        a.expect(201, "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd).await;
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.example.com");
        let is_there = |crd: &Value| {
            let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|it| it["type"] == "Established" && it["status"] == "True")
        };
        while !is_there(&a.get(&path).await) {
            tokio::task::yield_now().await;
        }
        for ship in [&b, &c] {
            ship.get(&format!("/apis/example.com/v1/{plural}")).await;
        }
        a.server.stop().await;
    }
}

/// PP-7, and a cluster where only some have it.
async fn the_gate_decides_server_by_server(ground: Ground) {
    let off = "--feature-gates=UnknownVersionInteroperabilityProxy=false";
    let a = ground.launch_reachable("a", 36, &[off]).await;
    let b = ground.launch_reachable("b", 36, &[WITHOUT_BATCH, off]).await;
    let c = ground.launch_reachable("c", 36, &[WITHOUT_BATCH]).await;
    a.expect(201, "POST", JOBS, job("one")).await;
    assert_eq!(b.ask("GET", ALL_JOBS, Value::Null).await, (404, Value::Null));
    // Whoever does not hand on requests can still be handed some.
    c.get(ALL_JOBS).await;
    let groups = async |ship: &Ship| names(&discovery(ship, AGGREGATED).await.1);
    assert!(!groups(&b).await.contains(&"batch".to_owned()));
    assert!(groups(&c).await.contains(&"batch".to_owned()));
}

async fn discovery(ship: &Ship, accept: &str) -> (http::HeaderMap, Value) {
    let (code, headers, list) =
        ask_with(&ship.server.client(), "GET", "/apis", &[("accept", accept)], Value::Null).await;
    assert_eq!(code, 200);
    (headers, list)
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// AD-1, AD-4, AD-6, AD-7, AD-8.
async fn one_discovery_for_all(ground: Ground) {
    let a = ground.launch_reachable("a", 36, &["--runtime-config=apps/v1=false"]).await;
    let alone = discovery(&a, AGGREGATED).await;
    let b = ground.launch_reachable("b", 36, &[WITHOUT_BATCH]).await;
    let nopeer = format!("{AGGREGATED};profile=nopeer");
    eventually("both see both", async || {
        names(&discovery(&a, AGGREGATED).await.1).contains(&"apps".to_owned())
            && names(&discovery(&b, AGGREGATED).await.1).contains(&"batch".to_owned())
    })
    .await;
    let (at_a, at_b) = (discovery(&a, AGGREGATED).await, discovery(&b, AGGREGATED).await);
    assert_eq!(at_a.1, at_b.1, "whoever is asked, it is the same document");
    assert_eq!(at_a.0["etag"], at_b.0["etag"]);
    assert_ne!(at_a.0["etag"], alone.0["etag"]);
    let position = |list: &Value, group: &str| names(list).iter().position(|it| it == group).unwrap();
    assert!(position(&at_a.1, "apps") < position(&at_a.1, "batch"), "by priority, not by chance");
    assert!(!names(&discovery(&a, &nopeer).await.1).contains(&"apps".to_owned()));
    assert!(!names(&discovery(&b, &nopeer).await.1).contains(&"batch".to_owned()));
    assert!(metric(&a, "aggregator_discovery_nopeer_requests_total", &[]).await >= 1.0);
    let hits = async || metric(&a, "aggregator_discovery_peer_aggregated_cache_hits_total", &[]).await;
    let before = hits().await;
    assert!(before >= 1.0);
    a.ask("GET", "/healthz", Value::Null).await;
    assert_eq!(hits().await, before, "only who asks for discovery is counted");
    assert!(metric(&a, "aggregator_discovery_peer_aggregated_cache_misses_total", &[]).await >= 1.0);
    let etag = at_a.0["etag"].to_str().unwrap();
    let headers = [("accept", AGGREGATED), ("if-none-match", etag)];
    assert_eq!(ask_with(&a.server.client(), "GET", "/apis", &headers, Value::Null).await.0, 304);
    // The documents of old clients say the same.
    let plain = a.get("/apis").await;
    let groups = plain["groups"].as_array().unwrap();
    assert!(groups.iter().any(|it| it["name"] == "apps"));
    assert_eq!(a.get("/apis/apps").await["preferredVersion"]["version"], "v1");
    let resources = a.get("/apis/apps/v1").await;
    assert!(resources["resources"].as_array().unwrap().iter().any(|it| it["name"] == "deployments/scale"));
    // Everything that is advertised works: at least its collection can be read.
    for ship in [&a, &b] {
        every_list_can_be_read(ship).await;
    }
    b.server.stop().await;
    eventually("what left with a server is gone", async || {
        discovery(&a, AGGREGATED).await.0["etag"] == alone.0["etag"]
    })
    .await;
}

/// AD-9.
async fn every_list_can_be_read(ship: &Ship) {
    let (_, list) = discovery(ship, AGGREGATED).await;
    for group in list["items"].as_array().unwrap() {
        let name = group["metadata"]["name"].as_str().unwrap();
        for version in group["versions"].as_array().unwrap() {
            let version_name = version["version"].as_str().unwrap();
            for resource in version["resources"].as_array().unwrap() {
                let verbs = resource["verbs"].as_array().unwrap();
                if verbs.iter().any(|it| it == "list") {
                    let plural = resource["resource"].as_str().unwrap();
                    ship.get(&format!("/apis/{name}/{version_name}/{plural}")).await;
                }
            }
        }
    }
}

/// AD-10.
async fn the_newest_server_speaks_for_all_if_told_to(ground: Ground) {
    let newest = "--peer-discovery=newest";
    let old = ground.launch_reachable("old", 34, &[newest]).await;
    let middle = ground.launch_reachable("middle", 35, &[newest]).await;
    let new = ground.launch_reachable("new", 36, &[newest]).await;
    let nopeer = format!("{AGGREGATED};profile=nopeer");
    let own = async |ship: &Ship| discovery(ship, &nopeer).await.1;
    let shown = async |ship: &Ship| discovery(ship, AGGREGATED).await.1;
    let same = |a: &Value, b: &Value| without_hashes(a) == without_hashes(b);
    let expect = own(&new).await;
    eventually("all show what the newest serves", async || {
        same(&shown(&old).await, &expect) && same(&shown(&middle).await, &expect)
    })
    .await;
    assert!(!same(&own(&old).await, &expect), "or this would prove nothing");
    new.server.crash();
    let expect = own(&middle).await;
    eventually("then what the next one serves", async || same(&shown(&old).await, &expect)).await;
}

/// What is stored is the same for all; what a lone document says of it depends on who made it.
fn without_hashes(list: &Value) -> String {
    let mut list = list.clone();
    for group in list["items"].as_array_mut().unwrap() {
        for version in group["versions"].as_array_mut().unwrap() {
            for resource in version["resources"].as_array_mut().unwrap() {
                resource.as_object_mut().unwrap().remove("storageVersionHash");
            }
        }
    }
    list.to_string()
}

/// W-P24.
async fn documents_of_others_come_from_them(ground: Ground) {
    let (a, b) = two(&ground).await;
    let own = a.get("/openapi/v3/apis/batch/v1").await;
    assert_eq!(b.get("/openapi/v3/apis/batch/v1").await, own);
    let index = b.get("/openapi/v3").await;
    assert_eq!(index["paths"]["apis/batch/v1"]["serverRelativeURL"], "/openapi/v3/apis/batch/v1");
    a.server.stop().await;
    eventually("they go with the server", async || {
        b.get("/openapi/v3").await["paths"]["apis/batch/v1"].is_null()
    })
    .await;
    assert_eq!(b.ask("GET", "/openapi/v3/apis/batch/v1", Value::Null).await.0, 404);
}

/// PD-7, W-P9: users cannot make up servers.
async fn a_lease_that_looks_like_a_server_is_none(ground: Ground) {
    let (_a, b) = two(&ground).await;
    let before = discovery(&b, AGGREGATED).await.0["etag"].clone();
    for namespace in ["default", "kube-system"] {
        let lease = json!({"metadata": {"name": "apiserver-x", "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
            "annotations": {"convoy/peer-address": "127.0.0.1:1"}}, "spec": {"holderIdentity": "apiserver-x_1"}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        b.expect(201, "POST", &path, lease).await;
    }
    b.get(ALL_JOBS).await;
    assert_eq!(b.n_members(), 2);
    assert_eq!(discovery(&b, AGGREGATED).await.0["etag"], before);
    b.expect(201, "POST", "/api/v1/namespaces/default/configmaps", map("still-works")).await;
}
