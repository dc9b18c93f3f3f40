//! What to do next about a namespace that is being deleted. No clock, no I/O: everything known is in [`Seen`].
//!
//! Rules that ask for more knowledge before a namespace may go (other servers) belong into [`plan`]: as a reason to
//! wait. Keys that nobody serves are the server's to see; it refuses the last step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use meta::{Value, object};

use crate::discovery::Undiscovered;

/// The finalizer that is ours to remove.
pub(crate) const FINALIZER: &str = meta::grounds::NAMESPACE_FINALIZER;

/// Something that a namespace can hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    pub(crate) can_delete_collection: bool,
}

impl Resource {
    pub(crate) fn is_pods(&self) -> bool {
        self.group.is_empty() && self.resource == "pods"
    }
}

/// What a namespace holds of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) n_objects: usize,
    /// Objects that nobody has asked to go yet.
    pub(crate) n_staying: usize,
    /// How many objects each finalizer holds.
    pub(crate) finalizers: BTreeMap<String, usize>,
}

/// All that a pass has found out.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) namespace: String,
    pub(crate) discovered: Result<Vec<Resource>, Undiscovered>,
    /// By resource; the error is why it is not known. What is not here has not been looked at, or has changed since.
    pub(crate) content: BTreeMap<Resource, Result<Content, String>>,
    /// What this pass has asked the server to delete, and how that went.
    pub(crate) deletions: BTreeMap<Resource, Result<(), String>>,
    /// What the server said of content that nobody serves.
    pub(crate) unserved: Option<String>,
}

impl Seen {
    pub(crate) fn new(namespace: &str, discovered: Result<Vec<Resource>, Undiscovered>) -> Self {
        let namespace = namespace.to_owned();
        let (content, deletions) = (BTreeMap::new(), BTreeMap::new());
        Self { namespace, discovered, content, deletions, unserved: None }
    }

    /// Why the content is not known or not gone, in upstream's words.
    pub(crate) fn failures(&self) -> BTreeSet<String> {
        self.content.keys().chain(self.deletions.keys()).flat_map(|it| self.failures_of(it)).collect()
    }

    fn failures_of(&self, resource: &Resource) -> Vec<String> {
        let content = self.content.get(resource);
        let deletion = self.deletions.get(resource);
        let is_ignored = matches!((deletion, content), (Some(Ok(())), Some(Ok(it))) if it.n_staying > 0);
        let ignored = is_ignored.then(|| {
            let Resource { group, version, resource, .. } = resource;
            let kind = format!("{group}/{version}, Resource={resource}");
            format!("unexpected items still remain in namespace: {} for gvr: {kind}", self.namespace)
        });
        let unknown = content.and_then(|it| it.as_ref().err());
        let undeleted = deletion.and_then(|it| it.as_ref().err());
        unknown.into_iter().chain(undeleted).cloned().chain(ignored).collect()
    }
}

/// The next step of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Find out what is left of these.
    Look(Vec<Resource>),
    /// Delete all of these. At most once in a pass for each resource, so that a pass ends.
    Delete(Vec<Resource>),
    /// This pass is over.
    Wait(Waiting),
    /// Nothing is left.
    Finish,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Objects are on their way out; whoever holds them takes the time they need.
    ForContent,
    /// Something is not known, or did not work.
    ForKnowledge(String),
}

/// Whether the namespace is ours to work on.
pub(crate) fn is_due(namespace: &Value) -> bool {
    object::is_deleting(namespace) && finalizers(namespace).any(|it| it == FINALIZER)
}

pub(crate) fn plan(seen: &Seen) -> Plan {
    let resources = match &seen.discovered {
        Ok(resources) => resources,
        Err(Undiscovered::Failed(why) | Undiscovered::Unparsable(why)) => {
            return Plan::Wait(Waiting::ForKnowledge(why.clone()));
        }
    };
    // Pods go before what they may need on their way out, such as network policies and volumes.
    let (pods, others): (Vec<&Resource>, Vec<&Resource>) = resources.iter().partition(|it| it.is_pods());
    let stages = [pods, others];
    stages.iter().find_map(|it| stage(seen, it)).unwrap_or(Plan::Finish)
}

/// What to do about these resources; `None` if nothing of them is left.
fn stage(seen: &Seen, resources: &[&Resource]) -> Option<Plan> {
    let pick = |is_wanted: &dyn Fn(&Resource) -> bool| -> Vec<Resource> {
        resources.iter().filter(|it| is_wanted(it)).map(|it| (*it).clone()).collect()
    };
    let unseen = pick(&|it| !seen.content.contains_key(it));
    if !unseen.is_empty() {
        return Some(Plan::Look(unseen));
    }
    let content = |it: &Resource| seen.content.get(it).and_then(|it| it.as_ref().ok());
    let undeleted =
        pick(&|it| !seen.deletions.contains_key(it) && content(it).is_some_and(|it| it.n_staying > 0));
    if !undeleted.is_empty() {
        return Some(Plan::Delete(undeleted));
    }
    if let Some(why) = resources.iter().find_map(|it| seen.failures_of(it).into_iter().next()) {
        return Some(Plan::Wait(Waiting::ForKnowledge(why)));
    }
    let is_left = resources.iter().any(|it| content(it).is_some_and(|it| it.n_objects > 0));
    is_left.then_some(Plan::Wait(Waiting::ForContent))
}

/// Until the next look at what is on its way out: the longer it has taken, the longer it may take.
pub(crate) fn pause(age: Duration) -> Duration {
    (age / 4).clamp(Duration::from_millis(250), Duration::from_secs(10))
}

/// The namespace without our finalizer; `None` if it does not have it.
pub(crate) fn finalized(mut namespace: Value) -> Option<Value> {
    let finalizers = namespace.get_mut("spec")?.get_mut("finalizers")?.as_array_mut()?;
    let n_before = finalizers.len();
    finalizers.retain(|it| it != FINALIZER);
    (finalizers.len() < n_before).then_some(namespace)
}

/// Whether the namespace stays when our finalizer is gone.
pub(crate) fn is_held_by_others(namespace: &Value) -> bool {
    finalizers(namespace).any(|it| it != FINALIZER) || !object::finalizers(namespace).is_empty()
}

fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    let listed = namespace.get("spec").and_then(|it| it.get("finalizers")).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests;
