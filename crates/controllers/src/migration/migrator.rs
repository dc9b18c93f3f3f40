//! Takes migrations through their phases.
//!
//! A pass works on one migration for a moment, then reads it again: people who pause, cancel or delete it do not wait.

mod hindrance;
mod passes;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{Stream, StreamExt, stream};
use jiff::SignedDuration;
use meta::{Value, object, time};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::definition::{self, Hold, Mark};
use super::engine::{Agreement, Engine, Trouble};
use super::pace::Pace;
use super::plan::{Facts, Step, Wishes, plan};
use super::request::{self, Api, FINALIZER, Migration};
use super::state::{Phase, Run};
use crate::api::Collection;
use crate::changes::{Change, changes};
use crate::error::{Chain, Error};
use crate::events::{self, Record};
use crate::run::Ctx;
use crate::selection::Controller;
use crate::work::{Next, work};

/// Resources that are migrated at the same time.
const AT_ONCE: usize = 5;
/// How long a pass works before it reads its migration again.
const SLICE: Duration = Duration::from_millis(700);
/// The status is written at least this often while something changes.
const FLUSH: Duration = Duration::from_secs(3);
/// Until the next look at a migration that waits.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// A resource may be announced a moment after its migration was made.
const GRACE: SignedDuration = SignedDuration::from_secs(60);
/// Until the next look for an API that the cluster does not have.
const UNSERVED: Duration = Duration::from_secs(30);
/// The same if the cluster did not say.
const UNREACHED: Duration = Duration::from_millis(500);
/// After so many halvings every step is about one object.
const MAX_HALVINGS: u32 = 10;
/// Freezes that have run out are looked for so often.
const SWEEP: Duration = Duration::from_secs(60);

const WHO: &str = "storage-version-migrator";

pub(crate) async fn run(ctx: Ctx) {
    let Some(engine) = ctx.engine.clone() else { return std::future::pending().await };
    // Convoy's servers know by themselves when a freeze ends.
    let is_swept = !engine.is_told();
    let shared =
        Arc::new(Shared { ctx: ctx.clone(), engine, live: Mutex::default(), touched: Mutex::default() });
    let told = stream::select_all(Api::ALL.map(|it| told(&ctx, it).boxed()));
    let told = told.inspect(|it| shared.touch(it));
    let moved = stream::unfold(Arc::clone(&shared), |shared| async {
        let keys = shared.after_a_change().await;
        Some((stream::iter(keys), shared))
    });
    let triggers = stream::select(told, moved.flatten().boxed());
    let counted = ctx.counted(Controller::StorageVersionMigrator);
    let work = work(counted, AT_ONCE, triggers, |key| shared.pass(key));
    tokio::select! {
        () = work => {}
        () = sweep(&ctx), if is_swept => {}
    }
}

/// Lifts what others left behind, for ever.
async fn sweep(ctx: &Ctx) {
    loop {
        if let Err(error) = definition::sweep(ctx).await {
            debug!(error = %Chain(&error), "freezes that have run out cannot be looked for");
        }
        tokio::time::sleep(SWEEP).await;
    }
}

/// What changes of one kind of migrations, as soon as the cluster has that kind.
fn told(ctx: &Ctx, api: Api) -> impl Stream<Item = String> + Send + use<> {
    let client = ctx.client.clone();
    let watched = async move {
        served(&client, &api.collection()).await;
        changes(&client, api.watched())
    };
    stream::once(watched).flatten().filter_map(move |it| {
        let name = match it {
            Change::Listed(it) | Change::Applied(it) | Change::Deleted(it) => Some(api.key(&it.name)),
            Change::ListBegins | Change::ListEnds => None,
        };
        std::future::ready(name)
    })
}

/// Waits until the cluster has a resource.
pub(crate) async fn served(client: &kube::Client, collection: &Collection) {
    while let Err(error) = collection.list(client, None).await {
        let pause = if error.is(404) { UNSERVED } else { UNREACHED };
        tokio::time::sleep(pause).await;
    }
}

