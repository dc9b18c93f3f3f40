//! Judges G5: `status.storedVersions` is true at every revision, and a migration that says `Succeeded` could know it.
//!
//! It is fed every change of the store in order of revision. A migration has succeeded rightly if between its making and
//! its success there was a revision at which everything of the resource was stored in the version agreed on.
//! Deliberately not here: whether objects were lost on the way ([`super::linearizable`], [`super::watch`]).

use std::collections::BTreeMap;

use serde_json::Value;

/// One key, and what it holds from a revision on.
pub type Change<'a> = (&'a str, Option<&'a [u8]>);

const DEFINITIONS: &str = "/registry/apiextensions.k8s.io/customresourcedefinitions/";
const MIRRORS: &str = "/registry/storageversions/";
const MIGRATIONS: [&str; 2] =
    ["/registry/migration.k8s.io/storageversionmigrations/", "/registry/storageversionmigrations/"];

/// The history of one store.
#[derive(Debug, Default)]
pub struct Migrations {
    /// The name of the StorageVersion that is about the keys below a prefix; the longest prefix counts.
    prefixes: Vec<(String, String)>,
    resources: BTreeMap<String, Resource>,
    runs: BTreeMap<String, Run>,
    /// What went wrong.
    pub faults: Vec<String>,
    /// Migrations that ended well.
    pub n_succeeded: u64,
    /// How often a list of stored versions changed.
    pub n_lists: u64,
}

/// What is known of one resource.
#[derive(Debug, Default)]
struct Resource {
    common: Option<String>,
    /// By key.
    objects: BTreeMap<String, String>,
    /// How many objects are stored in a version.
    counts: BTreeMap<String, usize>,
    /// What the definition lists, as `group/version`; built-in resources have none.
    listed: Option<Vec<String>>,
}

/// One migration.
#[derive(Debug)]
struct Run {
    resource: String,
    is_proven: bool,
    has_succeeded: bool,
}

impl Migrations {
    /// A history of objects below these prefixes, each with the name of its StorageVersion.
    pub fn new(prefixes: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut prefixes: Vec<_> = prefixes.into_iter().collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { prefixes, ..Self::default() }
    }

    /// All changes of one revision.
    pub fn see(&mut self, revision: u64, changes: &[Change<'_>]) {
        let mut touched = Vec::new();
        for (key, value) in changes {
            touched.extend(self.see_one(key, *value));
        }
        touched.dedup();
        for name in touched {
            self.check(revision, &name);
        }
        for (key, value) in changes {
            if let Some(path) = MIGRATIONS.iter().find(|it| key.starts_with(**it)) {
                self.see_migration(revision, key, path, *value);
            }
        }
    }

    /// Which resource it is about.
    fn see_one(&mut self, key: &str, value: Option<&[u8]>) -> Option<String> {
        let object = || value.and_then(|it| serde_json::from_slice::<Value>(it).ok());
        if let Some(name) = key.strip_prefix(MIRRORS) {
            let common = object().and_then(|it| text(&it["status"]["commonEncodingVersion"]));
            self.resources.entry(name.to_owned()).or_default().common = common;
            return Some(name.to_owned());
        }
        if key.starts_with(DEFINITIONS) {
            let crd = object()?;
            let (group, plural) = (text(&crd["spec"]["group"])?, text(&crd["spec"]["names"]["plural"])?);
            let listed = crd["status"]["storedVersions"].as_array().into_iter().flatten();
            let listed: Vec<String> = listed.filter_map(text).map(|it| format!("{group}/{it}")).collect();
            let name = format!("{group}.{plural}");
            let resource = self.resources.entry(name.clone()).or_default();
            self.n_lists += u64::from(resource.listed.as_ref() != Some(&listed));
            resource.listed = Some(listed);
            return Some(name);
        }
        let (_, name) = self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix))?;
        let name = name.clone();
        let version = object().map(|it| text(&it["apiVersion"]).unwrap_or_default());
        self.resources.entry(name.clone()).or_default().put(key, version);
        Some(name)
    }

    fn check(&mut self, revision: u64, name: &str) {
        let Some(resource) = self.resources.get(name) else { return };
        if let Some(listed) = &resource.listed {
            for version in resource.counts.keys().filter(|it| !listed.contains(*it)) {
                self.faults.push(format!(
                    "revision {revision}: {name} is stored as {version}, but storedVersions lists {listed:?}"
                ));
            }
        }
        if resource.is_uniform() {
            for run in self.runs.values_mut().filter(|it| it.resource == name) {
                run.is_proven = true;
            }
        }
    }

    fn see_migration(&mut self, revision: u64, key: &str, path: &str, value: Option<&[u8]>) {
        let Some(object) = value.and_then(|it| serde_json::from_slice::<Value>(it).ok()) else {
            self.runs.remove(key);
            return;
        };
        let wanted = &object["spec"]["resource"];
        let (group, plural) = (text(&wanted["group"]).unwrap_or_default(), text(&wanted["resource"]));
        let group = if group.is_empty() { "core".to_owned() } else { group };
        let resource = format!("{group}.{}", plural.unwrap_or_default());
        let is_proven = self.resources.get(&resource).is_none_or(Resource::is_uniform);
        let run =
            self.runs.entry(key.to_owned()).or_insert(Run { resource, is_proven, has_succeeded: false });
        if !has_succeeded(&object) || run.has_succeeded {
            return;
        }
        run.has_succeeded = true;
        self.n_succeeded += 1;
        if !run.is_proven {
            let (name, resource) = (key.trim_start_matches(path), &run.resource);
            let counts = self.resources.get(resource).map(|it| it.counts.clone()).unwrap_or_default();
            self.faults.push(format!(
                "revision {revision}: migration {name} of {resource} says Succeeded, but at no time since it was made \
                 was everything stored in the version agreed on; now it is {counts:?}"
            ));
        }
    }
}

