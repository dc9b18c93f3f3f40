//! Sees to it that stored objects are migrated when what servers store has changed (KEP-2343).
//!
//! # Flow
//! For every stored resource there is a StorageState: which versions its objects may be stored in, and which is written
//! now. Whenever that may have changed, the state is brought up to date, and a StorageVersionMigration made if there is
//! something to migrate. Where objects are counted the count decides; elsewhere what was seen before.
//!
//! # Guarantees
//! - Nothing is migrated while servers do not agree.
//! - Migrations that people made are never deleted.
//! - A version leaves the state only when it is known that nothing is stored in it.
//!
//! Deliberately not here: how objects are migrated ([`crate::migration`]).

mod plan;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream};
use meta::{GroupResource, Value, object, time};
use serde_json::json;
use tracing::{debug, info, warn};

use crate::api::{Collection, Exactly};
use crate::changes::{Change, Watched, changes};
use crate::error::Error;
use crate::migration::engine::{Agreement, Engine, Trouble};
use crate::migration::request::{self, Api, MADE_BY, Migration, TRIGGER};
use crate::migration::{CANCELLED, Phase, annotation, served};
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{Next, work};
use plan::{Facts, Known, Made, State};

/// Resources that are looked at at the same time.
const AT_ONCE: usize = 4;
/// All resources are looked at so often, whatever happens: heartbeats are due.
const PERIOD: Duration = Duration::from_secs(60);
/// The same where discovery must be asked, which is not cheap. Half of the proposal's, so that no state becomes stale.
const DISCOVERY_PERIOD: Duration = Duration::from_secs(300);
/// Changes come in groups: the last server of an upgrade moves many resources at once.
const SETTLE: Duration = Duration::from_millis(200);

/// Their names are those of their resources.
const DEFINITIONS: Watched = Watched {
    group: "apiextensions.k8s.io",
    version: "v1",
    kind: "CustomResourceDefinition",
    resource: "customresourcedefinitions",
    fields: "",
};

const API_VERSION: &str = "migration.k8s.io/v1alpha1";

pub(crate) async fn run(ctx: Ctx) {
    let Some(engine) = ctx.engine.clone() else { return std::future::pending().await };
    let (known, open) = (Mutex::default(), Mutex::default());
    let trigger = Arc::new(Trigger { ctx: ctx.clone(), engine, known, open });
    served(&ctx.client, &states()).await;
    let moved = stream::unfold((Arc::clone(&trigger), true), |(trigger, is_first)| async move {
        if !is_first {
            trigger.wait().await;
        }
        let resources = trigger.resources().await;
        Some((stream::iter(resources), (trigger, false)))
    });
    let ended = stream::select_all(Api::ALL.map(|it| touched(&ctx, it).boxed()));
    let redefined = changes(&ctx.client, DEFINITIONS).filter_map(|it| {
        let name = match it {
            Change::Applied(it) | Change::Deleted(it) => Some(it.name),
            _ => None,
        };
        std::future::ready(name)
    });
    let triggers = stream::select(moved.flatten().boxed(), stream::select(ended, redefined.boxed()));
    let counted = ctx.counted(Controller::StorageVersionTrigger);
    work(counted, AT_ONCE, triggers, |key| trigger.pass(key)).await;
}

fn states() -> Collection {
    Collection::cluster("migration.k8s.io", "v1alpha1", "storagestates")
}

/// The resources of migrations that change. Their names say nothing, so all are looked at that have one.
fn touched(ctx: &Ctx, api: Api) -> impl Stream<Item = String> + Send + use<> {
    let client = ctx.client.clone();
    let reader = client.clone();
    let watched = async move {
        served(&client, &api.collection()).await;
        changes(&client, api.watched())
    };
    stream::once(watched).flatten().filter_map(move |it| {
        let name = match it {
            Change::Applied(it) => Some(it.name),
            _ => None,
        };
        let client = reader.clone();
        async move {
            let object = api.collection().get(&client, &name?).await.ok()??;
            let migration = Migration::read(api, object);
            // On the way it changes all the time, and nothing follows from that.
            migration.run.phase.is_end().then(|| migration.resource.to_string())
        }
    })
}

