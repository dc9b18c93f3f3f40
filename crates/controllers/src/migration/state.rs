//! How far a migration is, as it stands in its status. What is not in the status is not remembered: another process can
//! go on from it.

use jiff::Timestamp;
use meta::{Value, time};
use serde::{Deserialize, Serialize};

use super::engine::{Evidence, Failure};

/// Objects that are named for each class of failures.
const MAX_NAMED: usize = 20;

/// The steps of a migration, in order. The last three are ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Nobody has looked at it yet, or it waits for its turn.
    #[default]
    Pending,
    /// Do all servers agree, and can it work?
    Checking,
    /// The storage version of the definition cannot change any more.
    Frozen,
    /// Objects are rewritten.
    Running,
    /// All are looked at again.
    Verifying,
    /// Versions in which nothing is stored any more leave `status.storedVersions`.
    Pruning,
    /// Proven.
    Succeeded,
    /// Something must be done about what the status names.
    Failed,
    /// Agreement ended on the way, or somebody cancelled it.
    Aborted,
}

impl Phase {
    /// Whether it will not change any more.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Aborted)
    }

    /// Whether something was done already that depends on the agreement.
    pub(crate) fn has_begun(self) -> bool {
        matches!(self, Self::Frozen | Self::Running | Self::Verifying | Self::Pruning)
    }

    /// As it is written in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Checking => "Checking",
            Self::Frozen => "Frozen",
            Self::Running => "Running",
            Self::Verifying => "Verifying",
            Self::Pruning => "Pruning",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Aborted => "Aborted",
        }
    }
}

/// The status of a migration, but for its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Run {
    /// Which step it is at.
    pub phase: Phase,
    /// Why it waits or ended, in one word.
    pub reason: String,
    /// The same in a sentence.
    pub message: String,
    /// What rewrites the objects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub engine: String,
    /// What they are to be stored in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub storage_version: String,
    /// The agreement under which that is true.
    pub epoch: i64,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// When this was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// How many objects.
    pub progress: Progress,
    /// What went wrong, by class.
    pub failures: Vec<Failed>,
    /// How the result is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Proof>,
    /// What left `status.storedVersions`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pruned_versions: Vec<String>,
}

/// Counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// All objects, as far as that is known.
    pub total: u64,
    /// Rewritten.
    pub migrated: u64,
    /// Found to be stored as wanted, in this pass.
    pub unchanged: u64,
    /// Could not be rewritten, in this pass.
    pub failed: u64,
    /// Not looked at yet, in this pass.
    pub remaining: u64,
    /// How fast it goes.
    pub objects_per_second: u64,
    /// Of this pass.
    pub percent: u32,
    /// Every object is looked at once in each.
    pub pass: u32,
    /// Where to go on.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub position: String,
    /// When this pass will end if it goes on like this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_completion_time: Option<String>,
}

/// Failures of one class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Failed {
    /// What kind of trouble it is.
    pub class: String,
    /// How many objects.
    pub count: u64,
    /// What was said about the first of them.
    pub message: String,
    /// The first of them.
    pub objects: Vec<String>,
}

/// How the result is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Proof {
    /// See [`Evidence`].
    pub kind: String,
    /// When the last object was looked at.
    pub time: String,
    /// How many were.
    pub objects: u64,
    /// In words.
    pub message: String,
}

/// What is said of evidence about some objects only.
pub(crate) const PARTIAL: &str = "only some objects were looked at";
/// The reason of one that counted and wrote nothing.
pub(crate) const DRY_RUN: &str = "DryRun";

impl Run {
    /// The status of a migration. Where nothing but conditions is kept, or somebody else did it, these say how it ended.
    pub fn of(migration: &Value) -> Self {
        let status = migration.get("status").cloned().unwrap_or_default();
        let conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut run: Self = serde_json::from_value(status).unwrap_or_default();
        for phase in [Phase::Succeeded, Phase::Failed, Phase::Aborted] {
            let is_true = |it: &&Value| it["type"] == phase.name() && it["status"] == "True";
            let Some(condition) = conditions.iter().find(is_true) else { continue };
            if run.phase != phase {
                let text = |field: &str| condition[field].as_str().unwrap_or_default();
                run.say(text("reason"), text("message"));
            }
            run.phase = phase;
        }
        run
    }

