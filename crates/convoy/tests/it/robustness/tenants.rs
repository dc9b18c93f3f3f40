//! People who delete, force and make anew: definitions, namespaces, owners, and two kinds that swap their resources.
//!
//! Each works on names of its own, over and over until the round ends, and then puts its house in order. What must not be
//! gone and what must not be there is for [`testkit::history::removal`] to say.

use std::{sync::Arc, time::Duration};

use rand::RngExt;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::{
    agent::{Agent, Estate, Told},
    doors::Doors,
};
use crate::nothing_lost::scene::{DEFINITIONS, NAMESPACES, definition, uid};

const MAPS: &str = "/api/v1/namespaces/household/configmaps";
const HELD: &str = "example.com/held";
/// How long somebody waits for something to end during a round, and after it.
const PATIENCE: Duration = Duration::from_secs(3);
const LAST_PATIENCE: Duration = Duration::from_secs(60);

/// What a namespace is filled with: collection, `apiVersion`, kind.
const CONTENT: [(&str, &str, &str); 4] = [
    ("/api/v1/namespaces/NS/configmaps", "v1", "ConfigMap"),
    ("/api/v1/namespaces/NS/secrets", "v1", "Secret"),
    ("/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", "rbac.authorization.k8s.io/v1", "Role"),
    ("/apis/coordination.k8s.io/v1/namespaces/NS/leases", "coordination.k8s.io/v1", "Lease"),
];
const N_TENANTS: usize = 2;

/// People at work.
pub struct Tenants {
    estate: Arc<Estate>,
    tasks: JoinSet<Result<(), String>>,
}

impl Tenants {
    pub fn start(estate: &Arc<Estate>, doors: &Doors, seed: u64, round: usize) -> Self {
        estate.end(false);
        let mut tasks = JoinSet::new();
        let agent = |name: &'static str, n: u64| Agent::new(name, doors.clients(), seed ^ (n << 40), estate);
        for n in 0..2 {
            let plural = format!("kinds{n}");
            tasks.spawn(Definer { agent: agent("definers", n + 1), plural, objects: Vec::new() }.run());
        }
        for n in 0..N_TENANTS {
            let name = format!("tenant-{n}");
            let agent = agent("tenants", 10 + n as u64);
            tasks.spawn(Tenant { agent, name, held: Vec::new(), n_objects: 0, round }.run());
        }
        tasks.spawn(race(agent("racers", 20), round));
        for n in 0..2 {
            let name = format!("owner-{n}");
            tasks.spawn(
                Family { agent: agent("families", 30 + n), name, kept: Vec::new(), n_made: 0, round }.run(),
            );
        }
        tasks.spawn(Swapper { agent: agent("swappers", 40), n_made: 0, round, is_swapped: false }.run());
        Self { estate: Arc::clone(estate), tasks }
    }

