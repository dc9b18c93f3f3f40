//! A client that uses every group and version while servers are rolled, and counts what it is told.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::Request;
use parking_lot::Mutex;
use serde_json::Value;

use crate::cluster::ask;

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(5);

/// What the probe has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) answers: u64,
    /// 503 with Retry-After: come back later.
    pub(super) later: u64,
    /// Connections that were cut, which clients repeat.
    pub(super) cut: u64,
    /// Anything else, by what it was.
    pub(super) errors: BTreeMap<String, u64>,
}

impl Seen {
    pub(super) fn in_words(&self) -> String {
        let Self { answers, later, cut, errors } = self;
        let n: u64 = errors.values().sum();
        let first = errors.keys().next().map_or_else(String::new, |it| format!(" (first: {it})"));
        format!(
            "{answers} answers, {later} times 503 with Retry-After, {cut} cut connections, {n} errors{first}"
        )
    }
}

/// Asks until it is dropped.
pub(super) async fn run(client: kube::Client, seen: Arc<Mutex<Seen>>) {
    loop {
        let paths = paths(&client).await;
        for path in &paths {
            let mut outcome = look(&client, path).await;
            // What went with the last server of a release is not denied: nobody has it, and discovery says so.
            let is_denied = matches!(&outcome, Err(kube::Error::Api(status)) if status.code == 404);
            if is_denied && !self::paths(&client).await.contains(path) {
                outcome = Ok(());
            }
            note(&mut seen.lock(), path, outcome);
            tokio::time::sleep(PAUSE).await;
        }
        if paths.is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// One collection of every group and version.
async fn paths(client: &kube::Client) -> Vec<String> {
    let mut paths = Vec::new();
    let Ok(groups) = document(client, "/apis").await else { return paths };
    let versions = groups["groups"].as_array().into_iter().flatten();
    let versions = versions.flat_map(|it| it["versions"].as_array().into_iter().flatten());
    let mut roots: Vec<String> =
        versions.filter_map(|it| it["groupVersion"].as_str().map(|it| format!("/apis/{it}"))).collect();
    roots.push("/api/v1".to_owned());
    for root in roots {
        let Ok(list) = document(client, &root).await else { continue };
        let mut resources = list["resources"].as_array().into_iter().flatten();
        let can_list =
            |it: &&Value| it["verbs"].as_array().is_some_and(|it| it.iter().any(|it| it == "list"));
        if let Some(name) = resources.find(can_list).and_then(|it| it["name"].as_str()) {
            paths.push(format!("{root}/{name}?limit=1"));
        }
    }
    paths
}

async fn document(client: &kube::Client, path: &str) -> Result<Value, ()> {
    let text = ask(client, "GET", path, Vec::new()).await.map_err(drop)?;
    serde_json::from_str(&text).map_err(drop)
}

async fn look(client: &kube::Client, path: &str) -> Result<(), kube::Error> {
    let request = Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
    client.request_text(request).await.map(drop)
}

fn note(seen: &mut Seen, path: &str, outcome: Result<(), kube::Error>) {
    match outcome {
        Ok(()) => seen.answers += 1,
        Err(kube::Error::Api(status)) => {
            let asks_for_time = status.details.as_ref().is_some_and(|it| it.retry_after_seconds > 0);
            if status.code == 503 && asks_for_time {
                seen.later += 1;
            } else {
                let what = format!("{path}: {} {}", status.code, status.message);
                *seen.errors.entry(what).or_default() += 1;
            }
        }
        Err(_) => seen.cut += 1,
    }
}
