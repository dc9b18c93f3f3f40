//! Owners that were found absent: a bounded memory, so that the dependents of one owner do not all ask for it.

use std::collections::{HashMap, VecDeque};

use super::{Identity, Site};

/// As many as upstream remembers.
const MOST: usize = 500;

/// The most recent ones. This is no proof: the resource in which an owner was looked for may have been given to another
/// kind. Whoever acts on it states where the owner was looked for, and the server checks that.
#[derive(Debug, Default)]
pub(super) struct Absent {
    known: HashMap<Identity, Site>,
    oldest_first: VecDeque<Identity>,
}

impl Absent {
    pub(super) fn insert(&mut self, identity: Identity, site: Site) {
        if self.known.insert(identity.clone(), site).is_some() {
            return;
        }
        self.oldest_first.push_back(identity);
        if self.oldest_first.len() > MOST
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Where the owner was looked for in vain.
    pub(super) fn site(&self, identity: &Identity) -> Option<&Site> {
        self.known.get(identity)
    }

    /// The owner may be there after all.
    pub(super) fn forget(&mut self, identity: &Identity) {
        if self.known.remove(identity).is_some() {
            self.oldest_first.retain(|it| it != identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use meta::GroupResource;

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
        let site = || Site { resource: Arc::new(GroupResource::new("", "configmaps")), was_seen: true };
        let mut absent = Absent::default();
        for n in 0..=MOST {
            absent.insert(identity(n), site());
            absent.insert(identity(n), site());
        }
        let is_known = |absent: &Absent, n| absent.site(&identity(n)).is_some();
        assert!(!is_known(&absent, 0));
        assert!(is_known(&absent, 1));
        assert!(is_known(&absent, MOST));
        absent.forget(&identity(1));
        assert!(!is_known(&absent, 1));
    }
}
