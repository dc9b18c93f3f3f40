//! Role-based access control: the roles and bindings of the cluster, kept so that a decision takes microseconds.
//!
//! Bindings are indexed by user name and by group, and there by role: a decision looks only at roles that apply to it, and
//! at each once, however many bindings give it. Objects come in and go out one at a time, in any order: a binding may
//! arrive before its role. Decisions are made on a snapshot; nobody waits for whoever takes in a change.
//! Deliberately not here: reading from a store, and checking objects that are written (see [`mod@write`]).

mod binding;
mod cover;
pub mod evidence;
mod role;
mod words;
pub mod write;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use imbl::{HashMap, OrdMap};
use meta::Value;
use meta::field::quote;
use parking_lot::Mutex;

pub use cover::{compact, uncovered};
pub use role::HeldRule;

use binding::{Binding, RoleKind, Subject};
use cover::{Effort, Wanted, missing};
use role::Role;

use crate::attributes::{Attributes, Verdict};
use crate::user::quote_list;
use crate::{PolicyRule, User};

/// The API group of all four kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// How many missing rules a refusal lists.
const MAX_DESCRIBED: usize = 1000;

/// How many roles that are not there are named in an answer.
const MAX_ERRORS: usize = 100;

/// How much of the rules that somebody holds is listed: more than roles that people write have together.
const MAX_LISTED: usize = 4 << 20;

/// Decisions about somebody with more rules and bindings than this may take longer than a thread that serves
/// connections should be kept.
const MANY: usize = 2_000;

/// The kinds that make up the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RbacKind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl RbacKind {
    /// The kind that a plural resource name of the group stands for.
    pub fn from_resource(resource: &str) -> Option<Self> {
        match resource {
            "roles" => Some(Self::Role),
            "clusterroles" => Some(Self::ClusterRole),
            "rolebindings" => Some(Self::RoleBinding),
            "clusterrolebindings" => Some(Self::ClusterRoleBinding),
            _ => None,
        }
    }

    /// The plural resource name.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// What a user may do in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    pub resource_rules: Vec<PolicyRule>,
    pub non_resource_rules: Vec<PolicyRule>,
    /// Roles that bindings name and that are not there.
    pub errors: Vec<String>,
    /// Whether there is more than is listed.
    pub is_incomplete: bool,
}

/// The policy. Shared by all requests.
#[derive(Debug, Default)]
pub struct Rbac {
    /// What decisions are made on; it is replaced, never changed.
    state: ArcSwap<State>,
    /// Held by whoever replaces it. Nobody who decides takes it.
    change: Mutex<()>,
}

/// Namespace and name; the namespace is empty for cluster-wide kinds.
type Key = (Arc<str>, Arc<str>);
/// The bindings of one subject: by namespace (empty: cluster-wide), then by role, then by name.
type Bound = HashMap<Arc<str>, OrdMap<RoleRef, OrdMap<Arc<str>, Arc<Binding>>>>;
type RoleRef = (RoleKind, Arc<str>);

/// A copy shares all but what is changed afterwards.
#[derive(Clone, Debug, Default)]
struct State {
    /// By namespace, then by name; ClusterRoles are under the empty namespace.
    roles: HashMap<Arc<str>, HashMap<Arc<str>, Arc<Role>>>,
    bindings: HashMap<Key, Arc<Binding>>,
    by_user: HashMap<Arc<str>, Bound>,
    by_group: HashMap<Arc<str>, Bound>,
}

impl Rbac {
    /// No roles, no bindings: nobody may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an object that was created or changed, from somewhere without revisions.
    pub fn upsert(&self, kind: RbacKind, namespace: &str, name: &str, object: &Value) {
        self.upsert_at(kind, namespace, name, object, 0);
    }

