//! How a call is made: which member is asked, for how long, and when another one is tried.
//!
//! # Flow
//! All members are equal to us; one is asked until it fails ([`Ranking`]). What does no harm when it is done twice is
//! asked of the next member, too, as soon as one takes long, and the first answer counts: a member that hangs costs
//! [`HEDGE_AFTER`], once. What may do harm is sent to one member, and to another only if it certainly never left.
//!
//! Certificates may change meanwhile: calls that begin after that take connections of their own ([`Client::renew`]).
//!
//! Deliberately not here: what the calls are, and what becomes of a write without an answer (`settle.rs`).

use std::{future::Future, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::{Mutex, RwLock};
use store::SharedClock;
use tokio::sync::watch;
use tonic::{
    Request, Response, Status,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};

use crate::{
    config::Address,
    failure::{Failure, Harm},
    guard::{Freshness, Guard, Sent},
    proto::{self, StatusRequest, maintenance_client::MaintenanceClient},
    ranking::Ranking,
};

/// The largest answer that is accepted. Lists are read in pages that stay far below it.
pub(crate) const MAX_ANSWER: usize = 64 << 20;

/// How long one member is waited for before another one is asked the same.
pub(crate) const HEDGE_AFTER: Duration = Duration::from_secs(1);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) struct Client {
    members: Vec<Member>,
    ranking: Mutex<Ranking>,
    /// How often each member was found not to answer: what watches of it wait for.
    silences: Vec<watch::Sender<u64>>,
    pub(crate) clock: SharedClock,
    pub(crate) request_timeout: Duration,
    pub(crate) guard: Guard,
}

struct Member {
    name: String,
    channels: RwLock<Channels>,
}

/// Watches have connections of their own, so that a watcher that does not read holds up nobody else.
struct Channels {
    calls: Channel,
    watches: Channel,
}

impl Channels {
    fn new(endpoint: &Endpoint) -> Self {
        Self { calls: endpoint.connect_lazy(), watches: endpoint.connect_lazy() }
    }
}

impl Member {
    fn calls(&self) -> Channel {
        self.channels.read().calls.clone()
    }
}

/// The member that is asked now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn(usize);

impl Client {
    /// Connects when the first call is made.
    pub(crate) fn new(addresses: Vec<Address>, clock: SharedClock, request_timeout: Duration) -> Self {
        let member =
            |Address { name, endpoint }| Member { name, channels: RwLock::new(Channels::new(&endpoint)) };
        let members: Vec<Member> = addresses.into_iter().map(member).collect();
        let ranking = Mutex::new(Ranking::new(members.len()));
        let silences = members.iter().map(|_| watch::Sender::new(0)).collect();
        Self { members, ranking, silences, clock, request_timeout, guard: Guard::default() }
    }

    /// Uses other certificates from the next call on, once a member has answered over them: whatever it answers, it believes
    /// them. Calls and watches that are under way stay on their connections. The members must be the same ones.
    pub(crate) async fn renew(&self, addresses: &[Address]) -> Result<(), Failure> {
        let mut last = Failure::NotSent("there are no members".into());
        for address in addresses {
            let mut client = MaintenanceClient::new(address.endpoint.connect_lazy());
            let answer = client.status(request(StatusRequest {}));
            last = match self.within(self.request_timeout, answer).await {
                Err(failure @ (Failure::NotSent(_) | Failure::Unknown(_))) => failure,
                Ok(_) | Err(Failure::Refused(_) | Failure::TooLarge | Failure::WentBack(_)) => {
                    for (member, address) in self.members.iter().zip(addresses) {
                        *member.channels.write() = Channels::new(&address.endpoint);
                    }
                    return Ok(());
                }
            };
        }
        Err(last)
    }

    /// Makes a call, at several members if need be, and looks at the answer's header.
    pub(crate) async fn call<T, F>(&self, harm: Harm, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        T: Answer,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        match harm {
            Harm::None => self.call_any(call).await,
            Harm::Possible => self.call_one(call).await,
        }
    }

