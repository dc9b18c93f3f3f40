//! What can rewrite objects, and prove that it did. There are two: the store's own (`InStore`), which a Convoy server
//! hands in, and the public API (`Api`), which works on any cluster.
//!
//! Deliberately not here: when what is done; that is the migrator's.

use std::{collections::BTreeMap, fmt, time::Duration};

use futures_util::future::BoxFuture;
use kube::Client;
use meta::GroupResource;

/// What the servers of a cluster write of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// All write this version.
    Agreed {
        /// Such as `example.com/v1`.
        version: String,
        /// Another number whenever the agreement was another one in between.
        epoch: i64,
    },
    /// They write different versions, or not all have said what they write.
    Open(String),
    /// A custom resource is defined to be written in another version, and the servers have not all followed yet. Unlike
    /// [`Agreement::Open`] this lasts for a moment, and the definition says what will be agreed on.
    Following(String),
    /// There is no such resource.
    Absent,
}

/// What one migration is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Whose objects.
    pub resource: GroupResource,
    /// What they are to be stored in.
    pub version: String,
    /// The agreement under which that is true. A step under another one must not write anything.
    pub epoch: i64,
    /// Only in these namespaces; all if empty.
    pub namespaces: Vec<String>,
    /// Only what this label selector selects; all if empty.
    pub selector: String,
    /// Say what would be done.
    pub dry_run: bool,
    /// Objects in one step, at most.
    pub batch: usize,
    /// Writes that are under way at the same time, at most; an engine may know better.
    pub at_once: usize,
}

impl Task {
    /// Whether it is about every object.
    pub fn is_whole(&self) -> bool {
        self.namespaces.is_empty() && self.selector.is_empty() && !self.dry_run
    }
}

/// What became of the objects of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Rewritten, or would be.
    pub migrated: u64,
    /// Stored as they should be already.
    pub unchanged: u64,
    /// Neither.
    pub failures: Vec<Failure>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// About how many are behind that, if it is known.
    pub remaining: Option<u64>,
}

/// An object that could not be rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of trouble it is.
    pub class: Class,
    /// `namespace/name`, or the name.
    pub object: String,
    /// In the server's words.
    pub message: String,
}

/// Kinds of trouble with one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Others change it again and again.
    Conflict,
    /// A webhook or policy refuses it.
    Denied,
    /// The migrator lacks the right.
    Forbidden,
    /// It does not pass validation.
    Invalid,
    /// The server asks to come back later.
    Throttled,
    /// The server failed, or did not answer.
    Transient,
    /// Its stored form cannot be read.
    Undecodable,
    /// A webhook that is needed does not answer.
    WebhookUnreachable,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Conflict,
        Self::Denied,
        Self::Forbidden,
        Self::Invalid,
        Self::Throttled,
        Self::Transient,
        Self::Undecodable,
        Self::WebhookUnreachable,
    ];

    /// As it is written in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conflict => "Conflict",
            Self::Denied => "Denied",
            Self::Forbidden => "Forbidden",
            Self::Invalid => "Invalid",
            Self::Throttled => "Throttled",
            Self::Transient => "Transient",
            Self::Undecodable => "Undecodable",
            Self::WebhookUnreachable => "WebhookUnreachable",
        }
    }

    /// Whether trying again later may help by itself.
    pub fn passes(self) -> bool {
        matches!(self, Self::Conflict | Self::Throttled | Self::Transient | Self::WebhookUnreachable)
    }
}

/// How it is known what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The stored bytes were read.
    StoreScan,
    /// In a second pass through every API server, none of the objects changed.
    SecondPassAllEndpoints,
    /// The same through one address, behind which there may be several servers.
    SecondPassOneEndpoint,
}

impl Evidence {
    /// As it is written in the status.
    pub fn name(self) -> &'static str {
        match self {
            Self::StoreScan => "StoreScan",
            Self::SecondPassAllEndpoints => "SecondPassAllEndpoints",
            Self::SecondPassOneEndpoint => "SecondPassOneEndpoint",
        }
    }
}

/// What one look at the result has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// How.
    pub evidence: Evidence,
    /// Objects that were looked at in this step.
    pub objects: u64,
    /// Objects that are not stored as they should be.
    pub left: u64,
    /// Those that cannot be read at all.
    pub failures: Vec<Failure>,
    /// Where to go on; `None` at the end.
    pub next: Option<String>,
    /// Why that is not enough by itself; empty if it is.
    pub doubt: &'static str,
}

/// Why a step could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The servers do not agree any more, or on something else.
    Disagreement(String),
    /// It may work later; this is why it does not work now.
    Later(String),
    /// The resource is gone.
    Gone,
    /// It cannot work.
    Never(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disagreement(why) | Self::Later(why) | Self::Never(why) => f.write_str(why),
            Self::Gone => f.write_str("the resource is gone"),
        }
    }
}

/// Rewrites objects. Every method can be called again after it was cut off anywhere.
pub trait Engine: Send + Sync + 'static {
    /// As it is written in the status.
    fn name(&self) -> &'static str;

    /// What the servers write.
    fn agreement<'a>(&'a self, resource: &'a GroupResource) -> BoxFuture<'a, Result<Agreement, Trouble>>;

    /// Looks at the objects behind `position` and rewrites those that are stored in another version.
    fn rewrite<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Batch, Trouble>>;

    /// Looks at how the objects behind `position` are stored.
    fn verify<'a>(&'a self, task: &'a Task, position: &'a str) -> BoxFuture<'a, Result<Look, Trouble>>;

    /// Whether the agreement of a task stands, by whoever decides on it and not by what is remembered of that. Asked after
    /// the last look: what was written until the answer was written under the agreement.
    fn stands<'a>(&'a self, _task: &'a Task) -> BoxFuture<'a, Result<(), Trouble>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// How often [`Engine::verify`] looks at each object.
    fn n_looks(&self) -> u64 {
        1
    }

    /// How long after a change of a definition's storage version something may still be written in an earlier one: by
    /// requests that were under way, or by a server that is slow to follow.
    fn lag<'a>(&'a self, _resource: &'a GroupResource) -> BoxFuture<'a, Duration> {
        Box::pin(std::future::ready(Duration::ZERO))
    }

    /// The resources whose objects are stored.
    fn resources(&self) -> BoxFuture<'_, Result<Vec<GroupResource>, Trouble>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// The versions in which servers write now; more than one while they do not agree. Where objects cannot be counted,
    /// also those that `status.storedVersions` of a definition lists.
    fn written<'a>(&'a self, _resource: &'a GroupResource) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// How many objects are stored in which version, where that can be counted. Versions that `status.storedVersions`
    /// of a definition lists are there with none.
    fn stored<'a>(
        &'a self,
        _resource: &'a GroupResource,
    ) -> BoxFuture<'a, Result<Option<BTreeMap<String, u64>>, Trouble>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// What discovery calls a version of a resource: its `storageVersionHash`.
    fn hash<'a>(&'a self, _resource: &'a GroupResource, _version: &'a str) -> BoxFuture<'a, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// One for each API server that is asked by its own address; none if whoever has the engine knows better.
    fn clients(&self) -> Vec<Client> {
        Vec::new()
    }

    /// Whether [`Engine::changed`] ends because something changed, and not because time has passed.
    fn is_told(&self) -> bool {
        false
    }

    /// Ends when the agreement about some resource may have changed; may end too early.
    fn changed(&self) -> BoxFuture<'_, ()>;
}
