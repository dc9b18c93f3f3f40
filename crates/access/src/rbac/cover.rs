//! Whether the rules that somebody holds cover the rules that they want to grant.
//!
//! Every wanted rule is broken down into single (group, resource, verb, name) or (path, verb) rules; each must be
//! covered by one held rule. This is upstream's algorithm, its over-strictness included: two held rules never add up.
//! Both sides are written by strangers, and their lengths multiply: what is not found covered within a bound is not.

use std::cell::Cell;
use std::collections::HashMap;

use super::role::HeldRule;
use super::words::Words;
use crate::PolicyRule;

/// How many single rules are looked at. The lists of one rule multiply, so a small body can stand for millions.
const MAX_SINGLES: usize = 10_000;

/// How often something is looked up in a held rule, for one decision: less than a second.
const MAX_LOOKUPS: usize = 10_000_000;

/// How much more may be looked up for a decision.
#[derive(Debug)]
pub(super) struct Effort(Cell<usize>);

impl Default for Effort {
    fn default() -> Self {
        Self(Cell::new(MAX_LOOKUPS))
    }
}

impl Effort {
    /// Whether there was any left.
    fn spend(&self) -> bool {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        left > 0
    }

    pub(super) fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}

/// A rule that somebody wants to grant. Its texts are where they were.
#[derive(Clone, Debug)]
pub(super) struct Wanted<'a> {
    groups: Vec<&'a str>,
    resources: Vec<&'a str>,
    names: Vec<&'a str>,
    urls: Vec<&'a str>,
    verbs: Vec<&'a str>,
}

impl<'a> Wanted<'a> {
    pub(super) fn of(rule: &'a PolicyRule) -> Self {
        let PolicyRule { api_groups, non_resource_urls, resource_names, resources, verbs } = rule;
        let words = |list: &'a [String]| list.iter().map(String::as_str).collect();
        Self {
            groups: words(api_groups),
            resources: words(resources),
            names: words(resource_names),
            urls: words(non_resource_urls),
            verbs: words(verbs),
        }
    }

    pub(super) fn of_held(rule: &'a HeldRule) -> Self {
        let HeldRule { groups, resources, names, urls, verbs } = rule;
        let words = |list: &'a Words| list.iter().collect();
        Self {
            groups: words(groups),
            resources: words(resources),
            names: words(names),
            urls: words(urls),
            verbs: words(verbs),
        }
    }

    fn to_rule(&self) -> PolicyRule {
        let words = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect();
        PolicyRule {
            api_groups: words(&self.groups),
            non_resource_urls: words(&self.urls),
            resource_names: words(&self.names),
            resources: words(&self.resources),
            verbs: words(&self.verbs),
        }
    }

    fn n_singles(&self) -> usize {
        let n_names = self.names.len().max(1);
        let n_resources = self.groups.len().saturating_mul(self.resources.len()).saturating_mul(n_names);
        n_resources.saturating_add(self.urls.len()).saturating_mul(self.verbs.len())
    }

    /// The single rules that it stands for.
    fn singles(&self) -> impl Iterator<Item = Single<'a>> {
        let names: Vec<Option<&'a str>> = match self.names.is_empty() {
            true => vec![None],
            false => self.names.iter().copied().map(Some).collect(),
        };
        let mut singles = Vec::new();
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    singles.extend(names.iter().map(|name| Single::Resource {
                        group,
                        resource,
                        verb,
                        name: *name,
                    }));
                }
            }
        }
        for url in &self.urls {
            singles.extend(self.verbs.iter().map(|verb| Single::Path { url, verb }));
        }
        singles.into_iter()
    }
}

/// What cannot be broken down any further.
enum Single<'a> {
    Resource { group: &'a str, resource: &'a str, verb: &'a str, name: Option<&'a str> },
    Path { url: &'a str, verb: &'a str },
}

impl Single<'_> {
    fn to_rule(&self) -> PolicyRule {
        match *self {
            Self::Resource { group, resource, verb, name } => {
                let mut rule = PolicyRule::resources(&[group], &[resource], &[verb]);
                rule.resource_names = name.iter().map(|it| (*it).to_owned()).collect();
                rule
            }
            Self::Path { url, verb } => PolicyRule::urls(&[url], &[verb]),
        }
    }
}

/// The single rules that no held rule covers, in the order in which they were wanted.
pub fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let held: Vec<HeldRule> = held.iter().map(HeldRule::of).collect();
    let (held, wanted): (Vec<_>, Vec<_>) = (held.iter().collect(), wanted.iter().map(Wanted::of).collect());
    missing(&held, &wanted, &Effort::default())
}

