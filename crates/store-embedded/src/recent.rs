//! The latest changes, in memory, for watchers that keep up. Bounded: who falls behind reads the disk.

use std::{collections::VecDeque, sync::Arc};

use store::{Event, Revision};

/// How many revisions are kept.
const MAX_REVISIONS: usize = 8192;

/// All changes of one revision.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) revision: Revision,
    pub(crate) events: Vec<Event>,
}

/// All changes after `floor`.
#[derive(Debug)]
pub(crate) struct Recent {
    floor: Revision,
    changes: VecDeque<Arc<Changes>>,
    n_bytes: usize,
    max_bytes: usize,
}

impl Recent {
    /// Nothing yet; later as much as fits into `max_bytes`.
    pub(crate) fn starting_at(revision: Revision, max_bytes: usize) -> Self {
        Self { floor: revision, changes: VecDeque::new(), n_bytes: 0, max_bytes }
    }

    pub(crate) fn push(&mut self, changes: Changes) {
        self.n_bytes += size(&changes);
        self.changes.push_back(Arc::new(changes));
        // The newest stays, however large it is.
        while self.changes.len() > 1 && (self.n_bytes > self.max_bytes || self.changes.len() > MAX_REVISIONS)
        {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.n_bytes -= size(&oldest);
            self.floor = oldest.revision;
        }
    }

    /// The first `limit` revisions after `after`, or nothing if some of them are only on disk.
    pub(crate) fn after(&self, after: Revision, limit: usize) -> Option<Vec<Arc<Changes>>> {
        if after < self.floor {
            return None;
        }
        let start = self.changes.partition_point(|it| it.revision <= after);
        Some(self.changes.iter().skip(start).take(limit).cloned().collect())
    }
}

fn size(changes: &Changes) -> usize {
    let size_of = |it: &Event| match it {
        Event::Put(entry) => entry.key.as_str().len() + entry.value.len() + 128,
        Event::Delete(key, _) => key.as_str().len() + 128,
    };
    changes.events.iter().map(size_of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::Key;

    fn changes(revision: u64) -> Changes {
        let revision = Revision::new(revision);
        Changes { revision, events: vec![Event::Delete(Key::from("/k"), revision)] }
    }

    #[test]
    fn what_was_dropped_must_be_read_from_disk() {
        let mut recent = Recent::starting_at(Revision::new(10), 16 << 20);
        assert!(recent.after(Revision::new(9), 1).is_none());
        let n_pushed = MAX_REVISIONS as u64 + 5;
        for revision in 0..n_pushed {
            recent.push(changes(11 + revision));
        }
        assert!(recent.after(Revision::new(14), 1).is_none());
        let kept = recent.after(Revision::new(15), usize::MAX).unwrap();
        assert_eq!(kept.len(), MAX_REVISIONS);
        assert_eq!(kept[0].revision, Revision::new(16));
        assert_eq!(recent.after(Revision::new(10 + n_pushed), 1).unwrap().len(), 0);
    }
}
