//! The garbage collector and the namespace controller between servers of two releases: a resource that only the newer one
//! has, one that only the older one has, and one that both have. Each story is told with the controllers on either side.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use store::{Key, Range, ReadAt, Store, Txn};
use testkit::tools;

use super::{
    ground::{Ground, MAPS, Ship, eventually, map},
    on_both_stores,
};

on_both_stores!(
    owners_are_found_from_the_older_server,
    owners_are_found_from_the_newer_server,
    dependents_outlive_the_newer_server,
    dependents_outlive_the_older_server,
    an_owner_is_asked_for_as_soon_as_somebody_serves_it,
    orphans_are_released_whoever_serves_them,
    orphans_that_nobody_serves_hold_their_owner,
    namespaces_are_emptied_from_the_older_server,
    namespaces_are_emptied_from_the_newer_server,
    namespaces_are_emptied_of_what_discovery_does_not_show,
    a_namespace_waits_for_the_newer_server,
    a_namespace_waits_for_the_older_server,
    a_namespace_waits_for_what_this_server_cannot_read,
    a_namespace_waits_for_what_this_server_may_not_ask_another_for,
    who_has_nothing_to_do_keeps_nobody_from_working,
    servers_come_and_go,
);

const WORK: &str = "garbage-collector,namespace,storage-version-gc";
const REST: &str = "storage-version-gc";
const OLD: u16 = 34;
const NEW: u16 = 36;
/// The newer release brings pod groups, and has jobs no more.
const OF_NEW: &str = "--runtime-config=scheduling.k8s.io/v1alpha2=true,batch/v1=false";

/// A resource, and who has it.
#[derive(Clone, Copy, Debug)]
struct Thing {
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
}

const ADDED: Thing =
    Thing { api_version: "scheduling.k8s.io/v1alpha2", kind: "PodGroup", plural: "podgroups" };
const REMOVED: Thing = Thing { api_version: "batch/v1", kind: "Job", plural: "jobs" };
const UNCHANGED: Thing = Thing { api_version: "v1", kind: "ConfigMap", plural: "configmaps" };
const ALL: [Thing; 3] = [ADDED, REMOVED, UNCHANGED];

impl Thing {
    fn path(self, namespace: &str) -> String {
        let root = if self.api_version == "v1" { "/api" } else { "/apis" };
        format!("{root}/{}/namespaces/{namespace}/{}", self.api_version, self.plural)
    }

    fn object(self, name: &str) -> Value {
        let spec = match self.kind {
            "Job" => json!({"template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "c", "image": "i"}]}}}),
            "PodGroup" => json!({"schedulingPolicy": {"basic": {}}}),
            _ => Value::Null,
        };
        let mut object =
            json!({"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": name}});
        if !spec.is_null() {
            object["spec"] = spec;
        }
        object
    }

    /// Under which objects are stored.
    fn prefix(self) -> String {
        format!("/registry/{}/", self.plural)
    }

    fn reference(self, name: &str, uid: &str) -> Value {
        json!({"apiVersion": self.api_version, "kind": self.kind, "name": name, "uid": uid})
    }

    /// Makes one, with these owners; returns a reference to it.
    async fn make(self, ship: &Ship, namespace: &str, name: &str, owners: &[Value]) -> Value {
        let mut object = self.object(name);
        object["metadata"]["ownerReferences"] = json!(owners);
        let made = ship.expect(201, "POST", &self.path(namespace), object).await;
        self.reference(name, made["metadata"]["uid"].as_str().unwrap())
    }
}

/// Which of the two works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    Old,
    New,
}

/// Two servers of two releases.
struct Pair {
    old: Ship,
    new: Ship,
}

impl Worker {
    async fn launch_old(self, ground: &Ground, name: &str) -> Ship {
        let controllers = if self == Self::Old { WORK } else { REST };
        ground.launch_working(name, OLD, controllers, &[]).await
    }

    async fn launch_new(self, ground: &Ground, name: &str) -> Ship {
        let controllers = if self == Self::New { WORK } else { REST };
        ground.launch_working(name, NEW, controllers, &[OF_NEW]).await
    }

    async fn pair(self, ground: &Ground) -> Pair {
        let old = self.launch_old(ground, "old").await;
        Pair { old, new: self.launch_new(ground, "new").await }
    }

