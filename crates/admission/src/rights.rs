//! What the caller may do besides the request itself: some guards ask for a second right.

use access::Attributes;
use meta::{Release, Status};

/// The rights of one request's caller.
pub struct Rights<'a> {
    /// The verb that the request was authorized by.
    pub verb: &'a str,
    /// The release that the server is: later ones ask for more.
    pub release: Release,
    /// Asks the authorizer; a refusal is what a client would be told.
    pub ask: &'a (dyn Fn(&Attributes<'_>) -> Result<(), Status> + Sync),
}

impl Rights<'_> {
    /// Whether the caller has this right.
    pub(crate) fn has(&self, attributes: &Attributes<'_>) -> bool {
        (self.ask)(attributes).is_ok()
    }
}

impl std::fmt::Debug for Rights<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rights")
            .field("verb", &self.verb)
            .field("release", &self.release)
            .finish_non_exhaustive()
    }
}
