//! Reads: the current revision, one key, lists. All of them are linearizable.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Weak},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::Shared};
use store::{Entry, Key, Page, Range, ReadAt, ReadError, Revision};

use crate::{
    client::{MAX_ANSWER, request},
    convert::{entry, number, revision},
    failure::{Failure, Harm, Refusal},
    history::Found,
    proto::{RangeRequest, RangeResponse, kv_client::KvClient},
    store::{EtcdStore, Inner},
    watch,
};

/// About how many bytes one answer of a list should have.
const PAGE_BYTES: usize = 4 << 20;
const FIRST_PAGE: usize = 500;
const LARGEST_PAGE: usize = 4000;
/// How often a list of the newest state starts again when compaction overtakes it.
const OVERTAKEN: usize = 3;

/// Reads of the current revision that wait or run. A caller may only share a read that has not begun when it
/// calls: one that runs already may have read the revision before the caller's own last write.
#[derive(Default)]
pub(crate) struct Current {
    /// The read that begins when the running one ends.
    waiting: Option<(u64, SharedRead)>,
    begun: u64,
    /// Held by the read that runs.
    running: Arc<tokio::sync::Mutex<()>>,
}

type SharedRead = Shared<Pin<Box<dyn Future<Output = Result<Revision, ReadError>> + Send>>>;

impl EtcdStore {
    /// The current revision; concurrent callers share one request.
    pub(crate) async fn coalesced_current(&self) -> Result<Revision, ReadError> {
        let read = {
            let mut current = self.inner.current.lock();
            match &current.waiting {
                Some((_, read)) => read.clone(),
                None => {
                    current.begun += 1;
                    let number = current.begun;
                    let line = Arc::clone(&current.running);
                    let read = run_in_line(Arc::downgrade(&self.inner), line, number).boxed().shared();
                    current.waiting = Some((number, read.clone()));
                    read
                }
            }
        };
        read.await
    }
}

/// Nobody else polls a read that all its callers have dropped. That is fine: while it waits, the next caller
/// finds it and goes on with it; once it runs it is no longer in `waiting`, so it ends with its last caller.
async fn run_in_line(
    inner: Weak<Inner>,
    line: Arc<tokio::sync::Mutex<()>>,
    number: u64,
) -> Result<Revision, ReadError> {
    let _running = line.lock().await;
    let inner = inner.upgrade().ok_or_else(|| ReadError::Unavailable("the store was closed".into()))?;
    {
        // From here on callers must wait for another read.
        let mut current = inner.current.lock();
        if current.waiting.as_ref().is_some_and(|(it, _)| *it == number) {
            current.waiting = None;
        }
    }
    inner.reachable().await
}

