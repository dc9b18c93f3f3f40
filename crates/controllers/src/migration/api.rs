//! Migrates through the public Kubernetes API, on any cluster (kube-apiserver 1.30 and newer).
//!
//! # Flow
//! Each step asks every endpoint what it writes, and goes on only under the agreement that the task is about. Then one
//! page of metadata is listed, and each object in it is written back as it is. The server writes it if it would store it
//! in another way than it is stored; the resourceVersion of the answer tells whether it did.
//!
//! # Guarantees
//! - Nothing is written under another agreement than the task's, as far as it can be seen before the step.
//! - The second pass goes through every endpoint in turn. It proves something if nothing changed in it, and only about
//!   servers that were asked: where an address hides several of them, the evidence says so.
//! - One object that cannot be written holds up no other; each such object is named with the server's words.
//!
//! # Errors
//! An object whose stored form cannot be read makes its server refuse the list as a whole, and gives no token for what is
//! behind it. Then every namespace is listed by itself, and what cannot be reached is named (`api/careful.rs`).
//! A webhook that changes an object at every write makes every pass see a change.
//!
//! Start reading at `api/object.rs`; what the servers agree on is in `api/agree.rs`.

mod agree;
mod answer;
mod caller;
mod careful;
mod limit;
mod object;
mod observe;
mod pace;
mod position;
mod servers;
mod stored;
mod walk;

pub use servers::listed;
pub use stored::{Form, StoreReader, StoredPage};

use std::{fmt, sync::Arc, time::Duration};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::Client;
use meta::GroupResource;

use self::agree::{Facts, Offer, Standing};
use self::caller::Caller;
use self::careful::Part;
use self::object::{Object, Place};
use self::pace::Pace;
use self::position::Position;
use self::walk::{Listed, Unlisted, Walk};
use super::engine::{Agreement, Batch, Engine, Evidence, Failure, Look, Task, Trouble};

/// An address to ask. The client should not retry by itself (`Config::default_retry`): it would hide from the engine that
/// the server has too much to do.
#[derive(Clone)]
pub struct Endpoint {
    /// As it is called in messages.
    pub name: String,
    /// How it is reached.
    pub client: Client,
}

/// What is behind the endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Each is one API server, and there is no other one.
    EveryServer,
    /// The same, as the cluster says ([`listed`], by whose names they go). It is asked again at every step: nothing is done
    /// while there are others.
    ListedServers,
    /// There may be several servers behind each, as behind a load balancer.
    SharedAddress,
}

/// How it works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settings {
    /// Requests under way at the same time, at most; fewer while the server has too much to do.
    pub at_once: usize,
    /// Requests about objects in a second, at most; 0 for as many as the server copes with.
    pub rate: u32,
    /// How often [`Engine::changed`] ends.
    pub poll: Duration,
    /// A request that takes longer has failed.
    pub request_limit: Duration,
    /// How long a server may take to follow a definition and to finish what it began before: twice the time that
    /// kube-apiserver gives a request by default.
    pub settle: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let (poll, request_limit) = (Duration::from_secs(30), Duration::from_secs(30));
        Self { at_once: 16, rate: 0, poll, request_limit, settle: Duration::from_secs(120) }
    }
}

/// The engine. All that it does shares one pace.
pub struct ApiEngine {
    endpoints: Vec<Endpoint>,
    reach: Reach,
    settings: Settings,
    pace: Pace,
    store: Option<Arc<dyn StoreReader>>,
}

impl ApiEngine {
    /// Asks these. The first by name is the one that rewrites; all verify.
    pub fn new(mut endpoints: Vec<Endpoint>, reach: Reach, settings: Settings) -> Self {
        // Positions and epochs must not depend on the order in which somebody happened to list them.
        endpoints.sort_by(|a, b| a.name.cmp(&b.name));
        Self { endpoints, reach, settings, pace: Pace::new(settings.at_once, settings.rate), store: None }
    }

    /// Proves by what is stored instead of by a second pass.
    #[must_use]
    pub fn reading(mut self, store: Arc<dyn StoreReader>) -> Self {
        self.store = Some(store);
        self
    }

    async fn standing(&self, resource: &GroupResource) -> Standing {
        let limit = self.settings.request_limit;
        let facts: Facts = observe::observe(&self.endpoints, resource, limit).await;
        if let (Reach::ListedServers, Some(Endpoint { client, .. })) = (self.reach, self.endpoints.first()) {
            let now = tokio::time::timeout(limit, listed(client)).await;
            let now = now.unwrap_or_else(|_| Err("the API server does not answer".to_owned()));
            let known = self.endpoints.iter().map(|it| &it.name);
            match now {
                Ok(now) if known.eq(now.iter()) => {}
                Ok(now) => {
                    return Standing::Silent(format!(
                        "there are other API servers by now: {}",
                        now.join(", ")
                    ));
                }
                Err(why) => {
                    return Standing::Silent(format!("it cannot be told which API servers there are: {why}"));
                }
            }
        }
        agree::decide(resource, facts)
    }

