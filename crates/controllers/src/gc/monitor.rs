//! Watches everything that discovery lists, metadata only, and keeps the graph up to date.
//!
//! Discovery is asked again every few seconds, and at once when a CustomResourceDefinition changes. An incomplete answer
//! changes no watch; until there is a complete one, nothing is deleted.

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use futures_util::{
    Stream, StreamExt,
    stream::{AbortHandle, SelectAll, abortable},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use meta::GroupResource;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::Shared;
use super::act;
use super::graph::{Action, Identity, Object, Owner, Source, Text};
use super::kinds::Kinds;
use crate::changes::{Told, metadata};
use crate::discovery::{Served, Undiscovered, discover};

/// Between two questions to discovery.
const PAUSE: Duration = Duration::from_secs(5);
/// The same after an incomplete answer.
const PAUSE_IN_TROUBLE: Duration = Duration::from_secs(1);
/// The same after a change of a CustomResourceDefinition; they often come in numbers.
const PAUSE_AFTER_CHANGE: Duration = Duration::from_millis(300);
/// A resource that could not be listed for so long does not hold up foreground deletions any more, as upstream.
const PATIENCE: Duration = Duration::from_secs(60);

/// A resource with known objects that is left out of discovery for so long is believed to be gone.
const DOUBT: Duration = Duration::from_secs(30);

/// Never ends.
pub(super) async fn follow(shared: &Shared) {
    let mut monitors = Monitors::default();
    let mut asking = Box::pin(ask(shared, Duration::ZERO));
    let mut is_soon = true;
    loop {
        tokio::select! {
            answer = &mut asking => {
                let pause = if answer.is_ok() { PAUSE } else { PAUSE_IN_TROUBLE };
                monitors.take_in(shared, answer);
                asking.set(ask(shared, pause));
                is_soon = false;
            }
            Some((source, told)) = monitors.streams.next(), if !monitors.streams.is_empty() => {
                let is_definition = monitors.definitions == Some(source);
                let is_news = matches!(told, Told::Applied(_) | Told::Deleted(_));
                monitors.note(shared, source, told);
                if is_definition && is_news && !is_soon {
                    asking.set(ask(shared, PAUSE_AFTER_CHANGE));
                    is_soon = true;
                }
            }
        }
    }
}

async fn ask(shared: &Shared, pause: Duration) -> Result<Vec<Served>, Undiscovered> {
    tokio::time::sleep(pause).await;
    discover(&shared.ctx.client).await
}

type Events = Pin<Box<dyn Stream<Item = (Source, Told)> + Send>>;

/// The watches.
#[derive(Default)]
struct Monitors {
    streams: SelectAll<Events>,
    /// By group and resource.
    by_resource: BTreeMap<(String, String), Monitor>,
    by_source: BTreeMap<Source, (String, String)>,
    next_source: u32,
    /// The one for CustomResourceDefinitions.
    definitions: Option<Source>,
    /// What the last complete answer said.
    known: Option<Arc<Kinds>>,
}

struct Monitor {
    source: Source,
    api_version: Text,
    kind: Text,
    stop: AbortHandle,
    since: Instant,
    /// Since when discovery has left it out.
    missing_since: Option<Instant>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.stop.abort();
    }
}

impl Monitors {
    fn take_in(&mut self, shared: &Shared, answer: Result<Vec<Served>, Undiscovered>) {
        match answer {
            Ok(served) => {
                let kinds = Arc::new(Kinds::of(served));
                match self.doubt(shared, &kinds) {
                    Some(why) => Self::is_incomplete(shared, why),
                    None => {
                        self.adjust(shared, &kinds);
                        let before = self.known.replace(Arc::clone(&kinds));
                        shared.set_kinds(Ok(Arc::clone(&kinds)));
                        shared.take_up(newly_served(shared, before.as_deref(), &kinds));
                    }
                }
            }
            Err(it) => Self::is_incomplete(shared, it.into_text()),
        }
    }

    fn is_incomplete(shared: &Shared, why: String) {
        shared.ctx.observe.undiscovered();
        if shared.kinds().is_ok() {
            warn!(why, "discovery is incomplete: nothing is collected until it is complete again");
        }
        shared.set_kinds(Err(why));
    }

    /// A resource goes after its objects: one that is left out while there are some may be left out by mistake. A server
    /// that leaves may take several along, and they are doubted together.
    fn doubt(&mut self, shared: &Shared, kinds: &Kinds) -> Option<String> {
        let now = Instant::now();
        let mut doubted = Vec::new();
        for (key, monitor) in &mut self.by_resource {
            if kinds.watched().contains_key(key) || !shared.graph().has_objects_of(monitor.source) {
                monitor.missing_since = None;
            } else if monitor.missing_since.get_or_insert(now).elapsed() < DOUBT {
                let (group, resource) = key;
                doubted.push(format!("{resource}.{group}"));
            }
        }
        let which = doubted.join(", ");
        (!doubted.is_empty()).then(|| format!("discovery leaves out {which}, of which there are objects"))
    }

