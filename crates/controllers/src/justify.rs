//! Why a controller may remove something or take a finalizer off: facts that the server requires when it does so.
//!
//! **Guarantee.** Requests that remove take a [`Justified`], and only [`Ctx::because`] makes one: the term of the leader is
//! part of it, whatever else a controller states. So a process that was paused, and has lost its Lease without noticing,
//! removes nothing.

use meta::{Fact, Grounds};

use crate::lead::Term;
use crate::run::Ctx;

/// The facts behind one request.
#[derive(Clone, Debug)]
pub(crate) struct Justified(Grounds);

impl Ctx {
    /// Justifies a request by these facts and by the term in which the controllers of this process work.
    pub(crate) fn because(&self, facts: impl IntoIterator<Item = Fact>) -> Justified {
        Justified(Grounds::because(self.term.as_ref().map(Term::fact)).and(facts))
    }
}

impl Justified {
    /// The facts as the value of the header that states them.
    pub(crate) fn header(&self) -> Option<String> {
        self.0.to_header()
    }
}