    /// What each endpoint offers, if they still agree as the task says.
    async fn offers(&self, task: &Task) -> Result<Vec<Offer>, Trouble> {
        match self.standing(&task.resource).await {
            Standing::Agreed { version, epoch, offers } if version == task.version && epoch == task.epoch => {
                Ok(offers)
            }
            Standing::Agreed { version, .. } => Err(Trouble::Disagreement(format!(
                "the API servers agreed anew to write {} in {version}",
                task.resource
            ))),
            Standing::Apart(why) | Standing::Following(why) => Err(Trouble::Disagreement(why)),
            Standing::Silent(why) => Err(Trouble::Later(why)),
            Standing::Absent => Err(Trouble::Gone),
        }
    }

    /// How objects are reached through the endpoint.
    fn walk<'a>(&'a self, task: &'a Task, offers: &'a [Offer], endpoint: usize) -> Result<Walk<'a>, Trouble> {
        let Task { resource, version, namespaces, .. } = task;
        let offer = &offers[endpoint];
        let offered = offer.reach(resource, version).map_err(|missing| {
            Trouble::Never(format!("{resource} does not support {}", missing.join(" and ")))
        })?;
        if !namespaces.is_empty() && !offered.is_namespaced {
            return Err(Trouble::Never(format!("{resource} does not support namespaces")));
        }
        let (client, limit) = (&self.endpoints[endpoint].client, self.settings.request_limit);
        let caller = Caller { client, pace: &self.pace, limit };
        Ok(Walk { caller, task, offer, place: Place { resource, offered }, at_once: self.settings.at_once })
    }

    async fn rewrite_page(&self, task: &Task, position: &str) -> Result<Batch, Trouble> {
        let position = start(task, position, 1);
        let offers = self.offers(task).await?;
        let walk = self.walk(task, &offers, position.endpoint)?;
        let Page { objects, remaining, failures, next } = page(&walk, &position, 1).await?;
        let mut batch = Batch { remaining, failures, ..Batch::default() };
        if task.dry_run {
            batch.migrated = count(objects.len());
        } else {
            let tally = walk.touch(objects, &position).await?;
            (batch.migrated, batch.unchanged) = (tally.changed, tally.unchanged);
            batch.failures.extend(tally.failures);
        }
        batch.next = next.map(|it| it.text());
        Ok(batch)
    }

    async fn verify_page(&self, task: &Task, position: &str) -> Result<Look, Trouble> {
        if let Some(store) = self.store.as_ref().filter(|_| task.is_whole()) {
            self.offers(task).await?;
            if position.is_empty() {
                self.is_its_store(store.as_ref()).await?;
            }
            let page = store.read(&task.resource, position).await?;
            // What was read is worth something if they agreed all the while.
            self.offers(task).await?;
            let look = stored::judge(task, page)?;
            return Ok(Look { doubt: self.doubt(), ..look });
        }
        let endpoints = self.endpoints.len();
        let position = start(task, position, endpoints);
        let offers = self.offers(task).await?;
        let walk = self.walk(task, &offers, position.endpoint)?;
        let Page { objects, mut failures, next, .. } = page(&walk, &position, endpoints).await?;
        let n_objects = count(objects.len());
        let left = if task.dry_run {
            // Without writing there is no proof.
            n_objects
        } else {
            let tally = walk.touch(objects, &position).await?;
            failures.extend(tally.failures);
            tally.changed
        };
        // What was seen is worth something if they agreed all the while.
        self.offers(task).await?;
        let evidence = match self.reach {
            Reach::EveryServer | Reach::ListedServers => Evidence::SecondPassAllEndpoints,
            Reach::SharedAddress => Evidence::SecondPassOneEndpoint,
        };
        let next = next.map(|it| it.text());
        Ok(Look { evidence, objects: n_objects, left, failures, next, doubt: "" })
    }

    /// What a look into the store does not show.
    fn doubt(&self) -> &'static str {
        match self.reach {
            Reach::EveryServer | Reach::ListedServers => "",
            Reach::SharedAddress => {
                "API servers were asked through one address, behind which there may be others"
            }
        }
    }

    /// Whether it is the store of this cluster: an empty one, or somebody else's, would prove anything.
    async fn is_its_store(&self, store: &dyn StoreReader) -> Result<(), Trouble> {
        let Some(Endpoint { client, .. }) = self.endpoints.first() else { return Ok(()) };
        let uid = tokio::time::timeout(self.settings.request_limit, observe::cluster(client)).await;
        let uid = match uid {
            Ok(Ok(uid)) => uid,
            Ok(Err(error)) => return Err(Trouble::Later(error.text())),
            Err(_) => return Err(Trouble::Later("the API server does not answer".to_owned())),
        };
        if store.holds(observe::NAMESPACE, &uid).await? {
            return Ok(());
        }
        Err(Trouble::Never(format!(
            "the namespace {} of this cluster (uid {uid}) is not in the etcd of --verify-etcd-servers: name the cluster's own, \
             and the prefix of its keys with --verify-etcd-prefix",
            observe::NAMESPACE
        )))
    }
}

