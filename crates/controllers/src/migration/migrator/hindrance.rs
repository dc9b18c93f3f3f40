//! What keeps a migration from going on, apart from its objects: an API server that refuses, does not answer or takes too
//! long, people who want something else, and other migrators. Whatever it is, the status or an event says so.

use std::time::Duration;

use meta::object;
use tracing::warn;

use super::Work;
use crate::error::Error;
use crate::migration::{engine::Trouble, request::Migration};

/// A step of the engine that takes longer is cut off. Below the limit of a pass, which would leave no time to say why.
const STEP_LIMIT: Duration = Duration::from_secs(120);

/// Reasons that are not true any more when it goes on.
const HELD_UP: [&str; 7] =
    ["Forbidden", "NotAgreed", "Paused", "Queued", "Settling", "Unavailable", "Waiting"];

impl Work<'_> {
    /// A step of the engine; `None` if the migration is cancelled or deleted meanwhile.
    pub(super) async fn heed<T>(
        &self,
        step: impl Future<Output = Result<T, Trouble>>,
    ) -> Option<Result<T, Trouble>> {
        tokio::select! {
            done = step => Some(done),
            () = self.is_given_up() => None,
            () = tokio::time::sleep(STEP_LIMIT) => {
                let why = format!("a step was not done within {STEP_LIMIT:?}: the API server hangs, or has too much to do");
                Some(Err(Trouble::Later(why)))
            }
        }
    }

    /// Ends when the migration is cancelled or deleted. Whatever else people want can wait for the end of a step, which is
    /// counted then.
    async fn is_given_up(&self) {
        loop {
            self.touched.notified().await;
            let api = self.migration.api;
            let found = api.collection().get(&self.shared.ctx.client, self.migration.name()).await;
            let is_given_up = match found {
                Ok(Some(it)) if object::is_deleting(&it) => true,
                Ok(Some(it)) => Migration::read(api, it).wishes().is_cancelled,
                Ok(None) => true,
                // Whoever works on it will notice, too.
                Err(_) => false,
            };
            if is_given_up {
                return;
            }
        }
    }

    /// It goes on: what held it up is over.
    pub(super) fn goes_on(&mut self, reason: &str, message: &str) {
        self.live.n_setbacks = 0;
        self.live.n_halvings = self.live.n_halvings.saturating_sub(1);
        if HELD_UP.contains(&self.live.run.reason.as_str()) {
            self.live.run.say(reason, message);
        }
    }

    /// A step failed for a reason that does not lie in the objects. It is tried again; until then the status says why,
    /// if it can be written, and an event does.
    pub(super) async fn is_hindered(&mut self, error: &Error) {
        self.live = self.settled.clone();
        self.live.n_setbacks += 1;
        self.live.pace.pause(self.live.began.elapsed());
        let (reason, message) = if error.is(403) {
            ("Forbidden", format!("the migrator lacks a right: {}", error.text()))
        } else {
            ("Unavailable", error.text())
        };
        let run = &mut self.live.run;
        if (run.reason.as_str(), &run.message) == (reason, &message) {
            return;
        }
        if error.is(403) {
            self.tell(true, "MigrationHindered", &message).await;
        }
        // How it ended stays what is said.
        if !self.live.run.phase.is_end() {
            self.live.run.say(reason, &message);
            let _ = self.flush().await;
        }
    }

    /// Another program migrates the same objects.
    pub(super) async fn notice(&mut self, other: Option<&str>) {
        let Some(other) = other.filter(|_| !self.live.has_told) else { return };
        self.live.has_told = true;
        let message = format!("{other} works on this migration, too: switch one of the two off");
        warn!(migration = self.migration.name(), other, "another migrator is at work");
        self.tell(true, "AnotherMigrator", &message).await;
    }
}
