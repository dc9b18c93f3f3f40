//! The measurements, one after the other.

use std::{sync::Arc, time::Duration};

use load::{
    LoadError,
    closed_loop::{self, Load, MakeRequest, Subject, always},
    fanout::{self, FanOut},
};
use serde_json::{Value, json};

use super::{
    Measure, Size,
    endpoint::{Endpoint, MAPS},
    report::Figure,
};
use crate::failure::Failure;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// What marks the definitions that are made here.
const OURS: &str = "labelSelector=convoy.dev%2Fbench%3Dtrue";
const PARCELS: Subject = Subject {
    path: "/apis/parcels.bench.convoy.dev/v1/namespaces/convoy-bench/parcels",
    api_version: "parcels.bench.convoy.dev/v1",
    kind: "Parcel",
};
const PARCELS_NAME: &str = "parcels.parcels.bench.convoy.dev";
const OWN_MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
const IN_TREE_MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
/// Writes per second that watchers are told about.
const WRITES: u32 = 50;
/// Lists are long answers: more connections would only wait for each other.
const LISTERS: u64 = 8;
/// The group of the objects that are migrated.
const PARCELS_GROUP: &str = "parcels.bench.convoy.dev";
/// Longer than anything here should take.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// What is said of something that cannot be measured here.
pub fn skipped(measure: Measure) -> Vec<Figure> {
    let (name, why) = match measure {
        Measure::Start => ("start to readiness", "only of a server that bench starts: --start"),
        _ => ("GET through another server", "only of servers that bench starts: --start"),
    };
    vec![Figure::skipped(name, why)]
}

impl Endpoint {
    pub async fn measure(&self, measure: Measure, size: Size) -> Result<Vec<Figure>, Failure> {
        let figure = match measure {
            Measure::Get => self.get(size).await,
            Measure::List => self.list(size).await,
            Measure::Create => {
                self.load("CREATE 1 KB", size, size.connections, 201, MAPS.creates(&self.target, "new")).await
            }
            Measure::Update => {
                self.load("UPDATE 1 KB", size, size.connections, 200, self.updates(size)).await
            }
            Measure::Patch => self.load("PATCH 1 KB", size, size.connections, 200, self.patches(size)).await,
            Measure::Delete => self.delete(size).await,
            Measure::Collect => return Ok(vec![self.collect(size).await?]),
            Measure::Watch => self.watch(size).await,
            Measure::Definitions => return Ok(vec![self.definitions(size).await?]),
            Measure::Migration => return Ok(vec![self.migration(size).await?]),
            Measure::Start | Measure::Proxied => return Ok(skipped(measure)),
        };
        let failed = |it: LoadError| Failure::failed(format!("{}: {}: {it}", self.name, measure.name()));
        Ok(vec![figure.map_err(failed)?])
    }

    /// The same load as GET has.
    pub async fn get(&self, size: Size) -> Result<Figure, LoadError> {
        let one = always(self.target.request("GET", &format!("{}/read-7", MAPS.path), b""));
        self.load("GET 1 KB", size, size.connections, 200, one).await
    }

    async fn list(&self, size: Size) -> Result<Figure, LoadError> {
        let all = always(self.target.request("GET", MAPS.path, b""));
        let name = format!("LIST {} x 1 KB", size.objects);
        self.load(&name, size, size.connections.min(LISTERS), 200, all).await
    }

    async fn load(
        &self,
        name: &str,
        size: Size,
        connections: u64,
        expected: u16,
        make: MakeRequest,
    ) -> Result<Figure, LoadError> {
        let n_connections = usize::try_from(connections).unwrap_or(1);
        let load: Load = closed_loop::run(&self.target, n_connections, size.time, expected, make).await?;
        let [p50, p99] = [50, 99].map(|it| millis(load.latency.percentile(it)));
        let note = format!("{connections} connections, p50 {p50:.2} ms, p99 {p99:.2} ms");
        Ok(Figure::rate(name, load.per_second(), note))
    }

