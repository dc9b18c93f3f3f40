//! The list of targets, by the names of their binaries and corpora.

use crate::{conversion, encoding, identity, objects, ownership, request, transcode, vocabulary};

/// A name and what it runs.
pub type Target = (&'static str, fn(&[u8]));

/// All targets. A new one also needs `fuzz/fuzz_targets/<name>.rs`, a `[[bin]]` in `fuzz/Cargo.toml` and
/// `fuzz/corpus/<name>/`; a test compares the lists.
pub const TARGETS: &[Target] = &[
    ("apply", ownership::apply_config),
    ("audit_policy", identity::audit_policy),
    ("certificate", identity::certificate),
    ("continue_token", request::continue_token),
    ("convert", conversion::between_versions),
    ("field_selector", vocabulary::field_selector),
    ("identity_headers", identity::headers),
    ("json", encoding::json),
    ("json_patch", encoding::json_patch),
    ("label_selector", vocabulary::label_selector),
    ("managed_fields", ownership::managed_fields),
    ("merge_patch", encoding::merge_patch),
    ("metadata", vocabulary::metadata),
    ("objects", objects::manifest),
    ("protobuf", transcode::protobuf),
    ("query", request::query),
    ("strategic_patch", ownership::strategic_patch),
    ("token", identity::token),
    ("token_file", identity::token_file),
    ("yaml", ownership::yaml_text),
];

/// Runs the target of this name. Unknown names are a mistake of the caller.
pub fn run(name: &str, data: &[u8]) {
    let (_, target) = TARGETS.iter().find(|(it, _)| *it == name).expect("the target must be listed");
    target(data);
}
