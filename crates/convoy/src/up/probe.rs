//! A client that uses every group and version through the common address while servers are rolled, and counts what it
//! is told.
//!
//! # Flow
//! A pass: several connections, so that every server is asked; what they list, together; then one collection of every
//! group and version through each of them. A pass is complete when everything was answered, rightly or wrongly.
//! # Errors
//! What is answered wrongly before anything is rolled is known ([`Seen::know`]), and no error afterwards: the
//! webhook of a definition may be down. Everything else is one but these:
//! - 503 with Retry-After: the request is repeated a little later;
//! - 404 of something that nobody lists any more, as every connection says after it: it went with its last server;
//! - a connection that had been kept open after an answer, and ends before the first byte of the next one. A server may
//!   close such a connection at any time, so HTTP lets clients repeat a GET (RFC 9110, 9.2.2), and they do. So does
//!   the probe, once, and counts it. A new connection that fails, and an answer that breaks off, are errors.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;

use crate::failure::chain;

/// Between two paths.
const PAUSE: Duration = Duration::from_millis(2);
/// A request that takes longer is not answered.
const LIMIT: Duration = Duration::from_secs(30);
const PATIENCE: Patience = Patience { later: Duration::from_millis(50), n_later: 40, n_gone: 100 };

/// How often something is tried again.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// Between two tries. Clients wait for as long as Retry-After says.
    later: Duration,
    /// After a 503.
    n_later: usize,
    /// While servers differ about what has gone.
    n_gone: usize,
}

/// What the probe has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) answers: u64,
    /// 503 with Retry-After: come back later.
    pub(super) later: u64,
    /// Requests that were repeated because a connection ended between two of them.
    pub(super) repeated: u64,
    /// Anything else, in the order in which it was first seen.
    pub(super) errors: Vec<Wrong>,
    /// What was wrong before anything was rolled.
    pub(super) known: Vec<Wrong>,
    /// How many groups and versions were used in the last pass.
    pub(super) n_used: usize,
    /// The number of the pass that was begun last, and of the last one that is complete.
    pub(super) begun: u64,
    pub(super) complete: u64,
}

/// Something that was not as it should be.
#[derive(Clone, Debug)]
pub(super) struct Wrong {
    pub(super) path: String,
    /// Of the answer, if there was one.
    status: Option<StatusCode>,
    pub(super) what: String,
    n: u64,
}

impl Seen {
    pub(super) fn in_words(&self) -> String {
        let Self { answers, later, repeated, errors, known, n_used, begun: _, complete: _ } = self;
        let n: u64 = errors.iter().map(|it| it.n).sum();
        let first =
            errors.first().map_or_else(String::new, |it| format!(" (first: {}: {})", it.path, it.what));
        let known = match known.iter().map(|it| it.n).sum::<u64>() {
            0 => String::new(),
            n => format!("{n} failures as before, "),
        };
        format!(
            "{answers} answers from {n_used} group-versions, {later} times 503 with Retry-After, \
             {repeated} repeated on a new connection, {known}{n} errors{first}"
        )
    }

    /// Whatever was answered wrongly until now is nobody's fault later on.
    pub(super) fn know(&mut self) {
        let (known, errors) =
            std::mem::take(&mut self.errors).into_iter().partition(|it| it.status.is_some());
        (self.known, self.errors) = (known, errors);
    }

    /// An answer that should be another one.
    fn wrong_answer(&mut self, path: &str, status: StatusCode, what: &str) {
        let is_known = |it: &&mut Wrong| it.path == path && it.status == Some(status);
        match self.known.iter_mut().find(is_known) {
            Some(known) => known.n += 1,
            None => self.error(path, Some(status), what),
        }
    }

    fn error(&mut self, path: &str, status: Option<StatusCode>, what: &str) {
        match self.errors.iter_mut().find(|it| it.path == path && it.what == what) {
            Some(wrong) => wrong.n += 1,
            None => {
                self.errors.push(Wrong { path: path.to_owned(), status, what: what.to_owned(), n: 1 });
            }
        }
    }
}