    fn updates(&self, size: Size) -> MakeRequest {
        let target = self.target.clone();
        let filler = "y".repeat(1_000);
        Arc::new(move |number| {
            let name = format!("read-{}", number % size.objects);
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
                "data": {"key": filler, "turn": number.to_string()}});
            target.request("PUT", &format!("{}/{name}", MAPS.path), body.to_string().as_bytes()).into()
        })
    }

    fn patches(&self, size: Size) -> MakeRequest {
        let target = self.target.clone();
        Arc::new(move |number| {
            let path = format!("{}/read-{}", MAPS.path, number % size.objects);
            let patch = format!("{{\"data\":{{\"patched\":\"{number}\"}}}}");
            let kind = "application/merge-patch+json";
            target.request_as("PATCH", &path, patch.as_bytes(), "application/json", kind).into()
        })
    }

    /// Objects that are there for this alone, deleted one by one.
    async fn delete(&self, size: Size) -> Result<Figure, LoadError> {
        let make = MAPS.creates(&self.target, "doomed");
        closed_loop::send_all(&self.target, size.connections, size.objects, make).await?;
        let target = self.target.clone();
        let make: MakeRequest = Arc::new(move |number| {
            target.request("DELETE", &format!("{}/doomed-{number}", MAPS.path), b"").into()
        });
        let took = closed_loop::send_all(&self.target, size.connections, size.objects, make).await?;
        let note = format!("{} objects, {} connections", size.objects, size.connections);
        Ok(Figure::rate("DELETE 1 KB", float(size.objects) / took.as_secs_f64(), note))
    }

    /// Objects of one owner, from its deletion until the last of them is gone.
    async fn collect(&self, size: Size) -> Result<Figure, Failure> {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
        let owner = self.ask("POST", MAPS.path, Some(&owner)).await?;
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner["metadata"]["uid"]}]);
        let target = self.target.clone();
        let make: MakeRequest = Arc::new(move |number| {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": format!("owned-{number}"), "labels": {"owned": "true"}, "ownerReferences": reference,
            }});
            target.request("POST", MAPS.path, body.to_string().as_bytes()).into()
        });
        let sent = closed_loop::send_all(&self.target, size.connections, size.objects, make).await;
        sent.map_err(|it| Failure::because(&it))?;
        let begin = self.clock.monotonic();
        self.ask("DELETE", &format!("{}/owner", MAPS.path), None).await?;
        let left = format!("{}?labelSelector=owned%3Dtrue&limit=1", MAPS.path);
        self.until("the collection of an owner's objects", PATIENCE, || async {
            let list = self.ask("GET", &left, None).await?;
            Ok(list["items"].as_array().is_none_or(Vec::is_empty))
        })
        .await?;
        let took = self.clock.monotonic().saturating_sub(begin);
        let note = format!("{} objects of one owner", size.objects);
        Ok(Figure::rate("garbage collection", float(size.objects) / took.as_secs_f64(), note))
    }

    async fn watch(&self, size: Size) -> Result<Figure, LoadError> {
        let seconds = u32::try_from(size.time.as_secs().max(1)).unwrap_or(u32::MAX);
        let watchers = usize::try_from(size.watchers).unwrap_or(1);
        let config = FanOut { watchers, writes_per_second: WRITES, seconds };
        let seen = fanout::run(&self.target, MAPS, config).await?;
        let note = format!("p50 {:.2} ms, {} events", millis(seen.percentile(50)), seen.len());
        let name = format!("watch: {WRITES} writes/s to {watchers} watchers, p99");
        Ok(Figure::time(name, millis(seen.percentile(99)), note))
    }

    /// Definitions, until they can be used.
    async fn definitions(&self, size: Size) -> Result<Figure, Failure> {
        let begin = self.clock.monotonic();
        let target = self.target.clone();
        let make: MakeRequest = Arc::new(move |number| {
            let body = definition("things.bench.convoy.dev", &format!("things{number}"), &["v1"], "v1");
            target.request("POST", DEFINITIONS, body.to_string().as_bytes()).into()
        });
        let sent = closed_loop::send_all(&self.target, size.connections, size.definitions, make).await;
        let found = match sent {
            Ok(_) => self.until("the installation of definitions", PATIENCE, || self.has_all(size)).await,
            Err(error) => Err(Failure::because(&error)),
        };
        let took = self.clock.monotonic().saturating_sub(begin);
        self.ask("DELETE", &format!("{DEFINITIONS}?{OURS}"), None).await?;
        found?;
        let note = format!(
            "{} definitions, until discovery shows them all: {:.0} ms",
            size.definitions,
            millis(took)
        );
        Ok(Figure::rate("definitions installed", float(size.definitions) / took.as_secs_f64(), note))
    }

    async fn has_all(&self, size: Size) -> Result<bool, Failure> {
        let list = self.ask("GET", &format!("{DEFINITIONS}?{OURS}"), None).await?;
        let is_established = |it: &&Value| {
            let mut conditions = it["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|it| it["type"] == "Established" && it["status"] == "True")
        };
        let items = list["items"].as_array().into_iter().flatten();
        let n_established = items.filter(is_established).count();
        let group = "/apis/things.bench.convoy.dev/v1";
        if !self.is_found(group).await? {
            return Ok(false);
        }
        let resources = self.ask("GET", group, None).await?;
        let n_found = resources["resources"].as_array().map_or(0, Vec::len);
        Ok([n_established, n_found].iter().all(|n| float(*n) >= float(size.definitions)))
    }

    /// Objects in one version, then the other is stored, until no object is stored in the first.
    async fn migration(&self, size: Size) -> Result<Figure, Failure> {
        let name = "migration of stored objects";
        let is_ours = self.is_found("/apis/migration.k8s.io/v1alpha1").await?;
        if !is_ours && !self.is_found("/apis/storagemigration.k8s.io/v1beta1").await? {
            return Ok(Figure::skipped(name, "the server has no StorageVersionMigrations"));
        }
        let crd = definition(PARCELS_GROUP, "parcels", &["v1", "v2"], "v1");
        self.ask("POST", DEFINITIONS, Some(&crd)).await?;
        let result = self.migrate(size, is_ours).await;
        self.forget_migrations(if is_ours { OWN_MIGRATIONS } else { IN_TREE_MIGRATIONS }).await?;
        self.ask("DELETE", &format!("{DEFINITIONS}/{PARCELS_NAME}"), None).await?;
        let took = result?;
        let note =
            format!("{} objects, without a limit, with verification: {:.0} ms", size.objects, millis(took));
        Ok(Figure::rate(name, float(size.objects) / took.as_secs_f64(), note))
    }

    async fn migrate(&self, size: Size, is_ours: bool) -> Result<Duration, Failure> {
        self.until("the installation of a definition", PATIENCE, || self.is_found(PARCELS.path)).await?;
        let make = PARCELS.creates(&self.target, "p");
        closed_loop::send_all(&self.target, size.connections, size.objects, make)
            .await
            .map_err(|it| Failure::because(&it))?;
        // It is there before the flip, so that nobody begins another one.
        let path = if is_ours { OWN_MIGRATIONS } else { IN_TREE_MIGRATIONS };
        let migration = if is_ours { Some(self.ask("POST", path, Some(&paused())).await?) } else { None };
        let crd = format!("{DEFINITIONS}/{PARCELS_NAME}");
        let versions = definition(PARCELS_GROUP, "parcels", &["v1", "v2"], "v2");
        let patch = json!({"spec": {"versions": versions["spec"]["versions"]}});
        self.ask("PATCH", &crd, Some(&patch)).await?;
        let begin = self.clock.monotonic();
        let migration = match migration {
            Some(made) => made,
            None => self.ask("POST", path, Some(&in_tree())).await?,
        };
        let path = format!("{path}/{}", migration["metadata"]["name"].as_str().unwrap_or_default());
        if is_ours {
            let go = json!({"metadata": {"annotations": {"convoy.dev/paused": null}}});
            self.ask("PATCH", &path, Some(&go)).await?;
        }
        self.until("a migration", PATIENCE, || self.has_migrated(&path)).await?;
        Ok(self.clock.monotonic().saturating_sub(begin))
    }

    /// What a measurement that was broken off has left outside of the namespace.
    pub async fn forget_everything(&self) {
        for path in [OWN_MIGRATIONS, IN_TREE_MIGRATIONS] {
            let _ = self.forget_migrations(path).await;
        }
        let _ = self.ask("DELETE", &format!("{DEFINITIONS}?{OURS}"), None).await;
    }

    /// Migrations stay when what they migrated has gone.
    async fn forget_migrations(&self, path: &str) -> Result<(), Failure> {
        let list = self.ask("GET", path, None).await?;
        let items = list["items"].as_array().into_iter().flatten();
        for ours in items.filter(|it| it["spec"]["resource"]["group"] == PARCELS_GROUP) {
            let name = ours["metadata"]["name"].as_str().unwrap_or_default();
            self.ask("DELETE", &format!("{path}/{name}"), None).await?;
        }
        Ok(())
    }

    async fn has_migrated(&self, path: &str) -> Result<bool, Failure> {
        let found = self.ask("GET", path, None).await?;
        let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
        let failed = conditions.clone().find(|it| it["type"] == "Failed" && it["status"] == "True");
        if let Some(failed) = failed {
            return Err(Failure::failed(format!(
                "{}: the migration failed: {}",
                self.name, failed["message"]
            )));
        }
        Ok(conditions.any(|it| it["type"] == "Succeeded" && it["status"] == "True"))
    }
}

