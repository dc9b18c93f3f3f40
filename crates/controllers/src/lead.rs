//! Of several processes that run the same controllers, one works: the holder of a Lease.
//!
//! # Flow
//! Try to take the Lease until it is ours, work, and renew it meanwhile. A renewal that does not succeed in time ends
//! the work. On a stop the Lease is given back, so that another process need not wait for it to expire.
//!
//! # Guarantees
//! - Work ends at most `renew_deadline` after the last renewal that the server confirmed was *sent*; nobody else takes
//!   the Lease before `lease_duration`, which is longer, has passed without a change.
//! - A Lease in our own name is ours at once. So an identity must not be used by two processes at a time.
//!
//! # Assumptions
//! Clocks of different machines need not agree: how long a Lease has not changed is measured here. They must run at
//! about the same speed.

use std::time::Duration;

use meta::{Fact, Value, object, time};
use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info, warn};

use crate::api::Collection;
use crate::backoff::Backoff;
use crate::error::{Chain, Error};
use crate::events::{self, Record};
use crate::run::Ctx;

/// How the one that works is chosen. The durations are those of kube-controller-manager's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Who we are; nobody else at the same time.
    pub identity: String,
    /// The Lease, in `kube-system`.
    pub lease_name: String,
    /// Others wait so long after the last renewal.
    pub lease_duration: Duration,
    /// We give up so long after the last renewal.
    pub renew_deadline: Duration,
    /// Between two attempts to take or renew it.
    pub retry_period: Duration,
}

impl Election {
    /// With upstream's durations.
    pub fn new(identity: String) -> Self {
        Self {
            identity,
            lease_name: "convoy-controllers".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

const NAMESPACE: &str = "kube-system";

/// The time from one taking of the Lease to the next: what is done in it can be told from what is done later, by
/// whomever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    lease_name: String,
    holder: String,
    transitions: i64,
}

impl Term {
    /// The fact that the term goes on.
    pub(crate) fn fact(&self) -> Fact {
        Fact::Leads {
            namespace: NAMESPACE.to_owned(),
            name: self.lease_name.clone(),
            holder: self.holder.clone(),
            transitions: self.transitions,
        }
    }
}
/// While a starting server does not answer yet.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// To give the Lease back.
const RELEASE_LIMIT: Duration = Duration::from_secs(1);

/// Runs `work` whenever, and only while, the Lease is held; until `stop` ends.
pub(crate) async fn lead<W: Future<Output = ()>>(
    ctx: &Ctx,
    election: &Election,
    stop: impl Future<Output = ()>,
    work: impl Fn(Term) -> W,
) {
    let mut stop = std::pin::pin!(stop);
    let mut candidate = Candidate { ctx, election, seen: None, term: None };
    loop {
        let (held_since, term) = tokio::select! {
            () = &mut stop => return,
            taken = candidate.take() => taken,
        };
        let _leading = Leading::begin(ctx, election);
        candidate.announce("became leader").await;
        tokio::select! {
            () = &mut stop => {
                let _ = timeout(RELEASE_LIMIT, candidate.release()).await;
                return;
            }
            () = candidate.keep(held_since) => {}
            () = work(term) => {}
        }
        candidate.term = None;
        warn!(identity = election.identity, "the lease is lost: controllers pause");
        let _ = timeout(RELEASE_LIMIT, candidate.announce("stopped leading")).await;
    }
}

/// The time in which the Lease is held, as it is counted.
struct Leading<'a>(&'a Ctx, &'a Election);

impl<'a> Leading<'a> {
    fn begin(ctx: &'a Ctx, election: &'a Election) -> Self {
        ctx.observe.leads(&election.lease_name, true);
        Self(ctx, election)
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.0.observe.leads(&self.1.lease_name, false);
    }
}

struct Candidate<'a> {
    ctx: &'a Ctx,
    election: &'a Election,
    /// The last state of somebody else's Lease, and since when it has not changed.
    seen: Option<(String, Instant)>,
    /// While the Lease is held.
    term: Option<Term>,
}

/// What to do about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Create,
    Renew,
    TakeOver,
    Wait,
}

/// `unchanged` is how long the Lease has not changed.
fn claim(lease: Option<&Value>, identity: &str, unchanged: Duration) -> Claim {
    let Some(lease) = lease else { return Claim::Create };
    let holder = spec(lease, "holderIdentity").and_then(Value::as_str).unwrap_or_default();
    let seconds = spec(lease, "leaseDurationSeconds").and_then(Value::as_u64).unwrap_or_default();
    match holder {
        "" => Claim::TakeOver,
        it if it == identity => Claim::Renew,
        _ if unchanged > Duration::from_secs(seconds) => Claim::TakeOver,
        _ => Claim::Wait,
    }
}