struct Trigger {
    ctx: Ctx,
    engine: Arc<dyn Engine>,
    /// Resources that this process has looked at.
    known: Mutex<HashSet<String>>,
    /// Resources about which servers do not agree, and how often that was seen.
    open: Mutex<HashMap<String, u32>>,
}

impl Trigger {
    /// Until something may have changed.
    async fn wait(&self) {
        if !self.engine.is_told() {
            return tokio::time::sleep(DISCOVERY_PERIOD).await;
        }
        let _ = tokio::time::timeout(PERIOD, self.engine.changed()).await;
        tokio::time::sleep(SETTLE).await;
    }

    async fn resources(&self) -> Vec<String> {
        match self.engine.resources().await {
            Ok(resources) => resources.iter().map(ToString::to_string).collect(),
            Err(trouble) => {
                warn!(%trouble, "which resources are stored cannot be told");
                Vec::new()
            }
        }
    }

    async fn pass(&self, key: String) -> Result<Next, Error> {
        let resource = GroupResource::from(key.as_str());
        let later = |it: Trouble| Error::Unknown(it.to_string());
        let agreement = self.agreement(&resource).await?;
        if agreement == Agreement::Absent {
            return self.forget(&key).await;
        }
        // Before what is stored: what a migration that has ended did is seen below.
        let found = request::of_resource(&self.ctx.client, &resource).await?;
        let migrations: Vec<Made> = found.iter().map(describe).collect();
        let stored = self.engine.stored(&resource).await.map_err(later)?;
        let written = self.engine.written(&resource).await;
        let before = states().get(&self.ctx.client, &key).await?;
        let state: Option<State> = before.as_ref().map(|it| {
            let status = it.get("status").cloned().unwrap_or_default();
            serde_json::from_value(status).unwrap_or_default()
        });
        let is_first = !self.known.lock().unwrap_or_else(PoisonError::into_inner).contains(&key);
        let plan = plan::plan(&Facts {
            state: state.as_ref(),
            agreement: &agreement,
            written: &written,
            stored: stored.as_ref(),
            migrations: &migrations,
            is_first,
            now: (self.ctx.now)(),
        });
        // What was counted may be what another agreement has left: a migration that somebody asked for can begin and end
        // while this looks.
        if plan.create && self.agreement(&resource).await? != agreement {
            return Ok(Next::After(SETTLE));
        }
        for name in &plan.delete {
            debug!(resource = key, migration = name, "a migration of ours is out of date");
            let is_it = |it: &&Migration| it.api == Api::External && object::name(&it.object) == name;
            let Some(migration) = found.iter().find(is_it) else { continue };
            let why = self.ctx.because([]);
            let exactly = Exactly::of(&migration.object);
            match Api::External.collection().delete(&self.ctx.client, name, exactly, &why).await {
                Err(error) if !error.is(404) => return Err(error),
                _ => {}
            }
        }
        // First the state: should this end here, the next one finds that something is to be done.
        if let Some(known) = plan.state {
            self.write_state(&resource, before, known).await?;
        }
        if plan.create {
            self.create(&resource, &agreement).await?;
        }
        let next = self.look_again(&key, &agreement);
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        Ok(next)
    }

    async fn agreement(&self, resource: &GroupResource) -> Result<Agreement, Error> {
        match self.engine.agreement(resource).await {
            Err(Trouble::Gone) => Ok(Agreement::Absent),
            other => other.map_err(|it| Error::Unknown(it.to_string())),
        }
    }

