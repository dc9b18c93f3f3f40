//! Role-based access control: the roles and bindings of the cluster, kept so that a decision takes microseconds.
//!
//! Bindings are indexed by user name and by group, so that a request looks only at bindings that apply to it.
//! Objects come in and go out one at a time, in any order: a binding may arrive before its role.
//! Deliberately not here: reading from a store, and checking objects that are written (see [`mod@write`]).

mod binding;
mod cover;
pub mod write;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use meta::Value;
use meta::field::quote;
use parking_lot::RwLock;

pub use cover::{breakdown, compact, uncovered};

use binding::{Binding, RoleKind, Subject};

use crate::attributes::{Attributes, Target, Verdict};
use crate::user::quote_list;
use crate::{PolicyRule, User};

/// The API group of all four kinds.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// How many missing rules a refusal lists.
const MAX_DESCRIBED: usize = 1000;

/// The kinds that make up the policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
}

/// The policy. Shared by all requests; readers do not wait for each other.
#[derive(Debug, Default)]
pub struct Rbac {
    state: RwLock<State>,
}

/// Namespace and name; the namespace is empty for cluster-wide kinds.
type Key = (Box<str>, Box<str>);
/// The bindings of one subject: by namespace (empty: cluster-wide), then by name.
type Bound = HashMap<Box<str>, BTreeMap<Box<str>, Arc<Binding>>>;

/// The roles of one namespace, by name.
type Roles = HashMap<Box<str>, Arc<[PolicyRule]>>;

#[derive(Debug, Default)]
struct State {
    /// By namespace; ClusterRoles are under the empty one.
    roles: HashMap<Box<str>, Roles>,
    bindings: HashMap<Key, Arc<Binding>>,
    by_user: HashMap<Box<str>, Bound>,
    by_group: HashMap<Box<str>, Bound>,
}

impl Rbac {
    /// No roles, no bindings: nobody may do anything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an object that was created or changed.
    pub fn upsert(&self, kind: RbacKind, namespace: &str, name: &str, object: &Value) {
        match kind {
            RbacKind::Role | RbacKind::ClusterRole => {
                let rules: Arc<[PolicyRule]> = PolicyRule::all_from_json(object).into();
                let namespace = if kind == RbacKind::ClusterRole { "" } else { namespace };
                let mut state = self.state.write();
                state.roles.entry(namespace.into()).or_default().insert(name.into(), rules);
            }
            RbacKind::RoleBinding | RbacKind::ClusterRoleBinding => {
                let namespace = if kind == RbacKind::ClusterRoleBinding { "" } else { namespace };
                let binding = Arc::new(Binding::from_json(namespace, name, object));
                let mut state = self.state.write();
                state.unbind(namespace, name);
                state.bind(&binding);
            }
        }
    }

    /// Forgets an object that was deleted.
    pub fn remove(&self, kind: RbacKind, namespace: &str, name: &str) {
        let mut state = self.state.write();
        match kind {
            RbacKind::Role => state.remove_role(namespace, name),
            RbacKind::ClusterRole => state.remove_role("", name),
            RbacKind::RoleBinding => state.unbind(namespace, name),
            RbacKind::ClusterRoleBinding => state.unbind("", name),
        }
    }

    /// Whether some binding allows this.
    pub fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let namespace = match attributes.target {
            Target::Resource { namespace, .. } => namespace,
            Target::Path(_) => "",
        };
        let mut errors = Vec::new();
        let state = self.state.read();
        let allowed = state.visit(attributes.user, namespace, |binding, subject, rules| match rules {
            Ok(rules) if rules.iter().any(|it| it.allows(attributes)) => Some(binding.reason(subject)),
            Ok(_) => None,
            Err(error) => {
                errors.push(error);
                None
            }
        });
        match allowed {
            Some(reason) => Verdict::Allow(reason),
            None if errors.is_empty() => Verdict::NoOpinion(String::new()),
            None => Verdict::NoOpinion(format!("RBAC: {}", aggregate_errors(&errors))),
        }
    }

    /// Everything that the user may do in the namespace, cluster-wide grants included.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let mut found = Rules::default();
        for rule in self.held(user, namespace, &mut found.errors) {
            if !rule.resources.is_empty() {
                let rule = PolicyRule { non_resource_urls: Vec::new(), ..rule.clone() };
                found.resource_rules.push(rule);
            }
            if !rule.non_resource_urls.is_empty() {
                let (non_resource_urls, verbs) = (rule.non_resource_urls, rule.verbs);
                found.non_resource_rules.push(PolicyRule {
                    non_resource_urls,
                    verbs,
                    ..PolicyRule::default()
                });
            }
        }
        found
    }

    /// The rules of the role that a binding in this namespace refers to; `None` if there is no such role.
    pub fn role_rules(&self, kind: &str, namespace: &str, name: &str) -> Option<Arc<[PolicyRule]>> {
        self.state.read().role(RoleKind::from_name(kind), namespace, name)
    }

    /// Whether the user holds everything in `wanted` already; the error is the message for the 403.
    pub fn check_escalation(
        &self,
        user: &User,
        namespace: &str,
        wanted: &[PolicyRule],
    ) -> Result<(), String> {
        let mut errors = Vec::new();
        let held = self.held(user, namespace, &mut errors);
        let missing = uncovered(&held, wanted);
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

    fn held(&self, user: &User, namespace: &str, errors: &mut Vec<String>) -> Vec<PolicyRule> {
        let mut held = Vec::new();
        let state = self.state.read();
        let _: Option<()> = state.visit(user, namespace, |_, _, rules| {
            match rules {
                Ok(rules) => held.extend(rules.iter().cloned()),
                Err(error) => errors.push(error),
            }
            None
        });
        held
    }
}