    /// Makes the namespace that most of them live in.
    pub async fn settle_in(estate: &Arc<Estate>, doors: &Doors) -> anyhow::Result<()> {
        let mut agent = Agent::new("people", doors.clients(), 0, estate);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "household"}});
        let made = agent.create(NAMESPACES, object).await;
        anyhow::ensure!(made.is_some(), "the household cannot be made");
        Ok(())
    }

    /// Lets them put their houses in order; says what they could not.
    pub async fn stop(self) -> Vec<String> {
        self.estate.end(true);
        self.tasks.join_all().await.into_iter().filter_map(Result::err).collect()
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn thing(kind: &str, name: &str, is_held: bool) -> Value {
    let finalizers = if is_held { json!([HELD]) } else { json!(null) };
    json!({"apiVersion": "example.com/v1", "kind": kind,
        "metadata": {"name": name, "finalizers": finalizers}, "spec": {"mode": name}})
}

fn dependent(name: &str, owners: &[&Value], is_blocking: bool) -> Value {
    let reference = |it: &&Value| {
        json!({"apiVersion": it["apiVersion"], "kind": it["kind"], "name": text(it, "name"), "uid": uid(it),
            "blockOwnerDeletion": is_blocking})
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": owners}})
}

/// Defines, and waits until it is served.
async fn define(agent: &mut Agent, plural: &str, kind: &str) -> Option<Value> {
    let path = format!("{DEFINITIONS}/{plural}.example.com");
    let made = match agent.create(DEFINITIONS, definition(plural, kind)).await {
        Some(made) => made,
        // Perhaps it was made and nobody heard of it.
        None => match agent.get(&path).await {
            Told::Done(found) if found["metadata"]["deletionTimestamp"].is_null() => found,
            Told::Done(_) | Told::Refused(..) | Told::Unknown => return None,
        },
    };
    for _ in 0..40 {
        if let Told::Done(found) = agent.get(&path).await {
            let mut conditions = found["status"]["conditions"].as_array().into_iter().flatten();
            if conditions.any(|it| it["type"] == "Established" && it["status"] == "True") {
                return Some(made);
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Some(made)
}

/// Deletes a definition and waits for its end; whatever else happens meanwhile.
async fn undefine(agent: &mut Agent, plural: &str, patience: Duration) -> Result<(), String> {
    let path = format!("{DEFINITIONS}/{plural}.example.com");
    for _ in 0..20 {
        let found = match agent.get(&path).await {
            Told::Done(found) => found,
            Told::Refused(404, _) => return Ok(()),
            Told::Refused(..) | Told::Unknown => continue,
        };
        agent.delete(&path, &found, "Background").await;
        if agent.gone(&path, &found, patience).await {
            return Ok(());
        }
        if patience == LAST_PATIENCE {
            break;
        }
    }
    Err(format!("the definition {plural} does not end"))
}

/// Definitions that are deleted, forced to go, made anew, and changed while they have objects.
struct Definer {
    agent: Agent,
    plural: String,
    /// Acknowledged since the definition was made last.
    objects: Vec<Value>,
}

impl Definer {
    fn path(&self) -> String {
        format!("{DEFINITIONS}/{}.example.com", self.plural)
    }

    fn collection(&self) -> String {
        format!("/apis/example.com/v1/namespaces/household/{}", self.plural)
    }

    async fn run(mut self) -> Result<(), String> {
        while !self.agent.is_over() {
            self.cycle().await;
        }
        self.tidy().await
    }

    async fn cycle(&mut self) {
        let (plural, collection) = (self.plural.clone(), self.collection());
        let Some(defined) = define(&mut self.agent, &plural, "Kind").await else {
            return self.agent.rest(300).await;
        };
        self.objects.clear();
        for n in 0..self.agent.random.random_range(5..20) {
            let is_held = self.agent.one_in(3);
            let made = self.agent.create(&collection, thing("Kind", &format!("o-{n}"), is_held)).await;
            self.objects.extend(made);
        }
        if self.agent.one_in(2) {
            self.change().await;
        }
        self.read().await;
        let path = self.path();
        self.agent.delete(&path, &defined, "Background").await;
        self.agent.rest(400).await;
        if self.agent.one_in(2) {
            self.agent.free(&path, &defined).await;
        } else {
            self.free_all().await;
        }
        if self.agent.gone(&path, &defined, PATIENCE).await {
            self.agent.count("end of a definition");
        }
        self.agent.rest(300).await;
    }

    /// What can be selected by changes, and everything has to be read anew.
    async fn change(&mut self) {
        let mut versions = definition(&self.plural, "Kind")["spec"]["versions"].take();
        let fields = json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"mode": {"type": "string"}}}}});
        versions[0]["schema"]["openAPIV3Schema"] = fields;
        versions[0]["selectableFields"] = json!([{"jsonPath": ".spec.mode"}]);
        let path = self.path();
        self.agent.patch(&path, &json!({"spec": {"versions": versions}})).await;
        self.agent.count("change of a definition");
    }

    /// Nobody removes these before the definition is deleted: whoever does not find them is wrong.
    async fn read(&mut self) {
        let collection = self.collection();
        for object in self.objects.clone() {
            let path = format!("{collection}/{}", text(&object, "name"));
            if let Told::Refused(404, body) = self.agent.get(&path).await
                && body["details"]["name"].is_string()
            {
                self.agent.estate.ledger.fault(format!("{path} ({}) was not found: {body}", uid(&object)));
            }
        }
    }

    async fn free_all(&mut self) {
        let collection = self.collection();
        for object in std::mem::take(&mut self.objects) {
            if object["metadata"]["finalizers"].is_array() {
                self.agent.free(&format!("{collection}/{}", text(&object, "name")), &object).await;
            }
        }
    }

    /// What was left behind is served again and goes with the definition.
    async fn tidy(mut self) -> Result<(), String> {
        let (plural, collection) = (self.plural.clone(), self.collection());
        undefine_slowly(&mut self.agent, &plural, &collection).await
    }
}