    /// Whether it was about some objects only, or wrote nothing, whatever the migration asks for by now.
    pub(crate) fn is_partial(&self) -> bool {
        self.reason == DRY_RUN || self.evidence.as_ref().is_some_and(|it| it.message == PARTIAL)
    }

    /// Another step, for a reason that people read.
    pub(crate) fn enter(&mut self, phase: Phase, reason: &str, message: &str) {
        self.phase = phase;
        self.say(reason, message);
        self.progress.position.clear();
    }

    pub(crate) fn say(&mut self, reason: &str, message: &str) {
        reason.clone_into(&mut self.reason);
        message.clone_into(&mut self.message);
    }

    /// Begins to look at all objects from the first one on.
    pub(crate) fn begin_pass(&mut self) {
        let Progress { migrated, pass, total, .. } = self.progress;
        self.progress = Progress { migrated, total, remaining: total, pass: pass + 1, ..Progress::default() };
        self.failures.clear();
    }

    pub(crate) fn note_failures(&mut self, failures: Vec<Failure>) {
        for Failure { class, object, message } in failures {
            self.progress.failed += 1;
            let name = class.name();
            let at = self.failures.iter().position(|it| it.class == name).unwrap_or_else(|| {
                self.failures.push(Failed { class: name.to_owned(), message, ..Failed::default() });
                self.failures.len() - 1
            });
            let known = &mut self.failures[at];
            known.count += 1;
            if known.objects.len() < MAX_NAMED {
                known.objects.push(object);
            }
        }
    }

    pub(crate) fn note_proof(&mut self, evidence: Evidence, objects: u64, message: &str, now: Timestamp) {
        // What is less than wanted at one step is so for the whole.
        let before = self.evidence.take().unwrap_or_default();
        let message = if before.message.is_empty() { message.to_owned() } else { before.message };
        self.evidence = Some(Proof {
            kind: evidence.name().to_owned(),
            time: time::format_time(now),
            objects: before.objects + objects,
            message,
        });
    }

