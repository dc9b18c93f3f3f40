//! Audit: which requests are written down and how much of each, by a policy; and the event that is written.
//!
//! Deliberately not here: files, rotation, and the stages' timing. The server asks [`Policy::decide`] once a request
//! and fills an [`AuditEvent`].

mod event;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use event::{AuditEvent, ObjectReference};

use crate::attributes::{Attributes, Target};
use crate::rule::{has, url_matches};

/// The largest policy file that is read.
pub const MAX_BYTES: usize = 1 << 20;
const API_VERSION: &str = "audit.k8s.io/v1";

/// How much of a request is written down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// Nothing.
    #[default]
    None,
    /// Who, what and when.
    Metadata,
    /// And the object that was sent.
    Request,
    /// And the object that was answered.
    RequestResponse,
}

/// When in a request's life an event is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

/// What is to be written about one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditDecision {
    pub level: Level,
    pub omit_stages: Vec<Stage>,
    pub omit_managed_fields: bool,
}

impl AuditDecision {
    /// Whether an event is written at this stage.
    pub fn wants(&self, stage: Stage) -> bool {
        self.level > Level::None && !self.omit_stages.contains(&stage)
    }

    /// Whether the sent object is written.
    pub fn wants_request(&self) -> bool {
        self.level >= Level::Request
    }

    /// Whether the answered object is written.
    pub fn wants_response(&self) -> bool {
        self.level >= Level::RequestResponse
    }
}

/// An `audit.k8s.io/v1` `Policy`. The default writes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Policy {
    api_version: String,
    kind: String,
    /// Allowed, and of no effect.
    metadata: meta::Value,
    rules: Vec<Rule>,
    omit_stages: Vec<Stage>,
    omit_managed_fields: bool,
}

/// Why a policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the audit policy is larger than {MAX_BYTES} bytes")]
    TooLarge,
    #[error("the audit policy cannot be read: {0}")]
    Unreadable(String),
    #[error("the audit policy must be of apiVersion {API_VERSION} and kind Policy")]
    WrongKind,
    #[error("the audit policy has 0 rules")]
    NoRules,
    #[error("{0}")]
    Invalid(String),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<Resources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs", default)]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    omit_managed_fields: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Resources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

impl Policy {
    /// Reads YAML or JSON and checks it.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        if text.len() > MAX_BYTES {
            return Err(PolicyError::TooLarge);
        }
        let policy: Self = serde_saphyr::from_str(text)
            .map_err(|it| PolicyError::Unreadable(it.to_string().chars().take(500).collect()))?;
        if policy.api_version != API_VERSION || policy.kind != "Policy" {
            return Err(PolicyError::WrongKind);
        }
        if policy.rules.is_empty() {
            return Err(PolicyError::NoRules);
        }
        for (index, rule) in policy.rules.iter().enumerate() {
            rule.check(index)?;
        }
        Ok(policy)
    }

    /// What is written about a request: the first rule that fits decides; without one, nothing is written.
    ///
    /// Requests that carry credentials (Secrets, tokens) are never written above `Metadata`, whatever the rule says.
    pub fn decide(&self, attributes: &Attributes<'_>) -> AuditDecision {
        let Some(rule) = self.rules.iter().find(|it| it.fits(attributes)) else {
            return AuditDecision {
                level: Level::None,
                omit_stages: self.omit_stages.clone(),
                omit_managed_fields: self.omit_managed_fields,
            };
        };
        let level =
            if carries_credentials(attributes) { rule.level.min(Level::Metadata) } else { rule.level };
        let mut omit_stages = self.omit_stages.clone();
        omit_stages.extend(rule.omit_stages.iter().filter(|it| !self.omit_stages.contains(it)));
        let omit_managed_fields = rule.omit_managed_fields.unwrap_or(self.omit_managed_fields);
        AuditDecision { level, omit_stages, omit_managed_fields }
    }
}

fn carries_credentials(attributes: &Attributes<'_>) -> bool {
    match attributes.target {
        Target::Resource { group, resource, subresource, .. } => matches!(
            (group, resource, subresource),
            ("", "secrets", _)
                | ("", "serviceaccounts", "token")
                | ("authentication.k8s.io", "tokenreviews", _)
        ),
        Target::Path(_) => false,
    }
}

impl Rule {
    fn fits(&self, attributes: &Attributes<'_>) -> bool {
        let user = attributes.user;
        if !self.users.is_empty() && !has(&self.users, &user.name) {
            return false;
        }
        if !self.user_groups.is_empty() && !user.groups.iter().any(|it| has(&self.user_groups, it)) {
            return false;
        }
        if !self.verbs.is_empty() && !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return self.fits_resource(attributes.target);
        }
        if self.non_resource_urls.is_empty() {
            return true;
        }
        match attributes.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|it| url_matches(it, path)),
            Target::Resource { .. } => false,
        }
    }

    fn fits_resource(&self, target: Target<'_>) -> bool {
        let Target::Resource { group, resource, subresource, namespace, name, .. } = target else {
            return false;
        };
        if !self.namespaces.is_empty() && !has(&self.namespaces, namespace) {
            return false;
        }
        self.resources.is_empty()
            || self.resources.iter().any(|it| it.group == group && it.fit(resource, subresource, name))
    }

    fn check(&self, index: usize) -> Result<(), PolicyError> {
        let wrong = |field: &str, detail: &str| {
            Err(PolicyError::Invalid(format!("rules[{index}].{field}: {detail}")))
        };
        let is_about_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if is_about_resources && !self.non_resource_urls.is_empty() {
            return wrong(
                "nonResourceURLs",
                "rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        for url in &self.non_resource_urls {
            if url == "*" {
                continue;
            }
            if !url.starts_with('/') {
                return wrong("nonResourceURLs", "non-resource URL rules must begin with a '/' character");
            }
            if url.find('*').is_some_and(|at| at + 1 != url.len()) {
                return wrong(
                    "nonResourceURLs",
                    "non-resource URL wildcards '*' must be the final character of the rule",
                );
            }
        }
        if self.resources.iter().any(|it| !it.resource_names.is_empty() && it.resources.is_empty()) {
            return wrong("resources", "using resourceNames requires at least one resource");
        }
        Ok(())
    }
}

impl Resources {
    fn fit(&self, resource: &str, subresource: &str, name: &str) -> bool {
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !has(&self.resource_names, name) {
            return false;
        }
        self.resources.iter().any(|pattern| match pattern.split_once('/') {
            _ if pattern == "*" => true,
            None => subresource.is_empty() && pattern == resource,
            Some((parent, "*")) if parent == resource => true,
            Some((parent, child)) => {
                !subresource.is_empty() && child == subresource && (parent == "*" || parent == resource)
            }
        })
    }
}
