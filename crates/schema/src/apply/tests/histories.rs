//! Random histories of three managers, against a model in which an object is a list of lines.
//!
//! The model knows nothing of trees, types or text forms: a line such as `data/a` has a value and a set of owners.
//! An element of a list is a line with lines below it; if it goes, they go.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;

use super::fixture::{Things, managers};
use crate::{
    Value,
    apply::{ApplyError, FieldSet, Operation, PathElement},
};

type Lines = BTreeMap<String, String>;
type Owner = (usize, Operation);

const MANAGERS: [&str; 3] = ["one", "two", "three"];

#[derive(Clone, Debug)]
enum Write {
    Apply {
        manager: usize,
        lines: Lines,
        force: bool,
    },
    /// Replaces everything.
    Update {
        manager: usize,
        lines: Lines,
    },
}

#[derive(Default)]
struct Model {
    lines: Lines,
    owners: BTreeMap<String, BTreeSet<Owner>>,
}

impl Model {
    /// Who is in the way of a configuration, and at which lines.
    fn conflicts(&self, who: Owner, wanted: &Lines) -> BTreeSet<(usize, Operation, String)> {
        let mut conflicts = BTreeSet::new();
        for (line, value) in wanted.iter().filter(|(line, value)| self.lines.get(*line) != Some(*value)) {
            let _ = value;
            for owner in self.owners.get(line).into_iter().flatten().filter(|it| **it != who) {
                conflicts.insert((owner.0, owner.1, line.clone()));
            }
        }
        conflicts
    }

    fn apply(&mut self, who: Owner, wanted: &Lines) {
        for (line, value) in wanted {
            let owners = self.owners.entry(line.clone()).or_default();
            if self.lines.get(line) != Some(value) {
                owners.clear();
                self.lines.insert(line.clone(), value.clone());
            }
            owners.insert(who);
        }
        let mine: Vec<String> = self
            .owners
            .iter()
            .filter(|(_, owners)| owners.contains(&who))
            .map(|(line, _)| line.clone())
            .collect();
        for line in mine.iter().filter(|it| !wanted.contains_key(*it)) {
            let Some(owners) = self.owners.get_mut(line) else { continue };
            owners.remove(&who);
            if owners.is_empty() {
                self.remove(line);
            }
        }
    }

    fn update(&mut self, who: Owner, lines: &Lines) {
        let gone: Vec<_> = self.lines.keys().filter(|it| !lines.contains_key(*it)).cloned().collect();
        for line in gone {
            self.remove(&line);
        }
        for (line, value) in lines {
            if self.lines.get(line) != Some(value) {
                self.owners.insert(line.clone(), BTreeSet::from([who]));
                self.lines.insert(line.clone(), value.clone());
            }
        }
    }

    /// Removes a line and all below it.
    fn remove(&mut self, line: &str) {
        let below = format!("{line}/");
        let is_gone = |it: &String| it == line || it.starts_with(&below);
        self.lines.retain(|it, _| !is_gone(it));
        self.owners.retain(|it, _| !is_gone(it));
    }
}

/// Lines of `data`, of a set, and of containers: one line for the container, one for its name, one for its image.
fn any_lines() -> impl Strategy<Value = Lines> {
    let data = prop::collection::btree_map("[a-c]", "[xyz]", 0..3);
    let tags = prop::collection::btree_set("[a-c]", 0..3);
    let containers = prop::collection::btree_map("[a-c]", prop::option::of("[xyz]"), 0..3);
    (data, tags, containers).prop_map(|(data, tags, containers)| {
        let mut lines = Lines::new();
        lines.extend(data.into_iter().map(|(key, value)| (format!("data/{key}"), value)));
        lines.extend(tags.into_iter().map(|it| (format!("tags/{it}"), String::new())));
        for (name, image) in containers {
            lines.insert(format!("containers/{name}"), String::new());
            lines.insert(format!("containers/{name}/name"), name.clone());
            lines.extend(image.map(|it| (format!("containers/{name}/image"), it)));
        }
        lines
    })
}

fn any_write() -> impl Strategy<Value = Write> {
    prop_oneof![
        3 => (0..3usize, any_lines(), any::<bool>())
            .prop_map(|(manager, lines, force)| Write::Apply { manager, lines, force }),
        1 => (0..3usize, any_lines()).prop_map(|(manager, lines)| Write::Update { manager, lines }),
    ]
}

fn to_object(lines: &Lines) -> Value {
    let mut object =
        json!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "s", "uid": "u"}, "spec": {}});
    let mut containers: BTreeMap<&str, Value> = BTreeMap::new();
    let mut tags = Vec::new();
    for (line, value) in lines {
        match line.split('/').collect::<Vec<_>>()[..] {
            ["data", key] => object["data"][key] = json!(value),
            ["tags", tag] => tags.push(json!(tag)),
            ["containers", name] => {
                containers.insert(name, json!({}));
            }
            ["containers", name, field] => containers.get_mut(name).unwrap()[field] = json!(value),
            _ => unreachable!("{line}"),
        }
    }
    if !tags.is_empty() {
        object["spec"]["tags"] = json!(tags);
    }
    if !containers.is_empty() {
        object["spec"]["containers"] = containers.into_values().collect();
    }
    object
}

