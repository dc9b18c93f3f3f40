//! Which names a definition gets, and what its conditions say about it. Pure.

use std::collections::BTreeMap;

use super::definition::{Condition, Crd, Names};

/// The names that definitions have, by definition. Only definitions of one group can be in each other's way.
#[derive(Debug, Default)]
pub(crate) struct Accepted(BTreeMap<String, (String, Names)>);

/// What is to be written into the status of a definition.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) names: Names,
    pub(crate) conditions: Vec<Condition>,
    /// Everything is as it must be for the resource to be served.
    pub(crate) is_established: bool,
}

impl Accepted {
    /// Notes what a definition has.
    pub(crate) fn note(&mut self, name: &str, group: &str, names: Names) {
        self.0.insert(name.to_owned(), (group.to_owned(), names));
    }

    /// A definition is gone.
    pub(crate) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// What a definition should have. The answer is equal to what it has if nothing is to be done.
    pub(crate) fn decide(&self, crd: &Crd) -> Decision {
        let wanted = &crd.spec.names;
        let mut names = crd.status.accepted_names.clone();
        let mut conflict: Option<(&str, String)> = None;
        let others = self.others(crd);
        let is_free = |name: &str, accepted: &str, used: &[&str]| name == accepted || !used.contains(&name);
        let taken = |name: &str| format!("{} is already in use", meta::field::quote(name));
        let fields = [
            ("PluralConflict", &wanted.plural, &mut names.plural, &others.resources),
            ("SingularConflict", &wanted.singular, &mut names.singular, &others.resources),
        ];
        for (reason, wanted, accepted, used) in fields {
            take(reason, wanted, accepted, used, &mut conflict);
        }
        let used: Vec<&String> = wanted
            .short_names
            .iter()
            .filter(|it| !is_free(it, "", &others.resources) && !names.short_names.contains(it))
            .collect();
        if used.is_empty() {
            names.short_names.clone_from(&wanted.short_names);
        } else {
            let texts: Vec<String> = used.iter().map(|it| taken(it)).collect();
            let text =
                if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
            conflict.get_or_insert(("ShortNamesConflict", text));
        }
        let fields = [
            ("KindConflict", &wanted.kind, &mut names.kind),
            ("ListKindConflict", &wanted.list_kind, &mut names.list_kind),
        ];
        for (reason, wanted, accepted) in fields {
            take(reason, wanted, accepted, &others.kinds, &mut conflict);
        }
        names.categories.clone_from(&wanted.categories);
        let conditions = conditions(crd, conflict);
        let is_established = conditions.iter().any(|it| it.kind == "Established" && it.status == "True");
        Decision { names, conditions, is_established }
    }

    fn others(&self, crd: &Crd) -> Others<'_> {
        let mut others = Others::default();
        for (name, (group, names)) in &self.0 {
            if *name == crd.metadata.name || *group != crd.spec.group {
                continue;
            }
            let short = names.short_names.iter().map(String::as_str);
            others
                .resources
                .extend([names.plural.as_str(), names.singular.as_str()].into_iter().chain(short));
            others.kinds.extend([names.kind.as_str(), names.list_kind.as_str()]);
        }
        others
    }
}

#[derive(Default)]
struct Others<'a> {
    resources: Vec<&'a str>,
    kinds: Vec<&'a str>,
}

fn take<'r>(
    reason: &'r str,
    wanted: &str,
    accepted: &mut String,
    used: &[&str],
    conflict: &mut Option<(&'r str, String)>,
) {
    if wanted == accepted || !used.contains(&wanted) {
        wanted.clone_into(accepted);
    } else {
        conflict.get_or_insert((reason, format!("{} is already in use", meta::field::quote(wanted))));
    }
}

/// The conditions that a definition should have, in the order in which upstream comes to set them.
fn conditions(crd: &Crd, conflict: Option<(&str, String)>) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = crd.status.conditions.clone().unwrap_or_default();
    let is_accepted = conflict.is_none();
    let accepted = match conflict {
        None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        Some((reason, message)) => condition("NamesAccepted", false, reason, &message),
    };
    set(&mut conditions, accepted);
    let was_established = crd.has("Established");
    if is_accepted && !was_established {
        let message = "the initial names have been accepted";
        set(&mut conditions, condition("Established", true, "InitialNamesAccepted", message));
    } else if !was_established {
        set(&mut conditions, condition("Established", false, "NotAccepted", "not all names are accepted"));
    }
    if let Some(approval) = approval(crd) {
        set(&mut conditions, approval);
    }
    conditions
}

/// Groups of the Kubernetes community say whether their API was approved.
fn approval(crd: &Crd) -> Option<Condition> {
    const KIND: &str = "KubernetesAPIApprovalPolicyConformant";
    if !super::rules::is_protected(&crd.spec.group) {
        return None;
    }
    let annotation =
        crd.metadata.annotations.get(super::rules::APPROVAL).map(String::as_str).unwrap_or_default();
    Some(if annotation.starts_with("unapproved") {
        let message = format!("not approved: {}", meta::field::quote(annotation));
        condition(KIND, false, "UnapprovedAnnotation", &message)
    } else {
        condition(KIND, true, "ApprovedAnnotation", &format!("approved in {annotation}"))
    })
}

pub(crate) fn condition(kind: &str, is_true: bool, reason: &str, message: &str) -> Condition {
    Condition {
        kind: kind.to_owned(),
        status: if is_true { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: None,
    }
}

/// Puts a condition in. One that says the same keeps the time at which it came to do so.
pub(crate) fn set(conditions: &mut Vec<Condition>, mut new: Condition) {
    match conditions.iter_mut().find(|it| it.kind == new.kind) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time.clone_from(&old.last_transition_time);
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(plural: &str, kind: &str, short: &[&str]) -> Crd {
        serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.x.y")},
            "spec": {"group": "x.y", "scope": "Namespaced", "versions": [],
                "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List"),
                    "shortNames": short}},
        }))
        .unwrap()
    }

    #[test]
    fn the_first_gets_the_name_and_the_second_is_told() {
        let mut accepted = Accepted::default();
        let first = accepted.decide(&crd("as", "A", &["s"]));
        assert!(first.is_established);
        assert_eq!(first.names.short_names, ["s"]);
        accepted.note("as.x.y", "x.y", first.names);
        let second = accepted.decide(&crd("bs", "A", &["s"]));
        assert!(!second.is_established);
        let told = &second.conditions[0];
        assert_eq!(
            (told.reason.as_str(), told.message.as_str()),
            ("ShortNamesConflict", "\"s\" is already in use")
        );
        assert_eq!(second.names.kind, "");
        assert_eq!(second.names.plural, "bs");
        accepted.forget("as.x.y");
        assert!(accepted.decide(&crd("bs", "A", &["s"])).is_established);
    }

    #[test]
    fn a_definition_keeps_what_it_has_and_stays_established() {
        let mut accepted = Accepted::default();
        let mut mine = crd("as", "A", &[]);
        let decision = accepted.decide(&mine);
        mine.status.accepted_names = decision.names.clone();
        mine.status.conditions = Some(decision.conditions.clone());
        accepted.note("as.x.y", "x.y", decision.names.clone());
        assert_eq!(accepted.decide(&mine), decision);
        accepted.note("bs.x.y", "x.y", crd("bs", "B", &["z"]).spec.names);
        mine.spec.names.short_names = vec!["z".to_owned()];
        let conflict = accepted.decide(&mine);
        assert!(conflict.is_established, "an established definition stays so");
        assert_eq!(conflict.conditions[0].status, "False");
    }
}
