//! Keys and half-open ranges of keys. Keys are text because every layout we share with other tools is.

use std::{borrow::Borrow, fmt, sync::Arc};

/// One key, for example `/registry/configmaps/default/a`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// A key of this text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The smallest key greater than this one.
    pub fn successor(&self) -> Key {
        Key::new(format!("{}\0", self.0))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// All keys from `start` up to, and without, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key that may be in the range.
    pub start: Key,
    /// The first key behind the range.
    pub end: Key,
}

impl Range {
    /// All keys that begin with `prefix`. The prefix must end in a character below U+10FFFF, as
    /// every prefix that ends in `/` does.
    pub fn prefix(prefix: &str) -> Self {
        Self { start: Key::new(prefix), end: Key::new(prefix_end(prefix)) }
    }

    /// Just this key.
    pub fn single(key: &Key) -> Self {
        Self { start: key.clone(), end: key.successor() }
    }

    /// The part of this range that lies behind `key`.
    pub fn after(&self, key: &Key) -> Self {
        Self { start: key.successor().max(self.start.clone()), end: self.end.clone() }
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &str) -> bool {
        self.start.as_str() <= key && key < self.end.as_str()
    }
}

/// The smallest text greater than every text that begins with `prefix`.
fn prefix_end(prefix: &str) -> String {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            chars.push(next);
            return chars.into_iter().collect();
        }
    }
    char::MAX.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_what_begins_with_it_and_nothing_else() {
        let range = Range::prefix("/registry/pods/");
        assert!(range.contains("/registry/pods/a/b"));
        assert!(range.contains("/registry/pods/"));
        assert!(!range.contains("/registry/pods"));
        assert!(!range.contains("/registry/podsx"));
        assert!(!range.contains("/registry/pods0"));
    }

    #[test]
    fn the_rest_of_a_range_begins_behind_the_key() {
        let range = Range::prefix("/a/").after(&Key::new("/a/m"));
        assert!(!range.contains("/a/m"));
        assert!(range.contains("/a/m\0"));
        assert!(range.contains("/a/n"));
    }
}