struct Shared {
    ctx: Ctx,
    engine: Arc<dyn Engine>,
    /// What is known beyond the status, by key.
    live: Mutex<HashMap<String, Live>>,
    /// Whoever works on a migration is told here that somebody changed it.
    touched: Mutex<HashMap<String, Arc<Notify>>>,
}

/// A migration that this process works on.
#[derive(Clone, Debug)]
struct Live {
    uid: String,
    run: Run,
    /// The status as it was last read or written: another one means that somebody else had a hand in it.
    written: Value,
    flushed: Instant,
    pace: Pace,
    /// From which moment on the pace counts.
    began: Instant,
    /// Since when this process has known the agreement.
    since: Instant,
    /// Objects that were found not to be stored as wanted.
    left: u64,
    /// Steps that failed, one after the other.
    n_setbacks: u32,
    /// Nothing is rewritten before.
    not_before: Instant,
    /// Whether the server refuses to move the storage version, as soon as that is known.
    is_frozen: Option<bool>,
    /// When the freeze was last looked after; whoever goes on with a migration of another process does so first.
    renewed: Option<Instant>,
    /// The definition as it was when the look at all objects began.
    mark: Option<Mark>,
    /// How often the next steps are halved, after some that failed as a whole.
    n_halvings: u32,
    /// It was told that another migrator is at work.
    has_told: bool,
}

impl Live {
    fn of(migration: &Migration) -> Self {
        let mut run = migration.run.clone();
        if matches!(run.phase, Phase::Verifying | Phase::Pruning) {
            // Half of a look at everything is none. Nor does a whole one say anything about a definition that may have
            // been turned there and back since.
            run.phase = Phase::Verifying;
            run.progress.position.clear();
            run.evidence = None;
        }
        Self {
            uid: object::uid(&migration.object).to_owned(),
            run,
            written: status_of(&migration.object),
            flushed: Instant::now(),
            pace: Pace::default(),
            began: Instant::now(),
            since: Instant::now(),
            left: 0,
            n_setbacks: 0,
            not_before: Instant::now(),
            is_frozen: None,
            renewed: None,
            mark: None,
            n_halvings: 0,
            has_told: false,
        }
    }
}

fn status_of(object: &Value) -> Value {
    object.get("status").cloned().unwrap_or_default()
}

impl Shared {
    /// Waits for a change of what servers agree on, and returns what it may concern.
    async fn after_a_change(&self) -> Vec<String> {
        self.engine.changed().await;
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.keys().cloned().collect()
    }

    fn take(&self, key: &str, migration: &Migration) -> Live {
        let known = self.live.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        let is_current = |it: &Live| {
            it.uid == object::uid(&migration.object) && it.written == status_of(&migration.object)
        };
        known.filter(is_current).unwrap_or_else(|| Live::of(migration))
    }

    fn keep(&self, key: &str, live: Option<Live>) {
        let mut all = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        match live {
            Some(live) => drop(all.insert(key.to_owned(), live)),
            None => {
                all.remove(key);
                self.touched.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
            }
        }
    }

    fn touch(&self, key: &str) {
        let touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(touched) = touched.get(key) {
            touched.notify_one();
        }
    }

    fn touched(&self, key: &str) -> Arc<Notify> {
        let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(touched.entry(key.to_owned()).or_default())
    }

