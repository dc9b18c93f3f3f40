//! Asks the store for its newest revision on behalf of everybody who waits: whoever comes while
//! a question is under way gets the answer to the next one, which was asked after they came.

use std::sync::Arc;

use parking_lot::Mutex;
use store::{ReadError, Revision, SharedClock, SharedStore, Store};
use tokio::sync::{Notify, oneshot};

use crate::{feed::timed_out, progress::Progress};

type Answer = Result<Revision, ReadError>;

/// Who waits for the next answer.
pub(crate) struct Questions {
    /// Nothing once nobody answers any more.
    waiting: Mutex<Option<Vec<oneshot::Sender<Answer>>>>,
    asked: Notify,
}

impl Questions {
    pub(crate) fn new() -> Self {
        Self { waiting: Mutex::new(Some(Vec::new())), asked: Notify::new() }
    }

    /// The store's newest revision, read after this call began.
    pub(crate) async fn ask(&self) -> Answer {
        let (sender, answer) = oneshot::channel();
        if let Some(waiting) = &mut *self.waiting.lock() {
            waiting.push(sender);
        }
        self.asked.notify_one();
        answer.await.unwrap_or_else(|_| Err(ReadError::Unavailable("the cache was stopped".into())))
    }

    fn take(&self) -> Vec<oneshot::Sender<Answer>> {
        self.waiting.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

/// The task that asks. When it ends, also before it began, everybody who waits is let go.
pub(crate) struct Asker {
    pub(crate) store: SharedStore,
    pub(crate) clock: SharedClock,
    pub(crate) timeout: std::time::Duration,
    pub(crate) progress: Arc<Progress>,
    pub(crate) questions: Arc<Questions>,
}

impl Asker {
    pub(crate) async fn run(self) {
        loop {
            self.questions.asked.notified().await;
            let waiting = self.questions.take();
            if waiting.iter().all(oneshot::Sender::is_closed) {
                continue;
            }
            let answer = self.read().await;
            for sender in waiting {
                // Whoever does not wait any more needs no answer.
                let _ = sender.send(answer.clone());
            }
        }
    }

    async fn read(&self) -> Answer {
        let seen = self.progress.applied();
        let now = tokio::select! {
            now = self.store.current() => now?,
            () = self.clock.sleep(self.timeout) => return Err(timed_out(self.timeout)),
        };
        if now < seen {
            let error = store::WatchError::WentBack { seen, now };
            tracing::error!(%error, "the cache stops");
            self.progress.fail(&error.to_string());
            return Err(ReadError::Unavailable(error.to_string()));
        }
        Ok(now)
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let waiting = self.questions.waiting.lock().take();
        drop(waiting);
    }
}
