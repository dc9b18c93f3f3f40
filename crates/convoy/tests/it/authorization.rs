//! Whether what is authorized is what is carried out: every resource, path form and verb, asked by tenants with typical
//! rights, directly and through another server, and judged by an oracle that knows nothing of the server's code.
//!
//! CI asks a few thousand questions; `cargo xtask soak authorization --minutes 30` goes on with random ones.

mod oracle;
mod world;

use futures_util::StreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use serde_json::{Value, json};
use testkit::tools;
use tokio::time::Instant;

use self::{
    oracle::{Expect, Scope, judge},
    world::{Thing, World, marks, tenants, thing},
};
use crate::fleet::ground::{Ground, PATIENCE, Ship};

/// Resources with objects: every form is asked of them in every run.
const CORE: [(&str, &str); 8] = [
    ("/api/v1", "namespaces"),
    ("/api/v1", "secrets"),
    ("/api/v1", "configmaps"),
    ("/api/v1", "nodes"),
    ("/apis/apps/v1", "deployments"),
    ("/apis/coordination.k8s.io/v1", "leases"),
    ("/apis/example.com/v1", "widgets"),
    ("/apis/example.com/v1", "gadgets"),
];

/// The tenants who ask all of that; the others ask what is drawn.
const THOROUGH: [&str; 4] = ["owner", "one-secret", "own-namespace", "watcher"];

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// What makes a watch end with what was there when it began.
const ONCE: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// One question.
#[derive(Clone, Debug)]
struct Question {
    tenant: &'static str,
    method: &'static str,
    line: String,
    is_through_peer: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_authorized_is_what_is_carried_out() {
    let ground = Ground::embedded();
    let a = ground.launch_reachable("a", 36, &[]).await;
    let b = ground.launch_reachable("b", 35, &[]).await;
    let mut world = World::make(&ground, &a, &[&a, &b]).await;
    let seed = tools::seed();
    let mut random = StdRng::seed_from_u64(seed);
    let mut faults = Vec::new();
    let mut n = Counts::default();
    for question in systematic() {
        put(&ground, [&a, &b], &mut world, &question, &mut faults, &mut n).await;
    }
    let began = Instant::now();
    let goes_on = |done: usize| match tools::minutes() {
        Some(minutes) => began.elapsed() < minutes,
        None => done < tools::rounds(1_500),
    };
    let mut done = 0;
    while faults.len() < 20 && goes_on(done) {
        let question = drawn(&world, &mut random);
        put(&ground, [&a, &b], &mut world, &question, &mut faults, &mut n).await;
        done += 1;
    }
    println!("seed {seed}: {n:?}");
    assert!(faults.is_empty(), "seed {seed}, {} faults:\n{}", faults.len(), faults.join("\n"));
    // Otherwise it would prove nothing.
    assert!(n.forbidden > 100 && n.carried_out > 100 && n.without_route > 100 && n.forwarded > 100, "{n:?}");
}

#[derive(Debug, Default)]
struct Counts {
    forbidden: usize,
    carried_out: usize,
    without_route: usize,
    forwarded: usize,
}

/// Every form of path and query for what has objects.
fn systematic() -> Vec<Question> {
    let mut all = Vec::new();
    for (n_resource, (base, resource)) in CORE.into_iter().enumerate() {
        // All of them ask for namespaces and secrets; for the rest they take turns.
        let asking = |n: usize| {
            let turn = (n_resource >= 2).then(|| n % THOROUGH.len());
            THOROUGH
                .into_iter()
                .enumerate()
                .filter(move |it| turn.is_none_or(|turn| turn == it.0))
                .map(|it| it.1)
        };
        for (n_path, path) in paths(base, resource, "a").into_iter().enumerate() {
            for (n, query) in queries("a").into_iter().enumerate() {
                for tenant in asking(n_path + n) {
                    let line = joined(&path, &query);
                    // Through the other server now and then; what is drawn goes both ways.
                    let is_through_peer = n % 4 == 1;
                    all.push(Question { tenant, method: "GET", line, is_through_peer });
                }
            }
            for (n, method) in METHODS[1..].iter().enumerate() {
                for tenant in asking(n_path + n) {
                    all.push(Question { tenant, method, line: path.clone(), is_through_peer: false });
                }
            }
        }
    }
    all
}

/// Anything.
fn drawn(world: &World, random: &mut StdRng) -> Question {
    let all: Vec<_> = world.offer.all().collect();
    let ((group, version, resource), described) = all.choose(random).unwrap();
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let core = CORE.choose(random).copied().filter(|_| random.random_bool(0.4));
    let (base, resource) = core.unwrap_or((&base, resource));
    let name = ["a", "b", "own", "other", "none"].choose(random).copied().unwrap();
    let mut path = paths(base, resource, name).choose(random).unwrap().clone();
    if random.random_bool(0.2) {
        let subresources: Vec<&String> = described.subresources.keys().collect();
        let made_up = "made-up".to_owned();
        path = format!("{path}/{}", subresources.choose(random).copied().unwrap_or(&made_up));
    }
    if random.random_bool(0.02) {
        path = ["/metrics", "//metrics", "/openapi/v3", "/openapi//v3", "/version", "/apis", "/%6detrics"]
            .choose(random)
            .unwrap()
            .to_string();
    }
    let method = METHODS.choose(random).copied().unwrap();
    let method = if random.random_bool(0.5) { "GET" } else { method };
    let query = if method == "GET" || method == "DELETE" {
        queries(name).choose(random).unwrap().clone()
    } else {
        String::new()
    };
    let line = disguised(&joined(&path, &query), random);
    let tenant = tenants().choose(random).unwrap().0;
    Question { tenant, method, line, is_through_peer: random.random_bool(0.3) }
}

fn paths(base: &str, resource: &str, name: &str) -> Vec<String> {
    let own = format!("{base}/namespaces/own");
    let mut all = vec![
        format!("{base}/{resource}"),
        format!("{base}/{resource}/{name}"),
        format!("{own}/{resource}"),
        format!("{own}/{resource}/{name}"),
        format!("{own}/{resource}/other"),
        format!("{base}/namespaces/other/{resource}"),
        format!("{base}/namespaces/other/{resource}/{name}"),
        format!("{own}/namespaces/other/{resource}"),
        format!("{own}/{resource}/{name}/status"),
        format!("{own}/{resource}/{name}/finalize"),
        format!("{own}/{resource}/{name}/made-up/x"),
        format!("{base}/watch/{resource}"),
        format!("{base}/watch/{resource}/{name}"),
        format!("{base}/watch/namespaces/own/{resource}"),
        format!("{base}/watch/namespaces/own/{resource}/{name}"),
        format!("{base}/watch/namespaces/other/{resource}/{name}"),
        format!("{base}/proxy/namespaces/own/{resource}/{name}"),
        format!("/{own}//{resource}/{name}"),
        format!("{base}//namespaces/own/{resource}"),
        format!("{own}/{resource}/"),
        format!("{own}%2F{resource}%2f{name}"),
        format!("{base}/%6eamespaces/own/{resource}/%61"),
    ];
    if resource == "namespaces" {
        all.extend(
            ["own", "other", "own/status", "other/finalize"].map(|it| format!("{base}/namespaces/{it}")),
        );
    }
    all
}

fn queries(name: &str) -> Vec<String> {
    let by_name = format!("fieldSelector=metadata.name%3D{name}");
    let mut all = vec![
        String::new(),
        "limit=1".to_owned(),
        "watch=false".to_owned(),
        by_name.clone(),
        "fieldSelector=metadata.name!%3Dnone".to_owned(),
        "fieldSelector=metadata.namespace%3Dother".to_owned(),
        "labelSelector=x!%3D1".to_owned(),
    ];
    for selector in [
        "",
        "&fieldSelector=metadata.name!%3Dnone",
        "&fieldSelector=metadata.namespace%3Dother",
        &format!("&{by_name}"),
    ] {
        all.push(format!("watch=true{selector}"));
    }
    all.extend(["watch", "%77atch=1&watch=false", "watch=0&watch=true"].map(str::to_owned));
    all
}

/// With what ends a watch, wherever one may come of it.
fn joined(path: &str, query: &str) -> String {
    let may_watch = path.contains("/watch/")
        || (query.contains("atch") && !query.starts_with("watch=false") && !query.starts_with("watch=0"));
    match (query, may_watch) {
        ("", false) => path.to_owned(),
        ("", true) => format!("{path}?{ONCE}"),
        (query, false) => format!("{path}?{query}"),
        (query, true) => format!("{path}?{query}&{ONCE}"),
    }
}

/// The same path with some letters written as escapes.
fn disguised(line: &str, random: &mut StdRng) -> String {
    if random.random_bool(0.8) {
        return line.to_owned();
    }
    let (path, query) = line.split_once('?').map_or((line, String::new()), |(a, b)| (a, format!("?{b}")));
    let mut out = String::new();
    for it in path.chars() {
        if it.is_ascii_lowercase() && random.random_bool(0.1) {
            out.push_str(&format!("%{:02x}", u32::from(it)));
        } else {
            out.push(it);
        }
    }
    out + &query
}

/// Asks, and notes what must not have happened.
async fn put(
    ground: &Ground,
    [direct, through]: [&Ship; 2],
    world: &mut World,
    question: &Question,
    faults: &mut Vec<String>,
    n: &mut Counts,
) {
    if faults.len() >= 20 {
        return;
    }
    let Question { tenant, method, line, is_through_peer } = question;
    let ship = if *is_through_peer { through } else { direct };
    let line = &dry(method, line);
    let expect = judge(&world.offer, &world.policy, tenant, method, line);
    let body = body(world, method, &expect, line);
    let (code, text) = ask(ship, tenant, method, line, &body).await;
    match &expect {
        Expect::Forbidden => n.forbidden += 1,
        Expect::NoRoute => n.without_route += 1,
        Expect::Within(_) if code < 300 => n.carried_out += 1,
        Expect::Within(_) | Expect::Contradiction | Expect::Document => {}
    }
    n.forwarded += usize::from(*is_through_peer);
    let changed = if *method == "GET" { Vec::new() } else { world.undo(ground).await };
    if let Err(why) = verdict(world, &expect, tenant, method, (code, &text), &changed) {
        let text: String = text.chars().take(300).collect();
        faults.push(format!("{question:?}\n  {why}; expected {expect:?}, got {code} {text}"));
    }
}

/// Rights stay what they are: whoever may change them only tries.
fn dry(method: &str, line: &str) -> String {
    let mark = if line.contains('?') { '&' } else { '?' };
    if method != "GET" && line.contains("rbac") { format!("{line}{mark}dryRun=All") } else { line.to_owned() }
}

fn body(world: &World, method: &str, expect: &Expect, line: &str) -> Value {
    let found =
        |scope: &Scope| world.things.iter().find(|it| scope.covers(&it.mark()) && !scope.name.is_empty());
    match (method, expect) {
        ("PATCH", _) => json!({"metadata": {"annotations": {"touched": "yes"}}}),
        ("PUT", Expect::Within(scope)) => found(scope).map_or_else(|| json!({}), |it| it.object.clone()),
        ("POST" | "PUT", _) => {
            // What it would be if it were made where the line says, or in spite of it.
            let resource =
                line.split(['/', '?']).rfind(|it| world.things.iter().any(|own| own.resource == **it));
            let kind: Option<&Thing> = world.things.iter().find(|it| Some(it.resource.as_str()) == resource);
            let namespace = match expect {
                Expect::Within(scope) => scope.namespace.as_str(),
                _ => "",
            };
            kind.map_or_else(
                || json!({}),
                |it| {
                    let object_kind = it.object["kind"].as_str().unwrap();
                    let mut rest = it.object.clone();
                    for field in ["apiVersion", "kind", "metadata"] {
                        rest.as_object_mut().unwrap().remove(field);
                    }
                    thing(&it.base, &it.resource, object_kind, namespace, "made", &rest).object
                },
            )
        }
        _ => Value::Null,
    }
}

/// The code and the text of an answer; of a watch everything that was there when it began.
async fn ask(ship: &Ship, tenant: &str, method: &str, line: &str, body: &Value) -> (u16, String) {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder()
        .method(method)
        .uri(line)
        .header("content-type", content)
        // The newer of the two servers answers, whichever is asked.
        .header("x-kubernetes-compatibility-version", "1.36")
        .body(kube::client::Body::from(bytes))
        .unwrap();
    let response = ship.server.client_as(tenant, &[]).send(request).await.unwrap();
    let code = response.status().as_u16();
    let mut text = String::new();
    let mut frames = http_body_util::BodyStream::new(response.into_body());
    while let Some(frame) = tokio::time::timeout(PATIENCE, frames.next()).await.expect("an answer must end") {
        if let Ok(data) = frame.unwrap().into_data() {
            text.push_str(&String::from_utf8_lossy(&data));
        }
        if text.contains("k8s.io/initial-events-end") {
            break;
        }
    }
    (code, text)
}

/// What is wrong with an answer, and with what it left behind.
fn verdict(
    world: &World,
    expect: &Expect,
    tenant: &str,
    method: &str,
    (code, text): (u16, &str),
    changed: &[String],
) -> Result<(), String> {
    let is_refused = code == 403 && text.contains(&format!("User \\\"{tenant}\\\" cannot "));
    let shown = marks(text);
    let allowed = |mark: &String| matches!(expect, Expect::Within(scope) if scope.covers(mark));
    if let Some(leak) = shown.iter().find(|it| !allowed(it)) {
        return Err(format!("it shows {leak}"));
    }
    if let Some(hit) = changed.iter().find(|it| !allowed(it)) {
        return Err(format!("it changed {hit}"));
    }
    match expect {
        Expect::Forbidden if !is_refused => Err("it was not refused".to_owned()),
        Expect::NoRoute if code != 404 && code != 405 => Err("there is no such route".to_owned()),
        Expect::Contradiction if code != 400 => Err("the selector contradicts the path".to_owned()),
        Expect::Document if code == 403 => Err("it was refused".to_owned()),
        Expect::Within(scope) => {
            // Updates that make something need the right to that, too.
            let is_creation = matches!(method, "PUT" | "PATCH") && text.contains("cannot create");
            if is_refused && !is_creation {
                return Err("it was refused".to_owned());
            }
            if method == "GET" && code == 200 && !scope.is_narrowed && !text.contains("\"continue\"") {
                let missing =
                    world.things.iter().map(Thing::mark).find(|it| scope.covers(it) && !shown.contains(it));
                // Subresources such as a scale have no marks.
                if let Some(missing) = missing.filter(|_| !text.contains("\"kind\":\"Scale\"")) {
                    return Err(format!("it does not show {missing}"));
                }
            }
            Ok(())
        }
        Expect::Forbidden | Expect::NoRoute | Expect::Contradiction | Expect::Document => Ok(()),
    }
}

/// The faults for which it was made: a request that was authorized in one namespace and carried out on another, and a right
/// to one object that showed all.
#[test]
fn the_judge_finds_what_it_was_made_for() {
    let world = World::small();
    let judged = |tenant: &str, method: &str, line: &str, code: u16, shown: &str, changed: &[&str]| {
        let expect = judge(&world.offer, &world.policy, tenant, method, line);
        let changed: Vec<String> = changed.iter().map(|it| (*it).to_owned()).collect();
        verdict(&world, &expect, tenant, method, (code, shown), &changed).is_ok()
    };
    let other = "/api/v1/namespaces/own/namespaces/other";
    assert!(judged("owner", "GET", other, 404, "", &[]));
    assert!(!judged("owner", "GET", other, 200, "@@/namespaces:/other@@", &[]));
    assert!(!judged("owner", "GET", "/api/v1/namespaces/own/namespaces", 200, "@@/namespaces:/own@@", &[]));
    assert!(!judged("owner", "DELETE", other, 404, "", &["/namespaces:/other"]));
    assert!(judged("owner", "DELETE", "/api/v1/namespaces/own", 200, "", &["/namespaces:/own"]));
    let (a, b) = ("@@/secrets:own/a@@", "@@/secrets:own/b@@");
    let one = "/api/v1/namespaces/own/secrets/a?watch=true&fieldSelector=type%3DOpaque";
    assert!(judged("one-secret", "GET", one, 200, a, &[]));
    assert!(!judged("one-secret", "GET", one, 200, &format!("{a}{b}"), &[]));
    let old = "/api/v1/watch/namespaces/own/secrets/a";
    assert!(judged("one-secret", "GET", old, 200, a, &[]));
    assert!(!judged("one-secret", "GET", old, 200, b, &[]));
    assert!(judged("one-secret", "GET", &format!("{old}?fieldSelector=type%3DOpaque"), 400, "", &[]));
    assert!(!judged("one-secret", "GET", &format!("{old}?fieldSelector=type%3DOpaque"), 200, a, &[]));
    assert!(!judged("one-secret", "GET", "/api/v1/namespaces/own/secrets", 200, a, &[]));
}
