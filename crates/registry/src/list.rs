//! LIST: a collection, or a page of it, as of one revision.
//!
//! The first page comes from the cache. Later pages, and exact revisions, come from the store, which still knows how
//! things were at that revision until it is compacted; then the answer is 410.

use std::{borrow::Cow, fmt::Write as _, sync::Arc};

use bytes::{BufMut, Bytes, BytesMut};
use cache::{Collection, Item, Undecodable, Unread};
use meta::{FieldSelector, LabelSelector, Status};
use store::{Entry, Key, Range, ReadAt, ReadError, Revision, Store};

use crate::{
    Registry, Target, continue_token::Continue, fields, list_options, outcome, resource_version,
    resource_version::Wanted, serve, tile,
};

/// How many entries are read from the store at once.
const STORE_PAGE: usize = 1_000;

/// And how many bytes, as far as they are known.
const STORE_PAGE_BYTES: usize = 8 << 20;

/// So many values that cannot be decoded are named in an answer.
const MAX_NAMED: usize = 100;

/// How large the pieces of a streamed list are.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a LIST asks for, as it came from the query string.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Which labels.
    pub labels: LabelSelector,
    /// Which fields.
    pub fields: FieldSelector,
    /// At most this many; `None` or zero for all.
    pub limit: Option<u64>,
    /// Where to go on.
    pub continue_token: String,
    /// How fresh.
    pub resource_version: String,
    /// How `resource_version` is meant.
    pub resource_version_match: String,
    /// Only a watch may ask for this.
    pub send_initial_events: Option<bool>,
}

/// The objects of one page.
pub struct ListPage {
    /// The objects, in key order.
    pub items: Vec<Arc<Item>>,
    /// The revision shown.
    pub revision: Revision,
    /// The token for the next page; empty if this is the last.
    pub continue_token: String,
    /// How many are left; `None` where it is not known (selectors).
    pub remaining: Option<u64>,
}

/// A list ready to be sent: its exact length, if it is known, and its pieces, made as they are taken.
pub struct Listed {
    /// The number of bytes; nothing if objects are converted, one by one, while the list is sent.
    pub length: Option<usize>,
    head: Option<Bytes>,
    items: std::vec::IntoIter<Arc<Item>>,
    target: Target,
    is_first: bool,
    is_done: bool,
}

impl Registry {
    /// The objects that are asked for.
    pub async fn list(&self, target: &Target, options: &ListOptions) -> Result<ListPage, Status> {
        let mut page = self.list_as_stored(target, options).await?;
        page.items = self.presenter(target).present(page.items).await?;
        Ok(page)
    }

    /// The same for who wants only metadata: what cannot be converted is there as it is stored.
    pub async fn list_at_best(&self, target: &Target, options: &ListOptions) -> Result<ListPage, Status> {
        let mut page = self.list_as_stored(target, options).await?;
        if let Ok(items) = self.presenter(target).present(page.items.clone()).await {
            page.items = items;
        }
        Ok(page)
    }

    /// The objects that are asked for, in the versions in which they are stored.
    pub(crate) async fn list_as_stored(
        &self,
        target: &Target,
        options: &ListOptions,
    ) -> Result<ListPage, Status> {
        let mut target = Cow::Borrowed(target);
        loop {
            match self.list_once(&target, options).await {
                // Another collection has taken its place; nothing of the list was sent.
                Err(status) if outcome::is_closed(&status) => {
                    target = Cow::Owned(self.resolved_again(&target)?);
                }
                done => return done,
            }
        }
    }

    async fn list_once(&self, target: &Target, options: &ListOptions) -> Result<ListPage, Status> {
        list_options::check_list(options)?;
        fields::check(target, &options.fields)?;
        let token = match options.continue_token.as_str() {
            "" => None,
            token => Some(Continue::decode(token)?),
        };
        if token.is_some() && !matches!(options.resource_version.as_str(), "" | "0") {
            let message = "specifying resource version is not allowed when using continue";
            return Err(Status::bad_request(message));
        }
        let wanted = resource_version::for_list(
            &options.resource_version,
            &options.resource_version_match,
            options.limit,
        )?;
        let limit = usize::try_from(options.limit.unwrap_or(0)).unwrap_or(usize::MAX);
        let limit = if limit == 0 { usize::MAX } else { limit };
        match (token, wanted) {
            (Some(Continue { revision: Some(revision), after, left }), _) => {
                self.list_at(target, options, limit, revision, Some((after, left))).await
            }
            (Some(Continue { revision: None, after, .. }), _) => {
                self.reach(Wanted::Consistent).await?;
                self.list_cached(target, options, limit, Some(&after)).await
            }
            (None, Wanted::Exact(revision)) => self.list_at(target, options, limit, revision, None).await,
            (None, wanted) => {
                self.reach(wanted).await?;
                self.list_cached(target, options, limit, None).await
            }
        }
    }

