//! Uids that are worth a look, each at most once; so never more than there are objects.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
};

use tokio::sync::Notify;

use super::graph::Text;

#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    order: VecDeque<Text>,
    known: HashSet<Text>,
}

impl Queue {
    pub(super) fn push(&self, uid: Text) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.known.insert(uid.clone()) {
            waiting.order.push_back(uid);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// The next one, as soon as there is one. For one caller.
    pub(super) async fn next(&self) -> Text {
        loop {
            if let Some(uid) = self.pop() {
                return uid;
            }
            self.filled.notified().await;
        }
    }

    fn pop(&self) -> Option<Text> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = waiting.order.pop_front()?;
        waiting.known.remove(&uid);
        Some(uid)
    }
}