impl Engine for ApiEngine {
    fn name(&self) -> &'static str {
        "API"
    }

    fn agreement<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Result<Agreement, Trouble>> {
        async move {
            match self.standing(resource).await {
                Standing::Agreed { version, epoch, .. } => Ok(Agreement::Agreed { version, epoch }),
                Standing::Apart(why) => Ok(Agreement::Open(why)),
                Standing::Following(why) => Ok(Agreement::Following(why)),
                // Who does not answer has not said anything else: a run goes on when they do.
                Standing::Silent(why) => Err(Trouble::Later(why)),
                Standing::Absent => Ok(Agreement::Absent),
            }
        }
        .boxed()
    }

    /// A position is in one list of namespaces; it must not be taken to a task with another one.
    fn rewrite<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Batch, Trouble>> {
        self.rewrite_page(task, position).boxed()
    }

    /// Each object is looked at, and counted, once through each endpoint. What had to be written is left: a further pass
    /// has to show that it stays as it is.
    fn verify<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Look, Trouble>> {
        self.verify_page(task, position).boxed()
    }

    fn n_looks(&self) -> u64 {
        if self.store.is_some() { 1 } else { count(self.endpoints.len()).max(1) }
    }

    fn lag<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Duration> {
        async move {
            let Some(Endpoint { client, .. }) = self.endpoints.first() else { return self.settings.settle };
            let asked = observe::is_fenced(client, resource);
            let is_fenced = tokio::time::timeout(self.settings.request_limit, asked).await;
            if is_fenced.unwrap_or(false) { Duration::ZERO } else { self.settings.settle }
        }
        .boxed()
    }

    fn resources(&self) -> BoxFuture<'_, Result<Vec<GroupResource>, Trouble>> {
        async move {
            let Some(Endpoint { client, .. }) = self.endpoints.first() else { return Ok(Vec::new()) };
            let found = tokio::time::timeout(self.settings.request_limit * 4, observe::stored(client)).await;
            match found {
                Ok(Ok(resources)) => Ok(resources),
                Ok(Err(error)) => Err(Trouble::Later(error.text())),
                Err(_) => Err(Trouble::Later("discovery does not answer".to_owned())),
            }
        }
        .boxed()
    }

    fn written<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Vec<String>> {
        async move {
            let limit = self.settings.request_limit;
            agree::all_written(resource, &observe::observe(&self.endpoints, resource, limit).await)
        }
        .boxed()
    }

    fn hash<'a>(&'a self, resource: &'a GroupResource, version: &'a str) -> BoxFuture<'a, Option<String>> {
        async move {
            let limit = self.settings.request_limit;
            let facts =
                observe::observe(&self.endpoints[..1.min(self.endpoints.len())], resource, limit).await;
            let offers = facts.endpoints.into_iter().filter_map(|(_, said)| said.ok().flatten());
            let mut kinds = offers.flat_map(|it| it.versions).map(|it| it.kind);
            let is_version = version.contains('/') || resource.group.is_empty();
            kinds.next().filter(|_| is_version).map(|kind| agree::storage_version_hash(version, &kind))
        }
        .boxed()
    }

    fn clients(&self) -> Vec<Client> {
        self.endpoints.iter().map(|it| it.client.clone()).collect()
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        tokio::time::sleep(caller::jittered(self.settings.poll)).boxed()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where to go on; a position that is not in this walk is its beginning.
fn start(task: &Task, position: &str, endpoints: usize) -> Position {
    let position = Position::parse(position);
    if position.is_within(endpoints, task.namespaces.len()) { position } else { Position::default() }
}

/// One step of a walk.
struct Page {
    objects: Vec<Object>,
    remaining: Option<u64>,
    /// What cannot be listed.
    failures: Vec<Failure>,
    next: Option<Position>,
}

/// The page; before the first one through an endpoint, whether objects can be read.
async fn page(walk: &Walk<'_>, position: &Position, endpoints: usize) -> Result<Page, Trouble> {
    if let Some(careful) = &position.careful {
        let Part { listed, failures, next } = walk.part(careful).await?;
        let next = position.behind(next, endpoints);
        return Ok(Page { objects: listed.objects, remaining: None, failures, next });
    }
    if position.namespace == 0 && position.token.is_none() {
        walk.probe(position).await?;
    }
    match walk.list(position).await {
        Ok(Listed { objects, token, remaining }) => {
            let next = position.next(token, endpoints, walk.task.namespaces.len());
            Ok(Page { objects, remaining, failures: Vec::new(), next })
        }
        Err(Unlisted::Trouble(trouble)) => Err(trouble),
        Err(Unlisted::Undecodable(_)) => {
            let next = Some(position.with_care());
            Ok(Page { objects: Vec::new(), remaining: None, failures: Vec::new(), next })
        }
    }
}

fn count(objects: usize) -> u64 {
    u64::try_from(objects).unwrap_or(u64::MAX)
}
