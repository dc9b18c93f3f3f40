//! Selectors, names and metadata.

use meta::{
    FieldSelector, LabelSelector, name,
    validate::{NameRule, metadata_shape, validate_object_meta, validate_object_meta_update},
};
use schema::json::{self, Limits};

/// A selector that was accepted is written in a form that means the same.
pub(crate) fn label_selector(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(selector) = LabelSelector::parse(&text) else { return };
    let again = LabelSelector::parse(&selector.to_string()).expect("a written selector must be readable");
    assert_eq!(again, selector);
    for value in [None, Some(""), Some("1"), Some("a")] {
        assert_eq!(again.matches(|_| value), selector.matches(|_| value));
    }
    assert!(!selector.is_everything() || selector.matches(|_| None));
}

/// As [`label_selector`]; the order of the terms may change.
pub(crate) fn field_selector(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(selector) = FieldSelector::parse(&text) else { return };
    let again = FieldSelector::parse(&selector.to_string()).expect("a written selector must be readable");
    assert_eq!(again.requirements().len(), selector.requirements().len());
    for requirement in selector.requirements() {
        assert!(again.requirements().contains(requirement));
    }
    for value in [None, Some(""), Some("a")] {
        assert_eq!(again.matches(|_| value), selector.matches(|_| value));
    }
}

/// Names from the bytes as they are, and metadata from an object, a newline and an older object.
pub(crate) fn metadata(data: &[u8]) {
    names(&String::from_utf8_lossy(data));
    let (new, old) = match data.iter().position(|it| *it == b'\n') {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, data),
    };
    let Ok(new) = json::parse(new, Limits::REQUEST) else { return };
    let old = json::parse(old, Limits::REQUEST).unwrap_or_default();
    let has_shape = metadata_shape(&new).is_ok();
    let errors = validate_object_meta(&new, true, NameRule::Subdomain);
    if has_shape && errors.is_empty() {
        let name = meta::object::name(&new);
        assert!((1..=253).contains(&name.len()) && !name.contains('/'));
        assert!(meta::object::namespace(&new).len() <= 63);
    }
    let kind = meta::GroupKind::new("", "Fuzz");
    let _ = errors.into_status(&kind, "fuzz").to_json();
    let _ = validate_object_meta_update(&new, &old).into_status(&kind, "fuzz").to_json();
}

fn names(text: &str) {
    for rule in [
        NameRule::Subdomain,
        NameRule::Label,
        NameRule::Dns1035Label,
        NameRule::PathSegment,
        NameRule::CronJob,
        NameRule::StorageVersion,
    ] {
        let is_good = rule.check(text).is_empty();
        let _ = rule.check_prefix(text);
        // A name becomes a part of a path and of a key in the store.
        assert!(!is_good || !text.contains('/'));
    }
    assert!(!name::dns_1035_label(text).is_empty() || name::dns_label(text).is_empty());
    assert!(!name::dns_label(text).is_empty() || name::label_value(text).is_empty());
    assert!(!name::dns_label(text).is_empty() || name::qualified(text).is_empty());
}