/// Makes passes until it is dropped. `connect` makes a client with connections of its own.
pub(super) async fn run(connect: impl Fn() -> Option<kube::Client>, n_lanes: usize, seen: Arc<Mutex<Seen>>) {
    loop {
        let number = {
            let mut seen = seen.lock();
            seen.begun += 1;
            seen.begun
        };
        // New connections, so that servers that came back are asked, too.
        let lane = |_| Some(Lane::new(connect()?, &seen, PATIENCE));
        let lanes: Option<Vec<Lane>> = (0..n_lanes).map(lane).collect();
        let is_complete = match lanes {
            Some(lanes) => Lanes(lanes).pass(&seen).await,
            None => {
                seen.lock().error("/", None, "no client can be made");
                false
            }
        };
        if is_complete {
            seen.lock().complete = number;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Answer(Vec<u8>),
    /// 503 with Retry-After, every time.
    Later,
    /// 404.
    Denied(String),
    /// Another answer, which was counted.
    Wrong,
    /// No answer, which was counted as an error.
    Broken,
}

/// Several connections through the common address.
struct Lanes(Vec<Lane>);

impl Lanes {
    /// Whether everything was answered by every lane.
    async fn pass(&mut self, seen: &Mutex<Seen>) -> bool {
        let Some(roots) = self.roots().await else { return false };
        let mut is_complete = true;
        for root in &roots {
            let Some(documents) = self.get(root, "/apis", root).await else {
                is_complete = false;
                continue;
            };
            if let Some(name) = documents.iter().find_map(listable) {
                let path = format!("{root}/{name}?limit=1");
                is_complete &= self.get(&path, root, &name).await.is_some();
            }
            tokio::time::sleep(PAUSE).await;
        }
        seen.lock().n_used = roots.len();
        is_complete
    }

    /// Every group and version that anybody lists; nothing if not everybody said.
    async fn roots(&mut self) -> Option<BTreeSet<String>> {
        let documents = self.get("/apis", "/", "apis").await?;
        if documents.is_empty() || documents.len() < self.0.len() {
            return None;
        }
        let mut roots: BTreeSet<String> = documents.iter().flat_map(roots).collect();
        roots.insert("/api/v1".to_owned());
        Some(roots)
    }

    /// What the lanes are told; nothing unless all are told something. A 404 is an error if `name` is still listed in
    /// `list`.
    async fn get(&mut self, path: &str, list: &str, name: &str) -> Option<Vec<Value>> {
        let told = join_all(self.0.iter_mut().map(|it| it.get(path))).await;
        let denied = told.iter().find_map(|it| match it {
            Told::Denied(why) => Some(why.clone()),
            Told::Answer(_) | Told::Later | Told::Wrong | Told::Broken => None,
        });
        if let Some(why) = denied
            && !self.is_gone(list, name).await
        {
            self.0.first()?.seen.lock().wrong_answer(path, StatusCode::NOT_FOUND, &why);
        }
        let mut documents = Vec::new();
        for told in told {
            match told {
                Told::Answer(bytes) => documents.push(serde_json::from_slice(&bytes).unwrap_or_default()),
                Told::Denied(_) | Told::Wrong => {}
                Told::Later | Told::Broken => return None,
            }
        }
        Some(documents)
    }

    /// Whether every lane says, maybe a moment later, that something is not there. Servers do not learn of a departure
    /// at the same moment; whoever still lists something after a while has it.
    async fn is_gone(&mut self, list: &str, name: &str) -> bool {
        let Some(Patience { later, n_gone, .. }) = self.0.first().map(|it| it.patience) else { return false };
        for _ in 0..n_gone {
            let told = join_all(self.0.iter_mut().map(|it| it.get(list))).await;
            let is_without = |told: &Told| match told {
                Told::Answer(bytes) => !lists(&serde_json::from_slice(bytes).unwrap_or_default(), name),
                Told::Denied(_) => true,
                // Nobody knows.
                Told::Later | Told::Wrong | Told::Broken => false,
            };
            if told.iter().all(is_without) {
                return true;
            }
            tokio::time::sleep(later).await;
        }
        false
    }
}

/// One connection at a time.
struct Lane {
    client: kube::Client,
    /// Whether there is a connection that was left open after an answer.
    is_kept: bool,
    seen: Arc<Mutex<Seen>>,
    patience: Patience,
}

impl Lane {
    fn new(client: kube::Client, seen: &Arc<Mutex<Seen>>, patience: Patience) -> Self {
        Self { client, is_kept: false, seen: Arc::clone(seen), patience }
    }

    /// Asks until it is told something else than to come back later.
    async fn get(&mut self, path: &str) -> Told {
        for _ in 0..self.patience.n_later {
            match self.ask(path).await {
                Told::Later => tokio::time::sleep(self.patience.later).await,
                told => return told,
            }
        }
        Told::Later
    }

    async fn ask(&mut self, path: &str) -> Told {
        let was_kept = std::mem::take(&mut self.is_kept);
        let mut answer = self.send(path).await;
        if was_kept && matches!(answer, Err(Broken::Cut(_))) {
            self.seen.lock().repeated += 1;
            answer = self.send(path).await;
        }
        let mut seen = self.seen.lock();
        let (status, asks_for_time, bytes) = match answer {
            Ok(Answer { status, asks_for_time, stays, bytes }) => {
                self.is_kept = stays;
                (status, asks_for_time, bytes)
            }
            Err(Broken::Cut(why) | Broken::Other(why)) => {
                seen.error(path, None, &why);
                return Told::Broken;
            }
        };
        let text = || format!("{} {}", status.as_u16(), String::from_utf8_lossy(&bytes).trim());
        match status {
            it if it.is_success() => {
                seen.answers += 1;
                Told::Answer(bytes)
            }
            StatusCode::SERVICE_UNAVAILABLE if asks_for_time => {
                seen.later += 1;
                Told::Later
            }
            StatusCode::NOT_FOUND => Told::Denied(text()),
            _ => {
                seen.wrong_answer(path, status, &text());
                Told::Wrong
            }
        }
    }

    async fn send(&self, path: &str) -> Result<Answer, Broken> {
        let request = Request::get(path).header(header::ACCEPT, "application/json").body(Body::empty());
        let request = request.map_err(|it| Broken::Other(it.to_string()))?;
        let asked = tokio::time::timeout(LIMIT, async {
            let response = self.client.send(request).await.map_err(|it| broken(&it))?;
            let (head, body) = response.into_parts();
            let bytes = body.collect().await.map_err(|it| Broken::Other(format!("broken off: {it}")))?;
            Ok(Answer {
                status: head.status,
                asks_for_time: head.headers.contains_key(header::RETRY_AFTER),
                stays: head.headers.get(header::CONNECTION).is_none_or(|it| it != "close"),
                bytes: bytes.to_bytes().to_vec(),
            })
        });
        asked.await.unwrap_or_else(|_| Err(Broken::Other(format!("no answer within {LIMIT:?}"))))
    }
}

struct Answer {
    status: StatusCode,
    asks_for_time: bool,
    /// Whether the connection stays open.
    stays: bool,
    bytes: Vec<u8>,
}

/// Why there is no answer.
enum Broken {
    /// The connection ended before the first byte of one.
    Cut(String),
    Other(String),
}

fn broken(error: &kube::Error) -> Broken {
    let why = chain(error);
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if let Some(it) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            // Whoever cannot even connect is not served.
            return if it.is_connect() { Broken::Other(why) } else { Broken::Cut(why) };
        }
        source = error.source();
    }
    Broken::Other(why)
}

