//! How a stored value becomes an [`Item`]: checked, brought into one form, given its resourceVersion, indexed.
//!
//! The usual stored form is JSON without whitespace that begins `{"apiVersion":…,"kind":…,"metadata":{`
//! and has no resourceVersion. Any other JSON object is brought into that form first. Then the
//! resourceVersion is put in front of the other members of `metadata`, and what is indexed is noted
//! as positions in the result. No tree is built: `ingest/members.rs` finds the parts.

mod members;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use meta::StorageVersion;
use parking_lot::Mutex;
use store::{Entry, Key};

use crate::{
    config::{CollectionSpec, FieldSpec},
    item::{HEAD, Item, Rare, Span},
};
use members::{Member, last, members, offset, text_of};

/// Deeper values are refused: whoever builds a tree of them would need that much stack.
const MAX_DEPTH: usize = 128;

/// More storage versions than this in one collection are not shared among its items.
const MAX_INTERNED: usize = 64;

const METADATA: &str = "\"metadata\":";

/// Why a stored value cannot be served. Of the value, which may be a secret, it carries at most the `apiVersion`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Written by a server that stores protobuf.
    #[error("the value is stored as protobuf, not as JSON")]
    Protobuf,
    /// Written by a server that encrypts at rest.
    #[error("the value is encrypted at rest")]
    Encrypted,
    /// Not UTF-8.
    #[error("the value is not text")]
    NotText,
    /// Text that is not JSON.
    #[error("the value is not JSON (column {0})")]
    NotJson(usize),
    /// JSON, but not an object.
    #[error("the value is not a JSON object")]
    NotObject,
    /// Nested deeper than anything that is served.
    #[error("the value is nested more than 128 deep")]
    TooDeep,
    /// Too large to be held.
    #[error("the value is larger than 1 GiB")]
    TooLarge,
    /// One of the parts that every object has is something else than it must be.
    #[error("{0} has a wrong type")]
    WrongType(&'static str),
    /// Written by another release, in a version that this one does not know.
    #[error("it is stored in a version that this release cannot read")]
    UnknownVersion(StorageVersion),
}

/// Storage versions, each held once however many items there are.
#[derive(Debug, Default)]
pub(crate) struct Interner(Mutex<Vec<StorageVersion>>);

impl Interner {
    fn intern(&self, api_version: &str) -> StorageVersion {
        let mut known = self.0.lock();
        if let Some(it) = known.iter().find(|it| it.as_str() == api_version) {
            return it.clone();
        }
        let new = StorageVersion::new(api_version);
        if known.len() < MAX_INTERNED {
            known.push(new.clone());
        }
        new
    }
}

/// Makes the item of a stored entry.
pub(crate) fn ingest(spec: &CollectionSpec, interner: &Interner, entry: &Entry) -> Result<Item, Unreadable> {
    let text = compact_text(&entry.value)?;
    let top = members(&text)?;
    if let Some(form) = usual_form(&text, &top)? {
        return build(spec, interner, entry, &text, &top, &form);
    }
    let arranged = arrange(&top)?;
    let top = members(&arranged)?;
    // What was just arranged is in the usual form, but hostile input gets no chance to prove otherwise.
    let form = usual_form(&arranged, &top)?.ok_or(Unreadable::NotObject)?;
    build(spec, interner, entry, &arranged, &top, &form)
}

/// A text in the usual form: where its metadata is, and what is in there.
struct Form<'t> {
    /// Where `"metadata":` begins.
    body_at: usize,
    metadata: Vec<Member<'t>>,
}

