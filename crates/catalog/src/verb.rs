//! The verbs of the resource API, and sets of them.

use std::fmt;

/// What a client can do with a resource, as discovery names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum Verb {
    Create,
    Delete,
    DeleteCollection,
    Get,
    List,
    Patch,
    Update,
    Watch,
}

impl Verb {
    /// Every verb, in the order in which discovery prints them.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// The verb as it is written in discovery and in rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }

    /// The verb of that name; `None` for verbs that discovery does not know, such as `impersonate`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    const fn bit(self) -> u8 {
        match self {
            Self::Create => 1,
            Self::Delete => 1 << 1,
            Self::DeleteCollection => 1 << 2,
            Self::Get => 1 << 3,
            Self::List => 1 << 4,
            Self::Patch => 1 << 5,
            Self::Update => 1 << 6,
            Self::Watch => 1 << 7,
        }
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Verbs(u8);

impl Verbs {
    /// All eight verbs: what most stored resources offer.
    pub const ALL: Self = Self(u8::MAX);

    /// Whether the verb is in the set.
    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & verb.bit() != 0
    }

    /// Whether there is no verb in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The verbs in the order in which discovery prints them.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |it| self.contains(*it))
    }
}

impl FromIterator<Verb> for Verbs {
    fn from_iter<T: IntoIterator<Item = Verb>>(verbs: T) -> Self {
        Self(verbs.into_iter().fold(0, |bits, it| bits | it.bit()))
    }
}

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in_and_prints_in_discovery_order() {
        let verbs: Verbs = [Verb::Watch, Verb::Get, Verb::Create].into_iter().collect();
        let names: Vec<_> = verbs.iter().map(Verb::as_str).collect();
        assert_eq!(names, ["create", "get", "watch"]);
        assert!(!verbs.contains(Verb::List));
        assert_eq!(Verb::ALL.into_iter().collect::<Verbs>(), Verbs::ALL);
    }

    #[test]
    fn every_verb_is_found_by_its_name() {
        for verb in Verb::ALL {
            assert_eq!(Verb::parse(verb.as_str()), Some(verb));
        }
        assert_eq!(Verb::parse("impersonate"), None);
    }
}