fn to_lines(object: &Value) -> Lines {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    let mut lines = Lines::new();
    for (key, value) in object.get("data").and_then(Value::as_object).into_iter().flatten() {
        lines.insert(format!("data/{key}"), text(value));
    }
    for tag in object.pointer("/spec/tags").and_then(Value::as_array).into_iter().flatten() {
        lines.insert(format!("tags/{}", text(tag)), String::new());
    }
    for container in object.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten() {
        let name = text(&container["name"]);
        lines.insert(format!("containers/{name}"), String::new());
        for (field, value) in container.as_object().unwrap() {
            lines.insert(format!("containers/{name}/{field}"), text(value));
        }
    }
    lines
}

/// The line that a path is about; none for the containers of lines.
fn to_line(path: &[PathElement]) -> Option<String> {
    let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
    match path {
        [PathElement::Field(data), PathElement::Field(key)] if &**data == "data" => {
            Some(format!("data/{key}"))
        }
        [PathElement::Field(_), PathElement::Field(_), PathElement::Value(tag)] => {
            Some(format!("tags/{}", text(tag)))
        }
        [PathElement::Field(_), PathElement::Field(_), PathElement::Key(keys)] => {
            Some(format!("containers/{}", text(&keys[0].1)))
        }
        [PathElement::Field(_), PathElement::Field(_), PathElement::Key(keys), PathElement::Field(field)] => {
            Some(format!("containers/{}/{field}", text(&keys[0].1)))
        }
        _ => None,
    }
}

fn lines_of(set: &FieldSet) -> BTreeSet<String> {
    set.paths().iter().filter_map(|it| to_line(it)).collect()
}

fn owners_of(object: &Value) -> BTreeMap<String, BTreeSet<Owner>> {
    let mut owners: BTreeMap<String, BTreeSet<Owner>> = BTreeMap::new();
    for (id, owned) in managers(object) {
        let manager = MANAGERS.iter().position(|it| *it == id.manager).unwrap();
        for line in lines_of(&owned.set) {
            owners.entry(line).or_default().insert((manager, id.operation));
        }
    }
    owners
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// At least 200 histories of three managers; here 400, of up to twelve writes each.
    #[test]
    fn histories_of_three_managers_agree_with_the_model(
        first in any_lines(), history in prop::collection::vec(any_write(), 1..12)
    ) {
        let things = Things::new();
        let mut model = Model::default();
        model.update((0, Operation::Update), &first);
        let mut live = things.by(MANAGERS[0]).created(&to_object(&first));
        // Without an owner an object is not tracked, which is another story.
        prop_assume!(!first.is_empty());
        for write in &history {
            match write {
                Write::Update { manager, lines } => {
                    // Nor are objects that lost all owners.
                    if managers(&live).is_empty() {
                        break;
                    }
                    model.update((*manager, Operation::Update), lines);
                    let mut new = to_object(lines);
                    new["metadata"] = live["metadata"].clone();
                    live = things.by(MANAGERS[*manager]).updated(&live, &new);
                }
                Write::Apply { manager, lines, force } => {
                    if managers(&live).is_empty() {
                        break;
                    }
                    let who = (*manager, Operation::Apply);
                    let conflicts = model.conflicts(who, lines);
                    let result = things.by(MANAGERS[*manager]).apply(&live, &to_object(lines), *force);
                    if !force && !conflicts.is_empty() {
                        let Err(ApplyError::Conflicts(found)) = result else {
                            return Err(TestCaseError::fail(format!("no conflict, but {conflicts:?}")));
                        };
                        let found: BTreeSet<_> = found
                            .iter()
                            .filter_map(|it| {
                                let at = MANAGERS.iter().position(|name| *name == it.manager.manager).unwrap();
                                Some((at, it.manager.operation, to_line(&it.path)?))
                            })
                            .collect();
                        prop_assert_eq!(found, conflicts);
                    } else {
                        live = match result {
                            Ok(new) => new,
                            Err(error) => return Err(TestCaseError::fail(error.to_string())),
                        };
                        model.apply(who, lines);
                    }
                }
            }
            prop_assert_eq!(to_lines(&live), model.lines.clone(), "after {:?}", write);
            let owners: BTreeMap<_, _> =
                model.owners.clone().into_iter().filter(|(_, owners)| !owners.is_empty()).collect();
            prop_assert_eq!(owners_of(&live), owners, "after {:?}", write);
        }
    }
}