    /// Starts and ends watches so that they are those of `kinds`.
    fn adjust(&mut self, shared: &Shared, kinds: &Kinds) {
        let wanted = kinds.watched();
        let is_kept = |key: &(String, String), monitor: &Monitor| {
            wanted
                .get(key)
                .is_some_and(|it| *it.api_version() == *monitor.api_version && *it.kind == *monitor.kind)
        };
        let dropped: Vec<_> = self
            .by_resource
            .iter()
            .filter(|(key, it)| !is_kept(key, it))
            .map(|(key, _)| key.clone())
            .collect();
        for key in dropped {
            if let Some(monitor) = self.by_resource.remove(&key) {
                debug!(group = key.0, resource = key.1, "a resource is not watched any more");
                self.by_source.remove(&monitor.source);
                shared.take_up(shared.graph().drop_source(monitor.source));
            }
        }
        for (key, served) in wanted {
            if !self.by_resource.contains_key(key) {
                self.add(shared, key.clone(), served);
            }
        }
        self.lose_patience(shared);
    }

    fn add(&mut self, shared: &Shared, key: (String, String), served: &Served) {
        let source = Source(self.next_source);
        self.next_source += 1;
        if key.0 == "apiextensions.k8s.io" && key.1 == "customresourcedefinitions" {
            self.definitions = Some(source);
        }
        shared.graph().add_source(source, GroupResource::new(key.0.as_str(), key.1.as_str()));
        let (events, stop) = abortable(metadata(&shared.ctx.client, served).map(move |it| (source, it)));
        self.streams.push(events.boxed());
        let (api_version, kind) = (served.api_version().into(), served.kind.as_str().into());
        let monitor = Monitor { source, api_version, kind, stop, since: Instant::now(), missing_since: None };
        self.by_source.insert(source, key.clone());
        self.by_resource.insert(key, monitor);
    }

    fn lose_patience(&self, shared: &Shared) {
        let incomplete: Vec<Source> = shared.graph().incomplete().collect();
        for source in incomplete {
            let Some(key) = self.by_source.get(&source) else { continue };
            if self.by_resource.get(key).is_some_and(|it| it.since.elapsed() > PATIENCE) {
                warn!(
                    group = key.0,
                    resource = key.1,
                    "cannot be listed; foreground deletions go on without it"
                );
                shared.take_up(shared.graph().give_up_waiting(source));
            }
        }
    }

    fn note(&self, shared: &Shared, source: Source, told: Told) {
        let Some(monitor) = self.by_source.get(&source).and_then(|it| self.by_resource.get(it)) else {
            return;
        };
        let actions = {
            let mut graph = shared.graph();
            match told {
                Told::ListBegins => {
                    graph.list_begins(source);
                    Vec::new()
                }
                Told::Listed(metadata) | Told::Applied(metadata) => {
                    graph.seen(source, monitor.object(metadata))
                }
                Told::ListEnds => graph.list_ends(source),
                Told::Deleted(metadata) => graph.gone(metadata.uid.as_deref().unwrap_or_default()),
            }
        };
        if !actions.is_empty() {
            debug!(kind = %monitor.kind, n = actions.iter().filter(|it| matches!(it, Action::Look(_))).count(), "objects to look at");
        }
        shared.take_up(actions);
    }
}

/// Owners of kinds that somebody serves again: whoever waits for them need not wait any longer.
fn newly_served(shared: &Shared, before: Option<&Kinds>, now: &Kinds) -> Vec<Action> {
    let Some(before) = before else { return Vec::new() };
    shared.graph().look_for(|api_version, kind| {
        now.place(api_version, kind).is_some() && before.place(api_version, kind).is_none()
    })
}

impl Monitor {
    fn object(&self, metadata: ObjectMeta) -> Object {
        let text = |it: Option<String>| Text::from(it.unwrap_or_default());
        let finalizers = metadata.finalizers.unwrap_or_default();
        let life =
            act::life(metadata.deletion_timestamp.is_some(), |name| finalizers.iter().any(|it| it == name));
        let is_plain = !finalizers.iter().any(|it| it == act::ORPHAN || it == act::FOREGROUND);
        let plain_at = metadata.resource_version.filter(|_| is_plain).and_then(|it| it.parse().ok());
        let owners = metadata.owner_references.into_iter().flatten().map(|it| Owner {
            api_version: it.api_version.into(),
            kind: it.kind.into(),
            name: it.name.into(),
            uid: it.uid.into(),
            is_blocking: it.block_owner_deletion.unwrap_or(false),
        });
        Object {
            owners: owners.collect(),
            life,
            plain_at,
            identity: Identity {
                api_version: self.api_version.clone(),
                kind: self.kind.clone(),
                namespace: text(metadata.namespace),
                name: text(metadata.name),
                uid: text(metadata.uid),
            },
        }
    }
}