impl State {
    /// Calls `look` for every binding that applies: cluster-wide ones first, then the namespace's, until it answers.
    fn visit<T>(
        &self,
        user: &User,
        namespace: &str,
        mut look: impl FnMut(&Binding, Subject<'_>, Result<&[PolicyRule], String>) -> Option<T>,
    ) -> Option<T> {
        let scopes: &[&str] = if namespace.is_empty() { &[""] } else { &["", namespace] };
        for scope in scopes {
            let of_user = self.by_user.get(user.name.as_str()).map(|it| (Subject::User(&user.name), it));
            let of_groups = user
                .groups
                .iter()
                .filter_map(|group| self.by_group.get(group.as_str()).map(|it| (Subject::Group(group), it)));
            for (subject, bound) in of_user.into_iter().chain(of_groups) {
                for binding in bound.get(*scope).into_iter().flat_map(BTreeMap::values) {
                    let rules = self.rules_of(binding);
                    if let Some(answer) = look(binding, subject, rules) {
                        return Some(answer);
                    }
                }
            }
        }
        None
    }

    fn rules_of(&self, binding: &Binding) -> Result<&[PolicyRule], String> {
        let scope: &str = match binding.role_kind {
            RoleKind::ClusterRole => "",
            RoleKind::Role if !binding.namespace.is_empty() => &binding.namespace,
            RoleKind::Role | RoleKind::Unknown => return Err("unsupported role reference kind".to_owned()),
        };
        match self.roles.get(scope).and_then(|it| it.get(&binding.role_name)) {
            Some(rules) => Ok(rules),
            None => {
                let kind = if binding.role_kind == RoleKind::ClusterRole { "clusterrole" } else { "role" };
                Err(format!("{kind}.{GROUP} {} not found", quote(&binding.role_name)))
            }
        }
    }

    fn role(&self, kind: RoleKind, namespace: &str, name: &str) -> Option<Arc<[PolicyRule]>> {
        let scope = match kind {
            RoleKind::ClusterRole => "",
            RoleKind::Role if !namespace.is_empty() => namespace,
            RoleKind::Role | RoleKind::Unknown => return None,
        };
        self.roles.get(scope)?.get(name).cloned()
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
                let bound = index.entry(subject.clone()).or_default();
                let names = bound.entry(binding.namespace.clone()).or_default();
                names.insert(binding.name.clone(), Arc::clone(binding));
            }
        }
        self.bindings.insert((binding.namespace.clone(), binding.name.clone()), Arc::clone(binding));
    }

    fn unbind(&mut self, namespace: &str, name: &str) {
        let Some(binding) = self.bindings.remove(&(Box::from(namespace), Box::from(name))) else {
            return;
        };
        for (subjects, index) in [(&binding.users, &mut self.by_user), (&binding.groups, &mut self.by_group)]
        {
            for subject in subjects {
                forget(index, subject, namespace, name);
            }
        }
    }
}

fn forget(index: &mut HashMap<Box<str>, Bound>, subject: &str, namespace: &str, name: &str) {
    let Some(bound) = index.get_mut(subject) else { return };
    if let Some(names) = bound.get_mut(namespace) {
        names.remove(name);
        if names.is_empty() {
            bound.remove(namespace);
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