    /// What went wrong, in a sentence.
    pub(crate) fn failures_in_words(&self) -> String {
        let each = self.failures.iter().map(|it| {
            let first = it.objects.first().map_or("", String::as_str);
            format!("{} {} (first {first}: {})", it.count, it.class, it.message)
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

impl Progress {
    /// Takes in what a step saw, and how many are said to be behind it.
    pub(crate) fn note(&mut self, migrated: u64, unchanged: u64, failed: u64, remaining: Option<u64>) {
        let looked = self.total.saturating_sub(self.remaining) + migrated + unchanged + failed;
        self.migrated += migrated;
        self.unchanged += unchanged;
        self.total = remaining.map_or(self.total.max(looked), |it| looked + it);
        self.remaining = self.total - looked;
        self.percent = percent(looked, self.total);
    }

    /// It is not known how much is left.
    pub(crate) fn forget_rest(&mut self) {
        (self.percent, self.estimated_completion_time) = (0, None);
    }

    /// All objects are to be looked at again.
    pub(crate) fn begin_look(&mut self) {
        self.remaining = self.total;
        (self.percent, self.objects_per_second, self.estimated_completion_time) = (0, 0, None);
    }

    /// So many have been.
    pub(crate) fn note_look(&mut self, objects: u64) {
        self.total = self.total.max(objects);
        self.remaining = self.total - objects;
        self.percent = percent(objects, self.total);
    }

    /// There are no more; some may have been deleted since they were counted.
    pub(crate) fn end_look(&mut self) {
        (self.remaining, self.percent, self.estimated_completion_time) = (0, 100, None);
    }

    /// How fast it goes and when it will end, after so many objects in so many milliseconds.
    pub(crate) fn estimate(&mut self, objects: u64, millis: u64, now: Timestamp) {
        self.objects_per_second = objects.saturating_mul(1_000) / millis.max(1);
        let seconds = self.remaining.saturating_mul(millis) / objects.max(1) / 1_000;
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let end = now.checked_add(jiff::SignedDuration::from_secs(seconds)).ok();
        self.estimated_completion_time = end.filter(|_| objects > 0).map(time::format_time);
    }
}

fn percent(part: u64, whole: u64) -> u32 {
    u32::try_from(part.saturating_mul(100).checked_div(whole).unwrap_or(100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::engine::Class;

    #[test]
    fn counts_add_up_and_the_end_is_estimated() {
        let mut run = Run::default();
        run.begin_pass();
        run.progress.note(50, 0, 0, Some(950));
        let Progress { total, remaining, percent, .. } = run.progress;
        assert_eq!((total, remaining, percent), (1_000, 950, 5));
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        run.progress.estimate(50, 100, now);
        assert_eq!(run.progress.objects_per_second, 500);
        assert_eq!(run.progress.estimated_completion_time.as_deref(), Some("2026-11-16T12:00:01Z"));
        // Others were made meanwhile.
        run.progress.note(900, 48, 2, Some(10));
        let Progress { total, remaining, migrated, unchanged, .. } = run.progress;
        assert_eq!((total, remaining, migrated, unchanged), (1_010, 10, 950, 48));
        run.progress.note(0, 10, 0, None);
        assert_eq!((run.progress.remaining, run.progress.percent), (0, 100));
        run.begin_pass();
        assert_eq!((run.progress.migrated, run.progress.unchanged, run.progress.pass), (950, 0, 2));
    }

    #[test]
    fn a_look_at_everything_has_a_progress_of_its_own() {
        let mut progress = Progress::default();
        progress.note(100, 100, 0, Some(0));
        progress.begin_look();
        assert_eq!((progress.remaining, progress.percent), (200, 0));
        progress.note_look(50);
        assert_eq!((progress.remaining, progress.percent), (150, 25));
        progress.estimate(50, 1_000, "2026-11-16T12:00:00Z".parse().unwrap());
        assert_eq!(progress.estimated_completion_time.as_deref(), Some("2026-11-16T12:00:03Z"));
        progress.note_look(210);
        assert_eq!((progress.total, progress.remaining, progress.percent), (210, 0, 100));
        progress.forget_rest();
        assert_eq!((progress.percent, progress.estimated_completion_time), (0, None));
    }

    #[test]
    fn an_empty_resource_is_done() {
        let mut progress = Progress::default();
        progress.note(0, 0, 0, Some(0));
        assert_eq!((progress.total, progress.percent), (0, 100));
        progress.estimate(0, 0, "2026-11-16T12:00:00Z".parse().unwrap());
        assert_eq!(progress.estimated_completion_time, None);
    }

    #[test]
    fn failures_are_counted_by_class_and_named_up_to_a_bound() {
        let mut run = Run::default();
        let failure = |class, n: usize| Failure { class, object: format!("a/{n}"), message: "no".to_owned() };
        run.note_failures((0..50).map(|it| failure(Class::Denied, it)).collect());
        run.note_failures(vec![failure(Class::Invalid, 51)]);
        assert_eq!(run.progress.failed, 51);
        let shown: Vec<_> =
            run.failures.iter().map(|it| (it.class.as_str(), it.count, it.objects.len())).collect();
        assert_eq!(shown, [("Denied", 50, MAX_NAMED), ("Invalid", 1, 1)]);
        assert_eq!(run.failures_in_words(), "50 Denied (first a/0: no); 1 Invalid (first a/51: no)");
    }

    #[test]
    fn a_status_is_read_back_as_it_was_written() {
        let mut run = Run { phase: Phase::Running, epoch: 7, ..Run::default() };
        run.begin_pass();
        run.progress.note(1, 2, 0, Some(3));
        let text = serde_json::to_value(&run).unwrap();
        assert_eq!(text["progress"]["migrated"], 1);
        assert_eq!(serde_json::from_value::<Run>(text).unwrap(), run);
    }
}
