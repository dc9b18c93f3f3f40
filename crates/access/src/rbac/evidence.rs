//! What a decision about a role or binding rests on, so that the write can require it to be still so.
//!
//! The policy here follows the store and may be behind it. A verdict of [`super::write`] holds for sure only if every
//! binding and role that justifies it is in the store as it was read here.

use super::binding::{Binding, RoleKind};
use super::cover::{Effort, Wanted, missing};
use super::role::HeldRule;
use super::write::{self, RbacWrite};
use super::{Rbac, RbacKind, State};
use crate::attributes::Attributes;
use crate::user::MASTERS;
use crate::{PolicyRule, User};

/// A role or binding at the revision at which it was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Evidence {
    pub kind: RbacKind,
    /// Empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
    pub revision: u64,
}

/// A few bindings and roles that justify the write by themselves; `None` if there are none, or the policy has changed
/// since the write was found to be justified.
pub fn of_write(rbac: &Rbac, write: &RbacWrite<'_>) -> Option<Vec<Evidence>> {
    let RbacWrite { user, namespace, object, .. } = *write;
    if user.is_in(MASTERS) || write::is_housekeeping(write) {
        return Some(Vec::new());
    }
    let state = rbac.state.load_full();
    let mut found = match write.kind {
        RbacKind::Role | RbacKind::ClusterRole => {
            if let Some(found) = state.allowing(&write::escalating(write)) {
                return Some(found);
            }
            let mut wanted = PolicyRule::all_from_json(object);
            if write::is_aggregated(write) {
                wanted.extend(write::everything());
            }
            let wanted: Vec<Wanted<'_>> = wanted.iter().map(Wanted::of).collect();
            state.holding(user, namespace, &wanted)?
        }
        RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
            let reference = write::RoleReference::of(object);
            let allowing = reference.is_known().then(|| state.allowing(&reference.binding(write))).flatten();
            if let Some(found) = allowing {
                return Some(found);
            }
            let kind = RoleKind::from_name(reference.kind);
            let role = state.role(kind, namespace, reference.name)?;
            let wanted: Vec<Wanted<'_>> = role.rules.iter().map(Wanted::of_held).collect();
            let mut found = state.holding(user, namespace, &wanted)?;
            found.push(of_role(kind, namespace, reference.name, role.revision)?);
            found
        }
    };
    found.sort();
    found.dedup();
    Some(found)
}

impl Rbac {
    /// Whether the object was taken in at this revision.
    pub fn is_at(&self, kind: RbacKind, namespace: &str, name: &str, revision: u64) -> bool {
        let state = self.state.load();
        let found = match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                state.roles.get(namespace).and_then(|it| it.get(name)).map(|it| it.revision)
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                state.bindings.get(&(namespace.into(), name.into())).map(|it| it.revision)
            }
        };
        found == Some(revision)
    }

    /// How many objects of a kind there are.
    pub fn count(&self, kind: RbacKind) -> usize {
        let state = self.state.load();
        let is_wide = |namespace: &str| namespace.is_empty();
        match kind {
            RbacKind::ClusterRole => state.roles.get("").map_or(0, imbl::HashMap::len),
            RbacKind::Role => state.roles.iter().filter(|it| !is_wide(it.0)).map(|it| it.1.len()).sum(),
            RbacKind::ClusterRoleBinding => state.bindings.keys().filter(|it| is_wide(&it.0)).count(),
            RbacKind::RoleBinding => state.bindings.keys().filter(|it| !is_wide(&it.0)).count(),
        }
    }
}

impl State {
    /// One binding and its role that allow this.
    fn allowing(&self, attributes: &Attributes<'_>) -> Option<Vec<Evidence>> {
        self.visit(attributes.user, attributes.target.namespace(), |binding, _, role| {
            let is_it = role.is_ok_and(|it| it.allows(attributes));
            if is_it { self.of_binding(binding) } else { None }
        })
    }

    /// Bindings and roles that give the user all of this: one pair if one is enough.
    fn holding(&self, user: &User, namespace: &str, wanted: &[Wanted<'_>]) -> Option<Vec<Evidence>> {
        let effort = Effort::default();
        let whole = self.visit(user, namespace, |binding, _, role| {
            let held: Vec<&HeldRule> = role.ok()?.rules.iter().collect();
            let is_enough = missing(&held, wanted, &effort).is_empty();
            if is_enough { self.of_binding(binding) } else { None }
        });
        if whole.is_some() {
            return whole;
        }
        // What was tried in vain does not count against what several give together.
        let effort = Effort::default();
        let (mut left, mut found) = (missing(&[], wanted, &effort), Vec::new());
        let _: Option<()> = self.visit(user, namespace, |binding, _, role| {
            let held: Vec<&HeldRule> = role.ok()?.rules.iter().collect();
            let still: Vec<Wanted<'_>> = left.iter().map(Wanted::of).collect();
            let missing = missing(&held, &still, &effort);
            if missing.len() < left.len()
                && let Some(pair) = self.of_binding(binding)
            {
                left = missing;
                found.extend(pair);
            }
            (left.is_empty() || effort.is_spent()).then_some(())
        });
        left.is_empty().then_some(found)
    }

    fn of_binding(&self, binding: &Binding) -> Option<Vec<Evidence>> {
        let revision = self.role_of(binding).ok()?.revision;
        let role = of_role(binding.role_kind, &binding.namespace, &binding.role_name, revision)?;
        let is_wide = binding.namespace.is_empty();
        let own = Evidence {
            kind: if is_wide { RbacKind::ClusterRoleBinding } else { RbacKind::RoleBinding },
            namespace: binding.namespace.to_string(),
            name: binding.name.to_string(),
            revision: binding.revision,
        };
        Some(vec![own, role])
    }
}

fn of_role(kind: RoleKind, namespace: &str, name: &str, revision: u64) -> Option<Evidence> {
    let (kind, namespace) = match kind {
        RoleKind::ClusterRole => (RbacKind::ClusterRole, ""),
        RoleKind::Role => (RbacKind::Role, namespace),
        RoleKind::Unknown => return None,
    };
    Some(Evidence { kind, namespace: namespace.to_owned(), name: name.to_owned(), revision })
}
