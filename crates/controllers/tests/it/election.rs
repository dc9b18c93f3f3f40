//! Several processes with the same controllers: one works at a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use controllers::{Election, Selection, Setup};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A server that knows one Lease and logs everything else.
#[derive(Clone, Default)]
struct Cluster(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    revision: u64,
    /// Whose requests are lost.
    cut_off: Option<&'static str>,
    /// Who asked for something that only a working controller asks for, and when.
    work: Vec<(&'static str, Instant)>,
    /// Messages of events.
    told: Vec<String>,
}

struct Process {
    stop: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

impl Cluster {
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn start(&self, name: &'static str) -> Process {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| cluster.clone().serve(name, request));
        let mut setup = Setup::new(Arc::new(|| "2026-11-15T12:00:01Z".parse().unwrap()));
        setup.selection = Selection::parse("namespace").unwrap();
        setup.election = Some(Election::new(name.to_owned()));
        let (stop, stopped) = oneshot::channel::<()>();
        let client = kube::Client::new(service, "default");
        let running = tokio::spawn(controllers::run(client, setup, async { drop(stopped.await) }));
        Process { stop, running }
    }

    async fn until(&self, what: &str, is_wanted: impl Fn(&State) -> bool) {
        for _ in 0..10_000 {
            if self.with(|it| is_wanted(it)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.with(|it| panic!("never: {what}: {:?}", it.lease));
    }

    async fn serve(
        self,
        name: &'static str,
        request: Request<Body>,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map(|it| it.to_bytes()).unwrap_or_default();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = parts.uri.path();
        let (code, answer) = self.with(|state| {
            if !path.contains("/leases") && !path.contains("/events") {
                state.work.push((name, Instant::now()));
            }
            if state.cut_off == Some(name) {
                return Err(std::io::Error::other("the line is cut"));
            }
            Ok(state.answer(parts.method.as_str(), path, &body))
        })?;
        Ok(Response::builder().status(code).body(Full::new(Bytes::from(answer.to_string()))).unwrap())
    }
}

impl State {
    fn answer(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        if path.ends_with("/events") {
            self.told.push(body["message"].as_str().unwrap().to_owned());
            return (201, body.clone());
        }
        if !path.contains("/leases") {
            return (503, failure(503));
        }
        match (method, &self.lease) {
            ("GET", Some(lease)) => (200, lease.clone()),
            ("GET", None) => (404, failure(404)),
            ("POST", Some(_)) => (409, failure(409)),
            ("PUT", Some(lease))
                if lease["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] =>
            {
                (409, failure(409))
            }
            _ => {
                self.revision += 1;
                let mut lease = body.clone();
                lease["metadata"]["resourceVersion"] = json!(self.revision.to_string());
                self.lease = Some(lease.clone());
                (200, lease)
            }
        }
    }

    fn spec(&self) -> &Value {
        &self.lease.as_ref().unwrap()["spec"]
    }

    fn works(&self, name: &str) -> bool {
        self.work.iter().any(|(it, _)| *it == name)
    }
}

fn failure(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "OnPurpose" };
    json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": "on purpose"})
}

#[tokio::test(start_paused = true)]
async fn the_next_one_works_only_after_the_last_has_stopped() {
    let cluster = Cluster::default();
    let began = Instant::now();
    let first = cluster.start("first");
    cluster.until("the first works", |it| it.works("first")).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let second = cluster.start("second");
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.with(|it| {
        assert!(!it.works("second"));
        assert_eq!(it.spec()["holderIdentity"], "first");
        assert_eq!(it.spec()["leaseTransitions"], 0);
        it.cut_off = Some("first");
    });
    cluster.until("the second works", |it| it.works("second")).await;
    // Long enough for whatever the first one might still do.
    tokio::time::sleep(Duration::from_secs(60)).await;
    cluster.with(|it| {
        let last = it.work.iter().rev().find(|(name, _)| *name == "first").unwrap().1;
        let next = it.work.iter().find(|(name, _)| *name == "second").unwrap().1;
        assert!(last < next, "the first worked {:?} too long", last - next);
        assert_eq!(it.spec()["leaseTransitions"], 1);
        it.cut_off = None;
        it.work.clear();
    });
    // Given back, it is taken at the next attempt.
    second.stop.send(()).unwrap();
    second.running.await.unwrap();
    let stopped = Instant::now();
    cluster.with(|it| assert_eq!(it.spec()["holderIdentity"], ""));
    cluster.until("the first works again", |it| it.works("first")).await;
    assert!(stopped.elapsed() < Duration::from_secs(3), "{:?}", stopped.elapsed());
    cluster.with(|it| assert!(it.told.contains(&"second stopped leading".to_owned()), "{:?}", it.told));
    first.running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_process_of_the_same_name_need_not_wait() {
    let cluster = Cluster::default();
    let crashed = cluster.start("one");
    cluster.until("it works", |it| it.works("one")).await;
    crashed.running.abort();
    cluster.with(|it| it.work.clear());
    let restarted = Instant::now();
    let _running = cluster.start("one");
    cluster.until("it works again", |it| it.works("one")).await;
    assert!(restarted.elapsed() < Duration::from_secs(1));
}