/// The documents of all groups and versions in a list of groups.
fn roots(groups: &Value) -> Vec<String> {
    let groups = groups["groups"].as_array().into_iter().flatten();
    let versions = groups.flat_map(|it| it["versions"].as_array().into_iter().flatten());
    versions.filter_map(|it| Some(format!("/apis/{}", it["groupVersion"].as_str()?))).collect()
}

/// The first resource in a list of resources that can be listed.
fn listable(resources: &Value) -> Option<String> {
    let mut resources = resources["resources"].as_array()?.iter();
    let can_list = |it: &&Value| it["verbs"].as_array().is_some_and(|it| it.iter().any(|it| it == "list"));
    resources.find(can_list)?["name"].as_str().map(str::to_owned)
}

/// Whether a list of groups or of resources names something.
fn lists(document: &Value, name: &str) -> bool {
    let mut resources = document["resources"].as_array().into_iter().flatten();
    roots(document).iter().any(|it| it == name) || resources.any(|it| it["name"] == name)
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, convert::Infallible};

    use http::Response;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Code, a header, and the body.
    type Scripted = (u16, &'static str, Value);

    /// Answers what it was told to, in order, and 200 after that.
    fn lanes(scripts: &[&[Scripted]]) -> (Lanes, Arc<Mutex<Seen>>) {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let lane = |script: &&[Scripted]| {
            let script: Arc<Mutex<VecDeque<Scripted>>> =
                Arc::new(Mutex::new(script.iter().cloned().collect()));
            let service = tower::service_fn(move |_: Request<Body>| {
                let next = script.lock().pop_front().unwrap_or((200, "", json!({})));
                async move {
                    let mut response = Response::builder().status(next.0);
                    if !next.1.is_empty() {
                        response = response.header(next.1, "1");
                    }
                    Ok::<_, Infallible>(response.body(Body::from(next.2.to_string().into_bytes())).unwrap())
                }
            });
            let patience = Patience { later: Duration::from_millis(1), n_later: 3, n_gone: 4 };
            Lane::new(kube::Client::new(service, "default"), &seen, patience)
        };
        (Lanes(scripts.iter().map(lane).collect()), Arc::clone(&seen))
    }

    const NO: (u16, &str) = (404, "");

    fn listing(names: &[&str]) -> Scripted {
        let resources: Vec<Value> =
            names.iter().map(|it| json!({"name": it, "verbs": ["get", "list"]})).collect();
        (200, "", json!({"resources": resources}))
    }

    async fn get(scripts: &[&[Scripted]]) -> Seen {
        let (mut lanes, seen) = lanes(scripts);
        let _ = lanes.get("/apis/apps/v1/deployments?limit=1", "/apis/apps/v1", "deployments").await;
        seen.lock().clone()
    }

    #[tokio::test]
    async fn only_503_with_retry_after_may_be_repeated() {
        let later = (503, "retry-after", json!({}));
        let seen = get(&[&[later.clone(), later]]).await;
        assert_eq!((seen.later, seen.answers, seen.errors.len()), (2, 1, 0));
        for code in [503, 500, 429, 403] {
            let seen = get(&[&[(code, "", json!({}))]]).await;
            assert_eq!((seen.later, seen.errors.len()), (0, 1), "{code}");
        }
    }

    #[tokio::test]
    async fn what_nobody_lists_is_not_denied() {
        let no = (NO.0, NO.1, json!({}));
        let seen = get(&[&[no.clone(), no.clone()], &[listing(&[]), listing(&["pods"])]]).await;
        assert!(seen.errors.is_empty(), "{seen:?}");
        // The other one has yet to learn of the departure.
        let seen = get(&[
            &[no.clone(), no.clone(), no.clone()],
            &[listing(&[]), listing(&["deployments"]), listing(&[])],
        ])
        .await;
        assert!(seen.errors.is_empty(), "{seen:?}");
    }

    #[tokio::test]
    async fn what_anybody_lists_is_denied_wrongly() {
        let no = (NO.0, NO.1, json!({}));
        let listed = vec![listing(&["deployments"]); 1_000];
        let seen = get(&[&vec![no.clone(); 1_000], &listed]).await;
        assert_eq!(seen.errors.len(), 1, "{seen:?}");
    }

    #[tokio::test]
    async fn a_404_is_not_excused_by_a_list_that_cannot_be_had() {
        let no = (NO.0, NO.1, json!({}));
        let broken = vec![(503, "retry-after", json!({})); 1_000];
        let seen = get(&[&vec![no.clone(); 1_000], &[&[listing(&[])], &broken[..]].concat()]).await;
        assert_eq!(seen.errors.len(), 1, "{seen:?}");
    }

    /// So many answers on each connection, then the next request is read and the connection closed.
    async fn hangs_up(n_answers: Vec<usize>) -> (Lane, Arc<Mutex<Seen>>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            for n in n_answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 4_096];
                for at in 0..=n {
                    if stream.read(&mut buffer).await.unwrap() == 0 || at == n {
                        break;
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                }
            }
        });
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut config = kube::Config::new(url.parse().unwrap());
        config.default_retry = false;
        let seen: Arc<Mutex<Seen>> = Arc::default();
        (Lane::new(kube::Client::try_from(config).unwrap(), &seen, PATIENCE), seen)
    }

    #[tokio::test]
    async fn a_connection_that_ends_between_two_requests_is_replaced_once() {
        let (mut lane, seen) = hangs_up(vec![1, 1]).await;
        for _ in 0..2 {
            assert!(matches!(lane.get("/apis").await, Told::Answer(_)));
        }
        let seen = seen.lock();
        assert_eq!((seen.answers, seen.repeated, seen.errors.len()), (2, 1, 0), "{seen:?}");
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_any_answer_is_an_error() {
        let (mut lane, seen) = hangs_up(vec![0]).await;
        assert_eq!(lane.get("/apis").await, Told::Broken);
        let noted = seen.lock().clone();
        assert_eq!((noted.repeated, noted.errors.len()), (0, 1));
        let (mut lane, seen) = hangs_up(vec![1, 0]).await;
        lane.get("/apis").await;
        assert_eq!(lane.get("/apis").await, Told::Broken, "nor is the second time excused");
        let noted = seen.lock().clone();
        assert_eq!((noted.repeated, noted.errors.len()), (1, 1));
    }

    #[tokio::test]
    async fn a_pass_in_which_discovery_fails_is_not_complete() {
        let (mut lanes, seen) = lanes(&[&[(500, "", json!({}))]]);
        assert!(!lanes.pass(&seen).await);
        assert_eq!(seen.lock().errors.len(), 1);
        assert!(!Lanes(Vec::new()).pass(&seen).await, "nobody was asked");
    }

    /// A definition whose conversion webhook is down: 500 to every list, in every pass.
    #[tokio::test]
    async fn what_is_wrong_from_the_beginning_is_known_and_what_comes_later_is_not() {
        let pass = |code: u16| [(200, "", json!({})), listing(&["pods"]), (code, "", json!({}))];
        let script = [pass(500), pass(500), pass(403)].concat();
        let (mut lanes, seen) = lanes(&[&script]);
        assert!(lanes.pass(&seen).await, "everything was answered");
        seen.lock().know();
        assert!(lanes.pass(&seen).await);
        let noted = seen.lock().clone();
        assert!(
            noted.errors.is_empty() && noted.in_words().contains("2 failures as before, 0 errors"),
            "{noted:?}"
        );
        assert!(lanes.pass(&seen).await);
        let noted = seen.lock().clone();
        assert_eq!(noted.errors.len(), 1, "{noted:?}");
        assert_eq!(noted.errors[0].path, "/api/v1/pods?limit=1");
    }

    #[test]
    fn the_first_error_is_the_one_that_was_first() {
        let mut seen = Seen::default();
        for path in ["/z", "/a", "/z"] {
            seen.error(path, None, "gone");
        }
        assert!(seen.in_words().ends_with("3 errors (first: /z: gone)"), "{}", seen.in_words());
    }
}
