//! `pods/eviction`: deletes a pod unless its disruption budget forbids it.
//!
//! **Flow.** A pod that does not run (pending, ended, being deleted) goes at once. For the others the one budget that
//! selects the pod is asked, and an allowed disruption is taken from its status before the pod is deleted.
//!
//! **Assumptions.** Somebody keeps the status of budgets up to date: this server does not. A budget whose status is
//! behind its spec says "try again", as upstream does, and a client that waits for a controller gets what it expects.

use meta::{
    Cause, Grounds, GroupResource, GroupVersion, Map, Reason, RetryAfter, Status, Value, object,
    time::format_time,
};
use schema::check::FieldValidation;
use serde_json::json;

use super::{labels, set_condition, status_number, text};
use crate::{
    DeleteOptions, ListOptions, Preconditions, Registry, Target, WriteOptions, limits, serve, write::Owners,
};

/// A budget that waits for so many pods to go does not let another one go.
const MAX_DISRUPTED: usize = 2000;

const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Whether a budget has to be asked.
enum Guard {
    /// None selects the pod.
    None,
    /// It lets pods go that are not ready, as long as this one stays so.
    Unready(String),
    /// It counts disruptions.
    Counted(String),
}

impl Registry {
    /// Evicts the pod that the target names. `options` are those of the eviction and of the request.
    pub async fn evict(&self, target: &Target, options: &DeleteOptions) -> Result<(), Status> {
        let pod_target = Target { subresource: String::new(), ..target.clone() };
        let Some(pod) = self.evict_idle(&pod_target, options).await? else { return Ok(()) };
        let guard = self.guard(&pod_target, &pod).await?;
        let mut deletion = options.clone();
        // The budget is asked for this pod, not for one that takes its name.
        let preconditions = deletion.preconditions.get_or_insert_default();
        preconditions.uid.get_or_insert_with(|| object::uid(&pod).to_owned());
        match &guard {
            Guard::None => {}
            Guard::Unready(_) => require_version(&mut deletion, &pod),
            Guard::Counted(budget) => self.take_disruption(&pod_target, budget, options).await?,
        }
        match (self.mark_and_delete(&pod_target, deletion).await, guard) {
            (Err(status), Guard::Unready(budget)) if status.code == 409 && !names_version(options) => {
                // The condition that announces the eviction may have been written.
                Err(still_processed(&budget).after_the_fact())
            }
            // The budget has counted it.
            (result, Guard::Counted(_)) => result.map_err(Status::after_the_fact),
            (result, _) => result,
        }
    }

    /// Deletes a pod that no budget guards; otherwise returns it.
    async fn evict_idle(&self, target: &Target, options: &DeleteOptions) -> Result<Option<Value>, Status> {
        let mut refusal = Status::modified(&target.kind.resource, &target.name);
        for _ in 0..limits::MAX_ATTEMPTS {
            let not_found = || Status::not_found(&target.kind.resource, &target.name);
            let pod = serve::tree(target, &*self.fresh(target).await?.ok_or_else(not_found)?);
            let phase = text(&pod, "status", "phase");
            let is_over = matches!(phase, "Succeeded" | "Failed") || object::is_deleting(&pod);
            if !is_over && phase != "Pending" {
                return Ok(Some(pod));
            }
            let mut deletion = options.clone();
            if !is_over && !names_version(options) {
                // It may become ready meanwhile, and then a budget counts it.
                require_version(&mut deletion, &pod);
            }
            match self.mark_and_delete(target, deletion).await {
                Err(status) if status.code == 409 && !names_version(options) => refusal = status,
                result => return result.map(|()| None),
            }
        }
        Err(refusal)
    }