    /// Takes in an object that was created or changed at this revision.
    pub fn upsert_at(&self, kind: RbacKind, namespace: &str, name: &str, object: &Value, revision: u64) {
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let role = Arc::new(Role::new(&PolicyRule::all_from_json(object), revision));
                let namespace = if kind == RbacKind::ClusterRole { "" } else { namespace };
                self.change(|state| {
                    state.roles.entry(namespace.into()).or_default().insert(name.into(), role);
                });
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let namespace = if kind == RbacKind::ClusterRoleBinding { "" } else { namespace };
                let mut binding = Binding::from_json(namespace, name, object);
                binding.revision = revision;
                let binding = Arc::new(binding);
                self.change(|state| {
                    state.unbind(namespace, name);
                    state.bind(&binding);
                });
            }
        }
    }

    /// Forgets an object that was deleted.
    pub fn remove(&self, kind: RbacKind, namespace: &str, name: &str) {
        self.change(|state| match kind {
            RbacKind::Role => state.remove_role(namespace, name),
            RbacKind::ClusterRole => state.remove_role("", name),
            RbacKind::RoleBinding => state.unbind(namespace, name),
            RbacKind::ClusterRoleBinding => state.unbind("", name),
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let _one_at_a_time = self.change.lock();
        let mut state = State::clone(&self.state.load());
        change(&mut state);
        self.state.store(Arc::new(state));
    }

    /// Whether decisions about this user in this namespace may take long, because of how many rules and bindings there are.
    /// Finding that out does not.
    pub fn is_long(&self, user: &User, namespace: &str) -> bool {
        let mut n = 0;
        let is_long = self.state.load().visit(user, namespace, |_, _, role| {
            n += 1 + role.map_or(0, |it| it.rules.len());
            (n > MANY).then_some(())
        });
        is_long.is_some()
    }

    /// Whether some binding allows this.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let mut errors = Vec::new();
        let state = self.state.load_full();
        let allowed = state.visit(
            attributes.user,
            attributes.target.namespace(),
            |binding, subject, role| match role {
                Ok(role) => role.allows(attributes).then(|| binding.reason(subject)),
                Err(error) => {
                    add(&mut errors, &error);
                    None
                }
            },
        );
        match allowed {
            Some(reason) => Verdict::Allow(reason),
            None if errors.is_empty() => Verdict::NoOpinion(String::new()),
            None => Verdict::NoOpinion(format!("RBAC: {}", aggregate_errors(&errors))),
        }
    }

    /// Everything that the user may do in the namespace, cluster-wide grants included; less if it is too much to list.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let mut found = Rules::default();
        let state = self.state.load_full();
        let held = state.held(user, namespace, &mut found.errors);
        let mut left = MAX_LISTED;
        for rule in held {
            let Some(rest) = left.checked_sub(rule.n_bytes()) else {
                found.is_incomplete = true;
                continue;
            };
            left = rest;
            if !rule.resources.is_empty() {
                found.resource_rules.push(rule.of_resources());
            }
            if !rule.urls.is_empty() {
                found.non_resource_rules.push(rule.of_urls());
            }
        }
        found
    }

    /// Whether the user holds everything in `wanted` already; the error is the message for the 403.
    pub fn check_escalation(
        &self,
        user: &User,
        namespace: &str,
        wanted: &[PolicyRule],
    ) -> Result<(), String> {
        let wanted: Vec<Wanted<'_>> = wanted.iter().map(Wanted::of).collect();
        self.state.load_full().check_escalation(user, namespace, &wanted)
    }

    /// The same for the rules of the role that a binding in this namespace refers to; `None` if there is no such role.
    pub(super) fn check_role(
        &self,
        user: &User,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Result<(), String>> {
        let state = self.state.load_full();
        let role = state.role(RoleKind::from_name(kind), namespace, name)?;
        let wanted: Vec<Wanted<'_>> = role.rules.iter().map(Wanted::of_held).collect();
        Some(state.check_escalation(user, namespace, &wanted))
    }
}

