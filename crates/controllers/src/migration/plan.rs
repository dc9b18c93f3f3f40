//! What to do next about a migration. No clock, no I/O.

use super::engine::Agreement;
use super::state::{Phase, Run};

/// The reason of a migration that somebody cancelled.
pub(crate) const CANCELLED: &str = "Cancelled";

/// What people want of a migration beside its spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) is_paused: bool,
    pub(super) is_cancelled: bool,
    /// Objects per second; `None` for the default, 0 for no limit.
    pub(super) rate: Option<u64>,
    pub(super) namespaces: Vec<String>,
    pub(super) selector: String,
    pub(super) is_dry_run: bool,
    /// Evidence that is good enough for a prune, though it is not the best.
    pub(super) accepted: Vec<String>,
}

impl Wishes {
    /// Whether it is about every object, so that its result says something about versions.
    pub(super) fn is_whole(&self) -> bool {
        self.namespaces.is_empty() && self.selector.is_empty() && !self.is_dry_run
    }
}

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) run: &'a Run,
    pub(super) wishes: &'a Wishes,
    /// Somebody has deleted it.
    pub(super) is_deleting: bool,
    /// It holds the definition, or its finalizer.
    pub(super) holds: bool,
    /// An older one of the same resource that has not ended.
    pub(super) ahead: Option<&'a str>,
    pub(super) agreement: &'a Agreement,
    /// It was made so long ago that its resource will not come any more.
    pub(super) is_old: bool,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing, ever.
    Rest,
    /// Let go of everything.
    Unwind,
    /// Nothing now, for this reason.
    Wait {
        reason: &'static str,
        message: String,
    },
    /// Note the agreement and begin.
    Begin {
        version: String,
        epoch: i64,
    },
    Freeze,
    /// Look at the objects from the first one on.
    Start,
    Rewrite,
    Verify,
    Prune,
    End {
        phase: Phase,
        reason: &'static str,
        message: String,
    },
}

pub(super) fn plan(facts: Facts<'_>) -> Step {
    let Facts { run, wishes, .. } = facts;
    if facts.is_deleting || run.phase.is_end() {
        return if facts.holds { Step::Unwind } else { Step::Rest };
    }
    if wishes.is_cancelled {
        return end(Phase::Aborted, CANCELLED, "somebody cancelled it");
    }
    if wishes.is_paused {
        return wait("Paused", "somebody paused it with the annotation convoy.dev/paused");
    }
    if let Some(name) = facts.ahead {
        return wait("Queued", &format!("{name}, which is older and about the same resource, goes first"));
    }
    match facts.agreement {
        Agreement::Absent if run.phase.has_begun() => {
            end(Phase::Failed, "ResourceGone", "the resource was removed on the way, and its objects with it")
        }
        Agreement::Absent if facts.is_old => {
            end(Phase::Failed, "ResourceNotFound", "resource does not exist in discovery")
        }
        Agreement::Absent => wait("ResourceNotFound", "resource does not exist in discovery yet"),
        Agreement::Open(why) if run.phase.has_begun() => end(Phase::Aborted, "AgreementEnded", why),
        Agreement::Open(why) | Agreement::Following(why) => wait("NotAgreed", why),
        Agreement::Agreed { version, epoch } => agreed(run, version, *epoch),
    }
}

/// The next step while all servers write `version`.
fn agreed(run: &Run, version: &str, epoch: i64) -> Step {
    let is_same = run.storage_version == version && run.epoch == epoch;
    match run.phase {
        // Another agreement than the one it began under: whatever was found out is worth nothing.
        Phase::Pending => Step::Begin { version: version.to_owned(), epoch },
        _ if !is_same => Step::Begin { version: version.to_owned(), epoch },
        Phase::Checking => Step::Freeze,
        Phase::Frozen => Step::Start,
        Phase::Running => Step::Rewrite,
        Phase::Verifying => Step::Verify,
        Phase::Pruning => Step::Prune,
        Phase::Succeeded | Phase::Failed | Phase::Aborted => Step::Rest,
    }
}

fn wait(reason: &'static str, message: &str) -> Step {
    Step::Wait { reason, message: message.to_owned() }
}