    async fn guard(&self, target: &Target, pod: &Value) -> Result<Guard, Status> {
        let Some(budgets) = self.budgets(&target.namespace) else { return Ok(Guard::None) };
        let page = self.list(&budgets, &ListOptions::default()).await?;
        let selecting = page.items.iter().map(|it| serve::tree(&budgets, it)).filter(|it| selects(it, pod));
        let [budget] = selecting.collect::<Vec<_>>().try_into().or_else(|all: Vec<Value>| {
            if all.is_empty() {
                return Ok([Value::Null]);
            }
            let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
                           not support.";
            Err(Status::failure(500, Reason::Unknown, message))
        })?;
        let name = object::name(&budget).to_owned();
        if name.is_empty() {
            return Ok(Guard::None);
        }
        let always = text(&budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow";
        let desired = status_number(&budget, "desiredHealthy");
        let has_enough = desired > 0 && status_number(&budget, "currentHealthy") >= desired;
        Ok(if !is_ready(pod) && (always || has_enough) { Guard::Unready(name) } else { Guard::Counted(name) })
    }

    fn budgets(&self, namespace: &str) -> Option<Target> {
        let kind = self.kinds.get(&GroupResource::new("policy", "poddisruptionbudgets"))?;
        Some(Target {
            kind: kind.clone(),
            group_version: GroupVersion::new("policy", "v1"),
            namespace: namespace.to_owned(),
            name: String::new(),
            subresource: "status".to_owned(),
        })
    }

    /// Takes one allowed disruption from the status of a budget, or says why there is none.
    async fn take_disruption(
        &self,
        target: &Target,
        budget: &str,
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        let Some(budgets) = self.budgets(&target.namespace) else { return Ok(()) };
        let now = format_time(self.clock.now());
        let write = WriteOptions {
            dry_run: !options.dry_run.is_empty(),
            manager: "kube-apiserver",
            field_validation: FieldValidation::Ignore,
            admit: &crate::Anything,
            grounds: &Grounds::asked_for(),
        };
        let named = budgets.named(budget);
        let change = |old: Option<&Value>| {
            let old = old.ok_or_else(|| Status::not_found(&named.kind.resource, budget))?;
            check_budget(old)?;
            Ok(disrupted(old, &target.name, &now))
        };
        self.modify(&named, &write, change).await.map(drop)
    }

    /// Says in the pod why it goes, and deletes it.
    async fn mark_and_delete(&self, target: &Target, mut options: DeleteOptions) -> Result<(), Status> {
        if options.dry_run.is_empty() {
            let now = self.clock.now();
            let write = WriteOptions {
                dry_run: false,
                manager: "",
                field_validation: FieldValidation::Ignore,
                admit: &crate::Anything,
                grounds: &Grounds::asked_for(),
            };
            let status = Target { subresource: "status".to_owned(), ..target.clone() };
            let change = |old: Option<&Value>| {
                let old = old.ok_or_else(|| Status::not_found(&target.kind.resource, &target.name))?;
                check_preconditions(&options, old)?;
                let mut new = old.clone();
                let condition = json!({
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                });
                set_condition(&mut new, condition, now);
                Ok(new)
            };
            let written = self.modify_as(&status, &write, Owners::Settled, change).await?;
            if names_version(&options) {
                let pod: Value = serde_json::from_slice(&written.text).map_err(Status::internal)?;
                require_version(&mut options, &pod);
            }
        }
        // Admission was asked about the eviction.
        let grounds = Grounds::asked_for();
        let deleted = self.delete(target, &options, &crate::Anything, &grounds).await;
        deleted.map(drop).map_err(Status::after_the_fact)
    }
}

fn check_preconditions(options: &DeleteOptions, pod: &Value) -> Result<(), Status> {
    let Some(Preconditions { uid, resource_version }) = &options.preconditions else { return Ok(()) };
    let pairs = [
        ("UID", uid, object::uid(pod)),
        ("ResourceVersion", resource_version, object::resource_version(pod)),
    ];
    for (what, wanted, is) in pairs {
        let Some(wanted) = wanted.as_deref().filter(|it| !it.is_empty() && *it != is) else { continue };
        let why =
            format!("the {what} in the precondition ({wanted}) does not match the {what} in record ({is})");
        return Err(Status::conflict(&GroupResource::new("", "Pod"), object::name(pod), &why));
    }
    Ok(())
}

fn names_version(options: &DeleteOptions) -> bool {
    options.preconditions.as_ref().is_some_and(|it| it.resource_version.is_some())
}

fn require_version(options: &mut DeleteOptions, pod: &Value) {
    options.preconditions.get_or_insert_default().resource_version =
        Some(object::resource_version(pod).to_owned());
}

/// Whether the budget lets one more pod go.
fn check_budget(budget: &Value) -> Result<(), Status> {
    let name = object::name(budget);
    if status_number(budget, "observedGeneration") < object::meta_number(budget, "generation") {
        return Err(still_processed(name));
    }
    let forbidden =
        |why| Err(Status::forbidden(&GroupResource::new("policy", "poddisruptionbudget"), name, why));
    let allowed = status_number(budget, "disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    let waiting = budget.get("status").and_then(|it| it.get("disruptedPods")).and_then(Value::as_object);
    if waiting.is_some_and(|it| it.len() > MAX_DISRUPTED) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed > 0 {
        return Ok(());
    }
    let (desired, current) =
        (status_number(budget, "desiredHealthy"), status_number(budget, "currentHealthy"));
    let message = match condition(budget, "DisruptionAllowed") {
        Some(it) if it["status"] == "False" && it["reason"] == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            it["message"].as_str().unwrap_or_default()
        ),
        _ => format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently"),
    };
    Err(too_many(0, message))
}

/// The budget after one more pod went.
fn disrupted(budget: &Value, pod: &str, now: &str) -> Value {
    let mut new = budget.clone();
    let left = status_number(budget, "disruptionsAllowed") - 1;
    let observed = status_number(budget, "observedGeneration");
    let status = object::child_mut(object::as_map_mut(&mut new), "status");
    status.insert("disruptionsAllowed".to_owned(), json!(left));
    object::child_mut(status, "disruptedPods").insert(pod.to_owned(), json!(now));
    if left > 0 {
        return new;
    }
    let old = condition(budget, "DisruptionAllowed");
    let since = old.filter(|it| it["status"] == "False").map(|it| it["lastTransitionTime"].clone());
    let exhausted = json!({
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
        "observedGeneration": observed,
        "lastTransitionTime": since.unwrap_or_else(|| json!(now)),
    });
    if let Value::Array(conditions) = status.entry("conditions").or_insert_with(|| json!([])) {
        conditions.retain(|it| it["type"] != "DisruptionAllowed");
        conditions.push(exhausted);
    }
    new
}

fn still_processed(budget: &str) -> Status {
    too_many(10, format!("The disruption budget {budget} is still being processed by the server."))
}

fn too_many(seconds: u32, message: String) -> Status {
    let mut status = Status::too_many_requests(VIOLATION, RetryAfter::not_begun(seconds));
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() };
    status.details.get_or_insert_default().causes.push(cause);
    status
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|it| it["status"] == "True")
}

