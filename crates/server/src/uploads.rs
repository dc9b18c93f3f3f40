//! Bodies of requests that are still being sent: how many there are and how much of them is in memory, of all users and of
//! each. How long one may take is the deadline's business (`--request-timeout`).

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

use crate::payer::Payer;

/// Bodies that are being sent at a time, and their bytes; each user has a part.
const MAX_UPLOADS: usize = 1_024;
const MAX_BYTES: usize = 256 << 20;

/// Those of one server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uploads(Arc<Mutex<Now>>);

#[derive(Debug, Default)]
struct Now {
    all: Amount,
    by_name: HashMap<Arc<str>, Amount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amount {
    n: usize,
    bytes: usize,
}

impl Amount {
    fn fits(self, more: Self, part: impl Fn(usize) -> usize) -> bool {
        self.n + more.n <= part(MAX_UPLOADS) && self.bytes + more.bytes <= part(MAX_BYTES)
    }

    fn add(&mut self, more: Self) {
        self.n += more.n;
        self.bytes += more.bytes;
    }

    fn take_away(&mut self, less: Self) {
        self.n -= less.n;
        self.bytes -= less.bytes;
    }
}

impl Uploads {
    /// A place for one more; `None` if there are too many. Operators always get in.
    pub(crate) fn enter(&self, payer: &Payer) -> Option<Upload> {
        let mut upload = Upload { uploads: self.clone(), payer: payer.clone(), amount: Amount::default() };
        upload.add(Amount { n: 1, bytes: 0 }).then_some(upload)
    }
}

/// One body.
#[derive(Debug)]
pub(crate) struct Upload {
    uploads: Uploads,
    payer: Payer,
    amount: Amount,
}

impl Upload {
    /// Counts what has come; `false` if that is too much.
    #[must_use]
    pub(crate) fn grow(&mut self, n_bytes: usize) -> bool {
        self.add(Amount { n: 0, bytes: n_bytes })
    }

    fn add(&mut self, more: Amount) -> bool {
        let mut now = self.uploads.0.lock();
        let fits = now.all.fits(more, |it| it)
            && self.payer.parts().all(|(name, part)| {
                now.by_name.get(name).copied().unwrap_or_default().fits(more, |it| part.of(it))
            });
        if !fits && !self.payer.is_operator() {
            return false;
        }
        now.all.add(more);
        for (name, _) in self.payer.parts() {
            now.by_name.entry(Arc::clone(name)).or_default().add(more);
        }
        self.amount.add(more);
        true
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.amount == Amount::default() {
            return;
        }
        let mut now = self.uploads.0.lock();
        now.all.take_away(self.amount);
        for (name, _) in self.payer.parts() {
            if let Some(own) = now.by_name.get_mut(name) {
                own.take_away(self.amount);
                if own.n == 0 {
                    now.by_name.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_and_bytes_are_bounded_for_each_and_for_all() {
        let uploads = Uploads::default();
        let enter = |name: &str| uploads.enter(&Payer::named(name));
        let mut held: Vec<Upload> = (0..MAX_UPLOADS / 4).map(|_| enter("a").unwrap()).collect();
        assert!(enter("a").is_none() && enter("b").is_some());
        assert!(held[0].grow(MAX_BYTES / 4) && !held[1].grow(1));
        for name in ["b", "c", "d"] {
            held.push(enter(name).unwrap());
            assert!(held.last_mut().unwrap().grow(MAX_BYTES / 4));
        }
        assert!(!enter("e").unwrap().grow(1));
        let operator = access::User { groups: vec!["system:masters".to_owned()], ..access::User::named("o") };
        assert!(uploads.enter(&Payer::of(&operator)).unwrap().grow(1));
        drop(held);
        assert!(enter("a").unwrap().grow(1));
        let now = uploads.0.lock();
        assert_eq!(now.all, Amount::default());
        assert!(now.by_name.is_empty());
    }
}
