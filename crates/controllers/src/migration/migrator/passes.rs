//! Passes over all objects: those that rewrite, the one that looks at everything again, and what follows from that.
//!
//! Deliberately not here: whether it is time for them ([`crate::migration::plan`]).

use std::time::Duration;

use meta::Value;
use tokio::time::Instant;

use super::{LOOK_AGAIN, SLICE, Work};
use crate::error::Error;
use crate::migration::{
    definition::{self, Hold, Pruned},
    engine::{Batch, Class, Evidence, Look, Task},
    pace::{self, DEFAULT_RATE, Pace},
    state::{DRY_RUN, PARTIAL, Phase},
};
use crate::work::Next;

/// How often all objects are looked at before it is given up.
const MAX_PASSES: u32 = 10;
/// The freeze is looked after so often.
const RENEW: Duration = Duration::from_secs(30);

impl Work<'_> {
    pub(super) async fn begin_pass(&mut self, reason: &str, message: &str) -> Result<(), Error> {
        self.live.run.enter(Phase::Running, reason, message);
        self.live.run.begin_pass();
        self.live.run.evidence = None;
        self.live.left = 0;
        (self.live.pace, self.live.began) = (Pace::default(), Instant::now());
        self.flush().await
    }

    fn task(&self) -> Task {
        let rate = self.rate();
        let (batch, at_once) = pace::stride(rate);
        let batch = (batch >> self.live.n_halvings).max(1);
        Task {
            resource: self.migration.resource.clone(),
            version: self.live.run.storage_version.clone(),
            epoch: self.live.run.epoch,
            namespaces: self.wishes.namespaces.clone(),
            selector: self.wishes.selector.clone(),
            dry_run: self.wishes.is_dry_run,
            batch,
            at_once,
        }
    }

    fn rate(&self) -> u64 {
        self.wishes.rate.unwrap_or(DEFAULT_RATE)
    }

    pub(super) async fn rewrite(&mut self) -> Result<Option<Next>, Error> {
        // What was written while it was not frozen is found when everything is looked at again.
        if self.renew_freeze().await? == Hold::Others {
            return self.queue_again().await;
        }
        let task = self.task();
        let position = self.live.run.progress.position.clone();
        self.live.pace.begin(self.live.began.elapsed(), self.rate());
        let batch = match self.heed(self.shared.engine.rewrite(&task, &position)).await {
            Some(Ok(batch)) => batch,
            Some(Err(trouble)) => return self.trouble(trouble).await,
            None => return Ok(Some(Next::After(Duration::ZERO))),
        };
        self.goes_on("Running", "objects are rewritten");
        let rest = self.note(&batch);
        let Batch { failures, next, .. } = batch;
        self.live.run.note_failures(failures);
        match next {
            Some(next) => {
                self.live.run.progress.position = next;
                self.pause(rest).await
            }
            None => self.pass_is_over().await,
        }
    }

    /// Counts what a step did; returns how long to rest.
    fn note(&mut self, batch: &Batch) -> Duration {
        let Batch { migrated, unchanged, ref failures, remaining, .. } = *batch;
        let failed = failures.len() as u64;
        let observe = &self.shared.ctx.observe;
        let resource = self.migration.resource.to_string();
        observe.migrated(&resource, migrated);
        for failure in failures {
            observe.migration_failure(&resource, failure.class.name());
        }
        self.live.pace.note(migrated + unchanged + failed);
        let progress = &mut self.live.run.progress;
        progress.note(migrated, unchanged, failed, remaining);
        let millis = self.live.pace.millis(self.live.began.elapsed());
        progress.estimate(self.live.pace.objects(), millis, (self.shared.ctx.now)());
        if remaining.is_none() && batch.next.is_some() {
            progress.forget_rest();
        }
        observe.migration_remaining(&resource, progress.remaining, progress.objects_per_second);
        self.live.pace.rest(self.live.began.elapsed(), self.rate())
    }

    /// How long nothing is to be done yet.
    pub(super) fn rest(&self) -> Duration {
        let waits = self.live.not_before.saturating_duration_since(Instant::now());
        self.live.pace.rest(self.live.began.elapsed(), self.rate()).max(waits)
    }

    /// Rests if that is short; a longer rest is none of this pass.
    async fn pause(&mut self, rest: Duration) -> Result<Option<Next>, Error> {
        if rest > SLICE {
            return Ok(Some(Next::After(rest)));
        }
        tokio::time::sleep(rest).await;
        Ok(None)
    }

    async fn pass_is_over(&mut self) -> Result<Option<Next>, Error> {
        if self.wishes.is_dry_run {
            let n = self.live.run.progress.migrated;
            let message = format!("{n} objects would be looked at or rewritten; nothing was written");
            return self.end(Phase::Succeeded, DRY_RUN, &message).await;
        }
        let failures = &self.live.run.failures;
        if failures.is_empty() {
            return self.look_at_everything("all objects are looked at again").await;
        }
        let passes = |class: &str| Class::ALL.iter().any(|it| it.name() == class && it.passes());
        let words = self.live.run.failures_in_words();
        if failures.iter().any(|it| passes(&it.class)) && self.live.run.progress.pass < MAX_PASSES {
            let pause = Duration::from_millis(500 << self.live.run.progress.pass.min(6));
            let message = format!("tried again: {words}");
            // The failures of the last pass stay until there are others.
            let failures = self.live.run.failures.clone();
            self.live.run.enter(Phase::Running, "Retrying", &message);
            self.live.run.begin_pass();
            self.live.run.failures = failures;
            self.flush().await?;
            self.live.run.failures.clear();
            self.live.not_before = Instant::now() + pause;
            return Ok(Some(Next::After(pause)));
        }
        self.end(Phase::Failed, "ObjectsFailed", &words).await
    }

    pub(super) async fn verify(&mut self) -> Result<Option<Next>, Error> {
        let position = self.live.run.progress.position.clone();
        match self.renew_freeze().await? {
            Hold::Kept => {}
            // Nothing has been seen yet.
            Hold::Taken if position.is_empty() => {}
            Hold::Taken => return self.verify_again("the definition was not frozen for a while").await,
            Hold::Others => return self.queue_again().await,
        }
        let task = self.task();
        if position.is_empty() {
            self.live.run.progress.begin_look();
            (self.live.pace, self.live.began) = (Pace::default(), Instant::now());
        }
        if position.is_empty() && self.wishes.is_whole() {
            let crd = definition::get(&self.shared.ctx, &self.migration.resource).await?;
            if let Some(crd) = &crd
                && let Some(left) = self.unsettled(crd).await
            {
                let message = "API servers may still write the earlier version, in requests that began before it changed, or \
                               because they have not followed yet: the last look begins when there was time for that";
                return self.wait("Settling", message, left.min(LOOK_AGAIN)).await;
            }
            self.live.mark = crd.as_ref().map(definition::mark);
        }
        self.live.pace.begin(self.live.began.elapsed(), self.rate());
        let look = match self.heed(self.shared.engine.verify(&task, &position)).await {
            Some(Ok(look)) => look,
            Some(Err(trouble)) => return self.trouble(trouble).await,
            None => return Ok(Some(Next::After(Duration::ZERO))),
        };
        self.goes_on("Verifying", "all objects are looked at again");
        let Look { evidence, objects, left, failures, next, doubt } = look;
        self.live.left += left;
        self.live.pace.note(objects);
        let message = match self.is_frozen().await? {
            _ if !self.wishes.is_whole() => PARTIAL,
            true => doubt,
            false => "changes of the storage version were not refused",
        };
        self.live.run.note_proof(evidence, objects, message, (self.shared.ctx.now)());
        self.live.run.note_failures(failures);
        self.note_look();
        match next {
            Some(next) => {
                self.live.run.progress.position = next;
                let rest = self.live.pace.rest(self.live.began.elapsed(), self.rate());
                self.pause(rest).await
            }
            None => {
                self.live.run.progress.end_look();
                self.is_verified().await
            }
        }
    }

    /// How far the look at all objects is.
    fn note_look(&mut self) {
        let n_looks = self.shared.engine.n_looks();
        let n_seen = self.live.run.evidence.as_ref().map_or(0, |it| it.objects) / n_looks;
        let millis = self.live.pace.millis(self.live.began.elapsed());
        let progress = &mut self.live.run.progress;
        progress.note_look(n_seen);
        progress.estimate(self.live.pace.objects() / n_looks, millis, (self.shared.ctx.now)());
        let resource = self.migration.resource.to_string();
        let observe = &self.shared.ctx.observe;
        observe.migration_remaining(&resource, progress.remaining, progress.objects_per_second);
    }

    /// How long the storage version has not been written by everybody for sure.
    async fn unsettled(&self, crd: &Value) -> Option<Duration> {
        let lag = self.shared.engine.lag(&self.migration.resource).await;
        let left = lag.saturating_sub(self.live.since.elapsed());
        let is_over = left.is_zero() || definition::is_long_unchanged(crd, (self.shared.ctx.now)());
        (!is_over).then_some(left)
    }

    async fn look_at_everything(&mut self, message: &str) -> Result<Option<Next>, Error> {
        self.live.run.enter(Phase::Verifying, "Verifying", message);
        self.live.left = 0;
        self.live.run.evidence = None;
        self.flush().await?;
        Ok(None)
    }

    /// What was seen may not be true any more, for this reason.
    async fn verify_again(&mut self, why: &str) -> Result<Option<Next>, Error> {
        let pass = self.live.run.progress.pass;
        if pass >= MAX_PASSES {
            let message = format!("{why}, again and again: it was looked at everything {pass} times");
            return self.end(Phase::Failed, "StillChanging", &message).await;
        }
        self.live.run.progress.pass += 1;
        self.look_at_everything(&format!("{why}: all objects are looked at once more")).await
    }

    /// Another migration froze the definition meanwhile, and goes first.
    async fn queue_again(&mut self) -> Result<Option<Next>, Error> {
        self.live.run.enter(Phase::Checking, "Queued", "another migration holds the definition");
        self.flush().await?;
        Ok(Some(Next::After(LOOK_AGAIN)))
    }

    async fn is_verified(&mut self) -> Result<Option<Next>, Error> {
        if !self.live.run.failures.is_empty() {
            let words = self.live.run.failures_in_words();
            return self.end(Phase::Failed, "ObjectsFailed", &words).await;
        }
        let (left, pass) = (self.live.left, self.live.run.progress.pass);
        if left > 0 && pass >= MAX_PASSES {
            let message = format!("{left} objects are still stored in another version after {pass} passes");
            return self.end(Phase::Failed, "StillChanging", &message).await;
        }
        if left > 0 {
            let message = format!("{left} objects are stored in another version; once more");
            self.begin_pass("Running", &message).await?;
            return Ok(None);
        }
        self.live.run.enter(Phase::Pruning, "Verified", "every object is stored as wanted");
        self.flush().await?;
        Ok(None)
    }

    pub(super) async fn prune(&mut self) -> Result<Option<Next>, Error> {
        if let Err(trouble) = self.shared.engine.stands(&self.task()).await {
            return self.trouble(trouble).await;
        }
        let proof = self.live.run.evidence.clone().unwrap_or_default();
        let is_good = proof.kind != Evidence::SecondPassOneEndpoint.name() && proof.message.is_empty();
        if !self.wishes.is_whole() {
            let message = "only some objects were looked at: status.storedVersions stays as it is";
            return self.end(Phase::Succeeded, "StorageVersionMigrationSucceeded", message).await;
        }
        if !is_good && !self.wishes.accepted.contains(&proof.kind) {
            let message = format!(
                "status.storedVersions stays as it is: the evidence is {}{}{}; if that is enough, migrate again with \
                 `convoy migrate --accept-evidence {}`, or the annotation convoy.dev/accept-evidence",
                proof.kind,
                if proof.message.is_empty() { "" } else { ", and " },
                proof.message,
                proof.kind,
            );
            return self.end(Phase::Succeeded, "StorageVersionMigrationSucceeded", &message).await;
        }
        let (ctx, resource) = (&self.shared.ctx, &self.migration.resource);
        let (version, mark) = (&self.live.run.storage_version, self.live.mark.as_ref());
        match definition::prune(ctx, resource, version, mark).await? {
            Pruned::Done(versions) => {
                let n = self.live.run.progress.total;
                let version = &self.live.run.storage_version;
                let mut message = format!("{n} objects are stored as {version}");
                if !versions.is_empty() {
                    message += &format!("; {} left status.storedVersions", versions.join(", "));
                }
                self.live.run.pruned_versions = versions;
                self.end(Phase::Succeeded, "StorageVersionMigrationSucceeded", &message).await
            }
            Pruned::Moved(version) => {
                let message = format!("the storage version became {version} on the way");
                self.live.run.enter(Phase::Checking, "Moved", &message);
                self.flush().await?;
                Ok(Some(Next::After(Duration::from_millis(100))))
            }
            Pruned::Changed => self.verify_again("the definition was changed meanwhile").await,
            Pruned::Refused(why) if self.live.run.progress.pass < MAX_PASSES => {
                self.begin_pass("Refused", &why).await?;
                Ok(None)
            }
            Pruned::Refused(why) => self.end(Phase::Failed, "PruneRefused", &why).await,
        }
    }

    /// Whether the storage version cannot move. Whoever goes on with a migration of another process asks anew.
    async fn is_frozen(&mut self) -> Result<bool, Error> {
        if let Some(known) = self.live.is_frozen {
            return Ok(known);
        }
        let ctx = &self.shared.ctx;
        let is_frozen = match definition::get(ctx, &self.migration.resource).await? {
            Some(crd) if self.wishes.is_whole() => definition::is_enforced(ctx, &crd).await?,
            _ => true,
        };
        self.live.is_frozen = Some(is_frozen);
        Ok(is_frozen)
    }

    /// Looks after the freeze now and then.
    async fn renew_freeze(&mut self) -> Result<Hold, Error> {
        if !self.wishes.is_whole() || self.live.renewed.is_some_and(|it| it.elapsed() < RENEW) {
            return Ok(Hold::Kept);
        }
        let ctx = &self.shared.ctx;
        let hold = match definition::get(ctx, &self.migration.resource).await? {
            Some(crd) => {
                let hold = definition::freeze(ctx, &self.migration, &crd).await?;
                self.notice(definition::other_hand(&crd)).await;
                hold
            }
            None => Hold::Kept,
        };
        self.live.renewed = Some(Instant::now());
        // The policy that refuses may be gone as well.
        self.live.is_frozen = None;
        Ok(hold)
    }
}
