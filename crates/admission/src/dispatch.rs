//! How webhooks are called: those that change objects one after the other, those that refuse them all at once.
//!
//! # Flow
//! Mutating webhooks are called in the order of their configurations' names. When one changes the object, those before
//! it that ask for it (`reinvocationPolicy: IfNeeded`) are called once more, in a second and last round.
//!
//! # Errors
//! A refusal is passed on. A failure (no answer, or one that cannot be believed) refuses the request with 500, unless the
//! webhook says that its failures are to be ignored.

use std::{collections::HashSet, sync::Arc};

use futures_util::future;
use meta::{GroupResource, GroupVersionResource, Status, Value, field::quote};
use schema::patch::{self, PatchKind};
use store::SharedClock;
use webhook::Client;

use crate::{Attributes, Hook, HookKind, Notes, Observe, World, review};

/// What calls need.
pub(crate) struct Dispatcher {
    pub(crate) client: Client,
    pub(crate) world: Arc<dyn World>,
    pub(crate) observe: Arc<dyn Observe>,
    pub(crate) clock: SharedClock,
}

/// What has been asked and changed so far in the mutating phase of one request.
#[derive(Default)]
pub(crate) struct Rounds {
    /// Called since the object changed last, and willing to be called again.
    called: HashSet<String>,
    /// To be called again.
    again: HashSet<String>,
    is_second: bool,
}

impl Rounds {
    /// Somebody changed the object.
    pub(crate) fn changed(&mut self) {
        self.again.extend(self.called.drain());
    }

    /// Whether that was all; else the second round begins, in which everybody built in is asked again, too.
    pub(crate) fn is_done(&mut self, has_changed: bool) -> bool {
        let was_second = std::mem::replace(&mut self.is_second, true);
        was_second || !has_changed
    }
}

/// Why a webhook brought no verdict that lets the request pass.
enum Failure {
    /// It could not be asked, or was not believed.
    Calling(String),
    /// It said no.
    Denied(Status),
    /// The server itself refuses.
    Refused(Status),
}

