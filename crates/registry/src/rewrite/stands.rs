//! Whether what a migration began under still stands, by the store: what this server remembers may be old.

use super::{Rewrite, RewriteError};
use crate::Registry;

impl Registry {
    /// Whether the servers agree on the wanted version under the wanted epoch, at a moment after the call. Whatever was
    /// written until then was written by that agreement.
    pub async fn stands(&self, task: &Rewrite) -> Result<(), RewriteError> {
        let kind = self.kinds.get(&task.resource).ok_or(RewriteError::Unknown)?;
        let fence =
            self.station.fence_now(&kind.definition.record).await.map_err(RewriteError::Unavailable)?;
        let stands = fence.is_some_and(|it| {
            let common = it.record.common.as_ref().map(ToString::to_string);
            common.as_ref() == Some(&task.version) && it.record.epoch.get() == task.epoch
        });
        if stands { Ok(()) } else { Err(RewriteError::Disagreement(self.disagreement(task))) }
    }
}
