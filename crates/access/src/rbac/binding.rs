//! One binding: whom it is for, which role it names, and how a decision that it allowed is explained.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use meta::Value;
use meta::field::quote;

use crate::user::service_account_username;

#[derive(Debug)]
pub(super) struct Binding {
    /// At which it was read.
    pub(super) revision: u64,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) role_kind: RoleKind,
    pub(super) role_name: Arc<str>,
    pub(super) users: BTreeSet<Arc<str>>,
    pub(super) groups: BTreeSet<Arc<str>>,
    /// How messages name a user: by user name, `User "x"` or `ServiceAccount "x/ns"`.
    shown_users: HashMap<Arc<str>, Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RoleKind {
    Role,
    ClusterRole,
    /// Neither of the two; such a binding grants nothing.
    Unknown,
}

/// Who a binding applied to.
#[derive(Clone, Copy)]
pub(super) enum Subject<'a> {
    User(&'a str),
    Group(&'a str),
}

impl RoleKind {
    pub(super) fn from_name(kind: &str) -> Self {
        match kind {
            "Role" => Self::Role,
            "ClusterRole" => Self::ClusterRole,
            _ => Self::Unknown,
        }
    }
}

impl Binding {
    pub(super) fn from_json(namespace: &str, name: &str, object: &Value) -> Self {
        let role_ref = object.get("roleRef").unwrap_or(&Value::Null);
        let mut binding = Self {
            revision: 0,
            namespace: namespace.into(),
            name: name.into(),
            role_kind: RoleKind::from_name(text(role_ref, "kind")),
            role_name: text(role_ref, "name").into(),
            users: BTreeSet::new(),
            groups: BTreeSet::new(),
            shown_users: HashMap::new(),
        };
        for subject in object.get("subjects").and_then(Value::as_array).into_iter().flatten() {
            binding.add_subject(subject);
        }
        binding
    }

    fn add_subject(&mut self, subject: &Value) {
        let name = text(subject, "name");
        match text(subject, "kind") {
            "User" => {
                self.users.insert(name.into());
                self.shown_users.insert(name.into(), format!("User {}", quote(name)).into());
            }
            "Group" => {
                self.groups.insert(name.into());
            }
            "ServiceAccount" => {
                let own = text(subject, "namespace");
                let namespace = if own.is_empty() { &*self.namespace } else { own };
                if namespace.is_empty() {
                    return; // A cluster-wide binding must say which namespace it means.
                }
                let username: Arc<str> = service_account_username(namespace, name).into();
                let shown = format!("ServiceAccount {}", quote(&format!("{name}/{namespace}")));
                self.users.insert(username.clone());
                self.shown_users.entry(username).or_insert_with(|| shown.into());
            }
            _ => {}
        }
    }

    /// Which role it names.
    pub(super) fn role_ref(&self) -> (RoleKind, Arc<str>) {
        (self.role_kind, Arc::clone(&self.role_name))
    }

    pub(super) fn reason(&self, subject: Subject<'_>) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.to_string())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let role_kind = if self.role_kind == RoleKind::ClusterRole { "ClusterRole" } else { "Role" };
        let to = match subject {
            Subject::Group(group) => format!("Group {}", quote(group)),
            Subject::User(user) => match self.shown_users.get(user) {
                Some(shown) => shown.to_string(),
                None => format!("User {}", quote(user)),
            },
        };
        format!("RBAC: allowed by {kind} {} of {role_kind} {} to {to}", quote(&name), quote(&self.role_name))
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or("")
}
