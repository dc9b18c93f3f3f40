//! What clients do during a roll: read everything there is, in every version; make, change and remove objects through
//! whichever version is served at that moment; and note what they were told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::history::{
    durability::{Durability, Outcome, Seen, Write},
    watch::{Object, Written},
};
use tokio::time::Instant;

use super::{
    fleet::AGGREGATED,
    hands::Hand,
    verdict::{Asked, Gvr, Logbook, Verdict},
};

/// How many collections are read before the client looks again what there is.
const AT_A_TIME: usize = 20;

/// The annotation that holds what was written last.
pub const VALUE: &str = "roll/value";

/// A kind whose objects are made and removed.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub group: &'static str,
    pub resource: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Where its objects are kept.
    pub prefix: &'static str,
    /// What an object must have.
    pub rest: &'static str,
    /// The version in which it is watched, in all releases.
    pub watched: &'static [&'static str],
}

const fn kind(group: &'static str, resource: &'static str, kind: &'static str) -> Kind {
    Kind { group, resource, kind, namespaced: false, prefix: "", rest: "{}", watched: &[] }
}

/// Kinds that all releases have in other versions, and one that only the newest has.
pub const KINDS: [Kind; 6] = [
    Kind { namespaced: true, prefix: "/registry/configmaps/", ..kind("", "configmaps", "ConfigMap") },
    Kind {
        prefix: "/registry/deviceclasses/",
        rest: r#"{"spec": {}}"#,
        watched: &["v1", "v1beta2"],
        ..kind("resource.k8s.io", "deviceclasses", "DeviceClass")
    },
    Kind {
        prefix: "/registry/volumeattributesclasses/",
        rest: r#"{"driverName": "d", "parameters": {"a": "b"}}"#,
        watched: &["v1"],
        ..kind("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass")
    },
    Kind {
        prefix: "/registry/mutatingadmissionpolicybindings/",
        rest: r#"{"spec": {"policyName": "none"}}"#,
        ..kind(
            "admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings",
            "MutatingAdmissionPolicyBinding",
        )
    },
    Kind {
        namespaced: true,
        prefix: "/registry/podgroups/",
        rest: r#"{"spec": {"schedulingPolicy": {"basic": {}}}}"#,
        ..kind("scheduling.k8s.io", "podgroups", "PodGroup")
    },
    Kind {
        namespaced: true,
        prefix: "/registry/example.com/widgets/",
        watched: &["v1"],
        ..kind("example.com", "widgets", "Widget")
    },
];

impl Kind {
    pub fn collection(&self, version: &str) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let space = if self.namespaced { "/namespaces/default" } else { "" };
        format!("{root}/{version}{space}/{}", self.resource)
    }

    pub fn object(&self, version: &str, name: &str, value: &str) -> Value {
        let mut object: Value = serde_json::from_str(self.rest).unwrap();
        let group = if self.group.is_empty() { String::new() } else { format!("{}/", self.group) };
        object["apiVersion"] = json!(format!("{group}{version}"));
        object["kind"] = json!(self.kind);
        object["metadata"] = json!({"name": name, "annotations": {VALUE: value}});
        object
    }

    pub fn gvr(&self, version: &str) -> Gvr {
        (self.group.to_owned(), version.to_owned(), self.resource.to_owned())
    }
}

/// What writers were told.
#[derive(Debug)]
pub struct Books {
    pub durability: Durability,
    /// By resource.
    pub written: BTreeMap<&'static str, Written>,
}

impl Default for Books {
    fn default() -> Self {
        Self { durability: Durability::with_migrations(), written: BTreeMap::new() }
    }
}

/// What all clients share.
#[derive(Clone, Default)]
pub struct Shared {
    pub logbook: Arc<Logbook>,
    pub books: Arc<Mutex<Books>>,
    pub stop: Arc<AtomicBool>,
}

/// One client at work.
pub struct Worker {
    pub hand: Hand,
    pub shared: Shared,
}

