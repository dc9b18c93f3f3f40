//! What admission knows of the cluster: its webhooks, kept equal to the stored configurations, its objects, and where
//! services are.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use admission::{Admission, HookKind, World};
use cache::{Collection, Step, Watcher};
use futures_util::future::BoxFuture;
use meta::{GroupResource, GroupVersion, Status, Value};
use registry::{Registry, Target};
use store::Revision;
use tokio::sync::watch;

use crate::{lifecycle::Tasks, service_account::find};

const KINDS: [(HookKind, &str); 2] = [
    (HookKind::Mutating, "mutatingwebhookconfigurations"),
    (HookKind::Validating, "validatingwebhookconfigurations"),
];

const RETRY: Duration = Duration::from_millis(100);

/// What has been handed to admission: the configurations of each kind, by the revisions they are at.
pub(crate) struct InForce(Vec<(Arc<Collection>, watch::Receiver<Vec<Revision>>)>);

impl InForce {
    /// Waits until everything that the cache holds now is in force.
    pub(crate) async fn settled(&self) {
        for (collection, loaded) in &self.0 {
            let wanted = revisions(collection);
            // It only ends when the server does, and then there is nothing to wait for.
            let _ = loaded.clone().wait_for(|it| *it == wanted).await;
        }
    }
}

fn revisions(collection: &Collection) -> Vec<Revision> {
    let Ok(snapshot) = collection.snapshot() else { return Vec::new() };
    snapshot.readable(&collection.spec().prefix, None).map(|it| it.revision()).collect()
}

/// Hands the stored webhooks to admission, now and whenever they change.
pub(crate) fn start(registry: &Registry, admission: &Arc<Admission>, tasks: &Tasks) -> InForce {
    let mut in_force = Vec::new();
    for (kind, resource) in KINDS {
        let resource = GroupResource::new("admissionregistration.k8s.io", resource);
        let Some(collection) = registry.kinds().get(&resource).and_then(|it| it.collection().cloned()) else {
            continue;
        };
        let (loaded, receiver) = watch::channel(Vec::new());
        in_force.push((Arc::clone(&collection), receiver));
        let feed = Feed { kind, collection, admission: Arc::clone(admission), loaded };
        let watcher = feed.fill();
        tasks.supervise("webhook feed", async move { feed.follow(watcher).await });
    }
    InForce(in_force)
}

struct Feed {
    kind: HookKind,
    collection: Arc<Collection>,
    admission: Arc<Admission>,
    loaded: watch::Sender<Vec<Revision>>,
}

impl Feed {
    /// Takes over all that is there; returns a watch that goes on from exactly that state.
    fn fill(&self) -> Option<Watcher> {
        let snapshot = self.collection.snapshot().ok()?;
        let prefix = self.collection.spec().prefix.clone();
        // Before the others are in force: a webhook that cannot be read must not be left out without a word.
        let undecodable = snapshot.check(&prefix, None).err();
        self.admission.set_unknown(self.kind, undecodable.map(|it| it.to_string() + ": " + &named(&it)));
        let items: Vec<_> = snapshot.readable(&prefix, None).collect();
        let configurations: Vec<Value> =
            items.iter().filter_map(|it| serde_json::from_slice(it.text()).ok()).collect();
        self.admission.set_hooks(self.kind, &configurations);
        self.loaded.send_replace(items.iter().map(|it| it.revision()).collect());
        self.collection.watch(snapshot.revision(), &prefix).ok()
    }

    async fn follow(&self, mut watcher: Option<Watcher>) {
        loop {
            let Some(running) = &mut watcher else {
                // The cache is starting over; until it is back the last known webhooks are called.
                tokio::time::sleep(RETRY).await;
                watcher = self.fill();
                continue;
            };
            match running.next().await {
                Step::Progress(_) => {}
                // There are few of them and they seldom change, so all are read anew.
                Step::Event(_) | Step::Undecodable(..) | Step::Ended(_) => watcher = self.fill(),
            }
        }
    }
}

/// The first of the configurations that cannot be read.
fn named(found: &cache::Undecodable) -> String {
    let named: Vec<&str> = found.first.iter().take(5).map(|(key, _)| key.as_str()).collect();
    format!("webhooks are not known: {}", named.join(", "))
}

/// The cluster as this server sees it.
pub(crate) struct Cluster(pub(crate) Arc<Registry>);

impl Cluster {
    /// An object as the store holds it now, in `v1` of its group.
    async fn stored(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let Some(kind) = self.0.kinds().get(resource) else { return Ok(None) };
        let target = Target {
            kind: Arc::clone(&kind),
            group_version: GroupVersion::new(&*resource.group, "v1"),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
        };
        match self.0.get(&target, "").await {
            Ok(text) => serde_json::from_slice(&text).map(Some).map_err(Status::internal),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }
}

impl World for Cluster {
    fn core_object<'a>(
        &'a self,
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Status>> {
        Box::pin(async move {
            if let Some(found) = find(&self.0, resource, namespace, name) {
                return Ok(Some(found));
            }
            // It may have been made a moment ago.
            self.stored(&GroupResource::new("", resource), namespace, name).await
        })
    }

