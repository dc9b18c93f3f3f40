//! A migration as somebody asked for it: the objects of kube-storage-version-migrator and those of the in-tree
//! controller are read alike.

use jiff::Timestamp;
use kube::Client;
use meta::{GroupResource, Value, object, time};
use serde_json::{Map, json};

use super::plan::Wishes;
use super::state::{Phase, Run};
use crate::api::Collection;
use crate::changes::Watched;
use crate::error::Error;
use crate::run::Ctx;

/// Kept on a migration for as long as it holds something that must be let go.
pub(super) const FINALIZER: &str = "convoy.dev/migration";

/// On migrations that the trigger made: it may delete and remake them.
pub(crate) const MADE_BY: &str = "app.kubernetes.io/managed-by";
pub(crate) const TRIGGER: &str = "storage-version-trigger";

/// As what upstream's migrators write the status: kube-storage-version-migrator, and those in kube-controller-manager,
/// which by default all have the name of their binary.
const OTHERS: [&str; 6] = [
    "kube-controller-manager",
    "kube-storage-version-migrator",
    "storage-version-migration-migrator",
    "storage-version-migrator-controller",
    "migration-runner-controller",
    "resource-version-controller",
];

/// Annotations by which people say how. Both kinds have them, and a spec that cannot change does not matter.
pub mod annotation {
    /// `"true"`: nothing is done until it is gone.
    pub const PAUSED: &str = "convoy.dev/paused";
    /// `"true"`: it ends as Aborted.
    pub const CANCEL: &str = "convoy.dev/cancel";
    /// Objects per second; `"0"` for no limit.
    pub const RATE: &str = "convoy.dev/rate";
    /// Names with commas between.
    pub const NAMESPACES: &str = "convoy.dev/namespaces";
    /// A label selector.
    pub const SELECTOR: &str = "convoy.dev/selector";
    /// `"true"`: nothing is written.
    pub const DRY_RUN: &str = "convoy.dev/dry-run";
    /// Evidence that is good enough, such as `SecondPassOneEndpoint`; names with commas between.
    pub const ACCEPT: &str = "convoy.dev/accept-evidence";
}

/// The two kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    /// `migration.k8s.io/v1alpha1`
    External,
    /// `storagemigration.k8s.io/v1beta1`
    InTree,
}

impl Api {
    pub(crate) const ALL: [Self; 2] = [Self::External, Self::InTree];

    fn parts(self) -> (&'static str, &'static str) {
        match self {
            Self::External => ("migration.k8s.io", "v1alpha1"),
            Self::InTree => ("storagemigration.k8s.io", "v1beta1"),
        }
    }

    pub(crate) fn collection(self) -> Collection {
        let (group, version) = self.parts();
        Collection::cluster(group, version, "storageversionmigrations")
    }

    pub(crate) fn watched(self) -> Watched {
        let (group, version) = self.parts();
        Watched {
            group,
            version,
            kind: "StorageVersionMigration",
            resource: "storageversionmigrations",
            fields: "",
        }
    }

    pub(crate) fn api_version(self) -> String {
        let (group, version) = self.parts();
        format!("{group}/{version}")
    }

    /// What work on an object of this kind is called.
    pub(super) fn key(self, name: &str) -> String {
        format!("{}/{name}", self.parts().0)
    }

    pub(super) fn of_key(key: &str) -> Option<(Self, &str)> {
        let (group, name) = key.split_once('/')?;
        Self::ALL.into_iter().find(|it| it.parts().0 == group).map(|it| (it, name))
    }
}

/// All migrations of a resource, of both kinds, as far as the cluster has them.
pub(crate) async fn of_resource(client: &Client, resource: &GroupResource) -> Result<Vec<Migration>, Error> {
    let mut found = Vec::new();
    for api in Api::ALL {
        let mut token = None;
        loop {
            let page = match api.collection().list(client, token.as_deref()).await {
                Err(error) if error.is(404) => break,
                page => page?,
            };
            let (items, next) = page.open();
            let all = items.into_iter().map(|it| Migration::read(api, it));
            found.extend(all.filter(|it| it.resource == *resource));
            token = next;
            if token.is_none() {
                break;
            }
        }
    }
    Ok(found)
}

/// One migration.
#[derive(Clone, Debug)]
pub(crate) struct Migration {
    pub(crate) api: Api,
    pub(crate) object: Value,
    pub(crate) resource: GroupResource,
    pub(crate) run: Run,
}

impl Migration {
    pub(crate) fn read(api: Api, object: Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let resource = GroupResource::new(text("/spec/resource/group"), text("/spec/resource/resource"));
        let run = Run::of(&object);
        Self { api, resource, run, object }
    }

    pub(crate) fn name(&self) -> &str {
        object::name(&self.object)
    }

    pub(crate) fn is_made_by_trigger(&self) -> bool {
        let labels = self.object.pointer("/metadata/labels");
        labels.and_then(|it| it.get(MADE_BY)).and_then(Value::as_str) == Some(TRIGGER)
    }

