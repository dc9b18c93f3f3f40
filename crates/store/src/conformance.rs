//! The suite that every store passes: one function a rule, listed in [`cases`].
//!
//! # Flow
//! An implementation's test calls [`run_all`] with a function that makes a fresh, empty store. Each case
//! runs on its own store, in its own task, under a time limit; a failure names the case.
//!
//! # Assumptions
//! Cases assume nothing about the first revision nor that revisions have no gaps: a store may share its
//! counter with keys it does not show. Cases write below `/conformance/` only.
//!
//! Deliberately not here: random sequences (see [`crate::model`]) and what only one implementation
//! promises, such as surviving a crash.

mod history;
mod leases;
mod support;
mod txns;
mod watches;

use std::{any::Any, future::Future, pin::Pin, sync::Arc, time::Duration};

use crate::{ManualClock, SharedStore};

/// A fresh store to be tested.
pub struct Subject {
    /// The store, empty.
    pub store: SharedStore,
    /// What its leases run on.
    pub time: Time,
    /// Whether a watch reports progress for changes outside its range.
    pub progress: Progress,
    /// Whatever must live as long as the store, such as a temporary directory.
    pub keep: Option<Box<dyn Any + Send + Sync>>,
}

/// How a case lets time pass.
#[derive(Clone, Debug)]
pub enum Time {
    /// The store's clock is moved by hand.
    Manual(Arc<ManualClock>),
    /// The case has to wait.
    Real,
}

/// Whether a watch of a range says how far it is when only other keys change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// At once, with an empty batch. Required of stores in this process.
    Prompt,
    /// Not promised: such stores are watched as a whole.
    Unpromised,
}

/// One rule of the contract.
pub struct Case {
    /// The rule, as a sentence.
    pub name: &'static str,
    run: fn(Subject) -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How long a case may take.
const LIMIT: Duration = Duration::from_secs(60);

macro_rules! cases {
    ($($module:ident: $($case:ident)*;)*) => {
        vec![$($(Case { name: stringify!($case), run: |it| Box::pin($module::$case(it)) },)*)*]
    };
}

/// Every case there is.
pub fn cases() -> Vec<Case> {
    cases! {
        txns:
            a_commit_returns_a_greater_revision_that_its_changes_carry
            a_key_remembers_its_creation_until_it_is_removed
            a_commit_without_effect_returns_the_current_revision
            requirements_that_hold_let_the_changes_happen
            the_first_unmet_requirement_is_named_and_current_values_are_returned
            requirements_alone_are_checked
            an_unmet_transaction_changes_nothing
            a_key_may_not_change_twice_in_one_transaction
            an_empty_key_is_rejected
            many_keys_change_in_one_transaction
            a_value_of_one_mebibyte_is_kept
            empty_values_are_not_removals
            concurrent_increments_lose_no_update
            concurrent_creations_have_one_winner;
        history:
            a_list_is_in_key_order_and_within_its_range
            a_list_shows_the_revision_it_was_asked_for
            pages_say_how_many_entries_follow
            paging_at_one_revision_is_not_disturbed_by_writes
            an_empty_range_lists_nothing
            a_revision_in_the_future_is_refused
            compaction_ends_reads_of_the_past_and_keeps_the_present
            compaction_of_the_future_is_rejected
            compaction_twice_is_fine
            many_keys_are_listed_and_counted
            a_scan_finds_what_a_list_finds
            a_scan_at_one_revision_is_not_disturbed_by_writes
            a_scan_of_a_compacted_revision_is_refused;
        watches:
            a_watch_delivers_what_happens_after_it_started
            a_watch_from_the_past_replays_every_event_once_in_order
            a_watch_sees_only_its_range
            a_revision_is_never_split_over_batches
            a_watch_reports_progress_for_other_keys
            a_watch_from_a_compacted_revision_is_refused
            a_watch_from_the_compaction_revision_works
            a_watch_from_the_future_ends_as_went_back
            many_watches_see_the_same
            a_watch_under_concurrent_writes_skips_nothing;
        leases:
            a_key_goes_when_its_lease_is_revoked
            a_key_goes_when_its_lease_expires
            renewing_keeps_a_lease_alive
            a_missing_lease_cannot_be_renewed_or_revoked
            a_put_on_a_missing_lease_changes_nothing
            a_put_without_a_lease_detaches_the_key
            a_put_on_another_lease_moves_the_key
            a_removed_key_is_not_removed_again_with_its_lease;
    }
}

/// Runs every case on a store of its own.
///
/// # Panics
/// When a case fails, naming it.
pub async fn run_all(make: impl AsyncFn() -> Subject) {
    for case in cases() {
        run(&case, make().await).await;
    }
}

/// Runs one case.
///
/// # Panics
/// When the case fails, naming it.
pub async fn run(case: &Case, subject: Subject) {
    let name = case.name;
    let task = tokio::spawn(tokio::time::timeout(LIMIT, (case.run)(subject)));
    match task.await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => panic!("conformance: {name}: not done after {LIMIT:?}"),
        Err(error) => panic!("conformance: {name}: {}", support::panic_text(error)),
    }
}
