//! How much memory answers may take that have to be made as a whole: tables, YAML, lists of old revisions, converted
//! objects. What is sent from the cache piece by piece takes none.
//!
//! Responsible for: how much of it there is, and how much one user may have.
//! Deliberately not here: what an answer takes (`api`).

use std::{collections::HashMap, sync::Arc};

use meta::{RetryAfter, Status};
use parking_lot::Mutex;

use crate::{
    inflight,
    payer::{Part, Payer},
};

/// For all users together.
const MOST: usize = 1 << 30;

/// Less than this is not counted: there are only so many requests.
const SMALL: usize = 1 << 20;

/// The memory of one server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    n_all: usize,
    by_name: HashMap<Arc<str>, usize>,
}

impl Memory {
    /// Sets so many bytes aside beside what a request has already; 429 if there is not enough. Whoever has none gets any
    /// number, once: nobody's part of it grows beyond a share, so that one large list does not keep all others out.
    /// Operators always get them.
    pub(crate) fn reserve(&self, payer: &Payer, n_bytes: usize, had: Reserved) -> Result<Reserved, Status> {
        if n_bytes < SMALL || payer.is_operator() {
            return Ok(had);
        }
        let n_had = had.0.as_ref().map_or(0, |it| it.n_bytes);
        let n_bytes = n_had.saturating_add(n_bytes).min(Part::One.of(MOST));
        let n_more = n_bytes - n_had;
        let mut held = self.0.lock();
        let fits = |(name, part): (&Arc<str>, Part)| {
            held.by_name.get(name).copied().unwrap_or_default() + n_more <= part.of(MOST)
        };
        if held.n_all + n_more > MOST || !payer.parts().all(fits) {
            // It gives back what it had, for which the lock is needed.
            drop(held);
            return Err(Status::too_many_requests(inflight::REFUSAL, RetryAfter::not_begun(1)));
        }
        held.n_all += n_more;
        for (name, _) in payer.parts() {
            *held.by_name.entry(Arc::clone(name)).or_default() += n_more;
        }
        let mut taken =
            had.0.unwrap_or_else(|| Taken { memory: self.clone(), payer: payer.clone(), n_bytes: 0 });
        taken.n_bytes = n_bytes;
        Ok(Reserved(Some(taken)))
    }
}

/// Bytes that are set aside until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Reserved(Option<Taken>);

#[derive(Debug)]
struct Taken {
    memory: Memory,
    payer: Payer,
    n_bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut held = self.memory.0.lock();
        held.n_all -= self.n_bytes;
        for (name, _) in self.payer.parts() {
            if let Some(own) = held.by_name.get_mut(name) {
                *own -= self.n_bytes;
                if *own == 0 {
                    held.by_name.remove(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use access::User;

    use super::*;

    const SHARE: usize = MOST / 4;

    #[test]
    fn each_user_and_all_together_have_a_bound_and_it_comes_back() {
        let memory = Memory::default();
        let user = Payer::named;
        let reserve = |payer: &Payer, n_bytes| memory.reserve(payer, n_bytes, Reserved::default());
        let part = SHARE / 2;
        let held: Vec<Reserved> = (0..8)
            .map(|n| reserve(&user(&format!("u{}", n / 2)), part).expect("there must be room"))
            .collect();
        assert_eq!(reserve(&user("u0"), part).unwrap_err().code, 429);
        assert_eq!(reserve(&user("another"), part).unwrap_err().code, 429);
        assert!(reserve(&user("u0"), SMALL - 1).is_ok(), "what is small is not counted");
        let operator = User { groups: vec!["system:masters".to_owned()], ..User::named("admin") };
        assert!(reserve(&Payer::of(&operator), part).is_ok());
        drop(held);
        let huge = reserve(&user("alone"), 2 * MOST);
        assert!(huge.is_ok(), "one list of any size is served");
        assert_eq!(reserve(&user("alone"), SMALL).unwrap_err().code, 429);
        assert!(reserve(&user("another"), part).is_ok(), "others have their parts");
        // What a request makes of what it has read is its own list still.
        let both = memory.reserve(&user("alone"), SHARE, huge.expect("it must be there"));
        assert!(both.is_ok());
        drop(both);
        assert!(memory.0.lock().by_name.is_empty());
        assert_eq!(memory.0.lock().n_all, 0);
    }
}
