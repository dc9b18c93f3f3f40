//! Rolls the servers of `convoy up` to another release, one by one, and tells how it goes.

use std::{sync::Arc, time::Duration};

use meta::Release;
use parking_lot::Mutex;
use serde_json::Value;
use server::census::CensusView;
use tokio::sync::mpsc::UnboundedSender;

use super::{
    control::Line,
    probe::{self, Seen},
    ships::Ships,
};
use crate::{
    check,
    cluster::ask,
    failure::{Exit, Failure},
};

/// How long it may take until everything is agreed on and migrated after the last server.
const SETTLE_WITHIN: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(500);

/// Tells whoever asked; they may have gone.
pub(super) struct Teller(pub(super) UnboundedSender<Line>);

impl Teller {
    fn say(&self, text: impl Into<String>) {
        let _ = self.0.send(Line { text: text.into(), exit: None });
    }

    fn end(&self, text: impl Into<String>, exit: Exit) {
        let code = match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Unsafe => 3,
            Exit::Unknown => 4,
        };
        let _ = self.0.send(Line { text: text.into(), exit: Some(code) });
    }
}

/// Rolls, and says how it ended. `through` reaches the servers as clients do.
pub(super) async fn roll(ships: &mut Ships, to: Release, through: kube::Client, teller: &Teller) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let probe = tokio::spawn(probe::run(through, Arc::clone(&seen)));
    let ended = steps(ships, to, teller, &seen).await;
    probe.abort();
    let seen = seen.lock().clone();
    let told = format!("the probe client saw {}", seen.in_words());
    match ended {
        Ok(()) if seen.errors.is_empty() => teller.end(format!("rolled to {to}; {told}"), Exit::Ok),
        Ok(()) => teller.end(format!("rolled to {to}, but {told}"), Exit::Failed),
        Err(failure) => teller.end(format!("{failure}; {told}"), failure.exit),
    }
}

async fn steps(ships: &mut Ships, to: Release, teller: &Teller, seen: &Mutex<Seen>) -> Result<(), Failure> {
    check(ships, to, teller).await?;
    for at in 0..ships.len() {
        let (name, before) = (ships.name(at), ships.release(at));
        if before == to {
            teller.say(format!("{name} is at {to} already"));
            continue;
        }
        teller.say(format!("{name}: {before} -> {to}"));
        let away = ships.replace(at, to).await?;
        teller.say(format!("{name} is ready as {to} after {} ms", away.as_millis()));
        let held = held_back(ships);
        if !held.is_empty() {
            let more = held.len().saturating_sub(5);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            teller.say(format!(
                "  not all write the same, or what the newest prefers: {}{more}",
                held[..held.len().min(5)].join(", ")
            ));
        }
        teller.say(format!("  probe: {}", seen.lock().in_words()));
    }
    settle(ships, teller).await
}

/// Refuses a release that could not read what is stored.
async fn check(ships: &Ships, to: Release, teller: &Teller) -> Result<(), Failure> {
    let Some(server) = ships.any() else { return Err(Failure::failed("no server runs")) };
    let text = ask(&server.client(), "GET", "/convoy/census", Vec::new()).await?;
    let census: CensusView = serde_json::from_str(&text).map_err(|it| Failure::because(&it))?;
    let found = check::to(to, &census, &server.status())?;
    if !found.is_safe {
        return Err(Failure::unsafe_to(format!("not safe: {}", found.reasons.join("; "))));
    }
    teller.say(found.reasons.join("; "));
    Ok(())
}

/// Resources that are not written as every server would like to.
fn held_back(ships: &Ships) -> Vec<String> {
    let Some(server) = ships.any() else { return Vec::new() };
    let status = server.status();
    let is_held = |it: &&station::view::ResourceView| {
        // What nobody serves any more is nobody's to agree on.
        let mut wishes = it.servers.iter().map(|it| &it.preferred_version);
        !it.servers.is_empty()
            && (it.common_encoding_version.is_none()
                || wishes.any(|wish| Some(wish) != it.selected_version.as_ref()))
    };
    status.resources.iter().filter(is_held).map(|it| it.resource.clone()).collect()
}

/// Waits until everything is agreed on and migrated.
async fn settle(ships: &Ships, teller: &Teller) -> Result<(), Failure> {
    let begin = ships.clock().monotonic();
    let elapsed = || ships.clock().monotonic().saturating_sub(begin);
    let mut last = String::new();
    loop {
        let held = held_back(ships);
        let migrating = migrating(ships).await;
        if held.is_empty() && migrating.is_empty() {
            teller
                .say(format!("all resources are agreed on and migrated after {} ms", elapsed().as_millis()));
            return Ok(());
        }
        let now = format!(
            "{} resources are not agreed on, {} are migrated: {}",
            held.len(),
            migrating.len(),
            migrating.join(", ")
        );
        if now != last {
            teller.say(format!("  {now}"));
            last = now;
        }
        if elapsed() > SETTLE_WITHIN {
            return Err(Failure::unsafe_to(format!("after {SETTLE_WITHIN:?}: {last}")));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The resources whose objects are being migrated.
async fn migrating(ships: &Ships) -> Vec<String> {
    let Some(server) = ships.any() else { return Vec::new() };
    let path = "/apis/migration.k8s.io/v1alpha1/storageversionmigrations";
    let Ok(text) = ask(&server.client(), "GET", path, Vec::new()).await else { return Vec::new() };
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    let is_open =
        |it: &&Value| !matches!(it["status"]["phase"].as_str(), Some("Succeeded" | "Failed" | "Aborted"));
    let open = list["items"].as_array().into_iter().flatten().filter(is_open);
    open.filter_map(|it| it["spec"]["resource"]["resource"].as_str().map(str::to_owned)).collect()
}
