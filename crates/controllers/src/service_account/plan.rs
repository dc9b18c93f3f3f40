//! Which namespaces need a look, and whether one needs an account. Pure.

use std::collections::BTreeSet;

use meta::{Value, object};

use super::observe::Seen;
use crate::changes::{Change, Named};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Nothing,
    Create,
}

pub(crate) fn plan(seen: &Seen) -> Plan {
    let is_active = seen.namespace.as_ref().is_some_and(is_active);
    if is_active && !seen.has_account { Plan::Create } else { Plan::Nothing }
}

/// What one of the two watches says.
#[derive(Clone, Debug)]
pub(crate) enum News {
    Namespace(Change),
    Account(Change),
}

/// The names of active namespaces and of those with an account, as far as the watches have told.
#[derive(Debug, Default)]
pub(crate) struct Known {
    active: Names,
    with_account: Names,
}

impl Known {
    /// Takes in what a watch says; returns the namespaces that have become worth a look.
    pub(crate) fn note(&mut self, news: News) -> Vec<String> {
        let touched = match news {
            News::Namespace(change) => self.active.note(change, |it| (!it.is_deleting).then_some(it.name)),
            // An account that is being deleted still has its name; only when it is gone can another be made.
            News::Account(change) => self.with_account.note(change, |it| Some(it.namespace)),
        };
        let (Some(active), Some(with_account)) = (self.active.complete(), self.with_account.complete())
        else {
            return Vec::new();
        };
        let is_missing = |it: &String| active.contains(it) && !with_account.contains(it);
        match touched {
            Touched::Nothing => Vec::new(),
            Touched::One(name) => Some(name).into_iter().filter(is_missing).collect(),
            Touched::All => active.difference(with_account).cloned().collect(),
        }
    }
}

/// A set that follows a watch.
#[derive(Debug, Default)]
struct Names {
    /// What holds since the last complete list.
    current: Option<BTreeSet<String>>,
    /// The list that is being read.
    listed: BTreeSet<String>,
}

enum Touched {
    Nothing,
    One(String),
    All,
}

impl Names {
    /// `wanted` gives the name to keep, or `None` for an object that does not count.
    fn note(&mut self, change: Change, wanted: impl Fn(Named) -> Option<String>) -> Touched {
        match change {
            Change::ListBegins => self.listed.clear(),
            Change::Listed(object) => self.listed.extend(wanted(object)),
            Change::ListEnds => {
                self.current = Some(std::mem::take(&mut self.listed));
                return Touched::All;
            }
            Change::Applied(object) => {
                let name = wanted(Named { is_deleting: false, ..object.clone() });
                return self.set(name, wanted(object).is_some());
            }
            Change::Deleted(object) => {
                return self.set(wanted(Named { is_deleting: false, ..object }), false);
            }
        }
        Touched::Nothing
    }

    fn set(&mut self, name: Option<String>, is_in: bool) -> Touched {
        let (Some(current), Some(name)) = (&mut self.current, name) else { return Touched::Nothing };
        if is_in {
            current.insert(name.clone());
        } else {
            current.remove(&name);
        }
        Touched::One(name)
    }

    fn complete(&self) -> Option<&BTreeSet<String>> {
        self.current.as_ref()
    }
}

/// A namespace of a server that sets no phase counts as active until it is deleted.
fn is_active(namespace: &Value) -> bool {
    let phase = namespace.get("status").and_then(|it| it.get("phase")).and_then(Value::as_str);
    !object::is_deleting(namespace) && matches!(phase, None | Some("" | "Active"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_active_namespaces_without_an_account_get_one() {
        let check = |namespace: Option<Value>, has_account: bool, expect: Plan| {
            assert_eq!(plan(&Seen { namespace: namespace.clone(), has_account }), expect, "{namespace:?}");
        };
        let active = json!({"metadata": {"name": "a"}, "status": {"phase": "Active"}});
        check(Some(active.clone()), false, Plan::Create);
        check(Some(active), true, Plan::Nothing);
        check(Some(json!({"metadata": {"name": "a"}})), false, Plan::Create);
        check(Some(json!({"metadata": {}, "status": {"phase": "Terminating"}})), false, Plan::Nothing);
        let deleted =
            json!({"metadata": {"deletionTimestamp": "2026-11-15T00:00:00Z"}, "status": {"phase": "Active"}});
        check(Some(deleted), false, Plan::Nothing);
        check(None, false, Plan::Nothing);
    }

    /// `ns+a` a namespace is applied, `ns~a` it is being deleted, `ns-a` it is gone; `ns[a b]` a list; `sa…` the same
    /// for accounts.
    fn note(known: &mut Known, script: &str) -> Vec<String> {
        let (what, rest) = script.split_at(2);
        let named = |name: &str, is_deleting| match what {
            "ns" => Named { name: name.to_owned(), is_deleting, ..Named::default() },
            _ => Named { namespace: name.to_owned(), name: "default".to_owned(), is_deleting },
        };
        let (verb, name) = rest.split_at(1);
        let changes = match verb {
            "+" => vec![Change::Applied(named(name, false))],
            "~" => vec![Change::Applied(named(name, true))],
            "-" => vec![Change::Deleted(named(name, false))],
            _ => {
                let items =
                    name.trim_end_matches(']').split_whitespace().map(|it| Change::Listed(named(it, false)));
                std::iter::once(Change::ListBegins).chain(items).chain([Change::ListEnds]).collect()
            }
        };
        let news =
            changes.into_iter().map(|it| if what == "ns" { News::Namespace(it) } else { News::Account(it) });
        news.flat_map(|it| known.note(it)).collect()
    }

    #[test]
    fn namespaces_that_lack_an_account_are_looked_at() {
        let mut known = Known::default();
        let mut check =
            |script: &str, expect: &[&str]| assert_eq!(note(&mut known, script), expect, "{script}");
        check("ns[a b c]", &[]);
        // Both lists are needed for a first answer.
        check("sa[b]", &["a", "c"]);
        check("sa+a", &[]);
        check("ns+a", &[]);
        check("ns+d", &["d"]);
        check("sa+d", &[]);
        check("sa-d", &["d"]);
        // An account with finalizers is not gone yet.
        check("sa~a", &[]);
        check("sa-a", &["a"]);
        check("sa+a", &[]);
        // Never in a namespace that is going.
        check("ns~a", &[]);
        check("sa-a", &[]);
        check("ns-a", &[]);
        // A deletion that a broken watch missed shows in the next list.
        check("sa[d]", &["b", "c"]);
        check("ns[b d e]", &["b", "e"]);
    }
}