impl Candidate<'_> {
    fn leases(&self) -> Collection {
        Collection::namespaced("coordination.k8s.io", "v1", NAMESPACE, "leases")
    }

    /// Ends when the Lease is ours, and says since when at least, and in which term.
    async fn take(&mut self) -> (Instant, Term) {
        let mut backoff = Backoff::new(FIRST_PAUSE, self.election.retry_period);
        loop {
            let now = Instant::now();
            let pause = match timeout(self.election.renew_deadline, self.attempt()).await {
                Ok(Ok(Some(term))) => {
                    self.term = Some(term.clone());
                    return (now, term);
                }
                Ok(Ok(None)) => self.election.retry_period,
                Ok(Err(error)) => {
                    debug!(error = %Chain(&error), "the lease could not be taken");
                    backoff.pause()
                }
                Err(_) => backoff.pause(),
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Renews the Lease; ends when it is not certainly ours any more.
    async fn keep(&mut self, mut held_since: Instant) {
        loop {
            let deadline = held_since + self.election.renew_deadline;
            tokio::time::sleep_until((Instant::now() + self.election.retry_period).min(deadline)).await;
            let now = Instant::now();
            match timeout_at(deadline, self.attempt()).await {
                Ok(Ok(term)) if term.is_some() && term == self.term => held_since = now,
                // It is somebody else's, or was meanwhile: what is going on belongs to a term that is over.
                Ok(Ok(_)) => return,
                Ok(Err(error)) => {
                    warn!(error = %Chain(&error), "the lease could not be renewed");
                    if Instant::now() >= deadline {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// The term, if the Lease is ours now.
    async fn attempt(&mut self) -> Result<Option<Term>, Error> {
        let leases = self.leases();
        let Election { identity, lease_name, .. } = self.election;
        let lease = leases.get(&self.ctx.client, lease_name).await?;
        let outcome = match (claim(lease.as_ref(), identity, self.unchanged(lease.as_ref())), lease) {
            (Claim::Wait, _) => return Ok(None),
            (Claim::Create, _) | (_, None) => {
                let written = self.written(None);
                leases.create(&self.ctx.client, &written).await.map(|()| written)
            }
            (Claim::Renew | Claim::TakeOver, Some(lease)) => {
                let written = self.written(Some(&lease));
                leases.replace(&self.ctx.client, lease_name, &written).await
            }
        };
        match outcome {
            // Somebody else was faster.
            Err(error) if error.is(409) => Ok(None),
            outcome => outcome.map(|it| Some(self.term_of(&it))),
        }
    }

    fn unchanged(&mut self, lease: Option<&Value>) -> Duration {
        let now = Instant::now();
        let state = lease.map(object::resource_version).unwrap_or_default().to_owned();
        match &self.seen {
            Some((seen, since)) if *seen == state => now.duration_since(*since),
            _ => {
                self.seen = Some((state, now));
                Duration::ZERO
            }
        }
    }

    fn term_of(&self, lease: &Value) -> Term {
        let Election { identity, lease_name, .. } = self.election;
        let transitions = spec(lease, "leaseTransitions").and_then(Value::as_i64).unwrap_or_default();
        Term { lease_name: lease_name.clone(), holder: identity.clone(), transitions }
    }

    /// The Lease with us as its holder. Whoever takes it begins a term, also a process that finds it in its own name: what
    /// an earlier process of that name has under way is not its own.
    fn written(&self, old: Option<&Value>) -> Value {
        let Election { identity, lease_name, lease_duration, .. } = self.election;
        let now = time::format_micro_time((self.ctx.now)());
        let mut lease = old.cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": lease_name, "namespace": NAMESPACE},
            })
        });
        let holder = old.and_then(|it| spec(it, "holderIdentity")).and_then(Value::as_str);
        let transitions = old.and_then(|it| spec(it, "leaseTransitions")).and_then(Value::as_i64);
        let acquired = old.and_then(|it| spec(it, "acquireTime")).cloned();
        let is_ours = holder == Some(identity) && self.term.is_some();
        lease["spec"] = json!({
            "holderIdentity": identity,
            "leaseDurationSeconds": lease_duration.as_secs().max(1),
            "acquireTime": acquired.filter(|_| is_ours).unwrap_or_else(|| json!(now)),
            "renewTime": now,
            "leaseTransitions": transitions.map_or(0, |it| if is_ours { it } else { it.saturating_add(1) }),
        });
        lease
    }

    /// Gives the Lease back, as upstream does it: without a holder, and short.
    async fn release(&self) {
        let Election { identity, lease_name, .. } = self.election;
        let released = async {
            let Some(mut lease) = self.leases().get(&self.ctx.client, lease_name).await? else {
                return Ok(());
            };
            if spec(&lease, "holderIdentity").and_then(Value::as_str) != Some(identity) {
                return Ok(());
            }
            let now = time::format_micro_time((self.ctx.now)());
            let transitions = spec(&lease, "leaseTransitions").cloned();
            lease["spec"] = json!({
                "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now,
                "leaseTransitions": transitions,
            });
            self.leases().replace(&self.ctx.client, lease_name, &lease).await.map(drop)
        };
        if let Err(error) = released.await {
            debug!(error = %Chain(&error), "the lease could not be given back and will expire");
        }
        self.announce("stopped leading").await;
    }

    async fn announce(&self, what: &str) {
        let Election { identity, lease_name, .. } = self.election;
        let message = format!("{identity} {what}");
        info!(lease = lease_name, "{message}");
        let record =
            Record { component: lease_name, is_warning: false, reason: "LeaderElection", message: &message };
        let involved = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": NAMESPACE, "name": lease_name,
        });
        let _ = timeout(RELEASE_LIMIT, events::record(self.ctx, involved, &record)).await;
    }
}

fn spec<'a>(lease: &'a Value, field: &str) -> Option<&'a Value> {
    lease.get("spec")?.get(field)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_it_is_free_ours_or_expired() {
        let check = |holder: Option<&str>, unchanged: u64, expect: Claim| {
            let lease = holder.map(|it| json!({"spec": {"holderIdentity": it, "leaseDurationSeconds": 15}}));
            assert_eq!(claim(lease.as_ref(), "me", Duration::from_secs(unchanged)), expect, "{holder:?}");
        };
        check(None, 0, Claim::Create);
        check(Some(""), 0, Claim::TakeOver);
        check(Some("me"), 0, Claim::Renew);
        check(Some("you"), 0, Claim::Wait);
        check(Some("you"), 15, Claim::Wait);
        check(Some("you"), 16, Claim::TakeOver);
    }
}
