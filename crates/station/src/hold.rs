//! An operator's hold: while it stands, the selection of a resource does not move.

use fleet::{agree, agree::Facts, cluster::Agreement, fence::Hold};
use meta::GroupResource;

use crate::{Station, config::Occasion, fences::Setback};

/// How often a hold is tried when others write the same record.
const MAX_ATTEMPTS: usize = 16;

/// Why a hold could not be set or lifted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// No server stores the resource.
    #[error("no server stores {0}")]
    Unknown(GroupResource),
    /// The definition of a custom resource decides; there is nothing to hold.
    #[error("{0} is a custom resource: its definition says in which version it is stored")]
    Custom(GroupResource),
    /// Every server writes what it prefers; there is nothing to hold.
    #[error("the servers agree by reports: each stores {0} in the version that its release prefers")]
    Reported(GroupResource),
    /// The store failed, or this server is not a member.
    #[error("{0}")]
    Failed(String),
}

impl Station {
    /// Sets a hold on a resource, or lifts it.
    pub async fn hold(&self, resource: &GroupResource, hold: Option<Hold>) -> Result<(), HoldError> {
        let inner = &self.inner;
        for _ in 0..MAX_ATTEMPTS {
            let (basis, cluster) = {
                let board = inner.board.read();
                let basis = board.basis(resource).map_err(HoldError::Failed)?;
                (basis, board.cluster.clone())
            };
            let Some(fence) = basis.fence.clone() else { return Err(HoldError::Unknown(resource.clone())) };
            if fence.record.definition.is_some() {
                return Err(HoldError::Custom(resource.clone()));
            }
            let Some(cluster) = cluster.filter(|_| inner.is_member()) else {
                return Err(HoldError::Failed("this server is not a member of the cluster".to_owned()));
            };
            // A hold that was set while there were votes can be lifted.
            if cluster.agreement == Agreement::Report && hold.is_some() {
                return Err(HoldError::Reported(resource.clone()));
            }
            let mut held = fence.record.clone();
            held.hold.clone_from(&hold);
            let facts = Facts {
                resource,
                fence: Some(&held),
                members: &basis.members,
                agreement: cluster.agreement,
                settle: inner.config.settle,
                now: inner.clock.now(),
                revision: basis.revision,
            };
            // A lifted hold may let the selection move at once.
            let plan = agree::plan(&facts, None).map_err(|it| HoldError::Failed(it.to_string()))?;
            if plan.record == fence.record {
                return Ok(());
            }
            match inner.write_plan_on(Occasion::Hold, &basis, &plan, None, Vec::new()).await {
                Ok(()) => {
                    inner.tell_of_move(&basis, &plan);
                    return Ok(());
                }
                Err(Setback::Moved) => {}
                Err(setback) => return Err(HoldError::Failed(setback.to_string())),
            }
        }
        Err(HoldError::Failed("too many servers write the record at the same time".to_owned()))
    }
}