/// The value as text without whitespace, if it is text and not too large or deep.
fn compact_text(value: &[u8]) -> Result<Cow<'_, str>, Unreadable> {
    if value.starts_with(b"k8s\0") {
        return Err(Unreadable::Protobuf);
    }
    if value.starts_with(b"k8s:enc:") {
        return Err(Unreadable::Encrypted);
    }
    let text = str::from_utf8(value).map_err(|_| Unreadable::NotText)?.trim_matches(is_whitespace);
    // The resourceVersion and unescaped copies still have to fit.
    if u32::try_from(text.len()).is_ok_and(|it| it <= u32::MAX / 4) {
        let (depth, has_whitespace) = shape(text);
        match depth {
            0..=MAX_DEPTH if has_whitespace => Ok(Cow::Owned(without_whitespace(text))),
            0..=MAX_DEPTH => Ok(Cow::Borrowed(text)),
            _ => Err(Unreadable::TooDeep),
        }
    } else {
        Err(Unreadable::TooLarge)
    }
}

fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Takes the text apart into what is outside of strings, and strings with their quotes. Calls `visit` with each part
/// and whether it is outside.
fn scan<'t>(text: &'t str, mut visit: impl FnMut(&'t str, bool)) {
    let mut rest = text;
    while let Some(quote) = memchr::memchr(b'"', rest.as_bytes()) {
        visit(&rest[..quote], true);
        let string = &rest[quote..];
        let end = end_of_string(string);
        visit(&string[..end], false);
        rest = &string[end..];
    }
    visit(rest, true);
}

/// Where the string that the text begins with ends, its quotes included.
fn end_of_string(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(found) = bytes.get(at..).and_then(|it| memchr::memchr2(b'"', b'\\', it)) {
        let found = at + found;
        if bytes[found] == b'"' {
            return found + 1;
        }
        // What a backslash stands before is no quote.
        at = found + 2;
    }
    text.len()
}

/// How deep the text is nested, and whether there is whitespace between its tokens.
fn shape(text: &str) -> (usize, bool) {
    let (mut depth, mut deepest, mut has_whitespace) = (0_usize, 0, false);
    scan(text, |part, outside| {
        for byte in part.bytes().take_while(|_| outside) {
            match byte {
                b'{' | b'[' => {
                    depth += 1;
                    deepest = deepest.max(depth);
                }
                b'}' | b']' => depth = depth.saturating_sub(1),
                b' ' | b'\t' | b'\n' | b'\r' => has_whitespace = true,
                _ => {}
            }
        }
    });
    (deepest, has_whitespace)
}

fn without_whitespace(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    scan(text, |part, outside| {
        if outside {
            kept.extend(part.split(is_whitespace));
        } else {
            kept.push_str(part);
        }
    });
    kept
}

