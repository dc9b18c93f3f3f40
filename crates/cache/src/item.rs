//! One object as the cache holds it: its served text, made once, and where in it the indexed parts are.
//!
//! Nothing is held twice: name and namespace are parts of the key, the uid, labels and fields parts of
//! the text. Only texts that stand in the JSON with escapes have an unescaped copy.

use std::fmt;

use bytes::Bytes;
use meta::StorageVersion;
use store::{Key, LeaseId, Revision};

/// An object in the version in which it is stored.
pub struct Item {
    pub(crate) key: Key,
    pub(crate) revision: Revision,
    pub(crate) created: Revision,
    pub(crate) text: Bytes,
    pub(crate) storage_version: StorageVersion,
    /// What most items do not have.
    pub(crate) rare: Option<Box<Rare>>,
    /// The selectable fields, then pairs of a label's key and value.
    pub(crate) spans: Box<[Span]>,
    pub(crate) n_fields: u32,
    pub(crate) uid: Span,
    /// Where `"metadata":` is in the text. The resourceVersion is the first thing in there.
    pub(crate) body_at: u32,
    /// Where the namespace begins in the key, and where the name does.
    pub(crate) namespace_at: u32,
    pub(crate) name_at: u32,
    pub(crate) is_deleting: bool,
}

#[derive(Default)]
pub(crate) struct Rare {
    pub(crate) lease: Option<LeaseId>,
    /// Texts that stand in the JSON with escapes, unescaped.
    pub(crate) extra: Box<str>,
}

/// What stands between `body_at` and the digits of the resourceVersion.
pub(crate) const HEAD: &str = "\"metadata\":{\"resourceVersion\":\"";

/// A part of an item's text, or, beyond the end of it, of `extra`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Item {
    /// Where the object is stored.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The revision that last wrote the object: its resourceVersion.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The revision that created the object.
    pub fn created(&self) -> Revision {
        self.created
    }

    /// The lease with which the object goes away.
    pub fn lease(&self) -> Option<LeaseId> {
        self.rare.as_ref().and_then(|it| it.lease)
    }

    /// The whole object as JSON in its storage version, with its resourceVersion, without whitespace.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// The text without its head: from `"metadata":` to the closing brace. An item of a list that does
    /// not repeat `apiVersion` and `kind` is `{` and this.
    pub fn body(&self) -> Bytes {
        self.text.slice(index(self.body_at)..)
    }

    /// The text with another resourceVersion, as the last state of a removed object carries the
    /// revision of the removal.
    pub fn text_at(&self, revision: Revision) -> Bytes {
        let mut text = Vec::with_capacity(self.text.len() + 4);
        self.write_at(revision, &mut text);
        text.into()
    }

    pub(crate) fn write_at(&self, revision: Revision, out: &mut Vec<u8>) {
        let at = index(self.body_at) + HEAD.len();
        out.extend_from_slice(&self.text[..at]);
        out.extend_from_slice(revision.to_string().as_bytes());
        out.extend_from_slice(&self.text[at + self.revision.to_string().len()..]);
    }

    /// The name, from the key.
    pub fn name(&self) -> &str {
        &self.key.as_str()[index(self.name_at)..]
    }

    /// The namespace, from the key; empty if there is none.
    pub fn namespace(&self) -> &str {
        // A slash stands between namespace and name.
        let end = index(self.name_at).saturating_sub(1);
        self.key.as_str().get(index(self.namespace_at)..end).unwrap_or("")
    }

    /// `metadata.uid`; empty if there is none.
    pub fn uid(&self) -> &str {
        self.at(self.uid)
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> Labels<'_> {
        Labels { item: self, rest: self.label_spans() }
    }

    /// One label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let labels = self.label_spans();
        let found = labels.binary_search_by(|[it, _]| self.at(*it).cmp(key)).ok()?;
        Some(self.at(labels[found][1]))
    }

    /// The value of the field at this position of [`crate::CollectionSpec::fields`]: a text, or a number
    /// or truth value as it is written; empty if there is none.
    pub fn field(&self, position: usize) -> &str {
        self.spans[..index(self.n_fields)].get(position).map_or("", |it| self.at(*it))
    }

    /// The `apiVersion` in which the object is stored; empty if it says none.
    pub fn storage_version(&self) -> &StorageVersion {
        &self.storage_version
    }

    /// Whether `metadata.deletionTimestamp` is set.
    pub fn is_deleting(&self) -> bool {
        self.is_deleting
    }

    fn label_spans(&self) -> &[[Span; 2]] {
        let (pairs, _) = self.spans[index(self.n_fields)..].as_chunks();
        pairs
    }

    fn at(&self, span: Span) -> &str {
        let (at, len) = (index(span.at), index(span.len));
        let part = match at.checked_sub(self.text.len()) {
            Some(at) => self.rare.as_ref().and_then(|it| it.extra.get(at..at + len)),
            None => self.text.get(at..at + len).and_then(|it| str::from_utf8(it).ok()),
        };
        part.unwrap_or("")
    }
}

// The text may be a secret, so Debug, which ends up in logs, shows only its size.
impl fmt::Debug for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{} ({} bytes)", self.key, self.revision, self.text.len())
    }
}

/// The labels of an item, sorted by key, each key once. An iterator over pairs of key and value.
#[derive(Clone)]
pub struct Labels<'a> {
    item: &'a Item,
    rest: &'a [[Span; 2]],
}

impl<'a> Iterator for Labels<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let ([key, value], rest) = self.rest.split_first()?;
        self.rest = rest;
        Some((self.item.at(*key), self.item.at(*value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.rest.len(), Some(self.rest.len()))
    }
}

impl ExactSizeIterator for Labels<'_> {}

impl fmt::Debug for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.clone()).finish()
    }
}

/// Positions are held in 32 bits; larger texts are refused at ingest.
fn index(number: u32) -> usize {
    usize::try_from(number).expect("an address must have at least 32 bits")
}