    async fn list_cached(
        &self,
        target: &Target,
        options: &ListOptions,
        limit: usize,
        after: Option<&str>,
    ) -> Result<ListPage, Status> {
        let snapshot = self.collection(target)?.snapshot().map_err(outcome::closed)?;
        let scope = target.scope();
        let prefix = target.kind.scope("");
        let after = after.map(|it| format!("{prefix}{it}"));
        let there = snapshot.range(&scope, after.as_deref());
        let there = there.map_err(|it| outcome::some_undecodable(target, &it))?;
        let (items, n_left) = if target.kind.custom.is_some() && !options.fields.is_everything() {
            // What a field holds is seen only in the version that is asked for.
            let all = there.cloned().collect();
            let mut shown = self.presenter(target).present(all).await?;
            shown.retain(|it| is_selected(target, options, it));
            let n_left = shown.len().saturating_sub(limit) as u64;
            shown.truncate(limit);
            (shown, n_left)
        } else {
            let mut rest = there.filter(|it| is_selected(target, options, it));
            let items: Vec<Arc<Item>> = rest.by_ref().take(limit).cloned().collect();
            let n_left = if items.len() < limit { 0 } else { rest.count() as u64 };
            (items, n_left)
        };
        Ok(page(&prefix, options, items, n_left, snapshot.revision()))
    }

    /// `left` is how many keys are behind `after`, if the last page knew.
    async fn list_at(
        &self,
        target: &Target,
        options: &ListOptions,
        limit: usize,
        revision: Revision,
        after: Option<(String, Option<u64>)>,
    ) -> Result<ListPage, Status> {
        let collection = self.collection(target)?;
        let known = collection.snapshot().map_err(outcome::closed)?;
        let prefix = target.kind.scope("");
        let mut range = Range::prefix(&target.scope());
        let mut left = None;
        if let Some((after, n_left)) = after {
            range = range.after(&Key::new(format!("{prefix}{after}")));
            left = n_left;
        }
        let at = ReadAt::Revision(revision);
        let is_plain = options.labels.is_everything() && options.fields.is_everything();
        let mut items = Vec::new();
        loop {
            let n_wanted = if is_plain { (limit - items.len()).min(STORE_PAGE) } else { STORE_PAGE };
            let end = |range: &Range| tile_end(known.from(range), n_wanted);
            let read = tile::read(&self.store, range, at, n_wanted, end).await;
            let read = read.map_err(|it| expired(&it, target, options))?;
            for (n_read, entry) in read.entries.iter().enumerate() {
                left = left.map(|it| it.saturating_sub(1));
                let item = collection.parse(entry);
                let item = item.map_err(|_| undecodable_of(target, collection, &read.entries[n_read..]))?;
                if !is_selected(target, options, &item) {
                    continue;
                }
                items.push(Arc::new(item));
                if items.len() == limit {
                    let here = (read.entries.len() - n_read - 1) as u64;
                    let n_left = match (read.n_left, left) {
                        (Some(n_left), _) => here + n_left,
                        // What a token says may be too little; then it is counted.
                        (None, Some(n_left)) if n_left > 0 => n_left,
                        (None, _) if !is_plain && known.from(&read.rest).next().is_some() => here + 1,
                        (None, _) => {
                            let rest = self.store.list(&read.rest, at, 0).await;
                            here + rest.map_err(|it| expired(&it, target, options))?.remaining
                        }
                    };
                    return Ok(page(&prefix, options, items, n_left, revision));
                }
            }
            if read.n_left == Some(0) {
                return Ok(page(&prefix, options, items, 0, revision));
            }
            range = read.rest;
        }
    }
}

/// Where a tile of `n_wanted` objects ends, or one of so many bytes.
fn tile_end<'a>(items: impl Iterator<Item = &'a Arc<Item>>, n_wanted: usize) -> Option<Key> {
    let mut n_bytes = 0;
    let mut counted = items.enumerate().map(|(n_before, it)| {
        n_bytes += it.text().len();
        (n_before + 1 >= n_wanted || n_bytes >= STORE_PAGE_BYTES, it)
    });
    counted.find(|(is_end, _)| *is_end).map(|(_, it)| it.key().clone())
}

/// 500 that names what cannot be decoded among some entries.
fn undecodable_of(target: &Target, collection: &Collection, entries: &[Entry]) -> Status {
    let unread = |it: &Entry| {
        let why = collection.parse(it).err()?;
        Some((it.key.clone(), Unread { why, revision: it.modified }))
    };
    let mut first: Vec<(Key, Unread)> = entries.iter().filter_map(unread).collect();
    let n_keys = first.len();
    first.truncate(MAX_NAMED);
    outcome::some_undecodable(target, &Undecodable { first, n_keys })
}