/// The same for rules that are somewhere else, within what is left of the effort.
/// Beyond a bound, a rule that is not covered as a whole counts as missing as a whole.
pub(super) fn missing(held: &[&HeldRule], wanted: &[Wanted<'_>], effort: &Effort) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    let mut budget = MAX_SINGLES;
    for rule in wanted {
        // A rule that is covered as a whole need not be broken down, which saves work when someone holds everything.
        if held.iter().any(|it| covers_all_of(it, rule, effort)) {
            continue;
        }
        let Some(left) = budget.checked_sub(rule.n_singles()).filter(|_| !effort.is_spent()) else {
            missing.push(rule.to_rule());
            continue;
        };
        budget = left;
        let is_covered = |single: &Single<'_>| held.iter().any(|it| covers(it, single, effort));
        missing.extend(rule.singles().filter(|it| !is_covered(it)).map(|it| it.to_rule()));
    }
    missing
}

/// Puts single rules about the same resource and name together again, so that a message stays readable.
pub fn compact(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut compacted: Vec<PolicyRule> = Vec::new();
    let mut places = HashMap::new();
    for rule in rules {
        if !rule.non_resource_urls.is_empty() {
            compacted.push(rule.clone());
            continue;
        }
        let place = places.entry((&rule.api_groups, &rule.resources, &rule.resource_names));
        let place = *place.or_insert(compacted.len());
        match compacted.get_mut(place) {
            Some(same) => same.verbs.extend(rule.verbs.iter().cloned()),
            None => compacted.push(rule.clone()),
        }
    }
    compacted
}

fn covers(held: &HeldRule, single: &Single<'_>, effort: &Effort) -> bool {
    match single {
        Single::Resource { group, resource, verb, name } => {
            covers_list(&held.verbs, &[verb], effort)
                && covers_list(&held.groups, &[group], effort)
                && covers_resource(&held.resources, resource, effort)
                && covers_names(&held.names, name.as_slice(), effort)
        }
        Single::Path { url, verb } => {
            covers_list(&held.verbs, &[verb], effort)
                && covers_url(&held.urls, url, effort)
                && covers_names(&held.names, &[], effort)
        }
    }
}

/// Like [`covers`], for a whole rule. Resources and paths in one rule never cover each other, so both must fit.
fn covers_all_of(held: &HeldRule, rule: &Wanted<'_>, effort: &Effort) -> bool {
    let is_about_one = rule.resources.is_empty() || rule.urls.is_empty();
    is_about_one
        && covers_list(&held.verbs, &rule.verbs, effort)
        && covers_list(&held.groups, &rule.groups, effort)
        && rule.resources.iter().all(|it| covers_resource(&held.resources, it, effort))
        && rule.urls.iter().all(|it| covers_url(&held.urls, it, effort))
        && covers_names(&held.names, &rule.names, effort)
}

fn covers_list(held: &Words, wanted: &[&str], effort: &Effort) -> bool {
    effort.spend() && (held.has("*") || wanted.iter().all(|it| effort.spend() && held.has(it)))
}

fn covers_resource(held: &Words, wanted: &str, effort: &Effort) -> bool {
    if !effort.spend() {
        return false;
    }
    if held.has("*") || held.has(wanted) {
        return true;
    }
    match wanted.split_once('/') {
        Some((_, subresource)) => held.has(&format!("*/{subresource}")),
        None => false,
    }
}

fn covers_url(held: &Words, wanted: &str, effort: &Effort) -> bool {
    let fits = |it: &str| it == wanted || (it.ends_with('*') && wanted.starts_with(it.trim_end_matches('*')));
    held.iter().any(|it| effort.spend() && fits(it))
}

fn covers_names(held: &Words, wanted: &[&str], effort: &Effort) -> bool {
    held.is_empty() || (!wanted.is_empty() && wanted.iter().all(|it| effort.spend() && held.has(it)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thousand long rules held, a thousand long rules wanted: all but the last text of each is covered.
    #[test]
    fn what_takes_too_long_is_not_covered() {
        let names: Vec<String> = (0..1_000).map(|it| it.to_string()).collect();
        let rule = |last: &str| {
            let mut rule = PolicyRule::resources(&[""], &["pods"], &["get"]);
            rule.resource_names = names.iter().cloned().chain([last.to_owned()]).collect();
            rule
        };
        let held: Vec<HeldRule> = (0..1_000).map(|_| HeldRule::of(&rule("held"))).collect();
        let held: Vec<&HeldRule> = held.iter().collect();
        let rules: Vec<PolicyRule> = (0..1_000).map(|_| rule("wanted")).collect();
        let wanted: Vec<Wanted<'_>> = rules.iter().map(Wanted::of).collect();
        let effort = Effort(Cell::new(50_000));
        assert!(!missing(&held, &wanted, &effort).is_empty());
        assert!(effort.is_spent());
        // What is covered from the start is found to be.
        let everything = HeldRule::of(&PolicyRule::resources(&["*"], &["*"], &["*"]));
        assert!(missing(&[&everything], &wanted, &Effort::default()).is_empty());
    }
}
