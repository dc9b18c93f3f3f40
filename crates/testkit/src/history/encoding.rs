//! Judges G1: whatever was stored while a StorageVersion showed a common version was stored in that version.
//!
//! It is fed every change of the store in order of revision, and knows nothing of servers, fences or members: only
//! which StorageVersion object is about which keys.

use std::collections::BTreeMap;

use serde_json::Value;

/// The history of one store.
#[derive(Debug, Default)]
pub struct Encodings {
    /// Where StorageVersion objects are.
    mirrors: String,
    /// The name of the StorageVersion that is about the keys below a prefix; the longest prefix counts.
    prefixes: Vec<(String, String)>,
    /// What each StorageVersion shows.
    shown: BTreeMap<String, Shown>,
    /// What went wrong.
    pub faults: Vec<String>,
    /// Puts that were judged against a common version.
    pub n_judged: u64,
    /// Puts while there was none.
    pub n_free: u64,
    /// How often a common version changed or appeared.
    pub n_moves: u64,
}

#[derive(Clone, Debug, Default)]
struct Shown {
    common: Option<String>,
    epoch: u64,
}

impl Encodings {
    /// A history of objects below these prefixes, each with the name of its StorageVersion.
    pub fn new(mirrors: &str, prefixes: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut prefixes: Vec<_> = prefixes.into_iter().collect();
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Self { mirrors: mirrors.to_owned(), prefixes, ..Self::default() }
    }

    /// One change: what a key holds from this revision on.
    pub fn see(&mut self, revision: u64, key: &str, value: Option<&[u8]>) {
        if let Some(name) = key.strip_prefix(&self.mirrors) {
            self.see_mirror(revision, name.to_owned(), value);
            return;
        }
        let Some(value) = value else { return };
        let Some((_, name)) = self.prefixes.iter().find(|(prefix, _)| key.starts_with(prefix)) else {
            return;
        };
        let Some(common) = self.shown.get(name).and_then(|it| it.common.clone()) else {
            self.n_free += 1;
            return;
        };
        self.n_judged += 1;
        let stored = version(value);
        if stored.as_deref() != Some(common.as_str()) {
            let stored = stored.unwrap_or_else(|| "something unreadable".to_owned());
            self.faults.push(format!(
                "revision {revision}: {key} was stored as {stored} while {name} showed {common}"
            ));
        }
    }

    fn see_mirror(&mut self, revision: u64, name: String, value: Option<&[u8]>) {
        let object: Option<Value> = value.and_then(|it| serde_json::from_slice(it).ok());
        let status = object.as_ref().and_then(|it| it.get("status"));
        let common = status.and_then(|it| it.get("commonEncodingVersion")).and_then(Value::as_str);
        let epoch = status.and_then(|it| it.get("epoch")).and_then(Value::as_u64).unwrap_or_default();
        let before = self.shown.get(&name).cloned().unwrap_or_default();
        if before.common.as_deref() != common {
            self.n_moves += u64::from(common.is_some());
            // Somebody who looked twice must see that it was not the same agreement all the time.
            if common.is_some() && epoch <= before.epoch && before.epoch > 0 {
                self.faults.push(format!(
                    "revision {revision}: {name} shows {common:?} in epoch {epoch}, after epoch {}",
                    before.epoch
                ));
            }
        }
        let epoch = epoch.max(before.epoch);
        self.shown.insert(name, Shown { common: common.map(str::to_owned), epoch });
    }
}

fn version(value: &[u8]) -> Option<String> {
    let object: Value = serde_json::from_slice(value).ok()?;
    object.get("apiVersion")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mirror(common: &str, epoch: u64) -> Vec<u8> {
        serde_json::json!({"status": {"commonEncodingVersion": common, "epoch": epoch}})
            .to_string()
            .into_bytes()
    }

    fn judge(changes: &[(&str, Option<Vec<u8>>)]) -> Encodings {
        let mut history = Encodings::new("/m/", [("/registry/things/".to_owned(), "x.things".to_owned())]);
        for (n, (key, value)) in changes.iter().enumerate() {
            history.see(n as u64 + 1, key, value.as_deref());
        }
        history
    }

    fn thing(version: &str) -> Option<Vec<u8>> {
        Some(format!("{{\"apiVersion\":\"{version}\"}}").into_bytes())
    }

    #[test]
    fn what_is_stored_must_be_what_is_shown() {
        let fine = judge(&[
            ("/registry/things/a", thing("x/v1")),
            ("/m/x.things", Some(mirror("x/v1", 1))),
            ("/registry/things/a", thing("x/v1")),
            ("/registry/things/a", None),
            ("/m/x.things", Some(mirror("x/v2", 2))),
            ("/registry/things/a", thing("x/v2")),
            ("/registry/others/a", thing("y/v9")),
        ]);
        assert_eq!((fine.faults.len(), fine.n_judged, fine.n_free, fine.n_moves), (0, 2, 1, 2));
        let polluted =
            judge(&[("/m/x.things", Some(mirror("x/v2", 1))), ("/registry/things/a", thing("x/v1"))]);
        assert_eq!(polluted.faults.len(), 1, "{:?}", polluted.faults);
    }

    #[test]
    fn an_agreement_that_comes_back_has_a_new_epoch() {
        let same =
            [mirror("x/v1", 1), mirror("x/v2", 2), mirror("x/v1", 2)].map(|it| ("/m/x.things", Some(it)));
        assert_eq!(judge(&same).faults.len(), 1);
    }
}
