//! Cancels, pauses and resumes migrations.
//!
//! Whoever carries a migration out does what its annotations say. If nobody does, a cancelled one is ended here: a command
//! that was cut off, or a controller that is gone, must not leave a definition frozen.

use std::{sync::Arc, time::Duration};

use controllers::{
    Now,
    migration::{self, Run},
};
use meta::GroupResource;
use serde_json::{Value, json};
use store::SystemClock;

use super::{MIGRATIONS, MigrateFlags, Told, annotation};
use crate::{cluster::request, failure::Failure};

/// Where migrations are, and the group by which their freezes name them.
const PLACES: [(&str, &str); 2] = [
    ("migration.k8s.io", MIGRATIONS),
    ("storagemigration.k8s.io", "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations"),
];
/// Who carries a migration out has so long to hear that it is cancelled.
const HEARING: Duration = Duration::from_millis(700);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// Cancels, pauses or resumes what has not ended.
pub(super) async fn steer(
    flags: &MigrateFlags,
    client: &kube::Client,
    wanted: &[String],
) -> Result<(), Failure> {
    let (change, done) = if flags.cancel {
        (json!({annotation::CANCEL: "true"}), "cancelled")
    } else if flags.pause {
        (json!({annotation::PAUSED: "true"}), "paused")
    } else {
        (json!({annotation::PAUSED: null}), "resumed")
    };
    let mut found = Vec::new();
    for (group, place) in PLACES {
        let Ok(list) = request(client, "GET", place, None).await else { continue };
        for it in list["items"].as_array().into_iter().flatten() {
            let name = it["metadata"]["name"].as_str().unwrap_or_default();
            let resource = resource_of(it).to_string();
            if is_ended(it) || !wanted.iter().any(|it| *it == name || *it == resource) {
                continue;
            }
            let (path, patch) = (format!("{place}/{name}"), json!({"metadata": {"annotations": change}}));
            request(client, "PATCH", &path, Some(&patch)).await?;
            if flags.cancel && !is_heard(client, &path).await? {
                let ended = migration::cancel(client.clone(), now(), &format!("{group}/{name}")).await;
                ended
                    .map_err(|why| Failure::failed(format!("{name} is cancelled, but not let go: {why}")))?;
            }
            flags.tell(&format!("{resource}: migration {name} is {done}\n"));
            found.push(Told { resource, name: name.to_owned(), action: done, status: Value::Null });
        }
    }
    let n_lifted = if flags.cancel { thaw(flags, client, wanted).await? } else { 0 };
    if found.is_empty() && n_lifted == 0 {
        return Err(Failure::failed(format!("no migration of {} is under way", wanted.join(", "))));
    }
    flags.show(&found);
    Ok(())
}

/// Whether the migration has ended or is gone, after a moment.
async fn is_heard(client: &kube::Client, path: &str) -> Result<bool, Failure> {
    let deadline = tokio::time::Instant::now() + HEARING;
    loop {
        match request(client, "GET", path, None).await {
            Err(Failure { exit: crate::failure::Exit::Unknown, .. }) => return Ok(true),
            found => {
                if is_ended(&found?) {
                    return Ok(true);
                }
            }
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Lifts freezes whose migrations are over or gone. How many.
async fn thaw(flags: &MigrateFlags, client: &kube::Client, wanted: &[String]) -> Result<usize, Failure> {
    let mut n_lifted = 0;
    for name in wanted {
        let lifted = migration::thaw(client.clone(), now(), &GroupResource::from(name.as_str())).await;
        if lifted.map_err(|why| Failure::failed(format!("{name} cannot be let go: {why}")))? {
            flags.tell(&format!("{name}: a freeze that was left behind is lifted\n"));
            n_lifted += 1;
        }
    }
    Ok(n_lifted)
}

fn resource_of(migration: &Value) -> GroupResource {
    let of = |field: &str| migration["spec"]["resource"][field].as_str().unwrap_or_default();
    GroupResource::new(of("group"), of("resource"))
}

fn is_ended(migration: &Value) -> bool {
    Run::of(migration).phase.is_end()
}

fn now() -> Now {
    let clock = SystemClock::shared();
    Arc::new(move || clock.now())
}