    /// Works on one migration for a moment.
    async fn pass(&self, key: String) -> Result<Next, Error> {
        let Some((api, name)) = Api::of_key(&key) else { return Ok(Next::OnChange) };
        let Some(object) = api.collection().get(&self.ctx.client, name).await? else {
            self.keep(&key, None);
            return Ok(Next::OnChange);
        };
        let migration = Migration::read(api, object);
        let only = &self.ctx.resources;
        if !only.is_empty() && !only.contains(&migration.resource) {
            return Ok(Next::OnChange);
        }
        let live = self.take(&key, &migration);
        let touched = self.touched(&key);
        let settled = live.clone();
        let mut work = Work { shared: self, live, settled, touched, wishes: migration.wishes(), migration };
        match work.go().await {
            Ok(next) => {
                let is_over = next == Next::OnChange;
                self.keep(&key, (!is_over).then_some(work.live));
                Ok(next)
            }
            // Who was faster is heard first.
            Err(error) if error.is(409) => Err(error),
            Err(error) => {
                work.is_hindered(&error).await;
                self.keep(&key, Some(work.live));
                Err(error)
            }
        }
    }
}

/// One migration, for the length of a pass.
struct Work<'a> {
    shared: &'a Shared,
    migration: Migration,
    wishes: Wishes,
    live: Live,
    /// The same as it stands in the status: what an error leads back to.
    settled: Live,
    touched: Arc<Notify>,
}

