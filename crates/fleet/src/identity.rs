//! Who a server is: its identity, which survives restarts, and its incarnation, which does not; and of which cluster.
//!
//! Deliberately not here: whether an identity is taken; see [`crate::member`].

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Names a server across restarts, as upstream names it: `apiserver-<hash of the host name>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Identity(Arc<str>);

/// Names one process: new at every start.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(Arc<str>);

/// Names one history of a store: made with the store, and made anew by every restore. Servers that name different ones do
/// not share a store, whatever their certificates say.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClusterId(Arc<str>);

/// Counts the changes of a resource's common version. An epoch is never used twice for a resource, not even
/// after its record was removed and made anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(u64);

impl Identity {
    /// The identity of the server on this host.
    pub fn of_host(hostname: &str) -> Self {
        const COMPONENT: &str = "kube-apiserver";
        let mut hash = Sha256::new();
        for part in [hostname, COMPONENT] {
            // A host name has at most 253 bytes; a longer text is cut, as its length would be.
            let bytes = &part.as_bytes()[..part.len().min(usize::from(u16::MAX))];
            hash.update(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
            hash.update(bytes);
        }
        Self::new(format!("apiserver-{}", base32(&hash.finalize()[..16])))
    }

    /// An identity that was recorded.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Incarnation {
    /// The process with this random text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ClusterId {
    /// The cluster with this random text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Epoch {
    /// The epoch of this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The one after this.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Lower-case base 32 without padding (RFC 4648).
fn base32(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut text = String::new();
    let (mut buffer, mut n_bits) = (0_u32, 0);
    for byte in bytes {
        buffer = (buffer << 8) | u32::from(*byte);
        n_bits += 8;
        while n_bits >= 5 {
            n_bits -= 5;
            text.push(char::from(ALPHABET[((buffer >> n_bits) & 31) as usize]));
        }
        buffer &= (1 << n_bits) - 1;
    }
    if n_bits > 0 {
        text.push(char::from(ALPHABET[((buffer << (5 - n_bits)) & 31) as usize]));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_those_of_upstream() {
        for (host, identity) in [
            ("test-server-a", "apiserver-tcwjsvs6hjq4qbwzx5rvp5fsqe"),
            ("test-server-b", "apiserver-scg43bmblmfhqplxpiyqlziyzi"),
            ("node-1", "apiserver-lgabes5ywnaqeagh5dny4zlzs4"),
        ] {
            assert_eq!(Identity::of_host(host).as_str(), identity);
        }
        assert_eq!(Identity::of_host(&"a".repeat(70_000)).as_str().len(), 36);
    }
}
