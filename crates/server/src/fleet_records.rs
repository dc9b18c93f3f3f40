//! Writes down what the station did past the API: in the audit log, and as Events.
//!
//! # Guarantees
//! An Event waits until Events can be stored; the audit log waits for nobody: each has a queue of its own. What does not
//! fit into them is lost, counted and logged.

use std::sync::{Arc, Weak};

use access::{AuditEvent, Stage, User};
use bytes::Bytes;
use fleet::gate::Gate;
use meta::{GroupResource, Value};
use registry::Registry;
use station::config::{About, Notice};
use tokio::sync::mpsc;

use crate::{
    chain::Chain,
    events::{self, Event, Regarding},
    metrics::Metrics,
};

/// Audit records that may wait. A server that joins makes one for each resource at once, custom ones included. They share
/// their objects with the station.
const MAX_AUDITED: usize = 16 * 1024;

/// Events that may wait.
const MAX_TOLD: usize = 1024;

/// Where the station's deeds go.
pub(crate) struct Recorder {
    /// `None` without an audit log.
    audited: Option<mpsc::Sender<Mirrored>>,
    told: mpsc::Sender<Notice>,
    metrics: Arc<Metrics>,
}

/// What waits to be written down.
pub(crate) struct Waiting {
    audited: mpsc::Receiver<Mirrored>,
    told: mpsc::Receiver<Notice>,
}

/// A StorageVersion object that was written, or removed.
struct Mirrored {
    name: String,
    object: Option<Arc<Value>>,
}

impl Recorder {
    /// The two ends of the queues.
    pub(crate) fn new(is_audited: bool, metrics: Arc<Metrics>) -> (Self, Waiting) {
        let (audited, to_audit) = mpsc::channel(MAX_AUDITED);
        let (told, to_tell) = mpsc::channel(MAX_TOLD);
        let audited = is_audited.then_some(audited);
        (Self { audited, told, metrics }, Waiting { audited: to_audit, told: to_tell })
    }

    /// A StorageVersion object was written, or removed.
    pub(crate) fn mirrored(&self, name: &str, object: Option<&Arc<Value>>) {
        let Some(audited) = &self.audited else { return };
        let mirrored = Mirrored { name: name.to_owned(), object: object.cloned() };
        if audited.try_send(mirrored).is_err() {
            self.metrics.audit_event_lost("log");
            tracing::warn!(name, "the audit record of a StorageVersion was lost: too many wait");
        }
    }

    /// Something happened that people should read about.
    pub(crate) fn noticed(&self, notice: &Notice) {
        if self.told.try_send(notice.clone()).is_err() {
            self.metrics.fleet_event_lost();
            let Notice { reason, message, .. } = notice;
            tracing::warn!(reason, message, "an Event was lost: too many wait");
        }
    }
}

impl Waiting {
    /// The tasks that write it all down, with their names.
    pub(crate) fn tasks(
        self,
        chain: &Arc<Chain>,
        registry: &Arc<Registry>,
    ) -> [(&'static str, futures_util::future::BoxFuture<'static, ()>); 2] {
        let Self { audited, told } = self;
        [
            ("audit records of the fleet", Box::pin(keep_audited(Arc::downgrade(chain), audited))),
            (
                "events of the fleet",
                Box::pin(keep_told(Arc::downgrade(chain), Arc::downgrade(registry), told)),
            ),
        ]
    }
}

async fn keep_audited(chain: Weak<Chain>, mut audited: mpsc::Receiver<Mirrored>) {
    while let Some(Mirrored { name, object }) = audited.recv().await {
        let Some(chain) = chain.upgrade() else { return };
        audit(&chain, &name, object.as_deref()).await;
    }
}

async fn keep_told(chain: Weak<Chain>, registry: Weak<Registry>, mut told: mpsc::Receiver<Notice>) {
    while let Some(notice) = told.recv().await {
        let (Some(chain), Some(registry)) = (chain.upgrade(), registry.upgrade()) else { return };
        tell(&registry, &notice, &chain.metrics).await;
    }
}

/// Writes a notice as an Event. A server that may not write leaves it to the others; one that starts writes it a moment
/// later.
async fn tell(registry: &Arc<Registry>, notice: &Notice, metrics: &Metrics) {
    let resource = GroupResource::new("events.k8s.io", "events");
    let Some(record) = registry.kinds().get(&resource).map(|it| it.definition.record.clone()) else { return };
    // Only Events themselves must be reported: another resource may never be.
    registry.station().until(|it| !it.is_member() || it.gate(&record) == Gate::Open).await;
    let event = event(notice);
    // Whoever else knows of a server has perhaps told of it.
    let is_told = matches!(notice.about, About::Server(_)) && events::is_there(registry, &event);
    if !registry.station().is_member() || is_told {
        return;
    }
    if let Err(status) = events::write(registry, &event).await {
        metrics.fleet_event_lost();
        tracing::warn!(%status, reason = notice.reason, "an Event could not be written");
    }
}

