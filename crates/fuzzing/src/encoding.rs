//! JSON and patches.

use schema::{
    Value,
    json::{self, Limits},
    patch::{self, PatchKind},
};

/// What is read can be written and read again, also in the layout of the store.
pub(crate) fn json(data: &[u8]) {
    let Ok(report) = json::parse_report(data, Limits::REQUEST) else { return };
    assert!(report.duplicates.len() <= 100);
    same_again(&report.value);
    let stored = json::encode_stored(&report.value);
    assert!(stored.starts_with(b"{\"apiVersion\":\""));
    let again = json::parse_report(&stored, Limits::STORED).expect("a stored object must be readable");
    assert!(again.duplicates.is_empty());
    assert_eq!(json::encode_stored(&again.value), stored);
}

/// An object, a newline, a JSON patch.
pub(crate) fn json_patch(data: &[u8]) {
    patched(PatchKind::Json, data);
}

/// An object, a newline, a merge patch.
pub(crate) fn merge_patch(data: &[u8]) {
    if let Some((_, body, patched)) = patched(PatchKind::Merge, data) {
        // A merge patch without arrays says how things shall be, so saying it twice changes nothing.
        if !body.contains(&b'[') {
            let twice = patch::apply(PatchKind::Merge, body, &patched);
            assert_eq!(twice.as_ref(), Ok(&patched));
        }
    }
}

fn patched(kind: PatchKind, data: &[u8]) -> Option<(Value, &[u8], Value)> {
    let at = data.iter().position(|it| *it == b'\n')?;
    let original = json::parse(&data[..at], Limits::REQUEST).ok()?;
    let body = &data[at + 1..];
    match patch::apply(kind, body, &original) {
        Ok(patched) => {
            same_again(&patched);
            Some((original, body, patched))
        }
        Err(error) => {
            assert!((400..=422).contains(&error.status().code));
            None
        }
    }
}

fn same_again(value: &Value) {
    let again = json::parse(&json::to_vec(value), Limits::STORED).expect("what was written must be readable");
    assert_eq!(&again, value);
}