    fn storage_class<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<Value>, Status>> {
        Box::pin(async move {
            self.stored(&GroupResource::new("storage.k8s.io", "storageclasses"), "", name).await
        })
    }

    fn convert<'a>(
        &'a self,
        resource: &'a GroupResource,
        object: &'a Value,
        to: &'a GroupVersion,
    ) -> BoxFuture<'a, Result<Value, Status>> {
        Box::pin(self.0.convert(resource, object, to))
    }
}

impl webhook::Resolve for Cluster {
    /// An external name, an endpoint or a cluster address, whichever the service has, in this order. Who may write in a
    /// namespace chooses what its services have: addresses that lead to this server itself are not called, and of names
    /// only those that are said to be one.
    fn resolve(&self, namespace: &str, name: &str, port: u16) -> Result<String, String> {
        let service = find(&self.0, "services", namespace, name)
            .ok_or_else(|| format!("service {name:?} not found"))?;
        let spec = service.get("spec").unwrap_or(&Value::Null);
        let text = |field: &str| spec.get(field).and_then(Value::as_str).unwrap_or_default();
        if text("type") == "ExternalName" {
            return external(text("externalName"), port);
        }
        let ports = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
        let own = ports.clone().find(|it| it.get("port").and_then(Value::as_u64) == Some(u64::from(port)));
        let Some(own) = own else {
            return Err(format!("no service port {port} found for service {name:?}"));
        };
        let port_name = own.get("name").and_then(Value::as_str).unwrap_or_default();
        let endpoints = find(&self.0, "endpoints", namespace, name);
        if let Some(address) = endpoints.as_ref().and_then(|it| endpoint(it, port_name)) {
            return Ok(address);
        }
        match text("clusterIP") {
            "" | "None" => Err(format!("no endpoints available for service {name:?}")),
            ip => callable(ip, port)
                .ok_or_else(|| format!("service {name:?} has no address that can be called")),
        }
    }
}

/// A name outside the cluster, unless it is this machine's.
fn external(host: &str, port: u16) -> Result<String, String> {
    let bare = host.trim_end_matches('.').to_ascii_lowercase();
    let is_own = bare == "localhost"
        || bare.ends_with(".localhost")
        || bare.parse().is_ok_and(|it| registry::check_leads_elsewhere(it).is_err());
    if is_own { Err(format!("{host:?} cannot be called")) } else { Ok(format!("{host}:{port}")) }
}

/// Where to connect to, if this is an address, and one that leads somewhere else. Never a name: those would be resolved.
fn callable(ip: &str, port: u16) -> Option<String> {
    let ip: IpAddr = ip.parse().ok()?;
    let is_fit = registry::check_leads_elsewhere(ip).is_ok() && !ip.to_canonical().is_multicast();
    is_fit.then(|| SocketAddr::new(ip, port).to_string())
}

/// The first address that is ready behind this port.
fn endpoint(endpoints: &Value, port_name: &str) -> Option<String> {
    let subsets = endpoints.get("subsets").and_then(Value::as_array)?;
    subsets.iter().find_map(|subset| {
        let ports = subset.get("ports").and_then(Value::as_array)?;
        let port = ports
            .iter()
            .find(|it| it.get("name").and_then(Value::as_str).unwrap_or_default() == port_name)?;
        let port = port.get("port").and_then(Value::as_u64).and_then(|it| u16::try_from(it).ok())?;
        let addresses = subset.get("addresses").and_then(Value::as_array)?;
        addresses.iter().find_map(|it| callable(it.get("ip")?.as_str()?, port))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_addresses_that_lead_elsewhere_are_called() {
        for (ip, want) in [
            ("10.0.0.1", Some("10.0.0.1:443")),
            ("2001:db8::1", Some("[2001:db8::1]:443")),
            ("localhost", None),
            ("127.1", None),
            ("metadata.internal", None),
            ("127.0.0.1", None),
            ("::ffff:127.0.0.1", None),
            ("169.254.169.254", None),
            ("fe80::1", None),
            ("0.0.0.0", None),
            ("239.1.2.3", None),
            ("", None),
        ] {
            assert_eq!(callable(ip, 443).as_deref(), want, "{ip}");
        }
        // What was stored before it was checked is passed over.
        let endpoints = json!({"subsets": [
            {"addresses": [{"ip": "127.0.0.1"}, {"ip": "localhost"}], "ports": [{"port": 80}]},
            {"addresses": [{"ip": "127.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 81}]},
        ]});
        assert_eq!(endpoint(&endpoints, "").as_deref(), Some("10.0.0.2:81"));
        for (name, is_called) in
            [("example.com", true), ("LocalHost.", false), ("a.localhost", false), ("127.0.0.1", false)]
        {
            assert_eq!(external(name, 443).is_ok(), is_called, "{name}");
        }
    }
}
