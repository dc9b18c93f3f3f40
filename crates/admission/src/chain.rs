//! The order in which everybody is asked.
//!
//! # Flow
//! 1. The mutating phase: built-in plugins, then mutating webhooks; after a change, those that asked for it once more.
//! 2. The object is checked against its schema and rules (the caller's part).
//! 3. The validating phase: built-in plugins, then validating webhooks.
//!
//! Mutating policies belong between plugins and webhooks of the first phase; validating policies between plugins and
//! webhooks of the last, and quota after everything else, so that nothing is charged for what is refused.

use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use meta::{Status, Value};
use store::SharedClock;
use webhook::{Client, Resolve};

use crate::{
    Attributes, Hook, HookKind, Notes, Observe, Operation, Plugin, Plugins, Rights, World, certificates,
    claims,
    dispatch::{Dispatcher, Rounds, Subject},
    resize, service_account,
};

/// Everybody who has a say.
pub struct Admission {
    plugins: Plugins,
    mutating: ArcSwap<Vec<Hook>>,
    validating: ArcSwap<Vec<Hook>>,
    /// Why it is not known who has a say, if so.
    unknown: [ArcSwapOption<String>; 2],
    dispatcher: Dispatcher,
}

impl Admission {
    /// These plugins, and no webhooks yet.
    pub fn new(
        plugins: Plugins,
        world: Arc<dyn World>,
        observe: Arc<dyn Observe>,
        resolver: Arc<dyn Resolve>,
        clock: SharedClock,
    ) -> Self {
        let limits = webhook::Limits { response_bytes: 8 << 20, ..webhook::Limits::default() };
        let client = Client::new(resolver, limits);
        let dispatcher = Dispatcher { client, world, observe, clock };
        let (mutating, validating, unknown) = Default::default();
        Self { plugins, mutating, validating, unknown, dispatcher }
    }

    /// Replaces all webhooks of a kind by those of these configurations.
    pub fn set_hooks(&self, kind: HookKind, configurations: &[Value]) {
        let (plugin, slot) = match kind {
            HookKind::Mutating => (Plugin::MutatingAdmissionWebhook, &self.mutating),
            HookKind::Validating => (Plugin::ValidatingAdmissionWebhook, &self.validating),
        };
        let hooks = if self.plugins.has(plugin) { Hook::all(configurations) } else { Vec::new() };
        slot.store(Arc::new(hooks));
    }

    /// Some webhooks of a kind cannot be read: until they can, everything is refused that they might have refused.
    pub fn set_unknown(&self, kind: HookKind, why: Option<String>) {
        let plugin = match kind {
            HookKind::Mutating => Plugin::MutatingAdmissionWebhook,
            HookKind::Validating => Plugin::ValidatingAdmissionWebhook,
        };
        self.unknown(kind).store(why.filter(|_| self.plugins.has(plugin)).map(Arc::new));
    }

    fn unknown(&self, kind: HookKind) -> &ArcSwapOption<String> {
        match kind {
            HookKind::Mutating => &self.unknown[0],
            HookKind::Validating => &self.unknown[1],
        }
    }

    /// 500 while it is not known who has a say. Webhooks have none in what configures them, so that it can be mended.
    fn check_known(&self, kind: HookKind, attributes: &Attributes<'_>) -> Result<(), Status> {
        match self.unknown(kind).load_full() {
            Some(why) if &*attributes.resource.group != "admissionregistration.k8s.io" => {
                Err(Status::internal(why))
            }
            _ => Ok(()),
        }
    }

    /// Whether anybody might change the object, or has to be asked before it is deleted. Cheap.
    pub fn mutates(&self, attributes: &Attributes<'_>) -> bool {
        self.runs_service_account(attributes)
            || wants(&self.mutating.load(), attributes)
            || self.check_known(HookKind::Mutating, attributes).is_err()
    }

