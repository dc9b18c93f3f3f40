//! What a deletion means for dependents: the two finalizers that the garbage collector acts on.
//!
//! Deliberately not here: finding and deleting dependents; that is the garbage collector's.

use meta::{Value, object};

use super::DeleteOptions;
use crate::Target;

/// The garbage collector first takes the dependents' references to this object away.
const ORPHAN: &str = "orphan";
/// The garbage collector first deletes the dependents.
const FOREGROUND: &str = "foregroundDeletion";

/// What older clients need to be told when they delete a Job.
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
     remove them or set propagationPolicy=Orphan to suppress this warning";

/// What happens to dependents where nobody says anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Delete,
    Orphan,
    /// Objects of the kind never own anything, whatever is asked.
    Unsupported,
}

impl Habit {
    fn of(target: &Target) -> Self {
        let resource = &target.kind.resource;
        match (&*resource.group, target.group_version.version.as_str(), &*resource.resource) {
            ("" | "events.k8s.io", _, "events") => Self::Unsupported,
            // For clients that are older than the garbage collector.
            ("", "v1", "replicationcontrollers")
            | ("batch", "v1", "jobs")
            | ("batch", "v1beta1", "cronjobs") => Self::Orphan,
            _ => Self::Delete,
        }
    }
}

/// The finalizers of the object once it is deleted like this. Options count most, then what the object has already,
/// then the habits of the kind.
pub(super) fn finalizers(target: &Target, options: &DeleteOptions, old: &Value) -> Vec<String> {
    let present = object::finalizers(old);
    let wanted = wanted(Habit::of(target), options, &present);
    let others = present.iter().filter(|it| !matches!(**it, ORPHAN | FOREGROUND));
    others.copied().chain(wanted).map(str::to_owned).collect()
}

/// What a client should know that says nothing about dependents.
pub(super) fn warning(target: &Target, options: &DeleteOptions) -> Option<&'static str> {
    let is_silent = options.propagation_policy.is_none() && options.orphan_dependents.is_none();
    let is_job = &*target.kind.resource.resource == "jobs" && Habit::of(target) == Habit::Orphan;
    (is_silent && is_job).then_some(JOB_WARNING)
}

fn wanted(habit: Habit, options: &DeleteOptions, present: &[&str]) -> Option<&'static str> {
    if habit == Habit::Unsupported {
        return None;
    }
    if let Some(is_orphaned) = options.orphan_dependents {
        return is_orphaned.then_some(ORPHAN);
    }
    match options.propagation_policy.as_deref() {
        Some("Orphan") => return Some(ORPHAN),
        Some("Foreground") => return Some(FOREGROUND),
        Some(_) => return None,
        None => {}
    }
    let known = present.iter().find_map(|it| match *it {
        ORPHAN => Some(ORPHAN),
        FOREGROUND => Some(FOREGROUND),
        _ => None,
    });
    known.or((habit == Habit::Orphan).then_some(ORPHAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_count_more_than_finalizers_and_those_more_than_habits() {
        let check = |habit, policy: Option<&str>, orphan, present: &[&str], expect: Option<&str>| {
            let options = DeleteOptions {
                propagation_policy: policy.map(str::to_owned),
                orphan_dependents: orphan,
                ..DeleteOptions::default()
            };
            assert_eq!(wanted(habit, &options, present), expect, "{habit:?} {options:?} {present:?}");
        };
        check(Habit::Delete, None, None, &[], None);
        check(Habit::Delete, Some("Background"), None, &[], None);
        check(Habit::Delete, Some("Foreground"), None, &[], Some(FOREGROUND));
        check(Habit::Delete, Some("Orphan"), None, &[], Some(ORPHAN));
        check(Habit::Delete, None, Some(true), &[], Some(ORPHAN));
        check(Habit::Delete, None, Some(false), &[], None);
        check(Habit::Delete, None, None, &["x", ORPHAN], Some(ORPHAN));
        check(Habit::Delete, None, None, &[FOREGROUND], Some(FOREGROUND));
        check(Habit::Delete, Some("Background"), None, &[FOREGROUND, ORPHAN], None);
        check(Habit::Delete, Some("Orphan"), None, &[FOREGROUND], Some(ORPHAN));
        check(Habit::Orphan, None, None, &[], Some(ORPHAN));
        check(Habit::Orphan, None, None, &[FOREGROUND], Some(FOREGROUND));
        check(Habit::Orphan, Some("Background"), None, &[], None);
        check(Habit::Orphan, None, Some(false), &[], None);
        check(Habit::Unsupported, Some("Foreground"), None, &[], None);
    }
}