fn end(phase: Phase, reason: &'static str, message: &str) -> Step {
    Step::End { phase, reason, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Option<&str> = None;

    fn agreed_on(version: &str, epoch: i64) -> Agreement {
        Agreement::Agreed { version: version.to_owned(), epoch }
    }

    fn run(phase: Phase) -> Run {
        Run { phase, storage_version: "example.com/v1".to_owned(), epoch: 7, ..Run::default() }
    }

    fn next(run: &Run, wishes: &Wishes, agreement: &Agreement) -> Step {
        let is_old = false;
        plan(Facts { run, wishes, is_deleting: false, holds: true, ahead: AHEAD, agreement, is_old })
    }

    #[test]
    fn phases_follow_each_other_under_one_agreement() {
        let table = [
            (Phase::Checking, Step::Freeze),
            (Phase::Frozen, Step::Start),
            (Phase::Running, Step::Rewrite),
            (Phase::Verifying, Step::Verify),
            (Phase::Pruning, Step::Prune),
            (Phase::Succeeded, Step::Unwind),
            (Phase::Failed, Step::Unwind),
            (Phase::Aborted, Step::Unwind),
        ];
        for (phase, expect) in table {
            let step = next(&run(phase), &Wishes::default(), &agreed_on("example.com/v1", 7));
            assert_eq!(step, expect, "{phase:?}");
        }
    }

    /// B24, B26, B27; T7, T8: whatever was found out under one agreement says nothing under another.
    #[test]
    fn another_agreement_begins_anew_and_none_aborts() {
        for phase in [Phase::Frozen, Phase::Running, Phase::Verifying, Phase::Pruning] {
            for (version, epoch) in [("example.com/v2", 8), ("example.com/v1", 9)] {
                let step = next(&run(phase), &Wishes::default(), &agreed_on(version, epoch));
                assert_eq!(step, Step::Begin { version: version.to_owned(), epoch }, "{phase:?}");
            }
            let open = Agreement::Open("a writes v1, b writes v2".to_owned());
            let step = next(&run(phase), &Wishes::default(), &open);
            assert!(matches!(step, Step::End { phase: Phase::Aborted, .. }), "{phase:?}: {step:?}");
            let step = next(&run(phase), &Wishes::default(), &Agreement::Absent);
            assert!(matches!(step, Step::End { phase: Phase::Failed, .. }), "{phase:?}: {step:?}");
        }
        for phase in [Phase::Pending, Phase::Checking] {
            let open = Agreement::Open("not yet".to_owned());
            let step = next(&run(phase), &Wishes::default(), &open);
            assert_eq!(step, wait("NotAgreed", "not yet"), "{phase:?}");
        }
    }

    /// A flip that somebody forces is seen in the definition before every server writes by it.
    #[test]
    fn servers_that_follow_a_definition_are_waited_for() {
        for phase in [Phase::Pending, Phase::Checking, Phase::Frozen, Phase::Running, Phase::Verifying] {
            let following = Agreement::Following("a moment".to_owned());
            let step = next(&run(phase), &Wishes::default(), &following);
            assert_eq!(step, wait("NotAgreed", "a moment"), "{phase:?}");
        }
    }

    #[test]
    fn people_are_obeyed_at_once() {
        let (agreement, running) = (agreed_on("example.com/v1", 7), run(Phase::Running));
        let paused = Wishes { is_paused: true, ..Wishes::default() };
        assert!(matches!(next(&running, &paused, &agreement), Step::Wait { reason: "Paused", .. }));
        let cancelled = Wishes { is_cancelled: true, ..paused };
        assert!(matches!(next(&running, &cancelled, &agreement), Step::End { phase: Phase::Aborted, .. }));
        let facts = Facts {
            run: &running,
            wishes: &cancelled,
            is_deleting: true,
            holds: true,
            ahead: Some("other"),
            agreement: &agreement,
            is_old: false,
        };
        assert_eq!(plan(facts), Step::Unwind);
        assert_eq!(plan(Facts { holds: false, ..facts }), Step::Rest);
        let waiting = plan(Facts { is_deleting: false, wishes: &Wishes::default(), ..facts });
        assert!(matches!(waiting, Step::Wait { reason: "Queued", .. }));
    }

    /// LAB 3: a resource that is not there ends with a reason, after a minute's grace.
    #[test]
    fn what_does_not_come_is_given_up() {
        let pending = run(Phase::Pending);
        let facts = Facts {
            run: &pending,
            wishes: &Wishes::default(),
            is_deleting: false,
            holds: false,
            ahead: None,
            agreement: &Agreement::Absent,
            is_old: false,
        };
        assert!(matches!(plan(facts), Step::Wait { .. }));
        assert!(matches!(plan(Facts { is_old: true, ..facts }), Step::End { phase: Phase::Failed, .. }));
    }
}