fn condition<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = object.get("status").and_then(|it| it.get("conditions")).and_then(Value::as_array);
    conditions.into_iter().flatten().find(|it| it["type"] == name)
}

/// Whether the budget's selector selects the pod. An empty selector, and one that makes no sense, select nothing.
pub(super) fn selects(budget: &Value, pod: &Value) -> bool {
    let Some(selector) = budget.get("spec").and_then(|it| it.get("selector")) else { return false };
    let label = |key: &str| labels(pod).and_then(|it| it.get(key)).and_then(Value::as_str);
    let plain = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    let n_parts = plain.map_or(0, Map::len) + expressions.map_or(0, Vec::len);
    n_parts > 0
        && plain.into_iter().flatten().all(|(key, value)| label(key) == value.as_str())
        && expressions.into_iter().flatten().all(|it| holds(it, label).unwrap_or(false))
}

fn holds<'a>(expression: &Value, label: impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
    let value = label(expression.get("key")?.as_str()?);
    let values: Vec<&str> = expression
        .get("values")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    match expression.get("operator")?.as_str()? {
        "In" => Some(value.is_some_and(|it| values.contains(&it))),
        "NotIn" => Some(value.is_none_or(|it| !values.contains(&it))),
        "Exists" => Some(value.is_some()),
        "DoesNotExist" => Some(value.is_none()),
        _ => None,
    }
}