/// Ends a definition that may have objects of which nobody knows any more, held by finalizers.
async fn undefine_slowly(agent: &mut Agent, plural: &str, collection: &str) -> Result<(), String> {
    let path = format!("{DEFINITIONS}/{plural}.example.com");
    for _ in 0..200 {
        if let Told::Done(list) = agent.get(collection).await {
            let items = list["items"].as_array().cloned().unwrap_or_default();
            for item in items {
                if item["metadata"]["finalizers"].is_array() {
                    agent.free(&format!("{collection}/{}", text(&item, "name")), &item).await;
                }
            }
        }
        match agent.get(&path).await {
            Told::Done(found) => {
                agent.delete(&path, &found, "Background").await;
                agent.gone(&path, &found, Duration::from_millis(500)).await;
            }
            // There may be objects without a definition: they are served once more.
            Told::Refused(404, _) => {
                if define(agent, plural, "Kind").await.is_none() {
                    continue;
                }
                let Told::Done(list) = agent.get(collection).await else { continue };
                let is_empty = list["items"].as_array().is_some_and(Vec::is_empty);
                if is_empty {
                    return undefine(agent, plural, LAST_PATIENCE).await;
                }
            }
            Told::Refused(..) | Told::Unknown => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    Err(format!("the definition {plural} cannot be emptied"))
}

/// A namespace that is deleted, forced to go, and made anew under the same name.
struct Tenant {
    agent: Agent,
    name: String,
    /// Objects with finalizers, by path.
    held: Vec<(String, Value)>,
    n_objects: u64,
    round: usize,
}

impl Tenant {
    async fn run(mut self) -> Result<(), String> {
        while !self.agent.is_over() {
            self.cycle().await;
        }
        self.tidy().await
    }

    async fn cycle(&mut self) {
        let path = format!("{NAMESPACES}/{}", self.name);
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}});
        let namespace = match self.agent.create(NAMESPACES, object).await {
            Some(made) => made,
            None => match self.agent.get(&path).await {
                Told::Done(found) => found,
                Told::Refused(..) | Told::Unknown => return self.agent.rest(200).await,
            },
        };
        let n_objects = self.agent.random.random_range(4..12);
        self.fill(n_objects).await;
        self.agent.delete(&path, &namespace, "Background").await;
        // Somebody has not heard of it yet.
        self.fill(2).await;
        self.agent.rest(300).await;
        if self.agent.one_in(2) {
            self.agent.force(&namespace).await;
        } else {
            self.free_all().await;
        }
        if self.agent.gone(&path, &namespace, PATIENCE).await {
            self.agent.count("end of a namespace");
        }
    }

    async fn fill(&mut self, n: u64) {
        for _ in 0..n {
            let (collection, api_version, kind) = CONTENT[self.agent.random.random_range(0..CONTENT.len())];
            let collection = collection.replace("NS", &self.name);
            self.n_objects += 1;
            let name = format!("c-{}-{}", self.round, self.n_objects);
            let is_held = self.agent.one_in(6);
            let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
            if is_held {
                object["metadata"]["finalizers"] = json!([HELD]);
            }
            let made = self.agent.create(&collection, object).await;
            self.held.extend(made.filter(|_| is_held).map(|it| (format!("{collection}/{name}"), it)));
        }
    }

    async fn free_all(&mut self) {
        for (path, object) in std::mem::take(&mut self.held) {
            self.agent.free(&path, &object).await;
        }
    }

    async fn tidy(mut self) -> Result<(), String> {
        let path = format!("{NAMESPACES}/{}", self.name);
        for _ in 0..200 {
            // What is held may be unknown: its creation was not heard of, or an earlier namespace left it.
            for (collection, ..) in CONTENT {
                let collection = collection.replace("NS", &self.name);
                let Told::Done(list) = self.agent.get(&collection).await else { continue };
                for item in list["items"].as_array().cloned().unwrap_or_default() {
                    if item["metadata"]["finalizers"].is_array() {
                        self.agent.free(&format!("{collection}/{}", text(&item, "name")), &item).await;
                    }
                }
            }
            match self.agent.get(&path).await {
                Told::Refused(404, _) => return Ok(()),
                Told::Done(found) => {
                    self.agent.delete(&path, &found, "Background").await;
                    self.agent.gone(&path, &found, Duration::from_secs(1)).await;
                }
                Told::Refused(..) | Told::Unknown => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Err(format!("the namespace {} does not end", self.name))
    }
}

/// Creates something in namespaces that come and go.
async fn race(mut agent: Agent, round: usize) -> Result<(), String> {
    for n in 0.. {
        if agent.is_over() {
            break;
        }
        let tenant = agent.random.random_range(0..N_TENANTS);
        let collection = format!("{NAMESPACES}/tenant-{tenant}/secrets");
        let object =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("r-{round}-{n}")}});
        agent.create(&collection, object).await;
        agent.rest(40).await;
    }
    Ok(())
}