impl Dispatcher {
    /// Lets webhooks change an object. Says whether any did.
    pub(crate) async fn mutate(
        &self,
        hooks: &[Hook],
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
        notes: &Notes,
        rounds: &mut Rounds,
    ) -> Result<bool, Status> {
        let mut has_changed = false;
        let round = u8::from(rounds.is_second);
        for (index, hook) in hooks.iter().enumerate() {
            if rounds.is_second && !rounds.again.contains(&hook.id) {
                continue;
            }
            let Some(resource) = self.wanted(hook, attributes, object.as_deref(), old, notes).await? else {
                continue;
            };
            let asked =
                self.ask(HookKind::Mutating, hook, attributes, &resource, object.as_deref(), old, notes);
            let changed = match asked.await {
                Ok(patch) => self.patched(hook, attributes, &resource, object.as_deref(), &patch)?,
                Err(failure) => {
                    self.failed(HookKind::Mutating, hook, attributes, failure)?;
                    let key =
                        format!("failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
                    notes.annotate(key, hook.name.clone());
                    continue;
                }
            };
            let mutated = changed.is_some();
            let key = format!("mutation.webhook.admission.k8s.io/round_{round}_index_{index}");
            notes.annotate(key, annotation(hook, mutated));
            if let (Some(object), Some(changed)) = (object.as_deref_mut(), changed) {
                *object = changed;
                has_changed = true;
                rounds.changed();
            }
            if hook.is_reinvoked {
                rounds.called.insert(hook.id.clone());
            }
        }
        Ok(has_changed)
    }

    /// Asks webhooks whether they have anything against it, all at the same time.
    pub(crate) async fn validate(
        &self,
        hooks: &[Hook],
        attributes: &Attributes<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
        notes: &Notes,
    ) -> Result<(), Status> {
        let mut wanted = Vec::new();
        for (index, hook) in hooks.iter().enumerate() {
            if let Some(resource) = self.wanted(hook, attributes, new, old, notes).await? {
                wanted.push((index, hook, resource));
            }
        }
        let asked = wanted.iter().map(async |(index, hook, resource)| {
            let kind = HookKind::Validating;
            if let Err(failure) = self.ask(kind, hook, attributes, resource, new, old, notes).await {
                self.failed(kind, hook, attributes, failure)?;
                let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                notes.annotate(key, hook.name.clone());
            }
            Ok(())
        });
        // All are waited for: none is cut off, and who refuses first does not depend on who is faster.
        future::join_all(asked).await.into_iter().collect()
    }

    /// In which version the webhook wants to see the request, if it does.
    async fn wanted(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
        notes: &Notes,
    ) -> Result<Option<GroupVersionResource>, Status> {
        let Some(resource) = hook.wanted_resource(attributes) else { return Ok(None) };
        if !hook.selects(&*self.world, attributes, new, old).await? {
            return Ok(None);
        }
        if !hook.has_conditions {
            return Ok(Some(resource));
        }
        // Decision 0023: whether the conditions hold is not known, which is upstream's case of a failed evaluation.
        let why = format!(
            "webhook {} of {} has matchConditions, which this server does not evaluate",
            quote(&hook.name),
            quote(&hook.configuration)
        );
        if hook.fails_open {
            notes.warn(format!("{why}; the webhook was not called"));
            return Ok(None);
        }
        let own = GroupResource::new(attributes.resource.group.clone(), attributes.resource.resource.clone());
        Err(Status::forbidden(&own, attributes.name, &why))
    }

    #[expect(clippy::too_many_arguments, reason = "they are what a question is made of")]
    async fn ask(
        &self,
        kind: HookKind,
        hook: &Hook,
        attributes: &Attributes<'_>,
        resource: &GroupVersionResource,
        new: Option<&Value>,
        old: Option<&Value>,
        notes: &Notes,
    ) -> Result<Vec<u8>, Failure> {
        if attributes.dry_run && !hook.can_run_dry {
            let why = format!("admission webhook {} does not support dry run", quote(&hook.name));
            return Err(Failure::Refused(Status::bad_request(why)));
        }
        let started = self.clock.monotonic();
        let verdict = self.call(kind, hook, attributes, resource, new, old).await;
        let took = self.clock.monotonic().saturating_sub(started).as_secs_f64();
        let is_rejected = match &verdict {
            Ok(verdict) => !verdict.is_allowed,
            Err(_) => !hook.fails_open,
        };
        self.observe.webhook(&hook.name, kind.step(), attributes.operation, is_rejected, took);
        let verdict = verdict?;
        for (key, value) in verdict.annotations {
            notes.annotate(format!("{}/{key}", hook.name), value);
        }
        verdict.warnings.into_iter().for_each(|it| notes.warn(it));
        if verdict.is_allowed {
            return Ok(verdict.patch);
        }
        Err(Failure::Denied(review::denied(&hook.name, verdict.result.as_ref())))
    }

    async fn call(
        &self,
        kind: HookKind,
        hook: &Hook,
        attributes: &Attributes<'_>,
        resource: &GroupVersionResource,
        new: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<review::Verdict, Failure> {
        let endpoint = hook.endpoint.as_ref().map_err(|it| Failure::Calling(it.clone()))?;
        let own_resource = attributes.resource.group_resource();
        let version = resource.group_version();
        let is_other = resource != &attributes.resource && attributes.kind.group_version() != version;
        let converted = |object: Option<&Value>| match object {
            Some(object) if is_other => self.world.convert(&own_resource, object, &version).map(Some),
            other => Ok(other.cloned()),
        };
        let question = if is_other {
            let (new, old) = (converted(new), converted(old));
            let (new, old) = (new.map_err(Failure::Refused)?, old.map_err(Failure::Refused)?);
            review::question(hook.review, attributes, resource, new.as_ref(), old.as_ref())
        } else {
            review::question(hook.review, attributes, resource, new, old)
        };
        let answer = self.client.post(endpoint, question.body, hook.timeout).await;
        let answer = answer.map_err(|it| Failure::Calling(format!("failed to call webhook: {it}")))?;
        review::verdict(kind, hook.review, &question.uid, &answer)
            .map_err(|it| Failure::Calling(format!("received invalid webhook response: {it}")))
    }

    /// The object as the webhook wants it; `None` if it is as it was.
    fn patched(
        &self,
        hook: &Hook,
        attributes: &Attributes<'_>,
        resource: &GroupVersionResource,
        object: Option<&Value>,
        patch: &[u8],
    ) -> Result<Option<Value>, Status> {
        if patch.is_empty() {
            return Ok(None);
        }
        let Some(object) = object else {
            return Err(Status::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(&hook.name)
            )));
        };
        let (own, own_resource) = (attributes.kind.group_version(), attributes.resource.group_resource());
        let is_other = resource != &attributes.resource && own != resource.group_version();
        let seen = if is_other {
            &self.world.convert(&own_resource, object, &resource.group_version())?
        } else {
            object
        };
        let wrong = |why: String| {
            Status::internal(format!("admission webhook {} returned a bad patch: {why}", quote(&hook.name)))
        };
        let patched = patch::apply(PatchKind::Json, patch, seen).map_err(|it| wrong(it.to_string()))?;
        if !patched.is_object() {
            return Err(wrong("the result is not an object".to_owned()));
        }
        let patched = if is_other { self.world.convert(&own_resource, &patched, &own)? } else { patched };
        Ok((patched != *object).then_some(patched))
    }

    /// What a failure means: nothing, or that the request is refused.
    fn failed(
        &self,
        kind: HookKind,
        hook: &Hook,
        attributes: &Attributes<'_>,
        failure: Failure,
    ) -> Result<(), Status> {
        let (step, operation) = (kind.step(), attributes.operation);
        let rejected = |error: &'static str, code: u16| {
            self.observe.rejection(&hook.name, step, operation, error, code);
        };
        match failure {
            Failure::Calling(why) if hook.fails_open => {
                tracing::warn!(webhook = hook.name, configuration = hook.configuration, why, "failed open");
                self.observe.failed_open(&hook.name, step);
                Ok(())
            }
            Failure::Calling(why) => {
                tracing::warn!(webhook = hook.name, configuration = hook.configuration, why, "failed");
                rejected("calling_webhook_error", 0);
                Err(Status::internal(format!("failed calling webhook {}: {why}", quote(&hook.name))))
            }
            Failure::Denied(status) => {
                rejected("no_error", status.code);
                Err(status)
            }
            Failure::Refused(status) => {
                rejected("apiserver_internal_error", status.code);
                Err(status)
            }
        }
    }
}

fn annotation(hook: &Hook, mutated: bool) -> String {
    serde_json::json!({"configuration": hook.configuration, "webhook": hook.name, "mutated": mutated})
        .to_string()
}
