//! Owners that were proved absent: a bounded memory, so that the dependents of one owner do not all ask for it.

use std::collections::{HashSet, VecDeque};

use super::Identity;

/// As many as upstream remembers.
const MOST: usize = 500;

/// The most recent ones. A uid is never used again, so what is here stays true.
#[derive(Debug, Default)]
pub(super) struct Absent {
    known: HashSet<Identity>,
    oldest_first: VecDeque<Identity>,
}

impl Absent {
    pub(super) fn insert(&mut self, identity: Identity) {
        if !self.known.insert(identity.clone()) {
            return;
        }
        self.oldest_first.push_back(identity);
        if self.oldest_first.len() > MOST
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, identity: &Identity) -> bool {
        self.known.contains(identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_forgotten_first() {
        let identity = |n: usize| Identity {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            namespace: "a".into(),
            name: "x".into(),
            uid: n.to_string().into(),
        };
        let mut absent = Absent::default();
        for n in 0..=MOST {
            absent.insert(identity(n));
            absent.insert(identity(n));
        }
        assert!(!absent.contains(&identity(0)));
        assert!(absent.contains(&identity(1)));
        assert!(absent.contains(&identity(MOST)));
    }
}
