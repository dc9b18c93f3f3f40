//! Random graphs with circles, several owners, ghosts, and creation that races with deletion: what is left is what a
//! simple model says; with faults, nothing goes that the model keeps. `cargo xtask soak gc` runs the long form.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::collector::owner;
use crate::world::{CONFIG_MAPS, PLANETS, Random, Resource, SECRETS, State, WIDGETS, World};

#[derive(Clone, Debug)]
struct Object {
    resource: Resource,
    namespace: String,
    owners: Vec<String>,
}

/// Objects by uid, which is also their name.
type Objects = BTreeMap<String, Object>;

struct Story {
    world: World,
    random: Random,
    /// What should be there.
    model: Objects,
    n_made: usize,
    n_namespaces: usize,
}

/// What stays when `deleted` go, without a policy of orphaning: an object stays if it was not deleted and names no
/// owner, or one that stays.
fn cascade(objects: &mut Objects, deleted: &BTreeSet<String>) {
    objects.retain(|uid, _| !deleted.contains(uid));
    loop {
        let lost: Vec<String> = objects
            .iter()
            .filter(|(_, it)| !it.owners.is_empty() && !it.owners.iter().any(|it| objects.contains_key(it)))
            .map(|(uid, _)| uid.clone())
            .collect();
        if lost.is_empty() {
            break;
        }
        lost.iter().for_each(|it| drop(objects.remove(it)));
    }
    let left: BTreeSet<String> = objects.keys().cloned().collect();
    objects.values_mut().for_each(|it| it.owners.retain(|it| left.contains(it)));
}

fn orphan(objects: &mut Objects, deleted: &BTreeSet<String>) {
    objects.retain(|uid, _| !deleted.contains(uid));
    objects.values_mut().for_each(|it| it.owners.retain(|it| !deleted.contains(it)));
}

impl Story {
    fn new(seed: u64, n_objects: usize) -> Self {
        let n_namespaces = (n_objects / 100).clamp(2, 40);
        let mut story = Self {
            world: World::new(seed),
            random: Random(seed),
            model: Objects::new(),
            n_made: 0,
            n_namespaces,
        };
        let made: Vec<String> = (0..n_objects).map(|_| story.draw()).collect();
        for uid in made {
            story.choose_owners(&uid);
            story.store(&uid);
        }
        cascade(&mut story.model, &BTreeSet::new());
        story
    }

    /// A new object that is nowhere yet.
    fn draw(&mut self) -> String {
        let uid = format!("u{}", self.n_made);
        self.n_made += 1;
        let resource = [CONFIG_MAPS, SECRETS, WIDGETS, WIDGETS, PLANETS][self.random.below(5)];
        let namespace =
            if resource.3 { format!("n{}", self.random.below(self.n_namespaces)) } else { String::new() };
        self.model.insert(uid.clone(), Object { resource, namespace, owners: Vec::new() });
        uid
    }

    /// Any object that may own it, itself among them, and ghosts.
    fn choose_owners(&mut self, uid: &str) {
        let namespace = self.model[uid].namespace.clone();
        let n_owners = [0, 0, 1, 1, 1, 2, 3][self.random.below(7)];
        for _ in 0..n_owners {
            if self.random.percent(4) {
                self.model.get_mut(uid).unwrap().owners.push(format!("ghost{}", self.random.below(20)));
                continue;
            }
            for _ in 0..100 {
                let candidate = format!("u{}", self.random.below(self.n_made));
                let Some(found) = self.model.get(&candidate) else { continue };
                let is_allowed = found.namespace.is_empty() || found.namespace == namespace;
                if is_allowed && !self.model[uid].owners.contains(&candidate) {
                    self.model.get_mut(uid).unwrap().owners.push(candidate);
                    break;
                }
            }
        }
    }

    fn store(&mut self, uid: &str) {
        let Object { resource, namespace, owners } = self.model[uid].clone();
        let mut references: Vec<Value> = Vec::new();
        for uid in &owners {
            let is_blocking = self.random.percent(70);
            // Ghosts are of a kind that every object may name.
            let resource = self.model.get(uid).map_or(PLANETS, |it| it.resource);
            references.push(owner(resource, uid, uid, is_blocking));
        }
        let metadata = json!({"uid": uid, "ownerReferences": references});
        self.world.with(|it| it.put(resource, &namespace, uid, &metadata));
    }

    fn some(&mut self, percent: usize) -> BTreeSet<String> {
        let mut random = self.random.clone();
        let chosen = self.model.keys().filter(|_| random.percent(percent)).cloned().collect();
        self.random = random;
        chosen
    }

