//! What a migration has read and not looked at yet.
//!
//! A page ends at a key that the cache knows: of a range without such an end etcd looks at all keys, to count them, and
//! others wait meanwhile. Pages lie side by side, so that no key is missed, whatever the cache knows.
//! Deliberately not here: what becomes of the entries.

use std::collections::VecDeque;

use meta::GroupResource;
use store::{Entry, Key, Page, Range, ReadAt, ReadError, Store};

use super::Rewrite;

/// What was read and not looked at yet. It may be old when its turn comes: a put requires the revision that was read, and
/// whatever was written since under the same agreement is in the version of that agreement.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Whose entries, and the agreement under which they were read.
    of: Option<(GroupResource, u64)>,
    /// The key before the first of them.
    after: String,
    entries: VecDeque<Entry>,
    /// Keys behind the last of them.
    behind: u64,
}

impl Ahead {
    /// Whether the next entries behind this key are here.
    pub(super) fn is_at(&self, task: &Rewrite, after: &str) -> bool {
        self.stands(task, after) && !self.entries.is_empty()
    }

    /// Whether the last step ended here.
    fn stands(&self, task: &Rewrite, after: &str) -> bool {
        let is_same = |(of, epoch): &(GroupResource, u64)| *of == task.resource && *epoch == task.epoch;
        self.of.as_ref().is_some_and(is_same) && self.after == after && !after.is_empty()
    }

    /// How many keys are behind this one, if that is known from the last page.
    pub(super) fn left(&self, task: &Rewrite, after: &str) -> Option<u64> {
        self.stands(task, after).then_some(self.behind)
    }

    pub(super) fn fill(&mut self, task: &Rewrite, page: Page) {
        self.of = Some((task.resource.clone(), task.epoch));
        (self.entries, self.behind) = (page.entries.into(), page.remaining);
    }

    /// The next entries, and how many keys are behind them.
    pub(super) fn take(&mut self, limit: usize) -> (Vec<Entry>, u64) {
        let taken: Vec<Entry> = self.entries.drain(..limit.min(self.entries.len())).collect();
        if let Some(last) = taken.last() {
            self.after = last.key.as_str().to_owned();
        }
        (taken, self.entries.len() as u64 + self.behind)
    }
}

/// Reads at most `limit` entries behind the key `after`, or from the first on, and none only at the end.
///
/// `nth` is the key that the cache has `limit` places behind another one, if it has so many; `left` is how many keys
/// there are behind `after`, more or less.
pub(super) async fn read_page(
    store: &impl Store,
    prefix: &str,
    after: &str,
    limit: usize,
    left: u64,
    nth: impl Fn(Option<&Key>) -> Option<Key>,
) -> Result<Page, ReadError> {
    let mut after = Some(after).filter(|it| !it.is_empty()).map(Key::new);
    loop {
        let last = nth(after.as_ref());
        let mut range = Range::prefix(prefix);
        if let Some(after) = &after {
            range = range.after(after);
        }
        if let Some(last) = &last {
            range.end = last.successor();
        }
        let mut page = store.list(&range, ReadAt::Latest, limit).await?;
        match last {
            // All of them are gone by now.
            Some(last) if page.entries.is_empty() => after = Some(last),
            Some(_) => {
                // There is more to read, if only to see that there is nothing.
                let n_read = page.entries.len() as u64;
                page.remaining = page.remaining.max(left.saturating_sub(n_read)).max(1);
                return Ok(page);
            }
            None => return Ok(page),
        }
    }
}

#[cfg(test)]
mod tests;
