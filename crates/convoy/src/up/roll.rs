//! Rolls the servers of `convoy up` to another release, one by one, and tells how it goes.
//!
//! After each server everything waits until the probe client has used every group and version in that mixture of
//! releases. What is told meanwhile is made in `view`, what the probe counts in `probe`.

use std::{sync::Arc, time::Duration};

use meta::Release;
use parking_lot::Mutex;
use serde_json::Value;
use server::census::CensusView;
use tokio::task::JoinSet;

use super::{
    control::Teller,
    probe::{self, Seen},
    servers::Servers,
    view::Look,
};
use crate::{
    check,
    cluster::ask,
    failure::{Exit, Failure},
};

/// How long it may take until everything is agreed on and migrated after the last server.
const SETTLE_WITHIN: Duration = Duration::from_secs(120);
/// How long the probe may take for one pass.
const PROBE_WITHIN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);
const MIGRATIONS: &str = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";

/// Rolls, and says how it ended. `through` makes clients that reach the servers as everybody does.
pub(super) async fn roll(servers: &mut Servers, to: Release, through: kube::Config, teller: Teller) {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    let connect = move || kube::Client::try_from(through.clone()).ok();
    // Ends when it is dropped, whatever ends this.
    let mut probe = JoinSet::new();
    probe.spawn(probe::run(connect, servers.len(), Arc::clone(&seen)));
    let n_proxied = servers.n_rerouted();
    let mut rollout = Rollout { n_proxied, servers, teller: &teller, seen: &seen, last: Look::default() };
    let ended = rollout.steps(to).await;
    let n_proxied = rollout.n_proxied();
    drop(probe);
    let seen = seen.lock().clone();
    let told = format!("{n_proxied} requests were proxied; the probe client saw {}", seen.in_words());
    match ended {
        Ok(()) if seen.errors.is_empty() => teller.end(format!("rolled to {to}; {told}"), Exit::Ok),
        Ok(()) => teller.end(format!("rolled to {to}, but {told}"), Exit::Failed),
        Err(failure) => teller.end(format!("{failure}; {told}"), failure.exit),
    }
}

struct Rollout<'a> {
    servers: &'a mut Servers,
    teller: &'a Teller,
    seen: &'a Mutex<Seen>,
    last: Look,
    /// How many requests had been proxied before.
    n_proxied: u64,
}

impl Rollout<'_> {
    async fn steps(&mut self, to: Release) -> Result<(), Failure> {
        self.check(to).await?;
        // What is there already is no news.
        self.last = self.look().await?;
        self.probed().await?;
        self.tell_what_is_known();
        for at in 0..self.servers.len() {
            let (name, before) = (self.servers.name(at), self.servers.release(at));
            if before == to && self.servers.runs(at) {
                self.teller.say(format!("{name} is at {to} already"));
                continue;
            }
            self.teller.say(format!("{name}: {before} -> {to}"));
            let away = self.servers.replace(at, to).await?;
            self.teller.say(format!("{name} is ready as {to} after {} ms", away.as_millis()));
            self.probed().await?;
            let n_proxied = self.n_proxied();
            let told = self.seen.lock().in_words();
            self.teller.say(format!("  {n_proxied} requests proxied; probe: {told}"));
        }
        self.settle().await?;
        self.probed().await
    }

    /// What fails before anything is rolled does not count as an error of the rollout.
    fn tell_what_is_known(&self) {
        let mut seen = self.seen.lock();
        seen.know();
        for wrong in &seen.known {
            self.teller.say(format!("  fails already: {}: {}", wrong.path, wrong.what));
        }
    }

    /// Refuses a release that could not read what is stored.
    async fn check(&self, to: Release) -> Result<(), Failure> {
        let Some(server) = self.servers.any() else { return Err(Failure::failed("no server runs")) };
        // As `convoy check --to` has it: what cannot be read cannot be told.
        let unknown = |it: Failure| Failure { exit: Exit::Unknown, ..it };
        let found = check::to(to, &self.census().await.map_err(unknown)?, &server.status())?;
        if !found.is_safe {
            return Err(Failure::unsafe_to(format!("not safe: {}", found.reasons.join("; "))));
        }
        self.teller.say(found.reasons.join("; "));
        Ok(())
    }

    /// Waits until the probe has used everything since now.
    async fn probed(&mut self) -> Result<(), Failure> {
        let since = self.seen.lock().begun;
        let begin = self.elapsed();
        while self.seen.lock().complete <= since {
            if self.elapsed().saturating_sub(begin) > PROBE_WITHIN {
                let why = format!("the probe could not use everything within {PROBE_WITHIN:?}");
                return Err(Failure::unsafe_to(why));
            }
            tokio::time::sleep(LOOK).await;
            // Who cannot be asked now is asked again.
            let _ = self.tell().await;
        }
        Ok(())
    }

    /// Waits until everything is agreed on and migrated.
    async fn settle(&mut self) -> Result<(), Failure> {
        let begin = self.elapsed();
        loop {
            let told = self.tell().await;
            let took = self.elapsed().saturating_sub(begin);
            if told.is_ok() && self.last.is_settled() {
                let took = took.as_millis();
                self.teller.say(format!("all resources are agreed on and migrated after {took} ms"));
                return Ok(());
            }
            if took > SETTLE_WITHIN {
                told?;
                let what = self.last.unsettled();
                return Err(Failure::unsafe_to(format!("after {SETTLE_WITHIN:?}: {what}")));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Says what has changed since the last time.
    async fn tell(&mut self) -> Result<(), Failure> {
        let look = self.look().await?;
        for line in look.news(&self.last) {
            self.teller.say(format!("  {line}"));
        }
        self.last = look;
        Ok(())
    }

    async fn look(&self) -> Result<Look, Failure> {
        let Some(server) = self.servers.any() else { return Err(Failure::failed("no server runs")) };
        let migrations = ask(&server.client(), "GET", MIGRATIONS, Vec::new()).await?;
        let migrations: Value = serde_json::from_str(&migrations).map_err(|it| Failure::because(&it))?;
        Ok(Look::of(&server.status(), &migrations, &self.census().await?, &self.servers.names()))
    }

    async fn census(&self) -> Result<CensusView, Failure> {
        let Some(server) = self.servers.any() else { return Err(Failure::failed("no server runs")) };
        let text = ask(&server.client(), "GET", "/convoy/census", Vec::new()).await?;
        serde_json::from_str(&text).map_err(|it| Failure::because(&it))
    }

    fn n_proxied(&self) -> u64 {
        self.servers.n_rerouted().saturating_sub(self.n_proxied)
    }

    fn elapsed(&self) -> Duration {
        self.servers.clock().monotonic()
    }
}