    /// Deletes some, while new ones are made that may be owned by those.
    async fn delete_some(&mut self) {
        let deleted = self.some(10);
        for uid in &deleted {
            let Object { resource, namespace, .. } = self.model[uid].clone();
            let policy = ["Background", "Foreground"][self.random.below(2)];
            self.world.with(|it| it.delete(resource, &namespace, uid, policy));
            if self.random.percent(30) {
                let uid = self.draw();
                self.choose_owners(&uid);
                // Owning itself is for those that are there before.
                self.model.get_mut(&uid).unwrap().owners.retain(|it| *it != uid);
                self.store(&uid);
            }
            if self.random.percent(10) {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
        }
        cascade(&mut self.model, &deleted);
    }

    fn orphan_some(&mut self) {
        let deleted = self.some(5);
        for uid in &deleted {
            let Object { resource, namespace, .. } = self.model[uid].clone();
            self.world.with(|it| it.delete(resource, &namespace, uid, "Orphan"));
        }
        orphan(&mut self.model, &deleted);
    }

    fn assert_kept(&self) {
        let present: BTreeSet<String> = self.world.with(|it| it.uids()).into_iter().collect();
        let lost: Vec<&String> = self.model.keys().filter(|it| !present.contains(*it)).collect();
        assert!(lost.is_empty(), "deleted though the model keeps them: {lost:?}");
    }

    /// What is there is what the model says, down to the owners, and it stays so.
    async fn assert_settles(&self, what: &str) {
        let n_left = self.model.len();
        let is_settled = || {
            let is_right = |it: &State| {
                it.objects.len() == n_left && it.objects.values().all(|it| self.is_as_modelled(it))
            };
            self.world.with(|it| is_right(it))
        };
        for _ in 0..3_000 {
            if is_settled() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        if !is_settled() {
            self.explain(what);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        self.assert_kept();
        assert_eq!(self.world.with(|it| it.objects.len()), n_left);
    }

    fn explain(&self, what: &str) {
        let wrong: Vec<String> = self.world.with(|it| {
            let wrong = it.objects.values().filter(|it| !self.is_as_modelled(it));
            wrong
                .map(|it| {
                    format!(
                        "{} but {:?}",
                        it["metadata"],
                        self.model.get(it["metadata"]["uid"].as_str().unwrap())
                    )
                })
                .collect()
        });
        self.assert_kept();
        panic!("after {what}: {wrong:#?}");
    }

    fn is_as_modelled(&self, object: &Value) -> bool {
        let Some(expect) = self.model.get(object["metadata"]["uid"].as_str().unwrap()) else { return false };
        let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
        owners.iter().map(|it| it["uid"].as_str().unwrap()).eq(expect.owners.iter().map(String::as_str))
    }

    async fn tell(mut self, faults: usize) {
        self.world.with(|it| it.faults = faults);
        let running = self.world.run();
        let worlds_end = |it: &Self| it.world.with(|it| it.faults = 0);
        for round in 0..3 {
            match round {
                0 => {}
                1 => self.delete_some().await,
                _ => self.orphan_some(),
            }
            if faults > 0 {
                for _ in 0..30 {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    self.assert_kept();
                }
            }
            worlds_end(&self);
            self.assert_settles(["the start", "deletions", "orphaning"][round]).await;
            self.world.with(|it| it.faults = faults);
        }
        self.delete_some().await;
        worlds_end(&self);
        self.assert_settles("the end").await;
        running.abort();
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Objects and seeds: few and many, or as a soak says.
fn sizes(seeds: std::ops::Range<u64>) -> Vec<(usize, u64)> {
    let seed = number("CONVOY_SOAK_SEED").unwrap_or(1);
    match number("CONVOY_SOAK_ROUNDS") {
        Some(n_objects) => vec![(usize::try_from(n_objects).unwrap(), seed)],
        None => seeds.map(|it| (if it % 4 == 0 { 300 } else { 60 }, it)).collect(),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_is_what_the_model_says() {
    for (n_objects, seed) in sizes(1..25) {
        println!("{n_objects} objects, seed {seed}");
        Story::new(seed, n_objects).tell(0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_faults_nothing_goes_that_the_model_keeps() {
    for (n_objects, seed) in sizes(100..116) {
        println!("{n_objects} objects, seed {seed}, with faults");
        Story::new(seed, n_objects).tell(15).await;
    }
}