    /// The one that works stays, the other one can go; what only that one has.
    fn part(self, pair: Pair) -> (Ship, Ship, Thing) {
        match self {
            Self::Old => (pair.old, pair.new, ADDED),
            Self::New => (pair.new, pair.old, REMOVED),
        }
    }

    async fn other(self, ground: &Ground, name: &str) -> Ship {
        match self {
            Self::Old => self.launch_new(ground, name).await,
            Self::New => self.launch_old(ground, name).await,
        }
    }
}

async fn is_there(ship: &Ship, name: &str) -> bool {
    match ship.ask("GET", &format!("{MAPS}/{name}"), Value::Null).await {
        (200, found) => found["metadata"]["deletionTimestamp"].is_null(),
        (404, _) => false,
        (code, answer) => panic!("{code}: {answer}"),
    }
}

/// Waits until the garbage collector has looked at something that was made after everything that is there now.
async fn collector_comes_round(ship: &Ship, of: Thing, name: &str) {
    let absent = of.reference("never", "00000000-0000-0000-0000-000000000000");
    UNCHANGED.make(ship, "default", name, &[absent]).await;
    eventually("what has no owner goes", async || !is_there(ship, name).await).await;
}

async fn make_namespace(ship: &Ship, name: &str) {
    ship.expect(201, "POST", "/api/v1/namespaces", json!({"metadata": {"name": name}})).await;
}

async fn delete_namespace(ship: &Ship, name: &str) {
    ship.expect(200, "DELETE", &format!("/api/v1/namespaces/{name}"), Value::Null).await;
}

/// `None` if it is gone.
async fn namespace(ship: &Ship, name: &str) -> Option<Value> {
    let (code, found) = ship.ask("GET", &format!("/api/v1/namespaces/{name}"), Value::Null).await;
    (code == 200).then_some(found)
}

