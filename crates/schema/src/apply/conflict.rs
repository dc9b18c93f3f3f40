//! Why a configuration is not applied, and how clients are told.

use meta::{Cause, Details, Reason, Status};

use super::{managers::ManagerId, path, path::PathElement};

/// More conflicts than this are not listed.
const MAX_LISTED: usize = 1000;

/// A field that somebody else owns and has another value for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who owns it.
    pub manager: ManagerId,
    /// The field.
    pub path: Vec<PathElement>,
}

/// Why a configuration is not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own fields that it would change: 409.
    #[error("{}", message(.0))]
    Conflicts(Vec<Conflict>),
    /// It is no configuration of such an object: 400.
    #[error("{0}")]
    BadRequest(String),
    /// It does not fit the schema, or something cannot be converted: 500, as upstream.
    #[error("{0}")]
    Failed(String),
}

impl ApplyError {
    /// What clients are told.
    pub fn status(&self) -> Status {
        match self {
            Self::Conflicts(conflicts) => {
                let mut status = Status::failure(409, Reason::Conflict, self.to_string());
                let causes = conflicts.iter().take(MAX_LISTED).map(|it| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: format!("conflict with {}", it.manager.describe()),
                    field: path::display(&it.path),
                });
                status.details = Some(Box::new(Details { causes: causes.collect(), ..Details::default() }));
                status
            }
            Self::BadRequest(text) => Status::bad_request(text),
            Self::Failed(text) => Status::failure(500, Reason::Unknown, text),
        }
    }
}

fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager.describe(),
            path::display(&only.path)
        );
    }
    let mut lines = Vec::new();
    let mut last = None;
    for conflict in conflicts.iter().take(MAX_LISTED) {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", conflict.manager.describe()));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", path::display(&conflict.path)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