    /// Whether it is about every object.
    pub(crate) fn is_whole(&self) -> bool {
        self.wishes().is_whole()
    }

    pub(super) fn has_finalizer(&self) -> bool {
        object::finalizers(&self.object).contains(&FINALIZER)
    }

    /// Those that have begun go first, then those made first.
    pub(super) fn order(&self) -> (bool, String, Api, String) {
        let made = object::meta_text(&self.object, "creationTimestamp").to_owned();
        (!self.run.phase.has_begun(), made, self.api, self.name().to_owned())
    }

    pub(super) fn made(&self) -> Option<Timestamp> {
        time::parse_time(object::meta_text(&self.object, "creationTimestamp"))
    }

    pub(super) fn wishes(&self) -> Wishes {
        let text = |key: &str| {
            let annotations = self.object.pointer("/metadata/annotations");
            annotations.and_then(|it| it.get(key)).and_then(Value::as_str).unwrap_or_default()
        };
        let list = |key: &str| {
            let entries = text(key).split(',').map(str::trim).filter(|it| !it.is_empty());
            entries.map(str::to_owned).collect::<Vec<_>>()
        };
        Wishes {
            is_paused: text(annotation::PAUSED) == "true",
            is_cancelled: text(annotation::CANCEL) == "true",
            rate: text(annotation::RATE).parse().ok(),
            namespaces: list(annotation::NAMESPACES),
            selector: text(annotation::SELECTOR).to_owned(),
            is_dry_run: text(annotation::DRY_RUN) == "true",
            accepted: list(annotation::ACCEPT),
        }
    }

    /// Another program that writes the status of this migration, too. The in-tree migrator leaves its checkpoint there,
    /// `status.resourceVersion`, before it does anything else.
    pub(super) fn other_hand(&self) -> Option<&str> {
        let managers = self.object.pointer("/metadata/managedFields").and_then(Value::as_array);
        let of_status = |it: &&Value| it.get("subresource").is_none_or(|it| it == "status");
        let named =
            managers.into_iter().flatten().filter(of_status).filter_map(|it| it.get("manager")?.as_str());
        let other = named.into_iter().find(|it| OTHERS.iter().any(|other| it.starts_with(other)));
        let checkpoint = self.object.pointer("/status/resourceVersion").and_then(Value::as_str);
        let has_checkpoint = checkpoint.is_some_and(|it| !it.is_empty());
        other.or_else(|| has_checkpoint.then_some("the migrator in kube-controller-manager"))
    }

    /// Lets go of the migration itself.
    pub(super) async fn drop_finalizer(&self, ctx: &Ctx) -> Result<(), Error> {
        if !self.has_finalizer() {
            return Ok(());
        }
        let others: Vec<&str> =
            object::finalizers(&self.object).into_iter().filter(|it| *it != FINALIZER).collect();
        self.set_finalizers(ctx, &json!(others)).await
    }

    pub(super) async fn set_finalizers(&self, ctx: &Ctx, finalizers: &Value) -> Result<(), Error> {
        let version = object::resource_version(&self.object);
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        self.api.collection().patch(&ctx.client, self.name(), &patch, &ctx.because([])).await
    }

    /// The reference of Events.
    pub(super) fn involved(&self) -> Value {
        json!({
            "apiVersion": self.api.api_version(), "kind": "StorageVersionMigration",
            "name": self.name(), "uid": object::uid(&self.object),
        })
    }

    /// The status to write, conditions included.
    pub(super) fn status(&self, run: &Run, now: Timestamp) -> Value {
        let now = time::format_time(now);
        let mut status = self.object.get("status").cloned().unwrap_or_default();
        if !status.is_object() {
            status = Value::Object(Map::new());
        }
        let mut written = serde_json::to_value(run).unwrap_or_default();
        written["lastUpdateTime"] = json!(now);
        let fields = object::as_map_mut(&mut status);
        // What a run does not have any more must go, too.
        for gone in ["completionTime", "evidence", "prunedVersions"] {
            fields.remove(gone);
        }
        fields.extend(std::mem::take(object::as_map_mut(&mut written)));
        let mut conditions = fields.remove("conditions").unwrap_or_else(|| json!([]));
        for (kind, is_true, reason, message) in conditions_of(run) {
            set_condition(&mut conditions, self.api, (kind, is_true, &reason, &message), &now);
        }
        fields.insert("conditions".to_owned(), conditions);
        status
    }
}

/// Type, whether it is true, reason and message. A condition that has never been true is left out.
fn conditions_of(run: &Run) -> Vec<(&'static str, bool, String, String)> {
    let (reason, message) = (run.reason.clone(), run.message.clone());
    let end = |kind, reason: String| {
        let completed = ("Running", false, "MigrationCompleted".to_owned(), "Migration completed".to_owned());
        vec![completed, (kind, true, reason, message.clone())]
    };
    match run.phase {
        Phase::Pending if reason.is_empty() => Vec::new(),
        // Why it waits, also where nothing but conditions is kept.
        Phase::Pending => vec![("Running", false, reason, message)],
        Phase::Succeeded => end("Succeeded", "StorageVersionMigrationSucceeded".to_owned()),
        Phase::Failed => end("Failed", reason),
        Phase::Aborted => end("Aborted", reason),
        _ => {
            let message = if message.is_empty() { "The migration is running".to_owned() } else { message };
            vec![("Running", true, "MigrationRunning".to_owned(), message)]
        }
    }
}

