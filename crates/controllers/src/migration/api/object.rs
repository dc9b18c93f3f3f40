//! One object is written back as it is: an empty merge patch, on the condition of its uid and resourceVersion.
//!
//! # Guarantees
//! - An object counts as changed or unchanged only after a patch of ours was accepted. A conflict, or a resourceVersion
//!   that is newer than expected, proves nothing: who wrote it may write another version.
//! - "Unchanged" means stored as the server would store it. A server finds that out by comparing bytes, and kube-apiserver
//!   reads them from etcd before it believes that there is nothing to write, even if it began with its cache
//!   (`GuaranteedUpdate`). A stale encryption key counts as a difference there, too.
//! - No object takes more than a bounded number of tries.
//!
//! # Errors
//! Where a webhook or policy stands in the way, the object is written through `/status`, which stores all of it just the
//! same and which few of them look at. What remains is told as a [`Failure`].

use meta::GroupResource;
use serde::Deserialize;
use serde_json::json;

use super::agree::Offered;
use super::answer::{Verdict, judge};
use super::caller::{self, Caller, TRIES};
use crate::api::Collection;
use crate::error::Error;
use crate::migration::engine::{Class, Failure};

/// After so many requests about it that were not answered in time, an object is given up.
const SILENCES: u32 = 2;

/// As much of an object as is needed to write it back.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Object {
    metadata: Metadata,
}

impl Object {
    pub(super) fn name(&self) -> &str {
        &self.metadata.name
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    namespace: String,
    name: String,
    uid: String,
    resource_version: String,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was stored in another way before.
    Changed,
    /// It was stored as it should be.
    Unchanged,
    /// Somebody deleted it.
    Gone,
    Failed(Failure),
}

/// Where the objects of a resource are.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) resource: &'a GroupResource,
    pub(super) offered: &'a Offered,
}

impl Place<'_> {
    /// In one namespace, or all.
    pub(super) fn collection(&self, namespace: &str) -> Collection {
        self.in_version(&self.offered.version, namespace)
    }

    pub(super) fn in_version(&self, version: &str, namespace: &str) -> Collection {
        let GroupResource { group, resource } = self.resource;
        if namespace.is_empty() {
            Collection::cluster(group, version, resource)
        } else {
            Collection::namespaced(group, version, namespace, resource)
        }
    }
}

/// Writes it back, until the server has said yes or no.
pub(super) async fn touch(caller: Caller<'_>, place: Place<'_>, object: Object) -> Outcome {
    let collection = place.collection(&object.metadata.namespace);
    let mut attempt = Attempt { caller, collection, object, is_status: false, first_refusal: None };
    let (mut conflicts, mut tries, mut silences, mut pauses) = (0, 0, 0, caller::pauses());
    loop {
        let error = match attempt.patch().await {
            Ok(outcome) => return outcome,
            Err(error) => error,
        };
        let verdict = judge(&error, &attempt.object.metadata.name);
        if verdict.is_by_admission() && place.offered.has_status && !attempt.is_status {
            attempt.go_to_status(&verdict, &error);
            continue;
        }
        match verdict {
            Verdict::Gone => return Outcome::Gone,
            Verdict::Refused(class) => return attempt.fail(class, &error),
            Verdict::Conflict => {
                conflicts += 1;
                attempt.is_status = false;
                if conflicts == TRIES {
                    return attempt.fail(Class::Conflict, &error);
                }
            }
            Verdict::Later { class, .. } => {
                tries += 1;
                silences += u32::from(matches!(error, Error::TooLong(_)));
                // One that makes its server hang must not take the time of all others.
                if tries == TRIES || silences == SILENCES {
                    return attempt.fail(class, &error);
                }
            }
        }
        // Without a pause at first: who writes often must be met between two writes.
        if conflicts + tries > 1 {
            caller::pause(&mut pauses).await;
        }
        if conflicts > 0 && !attempt.read_again().await {
            return Outcome::Gone;
        }
    }
}

struct Attempt<'a> {
    caller: Caller<'a>,
    collection: Collection,
    object: Object,
    is_status: bool,
    /// Why the way over the status was taken.
    first_refusal: Option<(Class, String)>,
}

impl Attempt<'_> {
    async fn patch(&self) -> Result<Outcome, Error> {
        let Metadata { name, uid, resource_version, .. } = &self.object.metadata;
        let patch = json!({"metadata": {"uid": uid, "resourceVersion": resource_version}});
        let subresource = self.is_status.then_some("status");
        let request = self.collection.patch_metadata(self.caller.client, name, subresource, &patch);
        let answer: Object = self.caller.call(name, request).await?;
        let is_same = answer.metadata.resource_version == *resource_version;
        Ok(if is_same { Outcome::Unchanged } else { Outcome::Changed })
    }

    /// Its present state. Whether it is still there; where that cannot be learnt, the next patch will tell.
    async fn read_again(&mut self) -> bool {
        let name = &self.object.metadata.name;
        let request = self.collection.find_metadata(self.caller.client, name);
        match self.caller.call(name, request).await {
            Ok(Some(object)) => {
                self.object = object;
                true
            }
            Ok(None) => false,
            Err(_) => true,
        }
    }

    fn go_to_status(&mut self, verdict: &Verdict, error: &Error) {
        self.is_status = true;
        if let Verdict::Refused(class) | Verdict::Later { class, .. } = verdict {
            self.first_refusal = Some((*class, error.text()));
        }
    }

    /// Of two refusals the first is told: the other one is about a way that the user has not asked for.
    fn fail(self, class: Class, error: &Error) -> Outcome {
        let first = self.first_refusal.filter(|_| self.is_status && !class.passes());
        let (class, message) = first.unwrap_or_else(|| (class, error.text()));
        let Metadata { namespace, name, .. } = self.object.metadata;
        let object = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        Outcome::Failed(Failure { class, object, message })
    }
}