impl Work<'_> {
    /// Steps, for a moment.
    async fn go(&mut self) -> Result<Next, Error> {
        let until = Instant::now() + SLICE;
        let next = loop {
            match self.step().await? {
                Some(next) => break next,
                None if Instant::now() >= until => break Next::After(Duration::ZERO),
                None => {}
            }
        };
        if self.live.flushed.elapsed() >= FLUSH && self.migration.run != self.live.run {
            self.flush().await?;
        }
        Ok(next)
    }

    /// Does the next thing. `None` if another follows at once.
    async fn step(&mut self) -> Result<Option<Next>, Error> {
        let (agreement, ahead) = match self.surroundings().await? {
            Ok(known) => known,
            Err(why) => return self.set_back("Unavailable", &why).await,
        };
        let now = (self.shared.ctx.now)();
        let is_old = self.migration.made().is_none_or(|it| it + GRACE < now);
        let step = plan(Facts {
            run: &self.live.run,
            wishes: &self.wishes,
            is_deleting: object::is_deleting(&self.migration.object),
            holds: self.migration.has_finalizer(),
            ahead: ahead.as_deref(),
            agreement: &agreement,
            is_old,
        });
        match step {
            Step::Rest => Ok(Some(Next::OnChange)),
            Step::Unwind => self.unwind().await,
            Step::Wait { reason, message } if matches!(agreement, Agreement::Following(_)) => {
                self.set_back(reason, &message).await
            }
            Step::Wait { reason, message } => self.wait(reason, &message, LOOK_AGAIN).await,
            Step::Begin { version, epoch } => self.begin(version, epoch).await,
            Step::Freeze => self.freeze().await,
            Step::Start => self.start().await,
            // Whatever woke this up, be it what it wrote itself: a rest is a rest.
            Step::Rewrite | Step::Verify if self.rest() > SLICE => Ok(Some(Next::After(self.rest()))),
            Step::Rewrite => self.rewrite().await,
            Step::Verify => self.verify().await,
            Step::Prune => self.prune().await,
            Step::End { phase, reason, message } => self.end(phase, reason, &message).await,
        }
    }

    /// What the servers agree on, and who goes first; or why that cannot be told.
    async fn surroundings(&self) -> Result<Result<(Agreement, Option<String>), String>, Error> {
        let run = &self.live.run;
        if run.phase.is_end() || object::is_deleting(&self.migration.object) {
            return Ok(Ok((Agreement::Absent, None)));
        }
        let ahead = if run.phase.has_begun() { None } else { self.ahead().await? };
        Ok(match self.shared.engine.agreement(&self.migration.resource).await {
            Ok(agreement) => Ok((agreement, ahead)),
            Err(Trouble::Gone) => Ok((Agreement::Absent, ahead)),
            Err(trouble) => Err(trouble.to_string()),
        })
    }

    /// The oldest migration of the same resource that has not ended, if it is not this one.
    async fn ahead(&self) -> Result<Option<String>, Error> {
        let all = request::of_resource(&self.shared.ctx.client, &self.migration.resource).await?;
        let first = all.into_iter().filter(|it| !it.run.phase.is_end()).min_by_key(Migration::order);
        let is_other = |it: &Migration| (it.api, it.name()) != (self.migration.api, self.migration.name());
        Ok(first.filter(is_other).map(|it| it.name().to_owned()))
    }

    /// Lets go of the definition and of the migration itself.
    async fn unwind(&mut self) -> Result<Option<Next>, Error> {
        definition::unfreeze(&self.shared.ctx, &self.migration).await?;
        self.migration.drop_finalizer(&self.shared.ctx).await?;
        Ok(Some(Next::OnChange))
    }

    async fn wait(&mut self, reason: &str, message: &str, pause: Duration) -> Result<Option<Next>, Error> {
        self.live.pace.pause(self.live.began.elapsed());
        if (self.live.run.reason.as_str(), self.live.run.message.as_str()) != (reason, message) {
            self.live.run.say(reason, message);
            self.flush().await?;
        }
        Ok(Some(Next::After(pause)))
    }

    /// Something does not work now: it is tried again after a pause that grows.
    async fn set_back(&mut self, reason: &str, why: &str) -> Result<Option<Next>, Error> {
        let pause = Duration::from_millis(250 << self.live.n_setbacks.min(6));
        self.live.n_setbacks += 1;
        self.wait(reason, why, pause).await
    }

    async fn begin(&mut self, version: String, epoch: i64) -> Result<Option<Next>, Error> {
        if !self.migration.has_finalizer() {
            let mut finalizers = object::finalizers(&self.migration.object);
            finalizers.push(FINALIZER);
            self.migration.set_finalizers(&self.shared.ctx, &json!(finalizers)).await?;
            return Ok(Some(Next::After(Duration::ZERO)));
        }
        self.live.since = Instant::now();
        let is_again = self.live.run.phase.has_begun();
        let now = time::format_time((self.shared.ctx.now)());
        self.live.run = Run {
            phase: Phase::Checking,
            engine: self.shared.engine.name().to_owned(),
            storage_version: version.clone(),
            epoch,
            start_time: self.live.run.start_time.take().or(Some(now)),
            ..Run::default()
        };
        let message = if is_again {
            format!("what servers store changed on the way: begins again for {version}")
        } else {
            format!("objects are to be stored as {version}")
        };
        self.live.run.say("Checking", &message);
        info!(migration = self.migration.name(), resource = %self.migration.resource, version, "a migration begins");
        self.tell(false, "MigrationStarted", &message).await;
        self.flush().await?;
        Ok(None)
    }

    /// The storage version of a definition stays what it is until the migration ends.
    async fn freeze(&mut self) -> Result<Option<Next>, Error> {
        let ctx = &self.shared.ctx;
        let crd =
            if self.wishes.is_whole() { definition::get(ctx, &self.migration.resource).await? } else { None };
        let Some(crd) = crd else {
            self.live.is_frozen = Some(true);
            self.live.run.enter(Phase::Frozen, "NothingToFreeze", "");
            self.flush().await?;
            return Ok(None);
        };
        if definition::freeze(ctx, &self.migration, &crd).await? == Hold::Others {
            let why = "another migration holds the definition";
            return self.wait("Queued", why, LOOK_AGAIN).await;
        }
        let Some(crd) = definition::get(ctx, &self.migration.resource).await? else { return Ok(None) };
        let is_frozen = definition::is_enforced(ctx, &crd).await?;
        self.notice(definition::other_hand(&crd)).await;
        self.live.is_frozen = Some(is_frozen);
        self.live.renewed = Some(Instant::now());
        let (reason, message) = if is_frozen {
            ("Frozen", "changes of the storage version are refused until the migration ends")
        } else {
            ("NotEnforced", "changes of the storage version are not refused here, only noticed")
        };
        self.live.run.enter(Phase::Frozen, reason, message);
        self.flush().await?;
        Ok(None)
    }

    async fn start(&mut self) -> Result<Option<Next>, Error> {
        self.begin_pass("Running", "objects are rewritten").await?;
        Ok(None)
    }

    /// A step could not be made.
    async fn trouble(&mut self, trouble: Trouble) -> Result<Option<Next>, Error> {
        match trouble {
            // What the servers agree on now decides.
            Trouble::Disagreement(_) => Ok(Some(Next::After(Duration::from_millis(100)))),
            Trouble::Later(why) => {
                // Perhaps a step was too large for a slow server, or a few objects in it take all its time.
                self.live.n_halvings = (self.live.n_halvings + 1).min(MAX_HALVINGS);
                self.set_back("Waiting", &why).await
            }
            Trouble::Gone => {
                let message = "the resource was removed on the way, and its objects with it";
                self.end(Phase::Failed, "ResourceGone", message).await
            }
            Trouble::Never(why) => self.end(Phase::Failed, "NotSupported", &why).await,
        }
    }

    /// Whatever was held is let go before anybody is told that it is over.
    async fn end(&mut self, phase: Phase, reason: &str, message: &str) -> Result<Option<Next>, Error> {
        definition::unfreeze(&self.shared.ctx, &self.migration).await?;
        let now = (self.shared.ctx.now)();
        let run = &mut self.live.run;
        run.enter(phase, reason, message);
        run.completion_time = Some(time::format_time(now));
        run.progress.estimated_completion_time = None;
        let began = run.start_time.as_deref().and_then(time::parse_time).unwrap_or(now);
        let took = Duration::try_from(now.duration_since(began)).unwrap_or_default();
        let resource = self.migration.resource.to_string();
        if phase == Phase::Succeeded {
            info!(migration = self.migration.name(), resource, message, "a migration succeeded");
        } else {
            warn!(migration = self.migration.name(), resource, reason, message, "a migration ended");
        }
        self.flush().await?;
        self.shared.ctx.observe.migration_ended(&resource, phase.name(), took);
        self.tell(phase != Phase::Succeeded, &format!("Migration{}", phase.name()), message).await;
        Ok(None)
    }

    async fn tell(&self, is_warning: bool, reason: &str, message: &str) {
        let record = Record { component: WHO, is_warning, reason, message };
        events::record(&self.shared.ctx, self.migration.involved(), &record).await;
    }

    /// Writes the status. Who changed that meanwhile is heard first; who changed a wish is heard with the next pass.
    async fn flush(&mut self) -> Result<(), Error> {
        let name = self.migration.name().to_owned();
        let collection = self.migration.api.collection();
        let client = &self.shared.ctx.client;
        let mut object = self.migration.object.clone();
        let stored = loop {
            let mut written = object.clone();
            written["status"] = self.migration.status(&self.live.run, (self.shared.ctx.now)());
            match collection.replace_subresource(client, &name, "status", &written).await {
                Ok(stored) => break stored,
                Err(error) => {
                    // Somebody may have changed a wish. The status is nobody's but this process's, as long as it is as it
                    // was left.
                    let newer = if error.is(409) { collection.get(client, &name).await? } else { None };
                    let is_ours = |newer: &Value| {
                        object::uid(newer) == self.live.uid
                            && status_of(newer) == self.live.written
                            && newer["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]
                    };
                    let Some(newer) = newer.filter(is_ours) else {
                        warn!(migration = name, error = %Chain(&error), "the status of a migration could not be written");
                        return Err(error);
                    };
                    object = newer;
                }
            }
        };
        self.live.written = status_of(&stored);
        self.live.flushed = Instant::now();
        self.migration = Migration::read(self.migration.api, stored);
        self.migration.run = self.live.run.clone();
        let other = self.migration.other_hand().map(str::to_owned);
        self.notice(other.as_deref()).await;
        self.settled = self.live.clone();
        Ok(())
    }
}
