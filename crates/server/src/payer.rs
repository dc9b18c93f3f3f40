//! On whose account a request is worked on: who has a part of what is bounded, and how large that part is.
//!
//! It is whoever authenticated, whomever they act as: names that somebody makes up give them nothing. ServiceAccounts are
//! made by whoever may write in their namespace, as many as they like, so those of one namespace have a part together.
//! Deliberately not here: what is bounded (`inflight`, `pool`, `upload`).

use std::sync::Arc;

use access::{User, user::MASTERS};

/// Who is counted.
#[derive(Clone, Debug, Default)]
pub struct Payer {
    name: Arc<str>,
    /// The accounts of its namespace, if it is a ServiceAccount.
    namespace: Option<Arc<str>>,
    is_operator: bool,
}

/// How much of a bound somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One user, or one ServiceAccount: a quarter.
    One,
    /// All ServiceAccounts of a namespace together: half.
    Namespace,
}

impl Part {
    pub(crate) fn of(self, bound: usize) -> usize {
        match self {
            Self::One => bound.div_ceil(4),
            Self::Namespace => bound.div_ceil(2),
        }
    }
}

impl Payer {
    /// Somebody who authenticated here.
    pub(crate) fn of(user: &User) -> Self {
        Self { is_operator: user.is_in(MASTERS), ..Self::named(&user.name) }
    }

    /// Somebody of whom only the name is known.
    pub(crate) fn named(name: &str) -> Self {
        let account = name.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'));
        let namespace = account.map(|(namespace, _)| format!("system:serviceaccounts:{namespace}").into());
        Self { name: name.into(), namespace, is_operator: false }
    }

    /// Whether no bound applies: a member of `system:masters`.
    pub(crate) fn is_operator(&self) -> bool {
        self.is_operator
    }

    /// Under which names it is counted, and how much each of them has.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Arc<str>, Part)> {
        let namespace = self.namespace.as_ref().map(|it| (it, Part::Namespace));
        std::iter::once((&self.name, Part::One)).chain(namespace)
    }

    /// Who shares places to compute with it.
    pub(crate) fn widest(&self) -> &Arc<str> {
        self.namespace.as_ref().unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_a_namespace_have_a_part_together() {
        let parts = |name: &str| -> Vec<(String, Part)> {
            Payer::of(&User::named(name)).parts().map(|(name, part)| (name.to_string(), part)).collect()
        };
        assert_eq!(parts("alice"), [("alice".to_owned(), Part::One)]);
        let account = "system:serviceaccount:dev:robot";
        let together = ("system:serviceaccounts:dev".to_owned(), Part::Namespace);
        assert_eq!(parts(account), [(account.to_owned(), Part::One), together]);
        assert_eq!((Part::One.of(400), Part::Namespace.of(400)), (100, 200));
        assert_eq!((Part::One.of(1), Part::Namespace.of(1)), (1, 1));
    }
}
