//! Keys that go away by themselves, with etcd's leases.
//! etcd counts whole seconds, gives no lease shorter than about two, and ends one up to a second late.

use std::time::Duration;

use futures_util::stream;
use store::{LeaseError, LeaseId};
use tonic::{Response, Status, transport::Channel};

use crate::{
    client::request,
    failure::{Failure, Harm, Refusal},
    proto::{
        LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest, LeaseKeepAliveResponse,
        LeaseRevokeRequest, LeaseRevokeResponse, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
        lease_client::LeaseClient,
    },
    store::Inner,
};

impl Inner {
    pub(crate) async fn grant(&self, ttl: Duration) -> Result<LeaseId, LeaseError> {
        let ttl = seconds(ttl);
        let call = |channel| async move {
            LeaseClient::new(channel).lease_grant(request(LeaseGrantRequest { ttl })).await
        };
        // A lease that is granted twice ends by itself.
        let answer: LeaseGrantResponse =
            self.client.call(Harm::None, call).await.map_err(|it| lease_error(it, LeaseId(0)))?;
        if answer.error.is_empty() {
            Ok(LeaseId(answer.id))
        } else {
            Err(LeaseError::Unavailable(answer.error))
        }
    }

    pub(crate) async fn renew(&self, lease: LeaseId) -> Result<(), LeaseError> {
        let answer: LeaseKeepAliveResponse = self
            .client
            .call(Harm::None, |channel| keep_alive(channel, lease.0))
            .await
            .map_err(|it| lease_error(it, lease))?;
        // That is how etcd says "not found" here.
        if answer.ttl > 0 { Ok(()) } else { Err(LeaseError::NotFound(lease)) }
    }

    pub(crate) async fn revoke(&self, lease: LeaseId) -> Result<(), LeaseError> {
        let id = lease.0;
        let call = |channel| async move {
            LeaseClient::new(channel).lease_revoke(request(LeaseRevokeRequest { id })).await
        };
        // Sent once at first: a second answer would be "not found", although it was we who ended it.
        let answer: Result<LeaseRevokeResponse, Failure> = self.client.call(Harm::Possible, call).await;
        let answer = match answer {
            Err(Failure::Unknown(_)) => match self.client.call(Harm::None, call).await {
                // It was we, or the lease ended by itself.
                Err(Failure::Refused(Refusal::NoLease)) => return Ok(()),
                again => again,
            },
            answer => answer,
        };
        answer.map(drop).map_err(|it| lease_error(it, lease))
    }

    /// The first of these leases that does not exist; the first of all if nobody can tell.
    pub(crate) async fn first_missing(&self, leases: &[LeaseId]) -> LeaseId {
        for lease in leases.iter().filter(|_| leases.len() > 1) {
            let id = lease.0;
            let call = |channel| async move {
                LeaseClient::new(channel).lease_time_to_live(request(LeaseTimeToLiveRequest { id })).await
            };
            let answer: Result<LeaseTimeToLiveResponse, Failure> = self.client.call(Harm::None, call).await;
            if answer.is_ok_and(|it| it.ttl < 0) {
                return *lease;
            }
        }
        leases.first().copied().unwrap_or(LeaseId(0))
    }
}

async fn keep_alive(channel: Channel, id: i64) -> Result<Response<LeaseKeepAliveResponse>, Status> {
    let once = stream::iter([LeaseKeepAliveRequest { id }]);
    let answers = LeaseClient::new(channel).lease_keep_alive(request(once)).await?;
    match answers.into_inner().message().await? {
        Some(answer) => Ok(Response::new(answer)),
        None => Err(Status::unavailable("etcd ended the call without an answer")),
    }
}

/// Whole seconds, rounded up, at least one.
fn seconds(ttl: Duration) -> i64 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    i64::try_from(whole.max(1)).unwrap_or(i64::MAX)
}

fn lease_error(failure: Failure, lease: LeaseId) -> LeaseError {
    match failure {
        Failure::Refused(Refusal::NoLease) => LeaseError::NotFound(lease),
        failure => LeaseError::Unavailable(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_never_ends_before_its_time() {
        assert_eq!(seconds(Duration::ZERO), 1);
        assert_eq!(seconds(Duration::from_millis(1)), 1);
        assert_eq!(seconds(Duration::from_millis(1001)), 2);
        assert_eq!(seconds(Duration::from_secs(15)), 15);
        assert_eq!(seconds(Duration::MAX), i64::MAX);
    }
}