impl Inner {
    /// The current revision, by a request of its own.
    pub(crate) async fn current(&self) -> Result<Revision, ReadError> {
        let known = self.history.known();
        let ask = match self.history.place(&self.layout) {
            Some(key) => RangeRequest { key, limit: 1, ..Default::default() },
            None => RangeRequest { key: self.layout.probe(), count_only: true, ..Default::default() },
        };
        let answer = self.range(ask).await.map_err(|it| unavailable(&it))?;
        let at = revision_of(&answer);
        if let Some(known) = &known
            && let Found::Other { written, known } = self.history.look(known, answer.kvs.first(), at)
        {
            let went_back = self.client.guard.is_another_history(known, written);
            return Err(unavailable(&Failure::WentBack(went_back)));
        }
        Ok(at)
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Entry>, ReadError> {
        // What cannot be stored is not there.
        let Some(stored) = self.layout.outward(key) else { return Ok(None) };
        let ask = RangeRequest { key: stored, limit: 1, ..Default::default() };
        let answer = self.range(ask).await.map_err(|it| unavailable(&it))?;
        Ok(answer.kvs.first().and_then(|it| entry(&self.layout, it)))
    }

    pub(crate) async fn list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, ReadError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_list(range, at, limit).await {
                Ok(page) => return Ok(page),
                Err(Failure::Refused(Refusal::Compacted)) if at == ReadAt::Latest && tries < OVERTAKEN => {}
                Err(failure) => return Err(self.read_error(failure, at).await),
            }
        }
    }

    /// Reads the range in pages, all at the first one's revision.
    async fn try_list(&self, range: &Range, at: ReadAt, limit: usize) -> Result<Page, Failure> {
        let mut reading = match at {
            ReadAt::Latest => 0,
            // To etcd zero is the newest revision; revision one is the empty store it begins with.
            ReadAt::Revision(it) => number(it).ok_or(Failure::Refused(Refusal::Future))?.max(1),
        };
        let Some((mut start, end)) = self.layout.range(range) else {
            return self.empty_page(at, reading).await;
        };
        let mut page = Page { entries: Vec::new(), remaining: 0, revision: Revision::ZERO };
        let mut size = FIRST_PAGE;
        loop {
            let left = limit - page.entries.len();
            size = size.min(left);
            let ask = RangeRequest {
                key: start.clone(),
                range_end: end.clone(),
                limit: i64::try_from(size).unwrap_or(i64::MAX),
                revision: reading,
                count_only: left == 0,
            };
            let answer = match self.range(ask).await {
                Err(Failure::TooLarge) if size > 1 => {
                    size /= 2;
                    continue;
                }
                answer => answer?,
            };
            if reading == 0 {
                reading = answer.header.map_or(0, |it| it.revision);
            }
            page.remaining = remaining(&answer);
            page.entries.extend(answer.kvs.iter().filter_map(|it| entry(&self.layout, it)));
            let Some(last) = answer.kvs.last().filter(|_| answer.more && page.entries.len() < limit) else {
                page.revision = shown(at, reading);
                return Ok(page);
            };
            start = successor(&last.key);
            size = next_size(&answer);
        }
    }

    /// What a range without any keys shows. Asks nevertheless, because the revision may not be there.
    async fn empty_page(&self, at: ReadAt, reading: i64) -> Result<Page, Failure> {
        let key = self.layout.probe();
        let ask = RangeRequest { key, revision: reading, count_only: true, ..Default::default() };
        let newest = self.range(ask).await?.header.map_or(0, |it| it.revision);
        let revision = shown(at, newest);
        Ok(Page { entries: Vec::new(), remaining: 0, revision })
    }

    async fn read_error(&self, failure: Failure, at: ReadAt) -> ReadError {
        match (failure, at) {
            (Failure::Refused(Refusal::Compacted), ReadAt::Revision(wanted)) => {
                // etcd does not say what is left, a watch does.
                let oldest = watch::oldest(self).await.unwrap_or(wanted.next());
                ReadError::Compacted { oldest }
            }
            (Failure::Refused(Refusal::Future), _) => match self.current().await {
                Ok(current) => ReadError::Future { current },
                Err(error) => error,
            },
            (failure, _) => unavailable(&failure),
        }
    }

    pub(crate) async fn range(&self, ask: RangeRequest) -> Result<RangeResponse, Failure> {
        let ask = &ask;
        let call = |channel| async move {
            KvClient::new(channel).max_decoding_message_size(MAX_ANSWER).range(request(ask.clone())).await
        };
        self.client.call(Harm::None, call).await
    }
}

pub(crate) fn unavailable(failure: &Failure) -> ReadError {
    ReadError::Unavailable(failure.to_string())
}

fn revision_of(answer: &RangeResponse) -> Revision {
    answer.header.map_or(Revision::ZERO, |it| revision(it.revision))
}

fn shown(at: ReadAt, reading: i64) -> Revision {
    match at {
        ReadAt::Latest => revision(reading),
        ReadAt::Revision(it) => it,
    }
}

/// etcd counts all keys of the range that was asked for.
fn remaining(answer: &RangeResponse) -> u64 {
    let count = u64::try_from(answer.count).unwrap_or_default();
    count.saturating_sub(answer.kvs.len() as u64)
}

/// The smallest key behind this one.
fn successor(key: &[u8]) -> Bytes {
    [key, b"\0"].concat().into()
}

/// How many entries to ask for next, judged by the size of the last ones.
fn next_size(answer: &RangeResponse) -> usize {
    let bytes: usize = answer.kvs.iter().map(|it| it.key.len() + it.value.len()).sum();
    let each = bytes / answer.kvs.len().max(1);
    (PAGE_BYTES / each.max(1)).clamp(1, LARGEST_PAGE)
}
