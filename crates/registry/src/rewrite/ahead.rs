//! What a migration has read and not looked at yet. Deliberately not here: what becomes of it.

use std::{collections::VecDeque, sync::Arc};

use cache::Item;
use meta::GroupResource;
use store::Key;

use super::Rewrite;

/// One key that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) key: Key,
    /// The object; or its name, and why it cannot be read.
    pub(super) item: Result<Arc<Item>, (String, String)>,
}

/// What was read and not looked at yet. It may be old when its turn comes: a put requires the revision that was read, and
/// whatever was written since under the same agreement is in the version of that agreement.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Whose entries, and the agreement under which they were read.
    of: Option<(GroupResource, u64)>,
    /// The key before the first of them.
    after: String,
    entries: VecDeque<Read>,
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

    /// The last key that was taken, if nothing is left of what was read and there is more.
    pub(super) fn is_used_up_at(&self) -> Option<String> {
        (self.entries.is_empty() && self.behind > 0).then(|| self.after.clone())
    }

    /// How many keys are behind this one, if that is known from the last page.
    pub(super) fn left(&self, task: &Rewrite, after: &str) -> Option<u64> {
        self.stands(task, after).then_some(self.behind)
    }

    /// Takes what was read, with the number of keys behind it.
    pub(super) fn fill(&mut self, task: &Rewrite, entries: Vec<Read>, behind: u64) {
        self.of = Some((task.resource.clone(), task.epoch));
        (self.entries, self.behind) = (entries.into(), behind);
    }

    /// The next entries, and how many keys are behind them.
    pub(super) fn take(&mut self, limit: usize) -> (Vec<Read>, u64) {
        let taken: Vec<Read> = self.entries.drain(..limit.min(self.entries.len())).collect();
        if let Some(last) = taken.last() {
            self.after = last.key.as_str().to_owned();
        }
        (taken, self.entries.len() as u64 + self.behind)
    }
}

#[cfg(test)]
mod tests {
    use meta::selector::LabelSelector;

    use super::*;

    const PREFIX: &str = "/registry/parcels/";

    fn task(epoch: u64) -> Rewrite {
        Rewrite {
            resource: GroupResource::from("parcels.example.com"),
            version: "example.com/v1".to_owned(),
            epoch,
            namespaces: Vec::new(),
            selector: LabelSelector::default(),
            dry_run: false,
            limit: 2,
            at_once: 1,
        }
    }

    fn entries(keys: &[String]) -> Vec<Read> {
        let read = |key: &String| Read {
            key: Key::new(key.as_str()),
            item: Err((key.clone(), "it is none".to_owned())),
        };
        keys.iter().map(read).collect()
    }

    #[test]
    fn what_was_read_ahead_is_for_whoever_goes_on_there_under_the_same_agreement() {
        let keys: Vec<String> = (0..5).map(|n| format!("{PREFIX}{n}")).collect();
        let mut ahead = Ahead::default();
        ahead.fill(&task(1), entries(&keys), 7);
        let (taken, left) = ahead.take(2);
        assert_eq!((taken.len(), left), (2, 10));
        assert!(ahead.is_at(&task(1), &keys[1]));
        assert!(!ahead.is_at(&task(2), &keys[1]), "another agreement");
        assert!(!ahead.is_at(&task(1), &keys[0]), "somebody went back");
        assert!(!ahead.is_at(&task(1), ""), "somebody began again");
        assert_eq!(ahead.left(&task(1), &keys[1]), Some(7), "behind what is here");
        assert_eq!(ahead.is_used_up_at(), None);
        assert_eq!(ahead.take(9).0.len(), 3);
        assert_eq!(ahead.is_used_up_at(), Some(keys[4].clone()));
        assert!(!ahead.is_at(&task(1), &keys[4]), "there is nothing here");
        assert_eq!(ahead.left(&task(1), &keys[4]), Some(7));
    }
}
