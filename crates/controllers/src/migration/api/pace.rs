//! Lets requests through no faster than the server copes with, and than the user wants.
//!
//! # Flow
//! [`Pace::enter`] waits for three things: for the end of a pause that the server asked for, for room among the requests
//! that are under way, and for the request's turn at the rate. What became of the request is told to the [`Permit`];
//! one that is dropped without a word makes room and teaches nothing.

use std::{pin::pin, sync::Mutex, time::Duration};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::limit::{Limit, Sign};

/// Shared by everything that one engine does.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    freed: Notify,
    /// Between two requests; zero for no bound.
    gap: Duration,
}

#[derive(Debug)]
struct State {
    limit: Limit,
    active: usize,
    /// Requests so far.
    last: u64,
    paused_until: Option<Instant>,
    /// The turn of the next request.
    turn: Option<Instant>,
}

/// One request is under way.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    pace: &'a Pace,
    number: u64,
    begin: Instant,
}

impl Pace {
    /// At most so many at once, and so many in a second (0 for no bound).
    pub(super) fn new(at_once: usize, rate: u32) -> Self {
        let gap = if rate == 0 { Duration::ZERO } else { Duration::from_secs(1) / rate };
        let limit = Limit::new(at_once);
        let state = State { limit, active: 0, last: 0, paused_until: None, turn: None };
        Self { state: Mutex::new(state), freed: Notify::new(), gap }
    }

    pub(super) async fn enter(&self) -> Permit<'_> {
        loop {
            let mut freed = pin!(self.freed.notified());
            // From here on nothing that is freed is missed.
            freed.as_mut().enable();
            match self.try_enter() {
                Ok((mut permit, turn)) => {
                    tokio::time::sleep_until(turn).await;
                    permit.begin = Instant::now();
                    return permit;
                }
                Err(Some(pause)) => tokio::time::sleep_until(pause).await,
                Err(None) => freed.await,
            }
        }
    }

    /// The permit and when its turn is, or until when there is none, if that is known.
    fn try_enter(&self) -> Result<(Permit<'_>, Instant), Option<Instant>> {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(until) = state.paused_until.filter(|it| *it > now) {
            return Err(Some(until));
        }
        if state.active >= state.limit.now() {
            return Err(None);
        }
        let turn = state.turn.map_or(now, |it| it.max(now));
        state.turn = Some(turn + self.gap);
        state.active += 1;
        state.last += 1;
        Ok((Permit { pace: self, number: state.last, begin: now }, turn))
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("whoever holds this lock must not panic")
    }
}

impl Permit<'_> {
    /// The server answered.
    pub(super) fn answered(self) {
        self.learn(Sign::Answered(self.begin.elapsed()));
    }

    /// The server has too much to do. If it says until when, nobody asks before.
    pub(super) fn pressed(self, pause: Option<Duration>) {
        if let Some(pause) = pause {
            let until = Instant::now() + pause;
            let mut state = self.pace.state();
            state.paused_until = state.paused_until.max(Some(until));
        }
        self.learn(Sign::Pressed);
    }

    fn learn(&self, sign: Sign) {
        let mut state = self.pace.state();
        let last = state.last;
        state.limit.learn(sign, self.number, last);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.pace.state().active -= 1;
        // All of them: the limit may have grown.
        self.pace.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_keep_to_the_rate() {
        let (pace, begin) = (Pace::new(16, 50), Instant::now());
        for _ in 0..101 {
            pace.enter().await.answered();
        }
        assert_eq!(begin.elapsed().as_millis() / 10, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_as_many_as_the_limit_says() {
        let pace = Pace::new(2, 0);
        let first = pace.enter().await;
        let second = pace.enter().await;
        assert!(pace.enter().now_or_never().is_none());
        drop(first);
        assert!(pace.enter().now_or_never().is_some());
        second.pressed(None);
        let _one = pace.enter().await;
        assert!(pace.enter().now_or_never().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_server_asks_for_is_kept_by_all() {
        let (pace, begin) = (Pace::new(4, 0), Instant::now());
        pace.enter().await.pressed(Some(Duration::from_secs(7)));
        pace.enter().await.answered();
        assert_eq!(begin.elapsed().as_secs(), 7);
    }
}