impl State {
    /// Calls `look` for every role that somebody is given, once, with one of the bindings that give it: cluster-wide ones
    /// first, then the namespace's, until it answers.
    fn visit<'a, T>(
        &'a self,
        user: &User,
        namespace: &str,
        mut look: impl FnMut(&'a Binding, Subject<'_>, Result<&'a Role, NoRole<'a>>) -> Option<T>,
    ) -> Option<T> {
        let scopes: &[&str] = if namespace.is_empty() { &[""] } else { &["", namespace] };
        let mut seen: HashSet<*const Role> = HashSet::new();
        for scope in scopes {
            let of_user = self.by_user.get(user.name.as_str()).map(|it| (Subject::User(&user.name), it));
            let of_groups = user
                .groups
                .iter()
                .filter_map(|group| self.by_group.get(group.as_str()).map(|it| (Subject::Group(group), it)));
            for (subject, bound) in of_user.into_iter().chain(of_groups) {
                for bindings in bound.get(*scope).into_iter().flat_map(OrdMap::values) {
                    let Some((_, binding)) = bindings.get_min() else { continue };
                    let role = self.role_of(binding);
                    if role.as_ref().is_ok_and(|it| !seen.insert(*it)) {
                        continue;
                    }
                    if let Some(answer) = look(binding, subject, role) {
                        return Some(answer);
                    }
                }
            }
        }
        None
    }

    /// The rules that somebody holds, those of each role once.
    fn held<'a>(&'a self, user: &User, namespace: &str, errors: &mut Vec<String>) -> Vec<&'a HeldRule> {
        let mut held = Vec::new();
        let _: Option<()> = self.visit(user, namespace, |_, _, role| {
            match role {
                Ok(role) => held.extend(&role.rules),
                Err(error) => add(errors, &error),
            }
            None
        });
        held
    }

    fn check_escalation(&self, user: &User, namespace: &str, wanted: &[Wanted<'_>]) -> Result<(), String> {
        let mut errors = Vec::new();
        let held = self.held(user, namespace, &mut errors);
        let missing = missing(&held, wanted, &Effort::default());
        if missing.is_empty() {
            return Ok(());
        }
        let described: BTreeSet<String> = compact(&missing).iter().map(PolicyRule::compact_string).collect();
        let described: Vec<String> = described.into_iter().take(MAX_DESCRIBED).collect();
        let mut message = format!(
            "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
            quote(&user.name),
            quote_list(&user.groups),
            described.join("\n")
        );
        if !errors.is_empty() {
            message.push_str(&format!("; resolution errors: [{}]", aggregate_errors(&errors)));
        }
        Err(message)
    }

    fn role_of<'a>(&'a self, binding: &'a Binding) -> Result<&'a Role, NoRole<'a>> {
        let Binding { role_kind, namespace, role_name, .. } = binding;
        self.role(*role_kind, namespace, role_name).ok_or(NoRole(binding))
    }

    fn role(&self, kind: RoleKind, namespace: &str, name: &str) -> Option<&Role> {
        let scope = match kind {
            RoleKind::ClusterRole => "",
            RoleKind::Role if !namespace.is_empty() => namespace,
            RoleKind::Role | RoleKind::Unknown => return None,
        };
        self.roles.get(scope)?.get(name).map(|it| &**it)
    }

    fn remove_role(&mut self, namespace: &str, name: &str) {
        if let Some(roles) = self.roles.get_mut(namespace) {
            roles.remove(name);
            if roles.is_empty() {
                self.roles.remove(namespace);
            }
        }
    }

    fn bind(&mut self, binding: &Arc<Binding>) {
        for (subjects, index) in [(&binding.users, &mut self.by_user), (&binding.groups, &mut self.by_group)]
        {
            for subject in subjects {
                let bound = index.entry(Arc::clone(subject)).or_default();
                let roles = bound.entry(Arc::clone(&binding.namespace)).or_default();
                let names = roles.entry(binding.role_ref()).or_default();
                names.insert(Arc::clone(&binding.name), Arc::clone(binding));
            }
        }
        let key = (Arc::clone(&binding.namespace), Arc::clone(&binding.name));
        self.bindings.insert(key, Arc::clone(binding));
    }

    fn unbind(&mut self, namespace: &str, name: &str) {
        let Some(binding) = self.bindings.remove(&(Arc::from(namespace), Arc::from(name))) else {
            return;
        };
        for (subjects, index) in [(&binding.users, &mut self.by_user), (&binding.groups, &mut self.by_group)]
        {
            for subject in subjects {
                forget(index, subject, &binding);
            }
        }
    }
}

/// A binding whose role is not there.
struct NoRole<'a>(&'a Binding);

impl std::fmt::Display for NoRole<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.0.role_kind {
            RoleKind::ClusterRole => "clusterrole",
            RoleKind::Role if !self.0.namespace.is_empty() => "role",
            RoleKind::Role | RoleKind::Unknown => return f.write_str("unsupported role reference kind"),
        };
        write!(f, "{kind}.{GROUP} {} not found", quote(&self.0.role_name))
    }
}

/// Writes an error down, unless there are many.
fn add(errors: &mut Vec<String>, error: &NoRole<'_>) {
    if errors.len() < MAX_ERRORS {
        errors.push(error.to_string());
    }
}

fn forget(index: &mut HashMap<Arc<str>, Bound>, subject: &str, binding: &Binding) {
    let Some(bound) = index.get_mut(subject) else { return };
    if let Some(roles) = bound.get_mut(&binding.namespace) {
        let role = binding.role_ref();
        if let Some(names) = roles.get_mut(&role) {
            names.remove(&binding.name);
            if names.is_empty() {
                roles.remove(&role);
            }
        }
        if roles.is_empty() {
            bound.remove(&binding.namespace);
        }
    }
    if bound.is_empty() {
        index.remove(subject);
    }
}

/// Several errors as upstream writes them: alone as it is, otherwise in brackets, each once.
fn aggregate_errors(errors: &[String]) -> String {
    let mut seen = BTreeSet::new();
    let unique: Vec<&str> = errors.iter().map(String::as_str).filter(|it| seen.insert(*it)).collect();
    match unique.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}