/// Whether an object is what the selectors ask for.
pub(crate) fn is_selected(target: &Target, options: &ListOptions, item: &Item) -> bool {
    matches(target, &options.labels, &options.fields, item)
}

pub(crate) fn matches(
    target: &Target,
    labels: &LabelSelector,
    selected: &FieldSelector,
    item: &Item,
) -> bool {
    let labels_match = labels.is_everything() || labels.matches(|key| item.label(key));
    labels_match
        && (selected.is_everything()
            || selected.matches(|field| match field {
                "metadata.name" => Some(item.name()),
                "name" if &*target.kind.definition.resource == "namespaces" => Some(item.name()),
                "metadata.namespace" => Some(item.namespace()),
                other => fields::value(target, item, other),
            }))
}

fn page(
    prefix: &str,
    options: &ListOptions,
    items: Vec<Arc<Item>>,
    n_left: u64,
    revision: Revision,
) -> ListPage {
    let is_plain = options.labels.is_everything() && options.fields.is_everything();
    let last = if n_left == 0 { None } else { items.last() };
    let continue_token = last.map_or_else(String::new, |it| {
        let after = it.key().as_str().strip_prefix(prefix).unwrap_or_default().to_owned();
        Continue { revision: Some(revision), after, left: is_plain.then_some(n_left) }.encode()
    });
    // As upstream: with selectors the number of what is left would be a guess.
    let is_known = n_left > 0 && is_plain;
    ListPage { items, revision, continue_token, remaining: is_known.then_some(n_left) }
}

/// 410, with a token that goes on at the newest state where that is possible.
fn expired(error: &ReadError, target: &Target, options: &ListOptions) -> Status {
    match error {
        ReadError::Compacted { .. } => {}
        ReadError::Future { current } => {
            let token = Continue::decode(&options.continue_token).ok().and_then(|it| it.revision);
            let wanted = token.or_else(|| resource_version::parse(&options.resource_version).ok().flatten());
            return resource_version::too_large(wanted.unwrap_or_default(), *current);
        }
        ReadError::Unavailable(_) => return outcome::read_failed(error),
    }
    let Ok(Continue { after, .. }) = Continue::decode(&options.continue_token) else {
        return Status::expired("The resourceVersion for the provided list is too old.");
    };
    let mut status = Status::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    tracing::debug!(resource = %target.kind.resource, "a continuation token expired");
    status.metadata.continue_token = Continue { revision: None, after, left: None }.encode();
    status
}

impl ListPage {
    /// The list's JSON text in the client's version. Items of built-in kinds stand in it without `apiVersion` and
    /// `kind`, as upstream's do.
    pub fn into_text(self, target: &Target) -> Listed {
        let mut head = String::new();
        let _ = write!(
            head,
            "{{\"kind\":\"{}\",\"apiVersion\":\"{}\",\"metadata\":{{\"resourceVersion\":\"{}\"",
            target.kind.definition.list_kind, target.group_version, self.revision
        );
        if !self.continue_token.is_empty() {
            let _ = write!(head, ",\"continue\":\"{}\"", self.continue_token);
        }
        if let Some(remaining) = self.remaining {
            let _ = write!(head, ",\"remainingItemCount\":{remaining}");
        }
        head.push_str("},\"items\":[");
        // Custom objects stand in it as they are.
        let is_custom = target.kind.custom.is_some();
        let is_copied = |it: &Arc<Item>| match is_custom {
            true => serve::is_stored_as(target, it),
            false => serve::is_spliced(target, it),
        };
        let n_bytes = |it: &Arc<Item>| if is_custom { it.text().len() } else { it.body().len() + 1 };
        let length = self.items.iter().all(is_copied).then(|| {
            let bodies: usize = self.items.iter().map(n_bytes).sum();
            head.len() + bodies + self.items.len().saturating_sub(1) + 2
        });
        Listed {
            length,
            head: Some(Bytes::from(head)),
            items: self.items.into_iter(),
            target: target.clone(),
            is_first: true,
            is_done: false,
        }
    }
}

/// Pieces of about 64 KiB: large enough to be cheap to send, small enough that a long list needs little memory.
impl Iterator for Listed {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut out = BytesMut::with_capacity(self.length.unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES + 8 * 1024));
        if let Some(head) = self.head.take() {
            out.put_slice(&head);
        }
        for item in self.items.by_ref() {
            if !std::mem::take(&mut self.is_first) {
                out.put_u8(b',');
            }
            serve::put_in_list(&self.target, &item, &mut out);
            if out.len() >= CHUNK_BYTES {
                return Some(out.freeze());
            }
        }
        self.is_done = true;
        out.put_slice(b"]}");
        Some(out.freeze())
    }
}
