//! A note that a refused server leaves for the others: it may not write objects, so they tell people for it.
//!
//! The note hangs on a lease, like a member's record; it goes when the server joins or dies.

use fleet::{
    Identity,
    record::{FORMAT, Record, Unknown},
};
use meta::Release;
use serde::{Deserialize, Serialize};
use store::{Entry, Key};

/// Longer reasons are cut.
const MAX_REASON: usize = 4096;

/// Why a server does not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// See [`fleet::record`].
    pub format: u32,
    /// The server.
    pub identity: Identity,
    /// What it behaves as, such as `1.33`.
    pub emulated: String,
    /// What stands in the way and what to do.
    pub reason: String,
    /// Of newer releases.
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Refusal {
    /// This server is refused for this reason.
    pub(crate) fn new(identity: &Identity, emulated: Release, reason: &str) -> Self {
        let reason: String = reason.chars().take(MAX_REASON).collect();
        let emulated = emulated.to_string();
        Self { format: FORMAT, identity: identity.clone(), emulated, reason, unknown: Unknown::new() }
    }
}

impl Record for Refusal {
    fn check(&self) -> Result<(), String> {
        if self.reason.chars().count() <= MAX_REASON {
            Ok(())
        } else {
            Err("the reason is too long".to_owned())
        }
    }
}

/// Where the note of a server is.
pub(crate) fn key(identity: &Identity) -> Key {
    Key::new(format!("/convoy/refused/{identity}"))
}

/// The note at a key, if it is one. A note that cannot be read tells nobody anything.
pub(crate) fn read(entry: &Entry) -> Option<Refusal> {
    if !fleet::keys::refusals().contains(entry.key.as_str()) {
        return None;
    }
    let refusal: Refusal = fleet::record::read(&entry.key, &entry.value).ok()?;
    (key(&refusal.identity) == entry.key).then_some(refusal)
}