/// Nothing if the text is an object in another form.
fn usual_form<'t>(text: &'t str, top: &[Member<'t>]) -> Result<Option<Form<'t>>, Unreadable> {
    let mut names = top.iter().map(|it| it.name.as_ref()).peekable();
    for optional in ["apiVersion", "kind"] {
        names.next_if(|it| *it == optional);
    }
    if names.next() != Some("metadata") || names.any(|it| matches!(it, "apiVersion" | "kind" | "metadata")) {
        return Ok(None);
    }
    let Some(metadata) = last(top, "metadata").filter(|it| it.starts_with('{')) else { return Ok(None) };
    let Some(body_at) = offset(text, metadata).checked_sub(METADATA.len()) else { return Ok(None) };
    let metadata = members(metadata)?;
    let has_version = metadata.iter().any(|it| it.name == "resourceVersion");
    let is_usual = text[body_at..].starts_with(METADATA) && !has_version;
    Ok(is_usual.then_some(Form { body_at, metadata }))
}

/// Writes an object in the usual form. Of members that stand there twice the last counts.
fn arrange(top: &[Member<'_>]) -> Result<String, Unreadable> {
    let mut out = String::from("{");
    let mut push = |name: &str, value: &str| {
        if out.len() > 1 {
            out.push(',');
        }
        out.push_str(&serde_json::to_string(name).expect("a text must have a JSON form"));
        out.push(':');
        out.push_str(value);
    };
    for name in ["apiVersion", "kind"] {
        if let Some(value) = last(top, name) {
            push(name, value);
        }
    }
    push("metadata", &arrange_metadata(last(top, "metadata").unwrap_or("null"))?);
    let mut seen: std::collections::BTreeSet<&str> = ["apiVersion", "kind", "metadata"].into();
    let mut rest: Vec<&Member<'_>> = top.iter().rev().filter(|it| seen.insert(&it.name)).collect();
    rest.reverse();
    for member in rest {
        push(&member.name, member.value);
    }
    out.push('}');
    Ok(out)
}

fn arrange_metadata(value: &str) -> Result<String, Unreadable> {
    if value == "null" {
        return Ok("{}".to_owned());
    }
    if !value.starts_with('{') {
        return Err(Unreadable::WrongType("metadata"));
    }
    let members = members(value)?;
    let kept = members.iter().filter(|it| it.name != "resourceVersion");
    let kept: Vec<String> = kept.map(|it| format!("{}:{}", serde_json::json!(it.name), it.value)).collect();
    Ok(format!("{{{}}}", kept.join(",")))
}

fn build(
    spec: &CollectionSpec,
    interner: &Interner,
    entry: &Entry,
    text: &str,
    top: &[Member<'_>],
    form: &Form<'_>,
) -> Result<Item, Unreadable> {
    // Directly behind the brace that opens the metadata.
    let cut = form.body_at + METADATA.len() + 1;
    let open = &HEAD[METADATA.len() + 1..];
    let close = if form.metadata.is_empty() { "\"" } else { "\"," };
    let digits = entry.modified.to_string();
    let served: Box<[u8]> = [&text[..cut], open, &digits, close, &text[cut..]].concat().into_bytes().into();
    let mut index =
        Index { text, cut, shift: served.len() - text.len(), served: served.len(), extra: String::new() };

    let api_version = match last(top, "apiVersion") {
        None | Some("null") => Cow::Borrowed(""),
        Some(value) => text_of(value).ok_or(Unreadable::WrongType("apiVersion"))?,
    };
    if !api_version.is_empty()
        && !spec.versions.is_empty()
        && !spec.versions.iter().any(|it| *it == api_version)
    {
        return Err(Unreadable::UnknownVersion(interner.intern(&api_version)));
    }
    let deleting = last(&form.metadata, "deletionTimestamp");
    let (spans, uid) = index.all(spec, top, &form.metadata)?;
    let rare = Rare { lease: entry.lease, extra: index.extra.into() };
    let (namespace_at, name_at) = names_at(spec, &entry.key);
    Ok(Item {
        key: entry.key.clone(),
        revision: entry.modified,
        created: entry.created,
        storage_version: interner.intern(&api_version),
        rare: (rare.lease.is_some() || !rare.extra.is_empty()).then(|| Box::new(rare)),
        spans: spans.into(),
        n_fields: small(spec.fields.len()),
        uid,
        body_at: small(form.body_at),
        namespace_at,
        name_at,
        is_deleting: !matches!(deleting, None | Some("null" | "\"\"")),
        text: served.into(),
    })
}

/// The same item with the fields of another collection of the same prefix. The text is shared, not copied.
pub(crate) fn reindex(spec: &CollectionSpec, item: &Item) -> Result<Item, Unreadable> {
    let text = str::from_utf8(&item.text).map_err(|_| Unreadable::NotText)?;
    let top = members(text)?;
    let metadata = members(last(&top, "metadata").unwrap_or("{}"))?;
    let mut index = Index { text, cut: 0, shift: 0, served: text.len(), extra: String::new() };
    let (spans, uid) = index.all(spec, &top, &metadata)?;
    let rare = Rare { lease: item.lease(), extra: index.extra.into() };
    let (namespace_at, name_at) = names_at(spec, &item.key);
    Ok(Item {
        key: item.key.clone(),
        storage_version: item.storage_version.clone(),
        text: item.text.clone(),
        rare: (rare.lease.is_some() || !rare.extra.is_empty()).then(|| Box::new(rare)),
        spans: spans.into(),
        n_fields: small(spec.fields.len()),
        uid,
        namespace_at,
        name_at,
        ..*item
    })
}

/// Where namespace and name begin in the key.
fn names_at(spec: &CollectionSpec, key: &Key) -> (u32, u32) {
    let at = spec.prefix.len().min(key.as_str().len());
    let slash = key.as_str().get(at..).and_then(|it| it.find('/')).filter(|_| spec.namespaced);
    (small(at), small(slash.map_or(at, |it| at + it + 1)))
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Turns parts of the stored text into positions in the served one.
struct Index<'t> {
    text: &'t str,
    /// Where the resourceVersion was put in, and how long it is.
    cut: usize,
    shift: usize,
    /// The length of the served text; positions beyond it are in `extra`.
    served: usize,
    extra: String,
}

impl<'t> Index<'t> {
    /// The fields and labels, and the uid.
    fn all(
        &mut self,
        spec: &CollectionSpec,
        top: &[Member<'t>],
        metadata: &[Member<'t>],
    ) -> Result<(Vec<Span>, Span), Unreadable> {
        let uid = last(metadata, "uid").and_then(text_of).map_or_else(Span::default, |it| self.span(it));
        let mut spans = Vec::new();
        self.fields(&spec.fields, top, &mut spans)?;
        self.labels(last(metadata, "labels"), &mut spans)?;
        Ok((spans, uid))
    }

    fn span(&mut self, part: Cow<'t, str>) -> Span {
        let len = small(part.len());
        if len == 0 {
            return Span::default();
        }
        let at = match part {
            Cow::Borrowed(part) => {
                let at = offset(self.text, part);
                if at < self.cut { at } else { at + self.shift }
            }
            Cow::Owned(part) => {
                self.extra.push_str(&part);
                self.served + self.extra.len() - part.len()
            }
        };
        Span { at: small(at), len }
    }

    /// Sorted by key; of labels that stand there twice the last counts, and only texts can be labels.
    fn labels(&mut self, value: Option<&'t str>, out: &mut Vec<Span>) -> Result<(), Unreadable> {
        let Some(value) = value.filter(|it| it.starts_with('{')) else { return Ok(()) };
        let mut labels = members(value)?;
        labels.reverse();
        labels.sort_by(|a, b| a.name.cmp(&b.name));
        labels.dedup_by(|a, b| a.name == b.name);
        let labels = labels.into_iter().filter_map(|it| Some((it.name, text_of(it.value)?)));
        out.extend(labels.flat_map(|(key, value)| [self.span(key), self.span(value)]));
        Ok(())
    }

    fn fields(
        &mut self,
        specs: &[FieldSpec],
        top: &[Member<'t>],
        out: &mut Vec<Span>,
    ) -> Result<(), Unreadable> {
        // Several fields usually are in one member, which is taken apart only once.
        let mut heads: Vec<(&str, Vec<Member<'t>>)> = Vec::new();
        for FieldSpec { path, name: _ } in specs {
            let value = match path.as_slice() {
                [] => None,
                [only] => last(top, only),
                [head, rest @ ..] => {
                    if !heads.iter().any(|(it, _)| it == head) {
                        let value = last(top, head).filter(|it| it.starts_with('{'));
                        heads.push((head, value.map(members).transpose()?.unwrap_or_default()));
                    }
                    let found = heads.iter().find(|(it, _)| it == head);
                    found.map_or(Ok(None), |(_, members)| descend(members, rest))?
                }
            };
            out.push(value.and_then(scalar).map_or_else(Span::default, |it| self.span(it)));
        }
        Ok(())
    }
}

/// The value at a path below these members.
fn descend<'t>(found: &[Member<'t>], path: &[String]) -> Result<Option<&'t str>, Unreadable> {
    let Some((name, rest)) = path.split_first() else { return Ok(None) };
    let mut value = last(found, name);
    for name in rest {
        let Some(object) = value.filter(|it| it.starts_with('{')) else { return Ok(None) };
        value = last(&members(object)?, name);
    }
    Ok(value)
}

/// A text without its quotes, a number or a truth value as written.
fn scalar(value: &str) -> Option<Cow<'_, str>> {
    match value.as_bytes().first()? {
        b'"' => text_of(value),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(value)),
    }
}
