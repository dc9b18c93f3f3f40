//! How long the servers take to agree on a resource: from the first report of it, or the first vote for another version,
//! until all write one version and none would like another.
//!
//! Every server measures by its own clock what it sees of the records. What it finds agreed on or under way when it
//! starts is measured from then on.

use std::{collections::HashMap, time::Duration};

use meta::GroupResource;

use crate::station::Inner;

/// Since when there is no agreement, by resource.
#[derive(Debug, Default)]
pub(crate) struct Waits(HashMap<GroupResource, Duration>);

impl Waits {
    /// Takes in a verdict at a moment: agreed or not, or `None` if the record is gone. Returns how long it took to agree.
    fn note(&mut self, resource: GroupResource, verdict: Option<bool>, now: Duration) -> Option<Duration> {
        match verdict {
            Some(true) => self.0.remove(&resource).map(|since| now.saturating_sub(since)),
            Some(false) => {
                self.0.entry(resource).or_insert(now);
                None
            }
            None => {
                self.0.remove(&resource);
                None
            }
        }
    }
}

impl Inner {
    /// Tells the server around how long it took to agree on what has been agreed on since.
    pub(crate) fn measure_consensus(&self) {
        let verdicts = std::mem::take(&mut self.board.write().verdicts);
        if verdicts.is_empty() {
            return;
        }
        let now = self.clock.monotonic();
        let mut waits = self.waits.lock();
        for (resource, verdict) in verdicts {
            if let Some(after) = waits.note(resource.clone(), verdict, now) {
                self.around().agreed(&resource, after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_from_the_first_disagreement_to_the_agreement() {
        let mut waits = Waits::default();
        let pods = || GroupResource::new("", "pods");
        let mut note = |verdict, at| waits.note(pods(), verdict, Duration::from_secs(at));
        assert_eq!(note(Some(true), 1), None, "it was so from the beginning");
        assert_eq!(note(Some(false), 5), None);
        assert_eq!(note(Some(false), 8), None);
        assert_eq!(note(Some(true), 12), Some(Duration::from_secs(7)));
        assert_eq!(note(Some(true), 20), None);
        assert_eq!(note(Some(false), 30), None);
        assert_eq!(note(None, 31), None);
        assert_eq!(note(Some(true), 40), None, "it was another one");
    }
}
