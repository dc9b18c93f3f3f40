//! The rules of a role as decisions read them: nothing in them is copied to decide, and long lists are searched.

use super::words::Words;
use crate::PolicyRule;
use crate::attributes::{Attributes, Target};
use crate::rule::url_matches;

/// A role at the revision at which it was read.
#[derive(Debug)]
pub(super) struct Role {
    pub(super) revision: u64,
    pub(super) rules: Box<[HeldRule]>,
}

/// One rule of a role.
#[derive(Debug)]
pub struct HeldRule {
    pub(super) groups: Words,
    pub(super) resources: Words,
    pub(super) names: Words,
    pub(super) urls: Words,
    pub(super) verbs: Words,
}

impl Role {
    pub(super) fn new(rules: &[PolicyRule], revision: u64) -> Self {
        Self { revision, rules: rules.iter().map(HeldRule::of).collect() }
    }

    pub(super) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.rules.iter().any(|it| it.allows(attributes))
    }
}

impl HeldRule {
    pub fn of(rule: &PolicyRule) -> Self {
        let PolicyRule { api_groups, non_resource_urls, resource_names, resources, verbs } = rule;
        Self {
            groups: Words::of(api_groups),
            resources: Words::of(resources),
            names: Words::of(resource_names),
            urls: Words::of(non_resource_urls),
            verbs: Words::of(verbs),
        }
    }

    /// Whether the rule allows this.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !self.verbs.has("*") && !self.verbs.has(attributes.verb) {
            return false;
        }
        match attributes.target {
            Target::Path(path) => self.urls.iter().any(|it| url_matches(it, path)),
            Target::Resource { group, resource, subresource, name, .. } => {
                (self.groups.has("*") || self.groups.has(group))
                    && self.has_resource(resource, subresource)
                    && (self.names.is_empty() || self.names.has(name))
            }
        }
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        if self.resources.has("*") {
            return true;
        }
        if subresource.is_empty() {
            return self.resources.has(resource);
        }
        self.resources.has(&format!("{resource}/{subresource}"))
            || self.resources.has(&format!("*/{subresource}"))
    }

    /// What it says about resources, or about paths; empty if it says nothing about them.
    pub(super) fn of_resources(&self) -> PolicyRule {
        PolicyRule {
            api_groups: self.groups.to_vec(),
            non_resource_urls: Vec::new(),
            resource_names: self.names.to_vec(),
            resources: self.resources.to_vec(),
            verbs: self.verbs.to_vec(),
        }
    }

    pub(super) fn of_urls(&self) -> PolicyRule {
        PolicyRule {
            non_resource_urls: self.urls.to_vec(),
            verbs: self.verbs.to_vec(),
            ..PolicyRule::default()
        }
    }

    /// How much there is of it, roughly as it is sent.
    pub(super) fn n_bytes(&self) -> usize {
        let Self { groups, resources, names, urls, verbs } = self;
        [groups, resources, names, urls, verbs].iter().map(|it| it.n_bytes()).sum()
    }
}