/// What can be listed, out of an aggregated document.
pub fn listable(document: &Value) -> BTreeSet<Gvr> {
    let mut found = BTreeSet::new();
    for group in document["items"].as_array().into_iter().flatten() {
        let name = group["metadata"]["name"].as_str().unwrap_or_default();
        for version in group["versions"].as_array().into_iter().flatten() {
            for resource in version["resources"].as_array().into_iter().flatten() {
                if resource["verbs"].as_array().is_some_and(|it| it.iter().any(|it| it == "list")) {
                    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
                    found.insert((name.to_owned(), text(&version["version"]), text(&resource["resource"])));
                }
            }
        }
    }
    found
}

impl Worker {
    pub fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    async fn ask(
        &self,
        gvr: Option<&Gvr>,
        method: &'static str,
        path: &str,
        accept: &str,
        body: &Value,
    ) -> (Verdict, Instant) {
        let since = Instant::now();
        let said = self.hand.ask(method, path, accept, body).await;
        let asked = Asked { who: self.hand.name(), what: format!("{method} {path}"), gvr, since };
        let verdict = self.shared.logbook.judge(&asked, said);
        if matches!(verdict, Verdict::Unknown) {
            // As told by Retry-After, only shorter.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        (verdict, since)
    }

    fn fault(&self, text: &str) {
        self.shared.logbook.fault(format!("{}: {text}", self.hand.name()));
    }

    /// Everything that the cluster says it has; `None` if it could not say.
    async fn discover(&self) -> Option<BTreeSet<Gvr>> {
        let mut all = BTreeSet::new();
        for path in ["/api", "/apis"] {
            let (verdict, since) = self.ask(None, "GET", path, AGGREGATED, &Value::Null).await;
            let Verdict::Answered(said) = verdict else { return None };
            if said.code != 200 {
                self.fault(&format!("{path}: {} {}", said.code, said.body));
                return None;
            }
            let found = listable(&said.body);
            let is_here = |it: &&Gvr| it.0.is_empty() == (path == "/api");
            for missing in
                self.shared.logbook.settled(since).iter().filter(is_here).filter(|it| !found.contains(*it))
            {
                self.fault(&format!("{path} lacks {missing:?}"));
            }
            all.extend(found);
        }
        Some(all)
    }

    /// Reads every collection in every version, over and over; what it has not read for the longest time comes first.
    pub async fn read(self: Arc<Self>) {
        let mut last: BTreeMap<Gvr, u64> = BTreeMap::new();
        for turn in 1_u64.. {
            if self.is_over() {
                return;
            }
            let Some(found) = self.discover().await else { continue };
            let mut found: Vec<Gvr> = found.into_iter().collect();
            found.sort_by_key(|it| last.get(it).copied().unwrap_or_default());
            for gvr in found.iter().take(AT_A_TIME) {
                last.insert(gvr.clone(), turn);
                if self.is_over() {
                    return;
                }
                let (group, version, resource) = gvr;
                let root = if group.is_empty() { "/api".to_owned() } else { format!("/apis/{group}") };
                let path = format!("{root}/{version}/{resource}?limit=3");
                let (verdict, _) = self.ask(Some(gvr), "GET", &path, "application/json", &Value::Null).await;
                match verdict {
                    Verdict::Answered(said) if said.code == 200 => {
                        self.shared.logbook.has_read(self.hand.name(), gvr);
                    }
                    Verdict::Answered(said) => self.fault(&format!("{path}: {} {}", said.code, said.body)),
                    Verdict::Absent | Verdict::Unknown => {}
                }
            }
        }
    }

    /// Makes objects of all kinds, changes them, and removes every other one.
    pub async fn write(self: Arc<Self>) {
        for n in 0_usize.. {
            let Some(found) = self.discover().await else {
                if self.is_over() {
                    return;
                }
                continue;
            };
            for kind in KINDS {
                if self.is_over() {
                    return;
                }
                let is_it = |it: &&Gvr| it.0 == kind.group && it.2 == kind.resource;
                let versions: Vec<&str> = found.iter().filter(is_it).map(|it| it.1.as_str()).collect();
                if !versions.is_empty() {
                    self.life(kind, &versions, n).await;
                }
            }
        }
    }

    /// The life of one object, through all versions; it is left alone as soon as its state is in doubt.
    async fn life(&self, kind: Kind, versions: &[&str], n: usize) {
        let name = format!("{}-{n}", self.hand.name());
        let version = |step: usize| versions[(n + step) % versions.len()];
        if !self.put(kind, version(0), "POST", &name, 0).await {
            return;
        }
        for step in 1..=versions.len() {
            if !self.put(kind, version(step), "PATCH", &name, step).await {
                return;
            }
        }
        if n.is_multiple_of(2) {
            self.delete(kind, version(1), &name).await;
        }
    }

    /// Whether it is certain that it was done.
    async fn put(&self, kind: Kind, version: &str, method: &'static str, name: &str, step: usize) -> bool {
        let value = format!("{name}-{step}");
        let key = format!("{}/{name}", kind.resource);
        let (collection, gvr) = (kind.collection(version), kind.gvr(version));
        let (path, body) = match method {
            "POST" => (collection, kind.object(version, name, &value)),
            _ => (format!("{collection}/{name}"), json!({"metadata": {"annotations": {VALUE: value}}})),
        };
        let pending = {
            let mut books = self.shared.books.lock();
            let written = books.written.entry(kind.resource).or_default();
            written.attempted.insert((name.to_owned(), value.clone()));
            books.durability.begin(&key, Write::Put(value.clone()))
        };
        let (verdict, since) = self.ask(Some(&gvr), method, &path, "application/json", &body).await;
        let outcome = match verdict {
            // Who tried again by itself may have been heard before whoever heard it was gone.
            Verdict::Absent if self.shared.logbook.was_rough(since) => Outcome::Unknown,
            Verdict::Absent => Outcome::Refused,
            Verdict::Unknown => Outcome::Unknown,
            Verdict::Answered(said) if matches!(said.code, 200 | 201) => {
                let revision = said.body["metadata"]["resourceVersion"].as_str();
                let revision = revision.and_then(|it| it.parse().ok());
                if revision.is_none() {
                    self.fault(&format!("{method} {path}: no resourceVersion in {}", said.body));
                }
                Outcome::Acknowledged(revision)
            }
            Verdict::Answered(said) => {
                // A client that tried again by itself meets what it did the first time.
                if !(said.code == 409 && method == "POST" && self.shared.logbook.was_rough(since)) {
                    self.fault(&format!("{method} {path}: {} {}", said.code, said.body));
                }
                Outcome::Unknown
            }
        };
        let mut books = self.shared.books.lock();
        if let Outcome::Acknowledged(Some(revision)) = outcome {
            let object = Object { revision, value, label: String::new() };
            let written = books.written.entry(kind.resource).or_default();
            written.acknowledged.insert(revision, (name.to_owned(), object));
        }
        if let Err(violation) = books.durability.end(pending, outcome) {
            self.fault(&violation.to_string());
        }
        matches!(outcome, Outcome::Acknowledged(_))
    }

    async fn delete(&self, kind: Kind, version: &str, name: &str) {
        let key = format!("{}/{name}", kind.resource);
        let (path, gvr) = (format!("{}/{name}", kind.collection(version)), kind.gvr(version));
        let pending = {
            let mut books = self.shared.books.lock();
            books.written.entry(kind.resource).or_default().deleted.insert(name.to_owned());
            books.durability.begin(&key, Write::Delete)
        };
        let (verdict, since) = self.ask(Some(&gvr), "DELETE", &path, "application/json", &Value::Null).await;
        let outcome = match verdict {
            Verdict::Absent if self.shared.logbook.was_rough(since) => Outcome::Unknown,
            Verdict::Absent => Outcome::Refused,
            Verdict::Unknown => Outcome::Unknown,
            Verdict::Answered(said) if said.code == 200 => Outcome::Acknowledged(None),
            Verdict::Answered(said) => {
                if !(said.code == 404 && self.shared.logbook.was_rough(since)) {
                    self.fault(&format!("DELETE {path}: {} {}", said.code, said.body));
                }
                Outcome::Unknown
            }
        };
        if let Err(violation) = self.shared.books.lock().durability.end(pending, outcome) {
            self.fault(&violation.to_string());
        }
    }
}

/// What a stored object shows of a write.
pub fn seen(value: &[u8], revision: u64) -> Result<Option<(String, Seen)>> {
    let object: Value = serde_json::from_slice(value).context("objects are stored as JSON")?;
    let Some(written) = object["metadata"]["annotations"][VALUE].as_str() else { return Ok(None) };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Ok(Some((name, Seen { value: written.to_owned(), revision })))
}
