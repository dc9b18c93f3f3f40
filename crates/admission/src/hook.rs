//! One webhook of a configuration, read once and kept; and whether it wants to see a request.

use std::time::Duration;

use meta::{GroupVersion, GroupVersionResource, Status, Value, object};
use webhook::Endpoint;

use crate::{Attributes, World, rule::Rule, selector::Selector};

/// What a webhook may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookKind {
    /// Change objects.
    Mutating,
    /// Refuse them.
    Validating,
}

impl HookKind {
    /// As metrics write it.
    pub(crate) fn step(self) -> &'static str {
        match self {
            Self::Mutating => "admit",
            Self::Validating => "validating",
        }
    }
}

/// One webhook.
#[derive(Debug)]
pub struct Hook {
    /// `configuration/name/index`: names it among all.
    pub(crate) id: String,
    pub(crate) configuration: String,
    pub(crate) name: String,
    /// Where it is, or why it cannot be called.
    pub(crate) endpoint: Result<Endpoint, String>,
    pub(crate) timeout: Duration,
    /// Its failure refuses nothing.
    pub(crate) fails_open: bool,
    /// The version of the review it is asked in.
    pub(crate) review: &'static str,
    /// Calling it in a dry run does no harm.
    pub(crate) can_run_dry: bool,
    /// It wants to be asked again when others changed the object after it.
    pub(crate) is_reinvoked: bool,
    /// It has conditions that this server cannot evaluate. Decision 0023.
    pub(crate) has_conditions: bool,
    is_exact: bool,
    rules: Vec<Rule>,
    namespaces: Selector,
    objects: Selector,
}

/// Seconds a webhook gets when it does not say.
const TIMEOUT: u64 = 10;

/// The reviews that are understood; the first one of the webhook's own list that is here is used.
const REVIEWS: [(&str, &str); 2] = [("v1", "admission.k8s.io/v1"), ("v1beta1", "admission.k8s.io/v1beta1")];

impl Hook {
    /// All webhooks of these configurations, in the order in which they are called.
    pub fn all(configurations: &[Value]) -> Vec<Self> {
        let mut configurations: Vec<&Value> = configurations.iter().collect();
        configurations.sort_by_key(|it| object::name(it));
        let mut hooks = Vec::new();
        for configuration in configurations {
            let webhooks = configuration.get("webhooks").and_then(Value::as_array).into_iter().flatten();
            hooks.extend(
                webhooks.enumerate().map(|(index, it)| Self::of(object::name(configuration), index, it)),
            );
        }
        hooks
    }

    fn of(configuration: &str, index: usize, hook: &Value) -> Self {
        let text = |field: &str| hook.get(field).and_then(Value::as_str).unwrap_or_default();
        let list = |field: &str| hook.get(field).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let versions = list("admissionReviewVersions").iter().filter_map(Value::as_str);
        let known = |it: &str| REVIEWS.iter().find(|(version, _)| *version == it).map(|(_, review)| *review);
        let seconds = hook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(TIMEOUT);
        Self {
            id: format!("{configuration}/{}/{index}", text("name")),
            configuration: configuration.to_owned(),
            name: text("name").to_owned(),
            endpoint: Endpoint::of(hook.get("clientConfig").unwrap_or(&Value::Null))
                .map_err(|it| it.to_string()),
            timeout: Duration::from_secs(seconds.clamp(1, 30)),
            fails_open: text("failurePolicy") == "Ignore",
            review: versions.filter_map(known).next().unwrap_or(REVIEWS[0].1),
            can_run_dry: matches!(text("sideEffects"), "None" | "NoneOnDryRun"),
            is_reinvoked: text("reinvocationPolicy") == "IfNeeded",
            has_conditions: !list("matchConditions").is_empty(),
            is_exact: text("matchPolicy") == "Exact",
            rules: list("rules").iter().map(Rule::of).collect(),
            namespaces: Selector::of(hook.get("namespaceSelector")),
            objects: Selector::of(hook.get("objectSelector")),
        }
    }

    /// In which version of the resource the webhook wants to see the request; `None` if it does not.
    pub(crate) fn wanted_resource(&self, attributes: &Attributes<'_>) -> Option<GroupVersionResource> {
        if attributes.is_exempt() {
            return None;
        }
        if self.rules.iter().any(|it| it.matches(attributes, &attributes.resource)) {
            return Some(attributes.resource.clone());
        }
        if self.is_exact {
            return None;
        }
        let others = attributes.served.iter().filter(|it| **it != attributes.resource.group_version());
        let others: Vec<_> = others.map(|it| in_version(&attributes.resource, it)).collect();
        self.rules.iter().find_map(|rule| others.iter().find(|it| rule.matches(attributes, it)).cloned())
    }

    /// Whether the labels of the namespace and of the object are such that the webhook wants to see them.
    pub(crate) async fn selects(
        &self,
        world: &dyn World,
        attributes: &Attributes<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<bool, Status> {
        Ok(self.selects_object(new, old) && self.selects_namespace(world, attributes, new).await?)
    }

    fn selects_object(&self, new: Option<&Value>, old: Option<&Value>) -> bool {
        self.objects.is_everything() || [new, old].into_iter().flatten().any(|it| self.objects.matches(it))
    }

    async fn selects_namespace(
        &self,
        world: &dyn World,
        attributes: &Attributes<'_>,
        new: Option<&Value>,
    ) -> Result<bool, Status> {
        if self.namespaces.is_everything() || (attributes.namespace.is_empty() && !attributes.is_namespace())
        {
            return Ok(true);
        }
        if attributes.is_namespace()
            && attributes.subresource.is_empty()
            && let Some(namespace) = new
        {
            return Ok(self.namespaces.matches(namespace));
        }
        let found = world.core_object("namespaces", "", attributes.namespace).await?;
        let namespace = found.ok_or_else(|| {
            Status::not_found(&meta::GroupResource::new("", "namespaces"), attributes.namespace)
        })?;
        Ok(self.namespaces.matches(&namespace))
    }
}

fn in_version(resource: &GroupVersionResource, version: &GroupVersion) -> GroupVersionResource {
    GroupVersionResource {
        group: version.group.clone(),
        version: version.version.clone(),
        resource: resource.resource.clone(),
    }
}