impl Resource {
    fn put(&mut self, key: &str, version: Option<String>) {
        let before = match &version {
            Some(version) => self.objects.insert(key.to_owned(), version.clone()),
            None => self.objects.remove(key),
        };
        if let Some(before) = before
            && let Some(count) = self.counts.get_mut(&before)
        {
            *count -= 1;
        }
        if let Some(version) = version {
            *self.counts.entry(version).or_default() += 1;
        }
        self.counts.retain(|_, it| *it > 0);
    }

    /// Whether everything is stored in the version agreed on.
    fn is_uniform(&self) -> bool {
        self.common.as_ref().is_some_and(|common| self.counts.keys().all(|it| it == common))
    }
}

fn has_succeeded(migration: &Value) -> bool {
    let status = &migration["status"];
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    status["phase"] == "Succeeded" || conditions.any(|it| it["type"] == "Succeeded" && it["status"] == "True")
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MIGRATION: &str = "/registry/migration.k8s.io/storageversionmigrations/m";

    fn definition(listed: &[&str]) -> (&'static str, Value) {
        let crd = json!({"spec": {"group": "x", "names": {"plural": "things"}},
            "status": {"storedVersions": listed}});
        ("/registry/apiextensions.k8s.io/customresourcedefinitions/things.x", crd)
    }

    fn mirror(common: &str) -> (&'static str, Value) {
        ("/registry/storageversions/x.things", json!({"status": {"commonEncodingVersion": common}}))
    }

    fn thing(version: &str) -> (&'static str, Value) {
        ("/registry/x/things/a", json!({"apiVersion": version}))
    }

    fn migration(phase: &str) -> (&'static str, Value) {
        let spec = json!({"resource": {"group": "x", "resource": "things"}});
        (MIGRATION, json!({"spec": spec, "status": {"phase": phase}}))
    }

    fn judge(changes: &[(&str, Value)]) -> Migrations {
        let mut history = Migrations::new([("/registry/x/things/".to_owned(), "x.things".to_owned())]);
        for (revision, (key, value)) in (1..).zip(changes) {
            let value = value.to_string();
            history.see(revision, &[(key, Some(value.as_bytes()))]);
        }
        history
    }

    #[test]
    fn what_is_stored_must_be_listed() {
        let fine = [definition(&["v1"]), thing("x/v1"), definition(&["v1", "v2"]), thing("x/v2")];
        assert_eq!(judge(&fine).faults, Vec::<String>::new());
        let early = [definition(&["v1"]), thing("x/v2")];
        assert_eq!(judge(&early).faults.len(), 1);
        let pruned = [definition(&["v1", "v2"]), thing("x/v1"), definition(&["v2"])];
        assert_eq!(judge(&pruned).faults.len(), 1);
    }

    #[test]
    fn success_needs_a_moment_at_which_it_was_true() {
        let steps = |rewritten: &str| {
            let before = [definition(&["v1", "v2"]), thing("x/v1"), mirror("x/v2"), migration("Running")];
            before.into_iter().chain([thing(rewritten), migration("Succeeded")]).collect::<Vec<_>>()
        };
        let fine = judge(&steps("x/v2"));
        assert_eq!((fine.faults.len(), fine.n_succeeded), (0, 1));
        assert_eq!(judge(&steps("x/v1")).faults.len(), 1);
    }

    #[test]
    fn what_was_true_before_it_was_made_proves_nothing() {
        let steps = [
            definition(&["v1", "v2"]),
            mirror("x/v1"),
            thing("x/v1"),
            mirror("x/v2"),
            migration("Running"),
            migration("Succeeded"),
        ];
        assert_eq!(judge(&steps).faults.len(), 1);
    }
}
