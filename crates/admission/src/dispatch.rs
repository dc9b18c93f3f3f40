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

/// What webhooks are asked about.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) attributes: &'a Attributes<'a>,
    /// As it is to be; `None` for a deletion.
    pub(crate) new: Option<&'a Value>,
    /// As it was.
    pub(crate) old: Option<&'a Value>,
    pub(crate) notes: &'a Notes,
}

/// One webhook, and the version in which it wants to see the request.
#[derive(Clone, Copy)]
struct Question<'a> {
    kind: HookKind,
    hook: &'a Hook,
    resource: &'a GroupVersionResource,
    subject: Subject<'a>,
}

impl Question<'_> {
    /// Whether the webhook sees another version than the client's.
    fn is_converted(&self) -> bool {
        let own = self.subject.attributes;
        *self.resource != own.resource && own.kind.group_version() != self.resource.group_version()
    }
}

/// What a webhook that lets a request pass wants of the object.
struct Answer {
    patch: Vec<u8>,
    /// The object as it was asked about, if that was in another version.
    seen: Option<Value>,
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
            let subject = Subject { attributes, new: object.as_deref(), old, notes };
            let Some(resource) = self.wanted(hook, &subject).await? else { continue };
            let question = Question { kind: HookKind::Mutating, hook, resource: &resource, subject };
            let changed = match self.ask(&question).await {
                Ok(answer) => self.patched(&question, answer).await?,
                Err(failure) => {
                    self.failed(&question, failure)?;
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
    pub(crate) async fn validate(&self, hooks: &[Hook], subject: Subject<'_>) -> Result<(), Status> {
        let mut wanted = Vec::new();
        for (index, hook) in hooks.iter().enumerate() {
            if let Some(resource) = self.wanted(hook, &subject).await? {
                wanted.push((index, hook, resource));
            }
        }
        let asked = wanted.iter().map(async |(index, hook, resource)| {
            let question = Question { kind: HookKind::Validating, hook, resource, subject };
            if let Err(failure) = self.ask(&question).await {
                self.failed(&question, failure)?;
                let key = format!("failed-open.validating.webhook.admission.k8s.io/round_0_index_{index}");
                subject.notes.annotate(key, hook.name.clone());
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
        subject: &Subject<'_>,
    ) -> Result<Option<GroupVersionResource>, Status> {
        let Subject { attributes, new, old, notes } = *subject;
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

    async fn ask(&self, question: &Question<'_>) -> Result<Answer, Failure> {
        let Question { kind, hook, subject: Subject { attributes, notes, .. }, .. } = *question;
        if attributes.dry_run && !hook.can_run_dry {
            let why = format!("admission webhook {} does not support dry run", quote(&hook.name));
            return Err(Failure::Refused(Status::bad_request(why)));
        }
        let started = self.clock.monotonic();
        let called = self.call(question).await;
        let took = self.clock.monotonic().saturating_sub(started).as_secs_f64();
        let is_rejected = match &called {
            Ok((verdict, _)) => !verdict.is_allowed,
            Err(_) => !hook.fails_open,
        };
        self.observe.webhook(&hook.name, kind.step(), attributes.operation, is_rejected, took);
        let (verdict, seen) = called?;
        for (key, value) in verdict.annotations {
            notes.annotate(format!("{}/{key}", hook.name), value);
        }
        verdict.warnings.into_iter().for_each(|it| notes.warn(it));
        if verdict.is_allowed {
            return Ok(Answer { patch: verdict.patch, seen });
        }
        Err(Failure::Denied(review::denied(&hook.name, verdict.result.as_ref())))
    }

    /// The webhook's verdict, and the object that it saw if that was in another version.
    async fn call(&self, question: &Question<'_>) -> Result<(review::Verdict, Option<Value>), Failure> {
        let Question { kind, hook, resource, subject: Subject { attributes, new, old, .. } } = *question;
        let endpoint = hook.endpoint.as_ref().map_err(|it| Failure::Calling(it.clone()))?;
        let mut seen = None;
        let review = if question.is_converted() {
            seen = self.converted(question, new).await.map_err(Failure::Refused)?;
            let old = self.converted(question, old).await.map_err(Failure::Refused)?;
            review::question(hook.review, attributes, resource, seen.as_ref(), old.as_ref())
        } else {
            review::question(hook.review, attributes, resource, new, old)
        };
        let answer = self.client.post(endpoint, review.body, hook.timeout).await;
        let answer = answer.map_err(|it| Failure::Calling(format!("failed to call webhook: {it}")))?;
        let verdict = review::verdict(kind, hook.review, &review.uid, &answer)
            .map_err(|it| Failure::Calling(format!("received invalid webhook response: {it}")))?;
        Ok((verdict, seen))
    }

    /// An object in the version that the webhook wants to see.
    async fn converted(
        &self,
        question: &Question<'_>,
        object: Option<&Value>,
    ) -> Result<Option<Value>, Status> {
        let Some(object) = object else { return Ok(None) };
        let own = question.subject.attributes.resource.group_resource();
        self.world.convert(&own, object, &question.resource.group_version()).await.map(Some)
    }

    /// The object as the webhook wants it; `None` if it is as it was.
    async fn patched(&self, question: &Question<'_>, answer: Answer) -> Result<Option<Value>, Status> {
        let Question { hook, subject: Subject { attributes, new, .. }, .. } = *question;
        let Answer { patch, seen } = answer;
        if patch.is_empty() {
            return Ok(None);
        }
        let Some(object) = new else {
            return Err(Status::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this operation",
                quote(&hook.name)
            )));
        };
        let wrong = |why: String| {
            Status::internal(format!("admission webhook {} returned a bad patch: {why}", quote(&hook.name)))
        };
        let patched = patch::apply(PatchKind::Json, &patch, seen.as_ref().unwrap_or(object))
            .map_err(|it| wrong(it.to_string()))?;
        if !patched.is_object() {
            return Err(wrong("the result is not an object".to_owned()));
        }
        let patched = if seen.is_some() {
            let (own, resource) = (attributes.kind.group_version(), attributes.resource.group_resource());
            self.world.convert(&resource, &patched, &own).await?
        } else {
            patched
        };
        Ok((patched != *object).then_some(patched))
    }

    /// What a failure means: nothing, or that the request is refused.
    fn failed(&self, question: &Question<'_>, failure: Failure) -> Result<(), Status> {
        let Question { kind, hook, subject, .. } = *question;
        let (step, operation) = (kind.step(), subject.attributes.operation);
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
