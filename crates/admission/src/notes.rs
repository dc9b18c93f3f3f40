//! What admission has to say besides yes and no: warnings for the client, annotations for the audit log.

use std::collections::{BTreeMap, HashSet};

use parking_lot::Mutex;

/// Characters of all warnings of one answer, at most, and of each of them once that is too little; as upstream.
const MAX_WARNINGS: usize = 4 * 1024;
const MAX_WARNING: usize = 256;
/// Annotations of one request, at most.
const MAX_ANNOTATIONS: usize = 100;

/// What is collected during one request.
#[derive(Debug, Default)]
pub struct Notes {
    warnings: Mutex<Vec<String>>,
    annotations: Mutex<BTreeMap<String, String>>,
}

impl Notes {
    /// Warns the client.
    pub fn warn(&self, warning: String) {
        let mut warnings = self.warnings.lock();
        // Every one that counts has at least a character.
        if !warning.is_empty() && warnings.len() < MAX_WARNINGS {
            warnings.push(warning);
        }
    }

    /// Adds to the audit record, unless the key is there already.
    pub fn annotate(&self, key: String, value: String) {
        let mut annotations = self.annotations.lock();
        if annotations.len() < MAX_ANNOTATIONS {
            annotations.entry(key).or_insert(value);
        }
    }

    /// The warnings so far; there are none afterwards.
    pub fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock())
    }

    /// The annotations so far; there are none afterwards.
    pub fn take_annotations(&self) -> BTreeMap<String, String> {
        std::mem::take(&mut *self.annotations.lock())
    }
}

/// The warnings that fit into an answer: each once, all of them in full if there is room, else shortened.
pub fn limited(warnings: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    let once: Vec<String> = warnings.into_iter().filter(|it| seen.insert(it.clone())).collect();
    let length = |it: &String| it.chars().count();
    if once.iter().map(length).sum::<usize>() <= MAX_WARNINGS {
        return once;
    }
    let mut written = 0;
    let mut kept = Vec::new();
    for warning in once {
        if written >= MAX_WARNINGS {
            break;
        }
        let warning: String = warning.chars().take(MAX_WARNING).collect();
        written += length(&warning);
        kept.push(warning);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_shortened_only_when_there_are_too_many() {
        let long = "x".repeat(4000);
        assert_eq!(limited(vec![long.clone(), long.clone()]), *std::slice::from_ref(&long));
        let cut = limited(vec![long, "y".repeat(300), "z".to_owned()]);
        assert_eq!(cut.iter().map(String::len).collect::<Vec<_>>(), [256, 256, 1]);
        let many: Vec<String> = (0..10_000).map(|it| format!("{it:0300}")).collect();
        assert_eq!(limited(many).len(), 16);
    }
}
