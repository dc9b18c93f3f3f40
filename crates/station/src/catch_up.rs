//! Makes sure that no member is missed: before anybody is told that no server has what they ask for.
//!
//! The watch of the records is behind the store by as much as news takes to travel; a list of the members is not. Callers
//! that come at the same time share a list, so that however many ask, the store is asked little.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use fleet::keys;
use store::{ReadAt, Revision};
use tokio::sync::Mutex;

use crate::{follow, station::Inner};

/// How long a caller waits.
const WITHIN: Duration = Duration::from_secs(5);

/// Looks that are under way or done.
#[derive(Debug)]
pub(crate) struct Looks {
    /// Numbers arrivals and looks in the order in which they happen.
    sequence: AtomicU64,
    /// The number at which the last look began, and what came of it.
    last: Mutex<(u64, Result<Revision, String>)>,
}

impl Default for Looks {
    fn default() -> Self {
        Self { sequence: AtomicU64::new(1), last: Mutex::new((0, Ok(Revision::default()))) }
    }
}

impl Inner {
    /// Returns once every member is known that had joined before the call, with a revision read after it.
    pub(crate) async fn catch_up(self: &Arc<Self>) -> Result<Revision, String> {
        let arrived = self.looks.sequence.fetch_add(1, Ordering::SeqCst);
        let looked = async {
            let mut last = self.looks.last.lock().await;
            if last.0 > arrived {
                // Somebody began to look after this caller came.
                return last.1.clone();
            }
            let began = self.looks.sequence.fetch_add(1, Ordering::SeqCst);
            let result = self.look_for_members().await;
            *last = (began, result.clone());
            result
        };
        let late = || Err(format!("the members could not be listed within {WITHIN:?}"));
        self.within(WITHIN, looked).await.unwrap_or_else(late)
    }

    async fn look_for_members(&self) -> Result<Revision, String> {
        let prefix = keys::members().start;
        let listed = follow::list(&self.store, prefix.as_str(), ReadAt::Latest).await;
        let (entries, revision) = listed.map_err(|it| it.to_string())?;
        let newest = entries.iter().map(|it| it.modified).max();
        if let Some(newest) = newest {
            // The watch brings it: it is a change of a record.
            self.reach(newest, WITHIN).await?;
        }
        Ok(revision)
    }
}
