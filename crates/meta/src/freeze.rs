//! A definition whose storage version must stay what it is while its objects are migrated (KEP-2855).
//!
//! Deliberately not here: who freezes and refuses; see the migrator and the registry.

use jiff::Timestamp;

use crate::{Map, Value, time};

/// `"true"` while a migration runs. KEP-2855's name.
pub const FROZEN: &str = "ksvm.sigs.k8s.io/migrating";
/// Whose migration it is: `<group>/<name>`.
pub const FROZEN_BY: &str = "convoy.dev/migration";
/// When the freeze ends by itself.
pub const FROZEN_UNTIL: &str = "convoy.dev/migrating-until";

/// All annotations that are about it.
pub const ANNOTATIONS: [&str; 3] = [FROZEN, FROZEN_BY, FROZEN_UNTIL];

/// Whether a definition is frozen at a moment.
pub fn is_frozen(crd: &Value, now: Timestamp) -> bool {
    let until = annotation(crd, FROZEN_UNTIL).and_then(time::parse_time);
    annotation(crd, FROZEN) == Some("true") && until.is_none_or(|it| it > now)
}

/// One annotation.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The version that is stored.
pub fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd.get("spec")?.get("versions")?.as_array()?;
    let storage = versions.iter().find(|it| it.get("storage").and_then(Value::as_bool) == Some(true))?;
    storage.get("name")?.as_str()
}

/// Gives the new state of a definition the freeze of the old one: whoever replaces it need not know about migrations.
pub fn keep(new: &mut Value, old: &Value) {
    let metadata = crate::object::metadata_mut(new);
    for key in ANNOTATIONS {
        match annotation(old, key) {
            Some(value) => {
                let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
                crate::object::as_map_mut(annotations).insert(key.to_owned(), Value::from(value));
            }
            None => {
                if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
                    annotations.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_freeze_ends_by_itself() {
        let crd =
            json!({"metadata": {"annotations": {FROZEN: "true", FROZEN_UNTIL: "2026-11-16T12:00:00Z"}}});
        assert!(is_frozen(&crd, "2026-11-16T11:59:59Z".parse().unwrap()));
        assert!(!is_frozen(&crd, "2026-11-16T12:00:00Z".parse().unwrap()));
        assert!(!is_frozen(&json!({"metadata": {}}), "2026-11-16T12:00:00Z".parse().unwrap()));
        // The proposal alone has no end.
        let bare = json!({"metadata": {"annotations": {FROZEN: "true"}}});
        assert!(is_frozen(&bare, "2026-11-16T12:00:00Z".parse().unwrap()));
    }

    #[test]
    fn a_replaced_definition_keeps_its_freeze() {
        let old = json!({"metadata": {"annotations": {FROZEN: "true", FROZEN_BY: "a/b", "x": "y"}}});
        let mut new = json!({"metadata": {"name": "n"}});
        keep(&mut new, &old);
        let expected = json!({"metadata": {"name": "n", "annotations": {FROZEN: "true", FROZEN_BY: "a/b"}}});
        assert_eq!(new, expected);
        keep(&mut new, &json!({"metadata": {}}));
        assert_eq!(annotation(&new, FROZEN), None);
    }
}