    /// Whether [`Self::validate`] would ask anybody. Cheap.
    pub fn validates(&self, attributes: &Attributes<'_>) -> bool {
        self.runs_service_account(attributes)
            || self.runs_resize(attributes)
            || wants(&self.validating.load(), attributes)
            || self.check_known(HookKind::Validating, attributes).is_err()
    }

    /// The mutating phase. Says whether the object changed.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        mut object: Option<&mut Value>,
        old: Option<&Value>,
        notes: &Notes,
    ) -> Result<bool, Status> {
        self.check_known(HookKind::Mutating, attributes)?;
        let mut has_changed = false;
        let hooks = self.mutating.load_full();
        let mut rounds = Rounds::default();
        loop {
            if let Some(object) = object.as_deref_mut()
                && self.built_in(attributes, object).await?
            {
                has_changed = true;
                rounds.changed();
            }
            let reborrowed = object.as_deref_mut();
            let changed =
                self.dispatcher.mutate(&hooks, attributes, reborrowed, old, notes, &mut rounds).await?;
            has_changed |= changed;
            if rounds.is_done(changed) {
                return Ok(has_changed);
            }
        }
    }

    /// The validating phase.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        new: Option<&Value>,
        old: Option<&Value>,
        notes: &Notes,
    ) -> Result<(), Status> {
        self.check_known(HookKind::Validating, attributes)?;
        if let Some(pod) = new
            && self.runs_service_account(attributes)
        {
            self.measured(Plugin::ServiceAccount, "validate", attributes, async {
                service_account::validate(&*self.dispatcher.world, &self.dispatcher.clock, attributes, pod)
                    .await
            })
            .await?;
        }
        if let (Some(new), Some(old)) = (new, old)
            && self.runs_resize(attributes)
        {
            let asked = resize::validate(&*self.dispatcher.world, new, old);
            self.measured(Plugin::PersistentVolumeClaimResize, "validate", attributes, asked).await?;
        }
        let hooks = self.validating.load_full();
        self.dispatcher.validate(&hooks, Subject { attributes, new, old, notes }).await
    }

    /// The built-in plugins of the validating phase that must know what the caller may do besides, and what upstream's
    /// registry asks of that kind.
    pub fn check_rights(
        &self,
        attributes: &Attributes<'_>,
        new: &Value,
        old: Option<&Value>,
        rights: &Rights<'_>,
    ) -> Result<(), Status> {
        certificates::check(&self.plugins, attributes, new, old, rights)?;
        claims::check(attributes, new, old, rights)
    }

    /// The built-in plugins of the mutating phase. NamespaceLifecycle is the registry's, which has the namespaces.
    async fn built_in(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<bool, Status> {
        if !self.runs_service_account(attributes) {
            return Ok(false);
        }
        self.measured(Plugin::ServiceAccount, "admit", attributes, async {
            service_account::admit(&*self.dispatcher.world, &self.dispatcher.clock, attributes, object).await
        })
        .await
    }

    async fn measured<T>(
        &self,
        plugin: Plugin,
        step: &'static str,
        attributes: &Attributes<'_>,
        asked: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let clock = &self.dispatcher.clock;
        let started = clock.monotonic();
        let result = asked.await;
        let took = clock.monotonic().saturating_sub(started).as_secs_f64();
        self.dispatcher.observe.plugin(plugin.name(), step, attributes.operation, result.is_err(), took);
        result
    }

    fn runs_resize(&self, attributes: &Attributes<'_>) -> bool {
        resize::is_about(attributes) && self.plugins.has(Plugin::PersistentVolumeClaimResize)
    }

    fn runs_service_account(&self, attributes: &Attributes<'_>) -> bool {
        attributes.operation == Operation::Create
            && attributes.subresource.is_empty()
            && attributes.resource.group.is_empty()
            && &*attributes.resource.resource == "pods"
            && self.plugins.has(Plugin::ServiceAccount)
    }
}

fn wants(hooks: &[Hook], attributes: &Attributes<'_>) -> bool {
    hooks.iter().any(|it| it.wanted_resource(attributes).is_some())
}