fn paused() -> Value {
    json!({"apiVersion": "migration.k8s.io/v1alpha1", "kind": "StorageVersionMigration",
        "metadata": {"generateName": "bench-", "annotations": {"convoy.dev/paused": "true", "convoy.dev/rate": "0"}},
        "spec": {"resource": {"group": PARCELS_GROUP, "version": "v1", "resource": "parcels"}}})
}

fn in_tree() -> Value {
    json!({"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"generateName": "bench-"},
        "spec": {"resource": {"group": PARCELS_GROUP, "resource": "parcels"}}})
}

/// A definition of objects with a field `data`.
fn definition(group: &str, plural: &str, versions: &[&str], storage: &str) -> Value {
    let schema = json!({"type": "object", "properties":
        {"data": {"type": "object", "additionalProperties": {"type": "string"}}}});
    let version = |name: &&str| {
        json!({"name": name, "served": true, "storage": *name == storage,
            "schema": {"openAPIV3Schema": schema}})
    };
    let mut kind = plural.trim_end_matches('s').to_owned();
    if let Some(first) = kind.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}"), "labels": {"convoy.dev/bench": "true"}},
        "spec": {"group": group, "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": versions.iter().map(version).collect::<Vec<_>>()}})
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
pub fn float(value: impl TryInto<u64>) -> f64 {
    value.try_into().unwrap_or(u64::MAX) as f64
}