/// What a condition says that tells of trouble.
fn trouble(namespace: &Value, condition: &str) -> Option<String> {
    let conditions = namespace["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|it| it["type"] == condition && it["status"] == "True")?;
    found["message"].as_str().map(str::to_owned)
}

/// Everything that is stored of a namespace, itself excluded.
async fn keys_of(ground: &Ground, namespace: &str) -> Vec<String> {
    let page = ground.store.list(&Range::prefix("/registry/"), ReadAt::Latest, 100_000).await.unwrap();
    let infix = format!("/{namespace}/");
    page.entries.iter().map(|it| it.key.as_str().to_owned()).filter(|it| it.contains(&infix)).collect()
}

async fn namespace_goes(ground: &Ground, ship: &Ship, name: &str) {
    eventually("the namespace goes", async || namespace(ship, name).await.is_none()).await;
    assert_eq!(keys_of(ground, name).await, [""; 0]);
}

async fn owners_are_found_from_the_older_server(ground: Ground) {
    owners_are_found(ground, Worker::Old).await;
}

async fn owners_are_found_from_the_newer_server(ground: Ground) {
    owners_are_found(ground, Worker::New).await;
}

/// Owners of all three kinds, asked for and deleted through the server that has them not.
async fn owners_are_found(ground: Ground, worker: Worker) {
    let Pair { old, new } = worker.pair(&ground).await;
    for thing in ALL {
        let owner = thing.make(&old, "default", "owner", &[]).await;
        let child = format!("child-{}", thing.plural);
        UNCHANGED.make(&new, "default", &child, &[owner]).await;
        let parent = UNCHANGED.make(&old, "default", &format!("parent-{}", thing.plural), &[]).await;
        thing.make(&new, "default", "child", &[parent]).await;
    }
    for thing in ALL {
        // That owners of this kind are asked for, and found wanting, is what makes the others' life a proof.
        collector_comes_round(&new, thing, &format!("late-{}", thing.plural)).await;
    }
    for thing in ALL {
        assert!(is_there(&old, &format!("child-{}", thing.plural)).await, "{thing:?}");
        old.get(&format!("{}/child", thing.path("default"))).await;
    }
    for thing in ALL {
        let ship = if thing.kind == ADDED.kind { &old } else { &new };
        let background = || json!({"propagationPolicy": "Background"});
        ship.expect(200, "DELETE", &format!("{}/owner", thing.path("default")), background()).await;
        ship.expect(200, "DELETE", &format!("{MAPS}/parent-{}", thing.plural), background()).await;
        let child = format!("child-{}", thing.plural);
        eventually("the dependent goes", async || !is_there(&old, &child).await).await;
        let path = format!("{}/child", thing.path("default"));
        eventually("the dependent of the kind goes", async || {
            old.ask("GET", &path, Value::Null).await.0 == 404
        })
        .await;
    }
}

async fn dependents_outlive_the_newer_server(ground: Ground) {
    dependents_outlive(ground, Worker::Old).await;
}

async fn dependents_outlive_the_older_server(ground: Ground) {
    dependents_outlive(ground, Worker::New).await;
}

/// The only server that has the owner's kind crashes: first the kind cannot be asked for, then nobody serves it. The owner
/// is in the store all the time.
async fn dependents_outlive(ground: Ground, worker: Worker) {
    let (works, goes, thing) = worker.part(worker.pair(&ground).await);
    let owner = thing.make(&goes, "default", "owner", &[]).await;
    UNCHANGED.make(&works, "default", "child", std::slice::from_ref(&owner)).await;
    collector_comes_round(&works, thing, "first").await;
    goes.server.crash();
    // Made while it cannot be asked for, and while nobody serves it.
    UNCHANGED.make(&works, "default", "second", std::slice::from_ref(&owner)).await;
    let path = format!("{}/owner", thing.path("default"));
    eventually("nobody serves it", async || works.ask("GET", &path, Value::Null).await.0 == 404).await;
    UNCHANGED.make(&works, "default", "third", std::slice::from_ref(&owner)).await;
    collector_comes_round(&works, UNCHANGED, "fourth").await;
    for name in ["child", "second", "third"] {
        assert!(is_there(&works, name).await, "{name}");
    }
    let key = format!("{}default/owner", thing.prefix());
    assert!(ground.store.get(&Key::new(key)).await.unwrap().is_some());
    let back = worker.other(&ground, "back").await;
    collector_comes_round(&works, thing, "fifth").await;
    for name in ["child", "second", "third"] {
        assert!(is_there(&works, name).await, "{name}");
    }
    works.expect(200, "DELETE", &path, json!({"propagationPolicy": "Background"})).await;
    for name in ["child", "second", "third"] {
        eventually("dependents go with their owner", async || !is_there(&works, name).await).await;
    }
    drop(back);
}

/// A kind appears with the server that brings it.
async fn an_owner_is_asked_for_as_soon_as_somebody_serves_it(ground: Ground) {
    let old = Worker::Old.launch_old(&ground, "old").await;
    let absent = ADDED.reference("never", "00000000-0000-0000-0000-000000000001");
    UNCHANGED.make(&old, "default", "child", &[absent]).await;
    collector_comes_round(&old, UNCHANGED, "first").await;
    assert!(is_there(&old, "child").await);
    let new = Worker::Old.launch_new(&ground, "new").await;
    eventually("its owner is found absent", async || !is_there(&new, "child").await).await;
    // It leaves for good, and there is nothing of what only it has: that holds up nobody.
    new.server.stop().await;
    collector_comes_round(&old, UNCHANGED, "second").await;
    make_namespace(&old, "short").await;
    UNCHANGED.make(&old, "short", "map", &[]).await;
    delete_namespace(&old, "short").await;
    namespace_goes(&ground, &old, "short").await;
}

/// A server that joined a moment ago has dependents of a kind that nobody knew; they are released before the owner goes.
async fn orphans_are_released_whoever_serves_them(ground: Ground) {
    let old = Worker::Old.launch_old(&ground, "old").await;
    collector_comes_round(&old, UNCHANGED, "first").await;
    for n in 0..3 {
        let owner = format!("owner-{n}");
        let reference = UNCHANGED.make(&old, "default", &owner, &[]).await;
        let new = Worker::Old.launch_new(&ground, &format!("new-{n}")).await;
        ADDED.make(&new, "default", &format!("child-{n}"), &[reference]).await;
        let path = format!("{MAPS}/{owner}");
        new.expect(200, "DELETE", &path, json!({"propagationPolicy": "Orphan"})).await;
        eventually("the owner goes", async || old.ask("GET", &path, Value::Null).await.0 == 404).await;
        let child = old.get(&format!("{}/child-{n}", ADDED.path("default"))).await;
        let owners = child["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        assert_eq!(owners, Vec::<Value>::new());
        new.expect(200, "DELETE", &format!("{}/child-{n}", ADDED.path("default")), Value::Null).await;
        new.server.stop().await;
    }
}

/// Dependents that cannot forget their owner now would be taken for lost later.
async fn orphans_that_nobody_serves_hold_their_owner(ground: Ground) {
    let Pair { old, new } = Worker::Old.pair(&ground).await;
    let owner = UNCHANGED.make(&old, "default", "owner", &[]).await;
    let abandoned = UNCHANGED.make(&old, "default", "abandoned", &[]).await;
    ADDED.make(&new, "default", "child", &[owner]).await;
    ADDED.make(&new, "default", "lost", &[abandoned]).await;
    new.server.stop().await;
    let orphan = || json!({"propagationPolicy": "Orphan"});
    for name in ["owner", "abandoned"] {
        old.expect(200, "DELETE", &format!("{MAPS}/{name}"), orphan()).await;
    }
    // Even by hand.
    let patch = json!({"metadata": {"finalizers": []}});
    let refused = old.expect(409, "PATCH", &format!("{MAPS}/owner"), patch).await;
    let told = "dependents that no server serves: 1 under /registry/podgroups/default/";
    assert_eq!(refused["details"]["causes"][0]["message"], told);
    let abandon = json!({"metadata": {"annotations": {"convoy.dev/abandon-unserved-content": "true"}}});
    old.expect(200, "PATCH", &format!("{MAPS}/abandoned"), abandon).await;
    // The collector goes on without the kind after a while, and then with what it may.
    let path = format!("{MAPS}/abandoned");
    eventually("the other goes", async || old.ask("GET", &path, Value::Null).await.0 == 404).await;
    let held = old.get(&format!("{MAPS}/owner")).await;
    assert_eq!(held["metadata"]["finalizers"], json!(["orphan"]));
    let _back = Worker::Old.launch_new(&ground, "back").await;
    let path = format!("{MAPS}/owner");
    eventually("the owner goes", async || old.ask("GET", &path, Value::Null).await.0 == 404).await;
    let child = old.get(&format!("{}/child", ADDED.path("default"))).await;
    let owners = child["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    assert_eq!(owners, Vec::<Value>::new());
}

async fn namespaces_are_emptied_from_the_older_server(ground: Ground) {
    namespaces_are_emptied(ground, Worker::Old).await;
}

async fn namespaces_are_emptied_from_the_newer_server(ground: Ground) {
    namespaces_are_emptied(ground, Worker::New).await;
}

async fn namespaces_are_emptied(ground: Ground, worker: Worker) {
    let Pair { old, new } = worker.pair(&ground).await;
    make_namespace(&old, "full").await;
    for thing in ALL {
        for n in 0..3 {
            thing.make(&new, "full", &format!("it-{n}"), &[]).await;
        }
        assert!(keys_of(&ground, "full").await.iter().any(|it| it.starts_with(&thing.prefix())), "{thing:?}");
    }
    delete_namespace(&new, "full").await;
    namespace_goes(&ground, &old, "full").await;
}

/// Clients are shown what the newest server serves; controllers see everything.
async fn namespaces_are_emptied_of_what_discovery_does_not_show(ground: Ground) {
    let newest = "--peer-discovery=newest";
    for (n, (at_old, at_new)) in [(WORK, REST), (REST, WORK)].into_iter().enumerate() {
        let ground = ground.another(n).await;
        let old = ground.launch_working("old", OLD, at_old, &[newest]).await;
        let new = ground.launch_working("new", NEW, at_new, &[newest, OF_NEW]).await;
        eventually("jobs are not shown", async || {
            let groups = old.get("/apis").await["groups"].take();
            groups.as_array().unwrap().iter().all(|it| it["name"] != "batch")
        })
        .await;
        make_namespace(&new, "full").await;
        for thing in ALL {
            thing.make(&new, "full", "it", &[]).await;
        }
        delete_namespace(&new, "full").await;
        namespace_goes(&ground, &new, "full").await;
        let owner = REMOVED.make(&new, "default", "owner", &[]).await;
        UNCHANGED.make(&new, "default", "child", &[owner]).await;
        collector_comes_round(&new, REMOVED, "late").await;
        assert!(is_there(&new, "child").await);
    }
}

async fn a_namespace_waits_for_the_newer_server(ground: Ground) {
    a_namespace_waits(ground, Worker::Old).await;
}

async fn a_namespace_waits_for_the_older_server(ground: Ground) {
    a_namespace_waits(ground, Worker::New).await;
}

/// The only server that has a kind is gone: what is left of it is named, and waited for.
async fn a_namespace_waits(ground: Ground, worker: Worker) {
    let (works, goes, thing) = worker.part(worker.pair(&ground).await);
    for name in ["waits", "freed", "free"] {
        make_namespace(&works, name).await;
        UNCHANGED.make(&works, name, "map", &[]).await;
        if name != "free" {
            thing.make(&works, name, "one", &[]).await;
            thing.make(&works, name, "two", &[]).await;
        }
    }
    goes.server.crash();
    // From the first moment on, while it cannot be reached and while it is not a member.
    for name in ["waits", "freed", "free"] {
        delete_namespace(&works, name).await;
    }
    let told = format!("keys that no server serves: 2 under {}", thing.prefix());
    for name in ["waits", "freed"] {
        eventually("what is left is named", async || {
            let found = namespace(&works, name).await.expect("it must stay");
            trouble(&found, "NamespaceContentRemaining").is_some_and(|it| it.contains(&told))
        })
        .await;
    }
    namespace_goes(&ground, &works, "free").await;
    for name in ["one", "two"] {
        let key = Key::new(format!("{}freed/{name}", thing.prefix()));
        ground.store.commit(Txn::new().delete(&key)).await.unwrap();
    }
    namespace_goes(&ground, &works, "freed").await;
    assert!(namespace(&works, "waits").await.is_some());
    let left = keys_of(&ground, "waits").await;
    assert_eq!(left.len(), 2, "{left:?}");
    let _back = worker.other(&ground, "back").await;
    namespace_goes(&ground, &works, "waits").await;
}

/// Keys in a collection that this server knows, in a version that only another release reads: no list shows them.
async fn a_namespace_waits_for_what_this_server_cannot_read(ground: Ground) {
    let new =
        ground.launch_working("new", NEW, WORK, &["--runtime-config=certificates.k8s.io/v1beta1=true"]).await;
    let key = Key::new("/registry/podcertificaterequests/strange/one");
    for space in ["strange", "fine"] {
        make_namespace(&new, space).await;
        let stored = json!({"apiVersion": "certificates.k8s.io/v1alpha1", "kind": "PodCertificateRequest",
            "metadata": {"name": "one", "namespace": space, "uid": space}, "spec": {}});
        if space != "fine" {
            ground.store.commit(Txn::new().put(&key, stored.to_string().into())).await.unwrap();
        }
    }
    // Nobody is told that less is there: so nobody can tell what else is, and nothing lets the namespace go without it.
    let abandon = json!({"metadata": {"annotations": {"convoy.dev/abandon-unserved-content": "true"}}});
    new.expect(200, "PATCH", "/api/v1/namespaces/strange", abandon).await;
    for space in ["strange", "fine"] {
        delete_namespace(&new, space).await;
    }
    eventually("what is left is named", async || {
        let found = namespace(&new, "strange").await.expect("it must stay");
        let told = "unable to decode 1 of them; the first is /registry/podcertificaterequests/strange/one";
        trouble(&found, "NamespaceDeletionContentFailure").is_some_and(|it| it.contains(told))
    })
    .await;
    namespace_goes(&ground, &new, "fine").await;
    ground.store.commit(Txn::new().delete(&key)).await.unwrap();
    namespace_goes(&ground, &new, "strange").await;
}

/// The server that works hands no requests on. What only the other one has is named together with that server and with
/// what is missing, and nothing that anybody can say here leaves it behind.
async fn a_namespace_waits_for_what_this_server_may_not_ask_another_for(ground: Ground) {
    let off = "--feature-gates=UnknownVersionInteroperabilityProxy=false";
    let without = "--runtime-config=batch/v1=false";
    let works = ground.launch_working("works", NEW, WORK, &[without, off]).await;
    let other = ground.launch_working("other", NEW, REST, &[]).await;
    make_namespace(&other, "full").await;
    REMOVED.make(&other, "full", "it", &[]).await;
    let abandon = json!({"metadata": {"annotations": {"convoy.dev/abandon-unserved-content": "true"}}});
    other.expect(200, "PATCH", "/api/v1/namespaces/full", abandon).await;
    delete_namespace(&other, "full").await;
    let identity = other.server.status().server.unwrap().identity;
    let told = [
        format!("keys that {identity} serves and this server does not: 1 under /registry/jobs/"),
        "switch the feature gate UnknownVersionInteroperabilityProxy on for this one".to_owned(),
    ];
    eventually("what is missing is named", async || {
        let found = namespace(&works, "full").await.expect("it must stay");
        let trouble = trouble(&found, "NamespaceContentRemaining").unwrap_or_default();
        assert!(!trouble.contains("no server serves") && !trouble.contains("annotate"), "{trouble}");
        told.iter().all(|it| trouble.contains(it))
    })
    .await;
    assert_eq!(keys_of(&ground, "full").await, ["/registry/jobs/full/it"]);
    let path = format!("{}/it", REMOVED.path("full"));
    other.expect(200, "DELETE", &path, json!({"propagationPolicy": "Background"})).await;
    namespace_goes(&ground, &works, "full").await;
}

/// The first server holds no Lease that would keep the second from working.
async fn who_has_nothing_to_do_keeps_nobody_from_working(ground: Ground) {
    let _idle = ground.launch_working("idle", NEW, REST, &[]).await;
    let works = ground.launch_working("works", NEW, WORK, &[]).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/convoy-controllers";
    eventually("the one that works holds the lease", async || {
        let (_, found) = works.ask("GET", lease, Value::Null).await;
        found["spec"]["holderIdentity"].as_str().is_some_and(|it| it.starts_with("works_"))
    })
    .await;
    works.expect(201, "POST", MAPS, map("stays")).await;
    collector_comes_round(&works, UNCHANGED, "first").await;
}

/// Servers of both releases come and go, gently and not, while owners and dependents are made. Nothing goes whose owner is
/// there, and what lost its owner goes in the end.
async fn servers_come_and_go(ground: Ground) {
    let (rounds, seed) = (tools::rounds(4), tools::seed());
    tools::report(&format!("fleet skew: {rounds} rounds, seed {seed}"));
    let mut random = StdRng::seed_from_u64(seed);
    for worker in [Worker::Old, Worker::New] {
        let ground = ground.another(if worker == Worker::Old { 0 } else { 1 }).await;
        let (works, mut other, thing) = worker.part(worker.pair(&ground).await);
        for round in 0..rounds {
            let kept = thing.make(&works, "default", &format!("kept-{round}"), &[]).await;
            let lost = thing.make(&other, "default", &format!("lost-{round}"), &[]).await;
            UNCHANGED.make(&works, "default", &format!("stays-{round}"), &[kept]).await;
            UNCHANGED.make(&works, "default", &format!("goes-{round}"), &[lost]).await;
            let space = format!("space-{round}");
            make_namespace(&works, &space).await;
            thing.make(&other, &space, "it", &[]).await;
            let path = format!("{}/lost-{round}", thing.path("default"));
            works.expect(200, "DELETE", &path, json!({"propagationPolicy": "Background"})).await;
            delete_namespace(&other, &space).await;
            if random.random_bool(0.5) {
                other.server.crash();
            } else {
                other.server.stop().await;
            }
            let while_away = format!("away-{round}");
            UNCHANGED.make(&works, "default", &while_away, &[thing.reference("never", "0")]).await;
            other = worker.other(&ground, &format!("other-{round}")).await;
            for n in 0..=round {
                assert!(is_there(&works, &format!("stays-{n}")).await, "seed {seed}, round {round}: {n}");
            }
        }
        for round in 0..rounds {
            for name in [format!("goes-{round}"), format!("away-{round}")] {
                eventually(&name, async || !is_there(&works, &name).await).await;
            }
            namespace_goes(&ground, &works, &format!("space-{round}")).await;
            assert!(is_there(&works, &format!("stays-{round}")).await, "seed {seed}: {round}");
        }
    }
}
