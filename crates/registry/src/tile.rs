//! Reads a range in tiles: each ends at a key that the cache knows.
//!
//! A store counts what a page leaves behind, so of a range without an end near by it looks at every key behind the page:
//! a walk over all of them would cost the square of their number, and others wait meanwhile. Tiles lie side by side, so
//! that no key is missed, whatever the cache knows.

use store::{Entry, Key, Range, ReadAt, ReadError, Store};

/// Some entries of a range.
#[derive(Debug)]
pub(crate) struct Tile {
    /// In key order; there are none only at the end of the range.
    pub(crate) entries: Vec<Entry>,
    /// What has not been read of the range.
    pub(crate) rest: Range,
    /// How many entries there are in that; `None` if they were not counted.
    pub(crate) n_left: Option<u64>,
}

/// Reads at most `limit` entries of a range. `nth` is the key that the cache has about `limit` places behind another one,
/// or behind the beginning of the range, if it has so many.
pub(crate) async fn read(
    store: &impl Store,
    mut range: Range,
    at: ReadAt,
    limit: usize,
    nth: impl Fn(&Range) -> Option<Key>,
) -> Result<Tile, ReadError> {
    loop {
        let Some(end) = nth(&range) else {
            let page = store.list(&range, at, limit).await?;
            let rest = behind(&range, &page.entries);
            return Ok(Tile { entries: page.entries, rest, n_left: Some(page.remaining) });
        };
        let tile = Range { start: range.start.clone(), end: end.successor() };
        let page = store.list(&tile, at, limit).await?;
        if page.remaining == 0 {
            range = range.after(&end);
        } else {
            range = behind(&range, &page.entries);
        }
        // Perhaps all of them are gone, or newer than what is asked for.
        if !page.entries.is_empty() {
            return Ok(Tile { entries: page.entries, rest: range, n_left: None });
        }
    }
}

fn behind(range: &Range, entries: &[Entry]) -> Range {
    entries.last().map_or_else(|| range.clone(), |it| range.after(&it.key))
}

#[cfg(test)]
mod tests;
