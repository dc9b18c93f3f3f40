//! What follows from what a look has found. No clock, no I/O.

use super::graph::Text;

/// How an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there.
    Solid,
    /// It is there and goes after its dependents.
    Waiting,
    /// It is proved not to be there.
    Dangling,
}

/// What happens to the dependents of an object that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    Background,
    Foreground,
    Orphan,
}

impl Policy {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// What to do about an object that names owners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    Keep,
    /// Take the references to these away; others hold the object.
    Release(Vec<Text>),
    Delete {
        policy: Policy,
        /// First say that no owner need wait for it: it waits for one of its own dependents, which may be an owner.
        unblock: bool,
    },
}

/// What a decision is made from, beside the owners.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Item {
    pub(super) has_dependents: bool,
    pub(super) has_dependent_going_last: bool,
    pub(super) has_orphan_finalizer: bool,
    pub(super) has_foreground_finalizer: bool,
}

/// `owners` is not empty.
pub(super) fn plan(item: Item, owners: &[(Text, Standing)]) -> Plan {
    let with =
        |standing: Standing| owners.iter().filter(move |(_, it)| *it == standing).map(|(uid, _)| uid.clone());
    if with(Standing::Solid).next().is_some() {
        let lost: Vec<Text> = with(Standing::Dangling).chain(with(Standing::Waiting)).collect();
        return if lost.is_empty() { Plan::Keep } else { Plan::Release(lost) };
    }
    if with(Standing::Waiting).next().is_some() && item.has_dependents {
        return Plan::Delete { policy: Policy::Foreground, unblock: item.has_dependent_going_last };
    }
    let policy = match item {
        Item { has_orphan_finalizer: true, .. } => Policy::Orphan,
        Item { has_foreground_finalizer: true, .. } => Policy::Foreground,
        _ => Policy::Background,
    };
    Plan::Delete { policy, unblock: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `s` solid, `w` waiting, `d` dangling; the uids are 0, 1, …
    fn check(item: Item, owners: &str, expect: &Plan) {
        let owners: Vec<(Text, Standing)> = owners
            .chars()
            .enumerate()
            .map(|(n, it)| {
                let standing = match it {
                    's' => Standing::Solid,
                    'w' => Standing::Waiting,
                    _ => Standing::Dangling,
                };
                (n.to_string().into(), standing)
            })
            .collect();
        assert_eq!(plan(item, &owners), *expect, "{item:?} {owners:?}");
    }

    #[test]
    fn one_solid_owner_is_enough_to_stay() {
        let release = |uids: &[&str]| Plan::Release(uids.iter().map(|it| Text::from(*it)).collect());
        check(Item::default(), "s", &Plan::Keep);
        check(Item::default(), "ss", &Plan::Keep);
        check(Item::default(), "sd", &release(&["1"]));
        check(Item::default(), "dsw", &release(&["0", "2"]));
    }

    #[test]
    fn without_one_the_object_goes() {
        let delete = |policy| Plan::Delete { policy, unblock: false };
        let parent = Item { has_dependents: true, ..Item::default() };
        check(Item::default(), "d", &delete(Policy::Background));
        check(Item::default(), "dw", &delete(Policy::Background));
        check(parent, "d", &delete(Policy::Background));
        check(parent, "dw", &delete(Policy::Foreground));
        check(Item { has_orphan_finalizer: true, ..Item::default() }, "d", &delete(Policy::Orphan));
        check(Item { has_foreground_finalizer: true, ..Item::default() }, "d", &delete(Policy::Foreground));
        let circle = Item { has_dependent_going_last: true, ..parent };
        check(circle, "w", &Plan::Delete { policy: Policy::Foreground, unblock: true });
    }
}
