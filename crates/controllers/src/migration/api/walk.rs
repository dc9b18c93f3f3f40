//! One page of objects: listed, then written back, many at once.

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::agree::Offer;
use super::answer::{Verdict, is_webhook_silent, judge};
use super::caller::Caller;
use super::object::{Object, Outcome, Place, touch};
use super::position::Position;
use crate::error::Error;
use crate::migration::engine::{Class, Failure, Task, Trouble};

/// Objects that are looked after at once, for each request that may be under way: those that pause after a failure leave
/// their room to others.
const LOOKED_AFTER: usize = 4;

/// After so many answers that a list has expired, it is left for later.
const EXPIRIES: u32 = 5;

/// What one page is to be listed and written with.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) caller: Caller<'a>,
    pub(super) task: &'a Task,
    /// Of the endpoint that is asked.
    pub(super) offer: &'a Offer,
    pub(super) place: Place<'a>,
    pub(super) at_once: usize,
}

/// A part of the list.
#[derive(Default)]
pub(super) struct Listed {
    pub(super) objects: Vec<Object>,
    /// How the list goes on in this namespace.
    pub(super) token: Option<String>,
    /// About how many come behind, if it is known.
    pub(super) remaining: Option<u64>,
}

/// Why there is no list.
pub(super) enum Unlisted {
    Trouble(Trouble),
    /// There is an object in it whose stored form cannot be read.
    Undecodable(String),
}

/// What became of the objects of a page.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) changed: u64,
    pub(super) unchanged: u64,
    pub(super) failures: Vec<Failure>,
}

impl Walk<'_> {
    /// Whether objects can be read at all, in any version. Reading converts, and an object that is stored in one version
    /// is converted for all others.
    pub(super) async fn probe(&self, position: &Position) -> Result<(), Trouble> {
        let namespace = self.namespace(position);
        for offered in self.offer.versions.iter().filter(|it| it.verbs.iter().any(|it| it == "list")) {
            let collection = self.place.in_version(&offered.version, namespace);
            match self.caller.call_patiently(|client| collection.probe(client)).await {
                // The walk goes around it.
                Err(error) if is_undecodable(&error) => {}
                other => other.map_err(|it| self.blame(&it))?,
            }
        }
        Ok(())
    }

    /// The page at this position. A list that the server has forgotten goes on with what is there by now; what was
    /// created meanwhile was written in the version agreed on.
    pub(super) async fn list(&self, position: &Position) -> Result<Listed, Unlisted> {
        let namespace = self.namespace(position);
        let mut listed = self.list_in(namespace, position.token.clone(), self.task.batch).await?;
        let is_last = position.namespace + 1 >= self.task.namespaces.len();
        listed.remaining = listed.remaining.filter(|_| is_last);
        Ok(listed)
    }

    /// So many objects of one namespace, or all, behind this token.
    pub(super) async fn list_in(
        &self,
        namespace: &str,
        mut token: Option<String>,
        n_objects: usize,
    ) -> Result<Listed, Unlisted> {
        let selector = &self.task.selector;
        let collection = self.place.collection(namespace);
        let limit = u32::try_from(n_objects).unwrap_or(u32::MAX).max(1);
        for _ in 0..EXPIRIES {
            let request = |client| collection.page_of_metadata(client, selector, limit, token.as_deref());
            let error = match self.caller.call_patiently(request).await {
                Ok(page) => {
                    let remaining = page.remaining();
                    let (objects, token) = page.open();
                    let remaining = if token.is_none() { Some(0) } else { remaining };
                    return Ok(Listed { objects, token, remaining });
                }
                Err(error) => error,
            };
            if error.is(410) {
                token = error.next().map(str::to_owned);
            } else if error.is(400) && token.is_some() {
                // A token that this server does not know.
                token = None;
            } else if error.is(400) {
                return Err(Unlisted::Trouble(Trouble::Never(self.cannot_be_listed(&error))));
            } else if is_undecodable(&error) {
                return Err(Unlisted::Undecodable(error.text()));
            } else {
                return Err(Unlisted::Trouble(self.blame(&error)));
            }
        }
        let why = format!("the list of {} expires again and again", self.task.resource);
        Err(Unlisted::Trouble(Trouble::Later(why)))
    }

    /// Writes all of them back. None keeps another one waiting, and a server that does not answer ends it.
    pub(super) async fn touch(&self, objects: Vec<Object>, position: &Position) -> Result<Tally, Trouble> {
        let outcomes = objects.into_iter().map(|it| touch(self.caller, self.place, it));
        let mut outcomes = stream::iter(outcomes).buffer_unordered(self.at_once.max(1) * LOOKED_AFTER);
        let mut tally = Tally::default();
        let patience = self.caller.patience();
        let mut since = Instant::now();
        while let Some(outcome) =
            tokio::time::timeout_at(since + patience, outcomes.next()).await.map_err(|_| {
                Trouble::Later(format!(
                    "nothing became of any object of {} for {patience:?}",
                    self.task.resource
                ))
            })?
        {
            if !matches!(&outcome, Outcome::Failed(it) if is_elsewhere(it)) {
                since = Instant::now();
            }
            match outcome {
                Outcome::Changed => tally.changed += 1,
                Outcome::Unchanged => tally.unchanged += 1,
                Outcome::Gone => {}
                Outcome::Failed(failure) => tally.failures.push(failure),
            }
        }
        tally.failures.sort_by(|a, b| a.object.cmp(&b.object));
        if tally.is_outage() {
            // It may be the objects after all: then they are named, and the walk goes on.
            self.probe(position).await?;
        }
        Ok(tally)
    }

    fn namespace(&self, position: &Position) -> &str {
        self.task.namespaces.get(position.namespace).map_or("", |it| it.as_str())
    }

    /// Why nothing can be listed now.
    fn blame(&self, error: &Error) -> Trouble {
        let resource = &self.task.resource;
        let text = error.text();
        Trouble::Later(if is_webhook_silent(&text) {
            format!("the conversion webhook of {resource} does not answer: {text}")
        } else {
            self.cannot_be_listed(error)
        })
    }

    fn cannot_be_listed(&self, error: &Error) -> String {
        format!("{} cannot be listed: {}", self.task.resource, error.text())
    }
}

/// Whether the reason lies in no object.
fn is_elsewhere(failure: &Failure) -> bool {
    failure.class.passes() && failure.class != Class::Conflict
}

/// Whether there is an object in a list whose stored form cannot be read.
fn is_undecodable(error: &Error) -> bool {
    judge(error, "") == Verdict::Refused(Class::Undecodable)
}

impl Tally {
    /// Whether nothing worked, for reasons that lie in no object.
    fn is_outage(&self) -> bool {
        self.changed + self.unchanged == 0
            && !self.failures.is_empty()
            && self.failures.iter().all(is_elsewhere)
    }
}