/// An owner that is deleted and made anew under the same name, and its dependents.
struct Family {
    agent: Agent,
    name: String,
    /// Dependents that have a living owner, or none: nobody but this one removes them.
    kept: Vec<Value>,
    n_made: u64,
    round: usize,
}

impl Family {
    async fn run(mut self) -> Result<(), String> {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": self.name}});
        let mut before: Option<Value> = None;
        while !self.agent.is_over() {
            let made = self.agent.create(MAPS, owner.clone()).await;
            let Some(made) = made else {
                let name = self.name.clone();
                self.agent.delete_by_name(MAPS, &name).await;
                continue;
            };
            let mut made = made;
            (made["apiVersion"], made["kind"]) = (json!("v1"), json!("ConfigMap"));
            for _ in 0..4 {
                self.n_made += 1;
                let name = format!("{}-d-{}-{}", self.name, self.round, self.n_made);
                let owners: Vec<&Value> = match &before {
                    Some(before) if self.agent.one_in(3) => vec![before, &made],
                    _ => vec![&made],
                };
                let is_blocking = self.agent.one_in(2);
                let child = self.agent.create(MAPS, dependent(&name, &owners, is_blocking)).await;
                self.kept.extend(child);
            }
            self.agent.rest(300).await;
            let policy = ["Background", "Foreground", "Orphan"][self.agent.random.random_range(0..3)];
            let path = format!("{MAPS}/{}", self.name);
            self.agent.delete(&path, &made, policy).await;
            self.agent.gone(&path, &made, PATIENCE).await;
            before = Some(made);
        }
        self.tidy().await
    }

    /// Nobody else removes what was orphaned.
    async fn tidy(mut self) -> Result<(), String> {
        let path = format!("{MAPS}/{}", self.name);
        // What was removed before now was not removed because it is asked for now.
        self.agent.get(MAPS).await;
        if let Told::Done(found) = self.agent.get(&path).await {
            self.agent.delete(&path, &found, "Background").await;
        }
        for object in std::mem::take(&mut self.kept) {
            self.agent.delete(&format!("{MAPS}/{}", text(&object, "name")), &object, "Background").await;
        }
        Ok(())
    }
}

/// Two kinds of a group that are found where the other one was.
struct Swapper {
    agent: Agent,
    n_made: u64,
    round: usize,
    is_swapped: bool,
}

impl Swapper {
    async fn run(mut self) -> Result<(), String> {
        while !self.agent.is_over() {
            self.cycle().await;
        }
        self.tidy().await
    }

    /// Owners whose definition went before the collector saw them cannot be asked for: their kinds are served once more.
    async fn tidy(mut self) -> Result<(), String> {
        let plurals = ["alphas", "betas"];
        for plural in plurals {
            undefine(&mut self.agent, plural, LAST_PATIENCE).await?;
        }
        for (plural, kind) in plurals.into_iter().zip(["Alpha", "Beta"]) {
            define(&mut self.agent, plural, kind).await;
        }
        let deadline = Instant::now() + LAST_PATIENCE;
        loop {
            if let Told::Done(list) = self.agent.get(MAPS).await {
                let items = list["items"].as_array().cloned().unwrap_or_default();
                if !items.iter().any(|it| text(it, "name").starts_with("s-")) {
                    break;
                }
            }
            if Instant::now() > deadline {
                return Err("dependents of owners that are gone are not collected".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        for plural in plurals {
            undefine(&mut self.agent, plural, LAST_PATIENCE).await?;
        }
        Ok(())
    }

    async fn cycle(&mut self) {
        let kinds = if self.is_swapped { ["Beta", "Alpha"] } else { ["Alpha", "Beta"] };
        for (plural, kind) in ["alphas", "betas"].into_iter().zip(kinds) {
            define(&mut self.agent, plural, kind).await;
        }
        for _ in 0..3 {
            for (plural, kind) in ["alphas", "betas"].into_iter().zip(kinds) {
                self.n_made += 1;
                let name = format!("s-{}-{}", self.round, self.n_made);
                let collection = format!("/apis/example.com/v1/namespaces/household/{plural}");
                let Some(owner) = self.agent.create(&collection, thing(kind, &name, false)).await else {
                    continue;
                };
                self.agent.create(MAPS, dependent(&name, &[&owner], false)).await;
            }
        }
        self.agent.rest(500).await;
        let mut is_done = true;
        for plural in ["alphas", "betas"] {
            is_done &= undefine(&mut self.agent, plural, PATIENCE).await.is_ok();
        }
        self.is_swapped ^= is_done;
        self.agent.count(if is_done { "swap" } else { "swap given up" });
    }
}
