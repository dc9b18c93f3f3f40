//! Whether the rules that somebody holds cover the rules that they want to grant.
//!
//! Every wanted rule is broken down into single (group, resource, verb, name) or (path, verb) rules; each must be
//! covered by one held rule. This is upstream's algorithm, its over-strictness included: two held rules never add up.

use std::collections::HashMap;

use crate::PolicyRule;
use crate::rule::has;

/// How many single rules are looked at. The lists of one rule multiply, so a small body can stand for millions.
const MAX_SINGLES: usize = 10_000;

/// The single rules that no held rule covers, in the order in which they were wanted.
/// Beyond a bound, a rule that is not covered as a whole counts as missing as a whole.
pub fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Vec<PolicyRule> {
    let mut missing = Vec::new();
    let mut budget = MAX_SINGLES;
    for rule in wanted {
        // A rule that is covered as a whole need not be broken down, which saves work when someone holds everything.
        if held.iter().any(|it| covers_all_of(it, rule)) {
            continue;
        }
        let Some(left) = budget.checked_sub(n_singles(rule)) else {
            missing.push(rule.clone());
            continue;
        };
        budget = left;
        for single in breakdown(rule) {
            if !held.iter().any(|it| covers(it, &single)) {
                missing.push(single);
            }
        }
    }
    missing
}

/// The single rules that a rule stands for.
pub fn breakdown(rule: &PolicyRule) -> Vec<PolicyRule> {
    let mut singles = Vec::new();
    let unnamed: &[Option<&String>] = &[None];
    let named: Vec<Option<&String>> = rule.resource_names.iter().map(Some).collect();
    let names = if named.is_empty() { unnamed } else { &named };
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                for name in names {
                    singles.push(PolicyRule {
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        verbs: vec![verb.clone()],
                        resource_names: name.iter().map(|it| (*it).clone()).collect(),
                        non_resource_urls: Vec::new(),
                    });
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            singles.push(PolicyRule::urls(&[url], &[verb]));
        }
    }
    singles
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

fn n_singles(rule: &PolicyRule) -> usize {
    let n_names = rule.resource_names.len().max(1);
    let n_resources = rule.api_groups.len().saturating_mul(rule.resources.len()).saturating_mul(n_names);
    n_resources.saturating_add(rule.non_resource_urls.len()).saturating_mul(rule.verbs.len())
}

fn covers(held: &PolicyRule, single: &PolicyRule) -> bool {
    covers_list(&held.verbs, &single.verbs)
        && covers_list(&held.api_groups, &single.api_groups)
        && single.resources.iter().all(|it| covers_resource(&held.resources, it))
        && single.non_resource_urls.iter().all(|it| covers_url(&held.non_resource_urls, it))
        && covers_names(&held.resource_names, &single.resource_names)
}

/// Like [`covers`], for a whole rule. Resources and paths in one rule never cover each other, so both must fit.
fn covers_all_of(held: &PolicyRule, rule: &PolicyRule) -> bool {
    let is_about_one = rule.resources.is_empty() || rule.non_resource_urls.is_empty();
    is_about_one && covers(held, rule)
}

fn covers_list(held: &[String], wanted: &[String]) -> bool {
    has(held, "*") || wanted.iter().all(|it| has(held, it))
}

fn covers_resource(held: &[String], wanted: &str) -> bool {
    if has(held, "*") || has(held, wanted) {
        return true;
    }
    match wanted.split_once('/') {
        Some((_, subresource)) => has(held, &format!("*/{subresource}")),
        None => false,
    }
}

fn covers_url(held: &[String], wanted: &str) -> bool {
    held.iter().any(|it| it == wanted || (it.ends_with('*') && wanted.starts_with(it.trim_end_matches('*'))))
}

fn covers_names(held: &[String], wanted: &[String]) -> bool {
    held.is_empty() || (!wanted.is_empty() && wanted.iter().all(|it| has(held, it)))
}
