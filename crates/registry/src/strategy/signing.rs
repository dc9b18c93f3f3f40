//! CertificateSigningRequests: who asks is written by the server, and decisions stay what they were.

use meta::{Map, Value, object};

/// What the server knows of who asks.
const REQUESTER: [&str; 4] = ["username", "uid", "groups", "extra"];

/// Writes who asks, in place of what the object says about that.
pub(super) fn note_requester(request: &mut Value, requester: Option<Map>) {
    let spec = object::child_mut(object::as_map_mut(request), "spec");
    for field in REQUESTER {
        spec.remove(field);
    }
    spec.extend(requester.into_iter().flatten().filter(|(field, _)| REQUESTER.contains(&field.as_str())));
}

/// Conditions that approve or deny are those of the old object. Where some were added or removed they stay as they are,
/// and the rules refuse them.
pub(super) fn keep_decisions(new: &mut Value, old: &Value) {
    for kind in ["Approved", "Denied"] {
        let was: Vec<Value> = conditions(old).filter(|it| is_of(it, kind)).cloned().collect();
        let status =
            new.get_mut("status").and_then(|it| it.get_mut("conditions")).and_then(Value::as_array_mut);
        let now: Vec<&mut Value> = status.into_iter().flatten().filter(|it| is_of(it, kind)).collect();
        if now.len() == was.len() {
            now.into_iter().zip(was).for_each(|(now, was)| *now = was);
        }
    }
}

fn conditions(request: &Value) -> impl Iterator<Item = &Value> {
    let list = request.get("status").and_then(|it| it.get("conditions")).and_then(Value::as_array);
    list.into_iter().flatten()
}

fn is_of(condition: &Value, kind: &str) -> bool {
    condition.get("type").and_then(Value::as_str) == Some(kind)
}