fn set_condition(
    conditions: &mut Value,
    api: Api,
    (kind, is_true, reason, message): (&str, bool, &str, &str),
    now: &str,
) {
    let status = if is_true { "True" } else { "False" };
    // The in-tree kind has upstream's common condition.
    let time_field = match api {
        Api::External => "lastUpdateTime",
        Api::InTree => "lastTransitionTime",
    };
    let reason = if reason.is_empty() { "Migration" } else { reason };
    let Some(list) = conditions.as_array_mut() else { return };
    let made = json!({"type": kind, "status": status, "reason": reason, "message": message, time_field: now});
    match list.iter_mut().find(|it| it["type"] == kind) {
        Some(found) => {
            let is_same = found["status"] == status;
            let since = found[time_field].clone();
            *found = made;
            if is_same {
                found[time_field] = since;
            }
        }
        None if is_true || kind == "Running" => list.push(made),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_condition(object: &Value, kind: &str) -> bool {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
        conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == "True")
    }

    fn asked(api: Api, annotations: &Value) -> Migration {
        let object = json!({
            "metadata": {"name": "m", "annotations": annotations},
            "spec": {"resource": {"group": "example.com", "resource": "widgets"}},
        });
        Migration::read(api, object)
    }

    #[test]
    fn wishes_are_read_from_annotations() {
        let wishes = asked(
            Api::InTree,
            &json!({
                "convoy.dev/paused": "true", "convoy.dev/rate": "0", "convoy.dev/namespaces": "a, b,",
                "convoy.dev/selector": "x=y", "convoy.dev/accept-evidence": "SecondPassOneEndpoint",
            }),
        )
        .wishes();
        assert!(wishes.is_paused && !wishes.is_cancelled && !wishes.is_whole());
        assert_eq!((wishes.rate, wishes.namespaces.len()), (Some(0), 2));
        assert!(asked(Api::External, &Value::Null).wishes().is_whole());
    }

    #[test]
    fn conditions_are_as_each_api_has_them() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        for (api, field) in [(Api::External, "lastUpdateTime"), (Api::InTree, "lastTransitionTime")] {
            let mut migration = asked(api, &Value::Null);
            let mut run = Run { phase: Phase::Running, ..Run::default() };
            migration.object["status"] = migration.status(&run, now);
            assert!(has_condition(&migration.object, "Running"));
            assert_eq!(migration.object["status"]["conditions"][0][field], "2026-11-16T12:00:00Z");
            run.phase = Phase::Succeeded;
            migration.object["status"] = migration.status(&run, now);
            assert!(has_condition(&migration.object, "Succeeded"));
            assert!(!has_condition(&migration.object, "Running"));
            let read = Migration::read(api, migration.object.clone());
            assert_eq!(read.run.phase, Phase::Succeeded);
        }
    }

    #[test]
    fn upstreams_migrators_are_noticed() {
        let mut migration = asked(Api::InTree, &Value::Null);
        assert_eq!(migration.other_hand(), None);
        migration.object["metadata"]["managedFields"] = json!([{"manager": "kubectl"}, {"manager": "migration-runner-controller", "operation": "Update"}]);
        assert_eq!(migration.other_hand(), Some("migration-runner-controller"));
        // As it is by default. Who only made the migration is no migrator.
        let field =
            |subresource: &str| json!([{"manager": "kube-controller-manager", "subresource": subresource}]);
        migration.object["metadata"]["managedFields"] = field("status");
        assert_eq!(migration.other_hand(), Some("kube-controller-manager"));
        migration.object["metadata"]["managedFields"] = field("scale");
        assert_eq!(migration.other_hand(), None);
        migration.object["status"] = json!({"resourceVersion": "4711"});
        assert_eq!(migration.other_hand(), Some("the migrator in kube-controller-manager"));
    }

    /// Timestamps have seconds: two that were made in the same one are told apart by what they do.
    #[test]
    fn one_that_has_begun_is_not_overtaken() {
        let mut begun = asked(Api::InTree, &Value::Null);
        begun.run.phase = Phase::Running;
        assert!(begun.order() < asked(Api::External, &Value::Null).order());
    }

    /// D3: what another controller finished is finished here.
    #[test]
    fn the_conditions_of_others_count() {
        let mut migration = asked(Api::InTree, &Value::Null);
        migration.object["status"] = json!({"conditions": [{"type": "Failed", "status": "True"}]});
        assert_eq!(Migration::read(Api::InTree, migration.object).run.phase, Phase::Failed);
    }
}
