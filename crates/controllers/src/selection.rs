//! Which controllers run: their names, and the list syntax of kube-controller-manager's `--controllers`.

use std::{fmt, str::FromStr};

/// Everything that can run. The order is that of [`names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Controller {
    /// Keeps the rules of aggregated ClusterRoles equal to those of the roles they select.
    ClusterRoleAggregation,
    /// Deletes identity Leases of API servers that are gone.
    Expiry,
    /// Deletes what has lost its owners.
    GarbageCollector,
    /// Empties namespaces that are being deleted, then lets them go.
    Namespace,
    /// Sees to it that every namespace has a ConfigMap `kube-root-ca.crt`.
    RootCaCertPublisher,
    /// Sees to it that every namespace has a ServiceAccount `default`.
    ServiceAccount,
    /// Deletes tokens of ServiceAccounts that are gone.
    ServiceAccountToken,
    /// Removes what departed servers left in StorageVersions. The server does this itself, on its records; here is only
    /// whether it should.
    StorageVersionGc,
    /// Rewrites stored objects in the version that all servers agree on.
    StorageVersionMigrator,
    /// Makes migrations when what servers store has changed.
    StorageVersionTrigger,
}

/// A new controller gets a variant, a name here, and an arm in `run.rs`. Keep the names sorted.
const ALL: [(&str, Controller); 10] = [
    ("clusterrole-aggregation", Controller::ClusterRoleAggregation),
    ("expiry", Controller::Expiry),
    ("garbage-collector", Controller::GarbageCollector),
    ("namespace", Controller::Namespace),
    ("root-ca-cert-publisher", Controller::RootCaCertPublisher),
    ("serviceaccount", Controller::ServiceAccount),
    ("serviceaccount-token", Controller::ServiceAccountToken),
    ("storage-version-gc", Controller::StorageVersionGc),
    ("storage-version-migrator", Controller::StorageVersionMigrator),
    ("storage-version-trigger", Controller::StorageVersionTrigger),
];

const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut n = 0;
    while n < ALL.len() {
        names[n] = ALL[n].0;
        n += 1;
    }
    names
};

/// The names of all controllers, sorted.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

impl Controller {
    /// As it is written in lists and logs.
    pub fn name(self) -> &'static str {
        let found = ALL.iter().find(|(_, it)| *it == self);
        found.expect("every controller must be in the table").0
    }
}

/// The controllers that are switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    controllers: Vec<Controller>,
}

/// A list names something that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not in the list of known controllers: {}", NAMES.join(", "))]
pub struct SelectionError {
    /// What was written.
    pub name: String,
}

impl Selection {
    /// Everything: `*`.
    pub fn all() -> Self {
        Self { controllers: ALL.iter().map(|(_, it)| *it).collect() }
    }

    /// One of them.
    pub fn only(controller: Controller) -> Self {
        Self { controllers: vec![controller] }
    }

    /// Reads a comma-separated list: `*` is everything, `name` switches one on, `-name` switches one off. Of several
    /// entries about one controller the first counts. An empty list switches everything off.
    pub fn parse(list: &str) -> Result<Self, SelectionError> {
        Self::from_entries(list.split(',').map(str::trim).filter(|it| !it.is_empty()))
    }

    /// The same from entries that are split already.
    pub fn from_entries<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, SelectionError> {
        let entries: Vec<&str> = entries.into_iter().collect();
        let is_known = |it: &str| NAMES.contains(&it.strip_prefix('-').unwrap_or(it));
        if let Some(name) = entries.iter().find(|it| **it != "*" && !is_known(it)) {
            return Err(SelectionError { name: (*name).to_owned() });
        }
        let has_star = entries.contains(&"*");
        let is_on = |name: &str| {
            let explicit = entries.iter().find(|it| it.strip_prefix('-').unwrap_or(it) == name);
            explicit.map_or(has_star, |it| !it.starts_with('-'))
        };
        Ok(Self { controllers: ALL.iter().filter(|(name, _)| is_on(name)).map(|(_, it)| *it).collect() })
    }

    /// Whether one is switched on.
    pub fn has(&self, controller: Controller) -> bool {
        self.controllers.contains(&controller)
    }

    /// Whether anything is switched on that runs here and not in the server around.
    pub(crate) fn has_work(&self) -> bool {
        self.controllers.iter().any(|it| *it != Controller::StorageVersionGc)
    }

    /// What is switched on, sorted by name.
    pub fn controllers(&self) -> impl Iterator<Item = Controller> + '_ {
        self.controllers.iter().copied()
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self::all()
    }
}

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(list: &str) -> Result<Self, SelectionError> {
        Self::parse(list)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.controllers().map(Controller::name).collect();
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        assert!(NAMES.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn lists_read_as_upstream_reads_them() {
        let check = |list: &str, expect: &str| {
            assert_eq!(Selection::parse(list).unwrap().to_string(), expect, "{list:?}")
        };
        let all = NAMES.join(",");
        let without_namespace = all.replace("namespace,", "");
        check("*", &all);
        check("*,-namespace", &without_namespace);
        check("-namespace,*", &without_namespace);
        check("namespace", "namespace");
        check("serviceaccount, namespace", "namespace,serviceaccount");
        check("-namespace", "");
        check("", "");
        check("namespace,-namespace", "namespace");
        check("-namespace,namespace,*", &without_namespace);
    }

    #[test]
    fn unknown_names_are_refused_with_the_known_ones() {
        let check = |list: &str, name: &str| {
            let error = Selection::parse(list).unwrap_err().to_string();
            let known = "clusterrole-aggregation, expiry, garbage-collector, namespace, root-ca-cert-publisher, \
                         serviceaccount, serviceaccount-token, storage-version-gc, storage-version-migrator, \
                 storage-version-trigger";
            assert_eq!(error, format!("{name:?} is not in the list of known controllers: {known}"));
        };
        check("*,nodes", "nodes");
        check("-nodes", "-nodes");
        check("-*", "-*");
        check("-", "-");
    }
}
