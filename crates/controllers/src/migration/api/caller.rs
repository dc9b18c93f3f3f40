//! Requests at a pace: each waits for its turn, is bounded in time, and teaches what the server copes with.

use std::time::Duration;

use kube::Client;

use super::answer::{Verdict, judge};
use super::pace::Pace;
use crate::backoff::Backoff;
use crate::error::Error;
use crate::migration::engine::Class;

/// A request that may pass later is made so many times.
pub(super) const TRIES: u32 = 5;

/// A server that wants to be left alone for longer is asked again nevertheless.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How one endpoint is asked.
#[derive(Clone, Copy)]
pub(super) struct Caller<'a> {
    pub(super) client: &'a Client,
    pub(super) pace: &'a Pace,
    /// A request that takes longer has failed; it may have happened.
    pub(super) limit: Duration,
}

impl<'a> Caller<'a> {
    /// Makes a request about the object of this name; of an empty one if it is about many.
    pub(super) async fn call<T>(
        self,
        name: &str,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let permit = self.pace.enter().await;
        let answer = tokio::time::timeout(self.limit, request).await;
        let answer = answer.unwrap_or(Err(Error::TooLong(self.limit)));
        match answer.as_ref().map_err(|it| judge(it, name)) {
            Err(Verdict::Later { is_pressure: true, after, .. }) => {
                permit.pressed(after.map(|it| it.min(LONGEST_PAUSE)));
            }
            Ok(_) | Err(_) => permit.answered(),
        }
        answer
    }

    /// If nothing becomes of any object for so long, the server hangs: it may have asked for a pause before one request
    /// of each. A pass has more time, so that it can be said.
    pub(super) fn patience(self) -> Duration {
        self.limit + LONGEST_PAUSE
    }

    /// Makes a request about many objects, again and again if it may pass. A webhook that does not answer is not waited
    /// for: whoever waits for it should say so.
    pub(super) async fn call_patiently<T, F>(
        self,
        mut request: impl FnMut(&'a Client) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut pauses = pauses();
        for _ in 1..TRIES {
            match self.call("", request(self.client)).await {
                Err(error) if is_worth_another_try(&judge(&error, "")) => pause(&mut pauses).await,
                answer => return answer,
            }
        }
        self.call("", request(self.client)).await
    }
}

/// Between tries of one request.
pub(super) fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(10))
}

/// The next pause, shorter by a random part, so that those who failed together do not come back together.
pub(super) async fn pause(pauses: &mut Backoff) {
    tokio::time::sleep(jittered(pauses.pause())).await;
}

/// Between half of it and all of it.
pub(super) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

fn is_worth_another_try(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Later { class: Class::Transient | Class::Throttled, .. })
}