    /// Servers that are asked do not tell when they agree. After a flip that is a moment, in an upgrade it takes long.
    fn look_again(&self, key: &str, agreement: &Agreement) -> Next {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if self.engine.is_told() || !matches!(agreement, Agreement::Open(_) | Agreement::Following(_)) {
            open.remove(key);
            return Next::OnChange;
        }
        let seen = open.entry(key.to_owned()).or_default();
        *seen += 1;
        Next::After(PERIOD.min(SETTLE * (1 << (*seen).min(10))))
    }

    /// A resource that is gone needs no state: a new one of its name is another one.
    async fn forget(&self, key: &str) -> Result<Next, Error> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let Some(state) = states().get(&self.ctx.client, key).await? else { return Ok(Next::OnChange) };
        let why = self.ctx.because([]);
        match states().delete(&self.ctx.client, key, Exactly::of(&state), &why).await {
            Err(error) if !error.is(404) => Err(error),
            _ => Ok(Next::OnChange),
        }
    }

    async fn write_state(
        &self,
        resource: &GroupResource,
        before: Option<Value>,
        known: Known,
    ) -> Result<(), Error> {
        let name = resource.to_string();
        let client = &self.ctx.client;
        let mut object = match before {
            Some(object) => object,
            None => {
                let spec = json!({"resource": {"group": &*resource.group, "resource": &*resource.resource}});
                let fresh = json!({
                    "apiVersion": API_VERSION, "kind": "StorageState", "metadata": {"name": name}, "spec": spec,
                });
                states().create(client, &fresh).await?;
                let Some(made) = states().get(client, &name).await? else { return Ok(()) };
                made
            }
        };
        let mut hashes = Vec::with_capacity(known.persisted.len());
        for version in &known.persisted {
            hashes.push(self.hash(resource, version).await);
        }
        let state = State {
            persisted_storage_version_hashes: hashes,
            current_storage_version_hash: self.hash(resource, &known.current).await,
            last_heartbeat_time: Some(time::format_time((self.ctx.now)())),
            persisted_versions: known.persisted,
            current_version: known.current,
            evidence: known.evidence,
        };
        object["status"] = serde_json::to_value(state).map_err(Error::Unreadable)?;
        states().replace_subresource(client, &name, "status", &object).await?;
        Ok(())
    }

    async fn hash(&self, resource: &GroupResource, version: &str) -> String {
        self.engine.hash(resource, version).await.unwrap_or_else(|| plan::UNKNOWN.to_owned())
    }

    async fn create(&self, resource: &GroupResource, agreement: &Agreement) -> Result<(), Error> {
        let version = match agreement {
            Agreement::Agreed { version, .. } => version.rsplit('/').next().unwrap_or_default(),
            _ => "",
        };
        let (group, plural) = (&*resource.group, &*resource.resource);
        let mut migration = json!({
            "apiVersion": API_VERSION, "kind": "StorageVersionMigration",
            "metadata": {"generateName": format!("{resource}-"), "labels": {MADE_BY: TRIGGER}},
            "spec": {"resource": {"group": group, "version": version, "resource": plural}},
        });
        if !self.ctx.accepted.is_empty() {
            migration["metadata"]["annotations"] = json!({annotation::ACCEPT: self.ctx.accepted.join(",")});
        }
        info!(%resource, version, "objects are to be migrated");
        Api::External.collection().create(&self.ctx.client, &migration).await
    }
}

fn describe(migration: &Migration) -> Made {
    let run = &migration.run;
    Made {
        name: object::name(&migration.object).to_owned(),
        is_own: migration.is_made_by_trigger(),
        is_ended: run.phase.is_end() || object::is_deleting(&migration.object),
        has_succeeded: run.phase == Phase::Succeeded,
        is_interrupted: run.phase == Phase::Aborted && run.reason != CANCELLED,
        // What it was about when it looked, and not what somebody has made of its annotations since.
        is_whole: migration.is_whole() && !run.is_partial(),
        version: run.storage_version.clone(),
        epoch: run.epoch,
        completed: run.completion_time.as_deref().and_then(time::parse_time),
        evidence: run.evidence.clone(),
    }
}
