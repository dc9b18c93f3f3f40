//! How a call is made: which member is asked, for how long, and when another one is tried.
//! All members are equal to us; one is asked until it fails, then the next.
//! What the calls are is not here.

use std::{
    future::Future,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use store::SharedClock;
use tonic::{Request, Response, Status, metadata::MetadataValue, transport::Channel};

use crate::{
    config::Address,
    failure::{Failure, Harm},
    guard::{Freshness, Guard, Sent},
    proto,
};

/// The largest answer that is accepted. Lists are read in pages that stay far below it.
pub(crate) const MAX_ANSWER: usize = 64 << 20;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Client {
    members: Vec<Member>,
    /// Counts up; which member is asked is the rest of the division by their number.
    turn: AtomicUsize,
    pub(crate) clock: SharedClock,
    pub(crate) request_timeout: Duration,
    pub(crate) guard: Guard,
}

/// Watches have connections of their own, so that a watcher that does not read holds up nobody else.
struct Member {
    name: String,
    calls: Channel,
    watches: Channel,
}

/// The member that is asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn(usize);

impl Client {
    /// Connects when the first call is made.
    pub(crate) fn new(addresses: Vec<Address>, clock: SharedClock, request_timeout: Duration) -> Self {
        let member = |Address { name, endpoint }| Member {
            name,
            calls: endpoint.connect_lazy(),
            watches: endpoint.connect_lazy(),
        };
        let members = addresses.into_iter().map(member).collect();
        Self { members, turn: AtomicUsize::new(0), clock, request_timeout, guard: Guard::default() }
    }

    /// Makes a call, at several members if need be, and looks at the answer's header.
    pub(crate) async fn call<T, F>(&self, harm: Harm, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        T: Answer,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let give_up = self.clock.monotonic() + self.request_timeout;
        // So that a member that hangs leaves time for another one.
        let is_shared = harm == Harm::None && self.members.len() > 1;
        let patience = if is_shared { self.request_timeout / 2 } else { self.request_timeout };
        let mut pause = Pause::default();
        let mut tries = 0;
        loop {
            let sent = self.guard.before_request().map_err(Failure::WentBack)?;
            let (turn, member) = self.member();
            let failure = match self.within(patience, call(member.calls.clone())).await {
                Ok(answer) => return self.accept(answer.into_inner(), sent, harm),
                Err(failure) => failure,
            };
            if !failure.may_try_again(harm) {
                return Err(failure);
            }
            tracing::debug!(member = member.name, "etcd: {failure}");
            self.leave(turn);
            tries += 1;
            if self.clock.monotonic() >= give_up {
                return Err(failure);
            }
            if tries % self.members.len() == 0 {
                self.clock.sleep(pause.next()).await;
            }
        }
    }

    /// Whose turn it is for a watch.
    pub(crate) fn watch_channel(&self) -> (Turn, Channel) {
        let (turn, member) = self.member();
        (turn, member.watches.clone())
    }

    /// The member whose turn it was did not do; does nothing if somebody else noticed before.
    pub(crate) fn leave(&self, Turn(turn): Turn) {
        let _ = self.turn.compare_exchange(turn, turn.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn within<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            answer = answer => answer.map_err(|it| Failure::from(&it)),
            () = self.clock.sleep(patience) => Err(Failure::Unknown(format!("no answer within {patience:?}"))),
        }
    }

    fn member(&self) -> (Turn, &Member) {
        let turn = self.turn.load(Ordering::Relaxed);
        (Turn(turn), &self.members[turn % self.members.len()])
    }

    fn accept<T: Answer>(&self, answer: T, sent: Sent, harm: Harm) -> Result<T, Failure> {
        let freshness = if T::IS_LINEARIZABLE { Freshness::Linearizable(sent) } else { Freshness::Local };
        let header = answer.header().ok_or_else(|| Failure::Unknown("an answer without a header".into()))?;
        match self.guard.answered(&header, freshness) {
            Ok(_) => Ok(answer),
            // It was carried out, if by the wrong store.
            Err(went_back) if harm == Harm::Possible => Err(Failure::Unknown(went_back.to_string())),
            Err(went_back) => Err(Failure::WentBack(went_back)),
        }
    }
}

/// Growing times to wait between tries.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Pause {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0;
        self.0 = (pause * 2).min(LONGEST_PAUSE);
        pause
    }
}

/// A request to a member that knows a leader: without one etcd answers at once instead of waiting.
pub(crate) fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

/// An answer that says who gave it and when.
pub(crate) trait Answer {
    /// Whether its revision is not older than anything acknowledged before the request.
    const IS_LINEARIZABLE: bool;

    fn header(&self) -> Option<proto::ResponseHeader>;
}

macro_rules! answers {
    ($($answer:ident: $linearizable:literal,)*) => {$(
        impl Answer for proto::$answer {
            const IS_LINEARIZABLE: bool = $linearizable;

            fn header(&self) -> Option<proto::ResponseHeader> {
                self.header
            }
        }
    )*};
}

answers! {
    RangeResponse: true,
    TxnResponse: true,
    CompactionResponse: false,
    LeaseGrantResponse: false,
    LeaseRevokeResponse: false,
    LeaseKeepAliveResponse: false,
    LeaseTimeToLiveResponse: false,
    StatusResponse: false,
}