    /// The first answer of any member; each is asked when those before it take long or failed.
    async fn call_any<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        T: Answer,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let give_up = self.clock.monotonic() + self.request_timeout;
        let late = || Failure::Unknown(format!("no answer within {:?}", self.request_timeout));
        let mut asked = FuturesUnordered::new();
        // Who is asked now, in order, and who need not be asked before the next pause.
        let (mut waiting, mut tried): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let (mut pause, mut last) = (Pause::default(), None);
        loop {
            let next = self.ranking.lock().next(&tried);
            if let Some(member) = next {
                let sent = self.guard.before_request().map_err(Failure::WentBack)?;
                let answer = call(self.members[member].calls());
                asked.push(async move { (member, sent, answer.await) });
                waiting.push(member);
                tried.push(member);
            }
            let left = give_up.saturating_sub(self.clock.monotonic());
            let has_more = tried.len() < self.members.len();
            let wait = if has_more {
                HEDGE_AFTER
            } else if waiting.len() < tried.len() {
                pause.next()
            } else {
                left
            };
            tokio::select! {
                Some((member, sent, answer)) = asked.next() => match answer {
                    Ok(answer) => {
                        // Those that were asked before had more time than this one.
                        waiting.iter().take_while(|it| **it != member).for_each(|it| self.is_silent(*it));
                        self.ranking.lock().answered(member);
                        return self.accept(answer.into_inner(), sent, Harm::None);
                    }
                    Err(status) => {
                        let failure = Failure::from(&status);
                        if !failure.may_try_again(Harm::None) {
                            self.ranking.lock().answered(member);
                            return Err(failure);
                        }
                        tracing::debug!(member = self.members[member].name, "etcd: {failure}");
                        self.ranking.lock().failed(member);
                        waiting.retain(|it| *it != member);
                        last = Some(failure);
                        if waiting.is_empty() && tried.len() == self.members.len() && !left.is_zero() {
                            self.clock.sleep(pause.next().min(left)).await;
                            tried.clear();
                        }
                    }
                },
                () = self.clock.sleep(wait.min(left)) => {
                    if !has_more {
                        tried.clone_from(&waiting);
                    }
                }
            }
            if self.clock.monotonic() >= give_up {
                waiting.iter().for_each(|it| self.is_silent(*it));
                return Err(last.unwrap_or_else(late));
            }
        }
    }

    /// The answer of one member; of another one only if the call certainly never left.
    async fn call_one<T, F>(&self, call: impl Fn(Channel) -> F) -> Result<T, Failure>
    where
        T: Answer,
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let give_up = self.clock.monotonic() + self.request_timeout;
        let mut pause = Pause::default();
        let mut tries = 0;
        loop {
            let sent = self.guard.before_request().map_err(Failure::WentBack)?;
            let Turn(member) = self.turn();
            let answer = call(self.members[member].calls());
            let failure = match self.within(self.request_timeout, answer).await {
                Ok(answer) => {
                    self.ranking.lock().answered(member);
                    return self.accept(answer.into_inner(), sent, Harm::Possible);
                }
                Err(failure @ (Failure::Refused(_) | Failure::TooLarge | Failure::WentBack(_))) => {
                    return Err(failure);
                }
                Err(failure) => failure,
            };
            tracing::debug!(member = self.members[member].name, "etcd: {failure}");
            self.ranking.lock().failed(member);
            tries += 1;
            if !failure.may_try_again(Harm::Possible) || self.clock.monotonic() >= give_up {
                return Err(failure);
            }
            if tries % self.members.len() == 0 {
                self.clock.sleep(pause.next()).await;
            }
        }
    }

    /// Whose turn it is for a watch.
    pub(crate) fn watch_channel(&self) -> (Turn, Channel) {
        let turn = self.turn();
        (turn, self.members[turn.0].channels.read().watches.clone())
    }

    /// The member did not do.
    pub(crate) fn leave(&self, Turn(member): Turn) {
        self.ranking.lock().failed(member);
    }

    /// How long a member may take to begin a watch: where there are others they are tried soon.
    pub(crate) fn watch_patience(&self) -> Duration {
        if self.members.len() > 1 { self.request_timeout.min(2 * HEDGE_AFTER) } else { self.request_timeout }
    }

    /// What changes when the member is found not to answer from now on. Nothing if it is the only one: there is no better
    /// place then.
    pub(crate) fn silence(&self, Turn(member): Turn) -> Option<watch::Receiver<u64>> {
        (self.members.len() > 1).then(|| self.silences[member].subscribe())
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

    fn turn(&self) -> Turn {
        Turn(self.ranking.lock().current())
    }

    /// A member was asked and said nothing, where others did or for too long.
    fn is_silent(&self, member: usize) {
        if self.members.len() == 1 {
            return;
        }
        tracing::warn!(
            member = self.members[member].name,
            "a member of etcd does not answer; others are asked first"
        );
        self.ranking.lock().failed(member);
        self.silences[member].send_modify(|it| *it = it.wrapping_add(1));
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
