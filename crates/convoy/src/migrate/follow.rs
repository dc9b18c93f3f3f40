//! Shows how far a migration is, until it ends.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use controllers::migration::{Phase, Run};
use http::Request;
use serde_json::Value;

use super::MIGRATIONS;
use crate::{
    failure::{Exit, Failure},
    output::thousands,
};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// After so many looks at one that nobody takes up, it is said what may be missing.
const PATIENCE: usize = 60;

/// How the migration ended, and the whole of it.
pub(super) async fn follow(
    client: &kube::Client,
    resource: &str,
    name: &str,
) -> Result<(Run, Value), Failure> {
    let is_live = io::stderr().is_terminal();
    let mut last = String::new();
    let mut n_looks = 0;
    loop {
        let object = match look(client, name).await? {
            Ok(object) => object,
            Err(why) => {
                wipe(is_live);
                if why != last {
                    let _ = writeln!(io::stderr().lock(), "{why}");
                }
                last = why;
                tokio::time::sleep(LOOK).await;
                continue;
            }
        };
        let run = Run::of(&object);
        if run.phase.is_end() {
            wipe(is_live);
            return Ok((run, object));
        }
        let now = line(resource, &run, &object);
        if is_live {
            let _ = write!(io::stderr().lock(), "\r\x1b[2K{now}");
        } else if now != last {
            let _ = writeln!(io::stderr().lock(), "{now}");
        }
        last = now;
        if n_looks == PATIENCE && run.phase == Phase::Pending && run.reason.is_empty() {
            wipe(is_live);
            let _ = writeln!(
                io::stderr().lock(),
                "nobody has taken it up yet: run `convoy controllers` beside the cluster, or add --local"
            );
        }
        n_looks += 1;
        tokio::time::sleep(LOOK).await;
    }
}

/// The migration; or why the server does not show it for now, which is no reason to leave it alone.
async fn look(client: &kube::Client, name: &str) -> Result<Result<Value, String>, Failure> {
    let request = Request::get(format!("{MIGRATIONS}/{name}")).body(Vec::new());
    let request = request.map_err(|it| Failure::because(&it))?;
    match client.request(request).await {
        Ok(object) => Ok(Ok(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(Failure::failed(format!("the migration {name} was deleted before it ended")))
        }
        Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
            Err(Failure::failed(status.message.clone()))
        }
        Err(error) => Ok(Err(format!("{name}: waits for the API server: {error}"))),
    }
}

fn wipe(is_live: bool) {
    if is_live {
        let _ = write!(io::stderr().lock(), "\r\x1b[2K");
    }
}

/// What the command says about that to whoever called it.
pub(super) fn exit(phase: Phase) -> Exit {
    match phase {
        Phase::Succeeded => Exit::Ok,
        Phase::Aborted => Exit::Unsafe,
        _ => Exit::Failed,
    }
}

/// The last word about it.
pub(super) fn ending(run: &Run) -> String {
    let mut text = format!("{}: {}", run.phase.name(), run.message);
    if let Some(proof) = &run.evidence {
        text += &format!(" (evidence: {} of {} objects)", proof.kind, thousands(proof.objects));
    }
    for failed in &run.failures {
        text += &format!("\n  {} {}: {}", thousands(failed.count), failed.class, failed.objects.join(", "));
    }
    text
}

/// `widgets.example.com: Running [#####     ] 52 % 6,502 of 12,431, 2,000/s, 3 s left`
fn line(resource: &str, run: &Run, object: &Value) -> String {
    let phase = run.phase.name();
    let progress = &run.progress;
    if !matches!(run.phase, Phase::Running | Phase::Verifying) {
        let why = if run.message.is_empty() { "waits to be taken up" } else { &run.message };
        return format!("{resource}: {phase}: {why}");
    }
    let done = progress.total.saturating_sub(progress.remaining);
    let bar = usize::try_from(progress.percent / 5).unwrap_or_default().min(20);
    let mut text = format!(
        "{resource}: {phase} [{}{}] {} % {} of {}, {}/s",
        "#".repeat(bar),
        " ".repeat(20 - bar),
        progress.percent,
        thousands(done),
        thousands(progress.total),
        thousands(progress.objects_per_second)
    );
    let left = progress.remaining.checked_div(progress.objects_per_second);
    // Without an estimate it is not known how much is left.
    if let Some(seconds) = left.filter(|_| progress.estimated_completion_time.is_some()) {
        text += &format!(", {seconds} s left");
    }
    if progress.failed > 0 {
        text += &format!(", {} failed", thousands(progress.failed));
    }
    if object["metadata"]["annotations"]["convoy.dev/paused"] == "true" {
        text += ", paused";
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_line_says_how_far_it_is() {
        let status = json!({
            "phase": "Running",
            "progress": {"total": 12_431, "remaining": 5_929, "percent": 52, "objectsPerSecond": 2_000,
                "estimatedCompletionTime": "2026-11-16T12:00:00Z"},
        });
        let run: Run = serde_json::from_value(status).unwrap();
        assert_eq!(
            line("widgets.example.com", &run, &json!({})),
            "widgets.example.com: Running [##########          ] 52 % 6,502 of 12,431, 2,000/s, 2 s left"
        );
        let waiting: Run =
            serde_json::from_value(json!({"phase": "Checking", "message": "a writes v1, b writes v2"}))
                .unwrap();
        assert_eq!(line("widgets", &waiting, &json!({})), "widgets: Checking: a writes v1, b writes v2");
    }

    #[test]
    fn an_ending_names_what_failed() {
        let run: Run = serde_json::from_value(json!({
            "phase": "Failed", "message": "1 Denied (first a/b: no)",
            "failures": [{"class": "Denied", "count": 1, "message": "no", "objects": ["a/b"]}],
        }))
        .unwrap();
        assert_eq!(ending(&run), "Failed: 1 Denied (first a/b: no)\n  1 Denied: a/b");
        assert_eq!((exit(Phase::Failed), exit(Phase::Aborted)), (Exit::Failed, Exit::Unsafe));
    }
}