/// Tells people what this server leaves alone: objects that it was told to leave unreadable, and what is stored of
/// resources that it does not know.
pub(crate) async fn tell_of_leftovers(chain: &Chain, registry: &Arc<Registry>) {
    let station = registry.station();
    let warning = |reason: &'static str, message: String| {
        let about = About::Server(station.identity().clone());
        Notice { reason, is_warning: true, about, message }
    };
    let allowed: Vec<String> = station.config().allowed.iter().map(ToString::to_string).collect();
    if !allowed.is_empty() {
        let message =
            format!("takes part although it cannot read {}: --allow-undecodable", allowed.join(", "));
        audit_override(chain, &message).await;
        tell(registry, &warning("UndecodableAllowed", message), &chain.metrics).await;
    }
    let unknown = registry.cache().unclaimed();
    if !unknown.is_empty() {
        let places: Vec<String> = unknown.iter().map(|(place, n)| format!("{n} below {place}")).collect();
        let message =
            format!("objects are stored of resources that this server does not know: {}", places.join(", "));
        tracing::warn!(message);
        tell(registry, &warning("UnknownResourcesStored", message), &chain.metrics).await;
    }
}

fn event(notice: &Notice) -> Event<'_> {
    let regarding = match &notice.about {
        About::Resource(name) => Regarding {
            api_version: fleet::mirror::API_VERSION,
            kind: fleet::mirror::KIND,
            namespace: "",
            name,
        },
        About::Server(identity) => Regarding {
            api_version: "coordination.k8s.io/v1",
            kind: "Lease",
            namespace: "kube-system",
            name: identity.as_str(),
        },
    };
    Event {
        regarding,
        reason: notice.reason,
        action: "AgreeOnStorageVersion",
        is_warning: notice.is_warning,
        note: &notice.message,
    }
}

/// The audit record of a check that an operator has switched off.
async fn audit_override(chain: &Chain, message: &str) {
    let Some(log) = &chain.audit.log else { return };
    let user = servers();
    let path = "/convoy/allow-undecodable";
    let attributes = access::Attributes { user: &user, verb: "post", target: access::Target::Path(path) };
    let decision = chain.audit.policy.decide(&attributes);
    if decision.level == access::Level::None || !decision.wants(Stage::ResponseComplete) {
        return;
    }
    let id = uuid::Uuid::new_v4().to_string();
    let mut event = AuditEvent::received(&decision, &attributes, id.as_str(), path, chain.clock.now());
    event.annotations.insert("convoy/allow-undecodable".to_owned(), message.to_owned());
    event.set_code(200);
    event.set_stage(Stage::ResponseComplete, chain.clock.now());
    log.write(Bytes::from(event.to_line())).await;
}

/// Who acts where servers act by themselves.
fn servers() -> User {
    let mut user = User::named("system:apiserver");
    user.groups.push("system:masters".to_owned());
    user
}

/// The audit record of a StorageVersion that was written straight through the store.
async fn audit(chain: &Chain, name: &str, object: Option<&Value>) {
    let Some(log) = &chain.audit.log else { return };
    let user = servers();
    let target = access::Target::Resource {
        group: "internal.apiserver.k8s.io",
        version: "v1alpha1",
        resource: "storageversions",
        subresource: if object.is_some() { "status" } else { "" },
        namespace: "",
        name,
    };
    let verb = if object.is_some() { "update" } else { "delete" };
    let attributes = access::Attributes { user: &user, verb, target };
    let decision = chain.audit.policy.decide(&attributes);
    if decision.level == access::Level::None || !decision.wants(Stage::ResponseComplete) {
        return;
    }
    let uri = format!("/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/{name}");
    let uri = if object.is_some() { format!("{uri}/status") } else { uri };
    let id = uuid::Uuid::new_v4().to_string();
    let mut event = AuditEvent::received(&decision, &attributes, id.as_str(), &uri, chain.clock.now());
    event.annotations.insert("convoy/written".to_owned(), "straight through the store".to_owned());
    if let Some(object) = object.filter(|_| decision.wants_request()) {
        event.set_request(object);
    }
    event.set_code(200);
    event.set_stage(Stage::ResponseComplete, chain.clock.now());
    log.write(Bytes::from(event.to_line())).await;
}

#[cfg(test)]
mod tests {
    use meta::Release;
    use store::SystemClock;

    use super::*;

    /// Joining with 1,000 definitions makes more than 1,000 records at once.
    #[test]
    fn what_a_large_cluster_makes_at_once_fits_and_what_is_lost_is_counted() {
        let metrics = Arc::new(Metrics::new(&SystemClock::shared(), "v1.36.0", Release::v1(36)));
        let (recorder, waiting) = Recorder::new(true, Arc::clone(&metrics));
        let object = Arc::new(Value::Null);
        let about = About::Resource("example.com.things".to_owned());
        let notice = Notice { reason: "Moved", is_warning: false, about, message: String::new() };
        for _ in 0..MAX_AUDITED {
            recorder.mirrored("example.com.things", Some(&object));
        }
        for _ in 0..MAX_TOLD {
            recorder.noticed(&notice);
        }
        assert!(waiting.audited.len() >= 5_000 && waiting.told.len() >= 1_000);
        assert!(!metrics.render().contains("apiserver_audit_error_total{"));
        assert!(metrics.render().contains("convoy_fleet_events_lost_total 0"));
        for _ in 0..3 {
            recorder.mirrored("example.com.things", None);
            recorder.noticed(&notice);
        }
        assert!(metrics.render().contains("apiserver_audit_error_total{plugin=\"log\"} 3"));
        assert!(metrics.render().contains("convoy_fleet_events_lost_total 3"));
        // Without an audit log nothing waits for one.
        let (recorder, waiting) = Recorder::new(false, metrics);
        recorder.mirrored("example.com.things", Some(&object));
        assert_eq!(waiting.audited.len(), 0);
    }
}
