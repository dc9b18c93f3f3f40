//! Rewrites stored objects in the version that was agreed on, and looks at how they are stored.
//!
//! **Flow.** A step reads some keys straight from the store, brings those that are stored in another version into the
//! agreed one, and puts them, each in a transaction of its own: objects that share a revision could not be told apart by
//! a watch that goes on from it. No HTTP, no admission: the object that a client sees does not change,
//! so nobody has a say in it. Generation and managedFields stay, leases of keys stay, watchers see one MODIFIED.
//!
//! **Guarantees.** A transaction requires the fence record at the revision in which the wanted version is the common
//! one under the wanted epoch, of custom objects the definition that they were encoded by, and every key at the revision
//! that was read. So nothing is written under another agreement, and nobody's write is undone.
//! Deliberately not here: when and how fast; whoever migrates says that.

mod ahead;
mod stands;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use cache::{Collection, Item};
use fleet::cluster::Guarantee;
use futures_util::{
    StreamExt,
    future::{join_all, poll_immediate},
    stream::FuturesUnordered,
};
use jiff::{SignedDuration, Timestamp};
use meta::{GroupResource, GroupVersion, Status, selector::LabelSelector};
use store::{CommitError, Entry, Key, Range, ReadAt, Require, Store, Txn};

pub use ahead::Ahead;

use self::ahead::Read;
use crate::{Kind, Registry, Target, custom::convert, limits, serve, tile};

/// Objects that are encoded in one go, while those before them are on their way to the disk.
const CHUNK: usize = 64;

/// Keys that are asked for at once; a step may be far smaller. Of large objects fewer.
const PAGE: usize = 1_000;
const PAGE_BYTES: usize = 16 * 1024 * 1024;

/// How long a server may take to follow a definition that was edited, and how often that is looked at.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(2);
const FOLLOWED_EVERY: Duration = Duration::from_millis(10);

/// How long a server may write an earlier version where the guarantee is loose.
const UNFENCED: SignedDuration = SignedDuration::from_secs(60);

/// What to rewrite.
#[derive(Clone, Debug)]
pub struct Rewrite {
    /// Whose objects.
    pub resource: GroupResource,
    /// What they are to be stored in, such as `example.com/v1`.
    pub version: String,
    /// The agreement under which that is true.
    pub epoch: u64,
    /// Only in these namespaces; all if empty.
    pub namespaces: Vec<String>,
    /// Only these.
    pub selector: LabelSelector,
    /// Count, and write nothing.
    pub dry_run: bool,
    /// Keys that are looked at in one step.
    pub limit: usize,
    /// Puts that are under way at the same time; stores commit those together that come together.
    pub at_once: usize,
}

/// What one step did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Stored in another version before.
    pub rewritten: u64,
    /// Stored as wanted before.
    pub unchanged: u64,
    /// Left as they are: somebody else wrote them meanwhile.
    pub raced: Vec<String>,
    /// Left as they are, and why.
    pub failed: Vec<(String, String)>,
    /// Cannot be read, and why.
    pub unreadable: Vec<(String, String)>,
    /// The last key that was read; `None` at the end.
    pub next: Option<String>,
    /// Keys behind that.
    pub remaining: u64,
}

/// Why a step was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// The servers agree on something else, or not at all.
    #[error("{0}")]
    Disagreement(String),
    /// This server does not have the resource.
    #[error("the resource is not served by this server")]
    Unknown,
    /// The store or a webhook cannot be asked.
    #[error("{0}")]
    Unavailable(String),
}

/// One object that is to be rewritten, in its new form, or why it has none.
struct Pending {
    item: Arc<Item>,
    value: Result<Bytes, String>,
}

/// What became of it.
enum Outcome {
    Rewritten,
    /// Somebody else wrote it meanwhile, as wanted.
    Unchanged,
    /// What was required of agreement and definition does not hold any more.
    Moved(Arc<Item>),
    Raced(String),
    Failed(String, String),
    Gone,
}

/// What proves that bytes are in the right version.
struct Proof {
    kind: Arc<Kind>,
    require: Vec<Require>,
}

impl Registry {
    /// What the servers have agreed on, and its epoch; or why there is nothing.
    pub fn agreement(&self, resource: &GroupResource) -> Result<(String, u64), RewriteError> {
        let kind = self.kinds.get(resource).ok_or(RewriteError::Unknown)?;
        let Some(fence) = self.station.fence(&kind.definition.record) else {
            return Err(RewriteError::Disagreement("no server has reported what it stores".to_owned()));
        };
        match &fence.record.common {
            Some(version) => {
                self.check_settled(fence.record.condition.since)?;
                Ok((version.to_string(), fence.record.epoch.get()))
            }
            None => Err(RewriteError::Disagreement(fence.record.condition.message.clone())),
        }
    }

    /// Where writes are not fenced, a server may write what was agreed on before for as long as it takes to hear of it.
    fn check_settled(&self, since: Timestamp) -> Result<(), RewriteError> {
        let is_loose = self.station.cluster().is_some_and(|it| it.guarantee == Guarantee::Loose);
        if !is_loose || since + UNFENCED < self.clock.now() {
            return Ok(());
        }
        let why = "the guarantee is loose: every server has a minute to hear of what was agreed on";
        Err(RewriteError::Unavailable(why.to_owned()))
    }

    /// Rewrites some objects behind the key `after`.
    pub async fn rewrite(
        &self,
        task: &Rewrite,
        after: &str,
        ahead: &mut Ahead,
    ) -> Result<Rewritten, RewriteError> {
        let mut proof = self.proof(task).await?;
        let (mut done, mut wanted) = self.read_some(task, &proof.kind, after, ahead).await?;
        if task.dry_run {
            done.rewritten = wanted.len() as u64;
            return Ok(done);
        }
        loop {
            let mut moved = Vec::new();
            // While these are on their way to the disk the next ones are read.
            let (outcomes, ()) =
                tokio::join!(self.put_all(task, &proof, wanted), self.look_ahead(task, &proof.kind, ahead));
            for outcome in outcomes {
                match outcome? {
                    Outcome::Rewritten => done.rewritten += 1,
                    Outcome::Unchanged => done.unchanged += 1,
                    Outcome::Raced(object) => done.raced.push(object),
                    Outcome::Failed(object, why) => done.failed.push((object, why)),
                    Outcome::Moved(item) => moved.push(item),
                    Outcome::Gone => {}
                }
            }
            if moved.is_empty() {
                return Ok(done);
            }
            // Somebody edited the definition, which need not concern what is stored: the rest goes by the new one.
            (proof, wanted) = (self.newer_proof(task, &proof).await?, moved);
        }
    }

    /// What proves it by now, as soon as this server knows.
    async fn newer_proof(&self, task: &Rewrite, old: &Proof) -> Result<Proof, RewriteError> {
        let deadline = self.clock.monotonic() + FOLLOWED_WITHIN;
        loop {
            let proof = self.proof(task).await;
            match proof {
                Ok(proof) if proof.require != old.require => return Ok(proof),
                Err(error @ (RewriteError::Disagreement(_) | RewriteError::Unknown)) => return Err(error),
                _ if self.clock.monotonic() >= deadline => {
                    let why = "the agreement or the definition changed in the middle".to_owned();
                    return Err(RewriteError::Unavailable(why));
                }
                _ => self.clock.sleep(FOLLOWED_EVERY).await,
            }
        }
    }

    /// Encodes objects and puts them; while some are written the next are encoded.
    async fn put_all(
        &self,
        task: &Rewrite,
        proof: &Proof,
        items: Vec<Arc<Item>>,
    ) -> Vec<Result<Outcome, RewriteError>> {
        let chunk = task.at_once.clamp(1, CHUNK);
        let mut under_way = FuturesUnordered::new();
        let mut outcomes = Vec::with_capacity(items.len());
        for items in items.chunks(chunk) {
            while under_way.len() * chunk >= task.at_once.max(1) {
                outcomes.extend(under_way.next().await.unwrap_or_default());
            }
            match self.encode_all(task, proof, items).await {
                Ok(pending) => {
                    under_way.push(join_all(pending.into_iter().map(|it| self.put_one(task, proof, it))));
                }
                Err(error) => {
                    outcomes.push(Err(error));
                    break;
                }
            }
            // A put is sent when it is first asked about: now, and not after the next objects are encoded.
            outcomes.extend(poll_immediate(under_way.next()).await.flatten().unwrap_or_default());
        }
        outcomes.extend(under_way.concat().await);
        outcomes
    }

    /// Looks at how some objects behind the key `after` are stored; `rewritten` counts those in another version.
    pub async fn look_at_stored(
        &self,
        task: &Rewrite,
        after: &str,
        ahead: &mut Ahead,
    ) -> Result<Rewritten, RewriteError> {
        let proof = self.proof(task).await?;
        let (mut seen, left) = self.read_some(task, &proof.kind, after, ahead).await?;
        seen.rewritten = left.len() as u64;
        Ok(seen)
    }

    /// The kind by which objects are encoded, and what every transaction requires.
    async fn proof(&self, task: &Rewrite) -> Result<Proof, RewriteError> {
        let kind = self.kinds.get(&task.resource).ok_or(RewriteError::Unknown)?;
        let record = kind.definition.record.clone();
        let fence = self.station.fence(&record);
        let fence = fence.filter(|it| {
            let common = it.record.common.as_ref().map(ToString::to_string);
            common.as_ref() == Some(&task.version) && it.record.epoch.get() == task.epoch
        });
        let Some(fence) = fence else {
            return Err(RewriteError::Disagreement(self.disagreement(task)));
        };
        let mut require = Vec::new();
        if let Some(custom) = &kind.custom {
            if custom.storage.to_string() != task.version {
                return Err(RewriteError::Unavailable("the definition is not known here yet".to_owned()));
            }
            if !custom.lists_storage {
                let listed = Box::pin(self.list_storage_version(custom, &task.resource)).await;
                listed.map_err(|it| RewriteError::Unavailable(it.message))?;
                let why = "status.storedVersions did not list the storage version".to_owned();
                return Err(RewriteError::Unavailable(why));
            }
            require.push(custom.as_stored());
        }
        // Whatever the guarantee is: a rewrite under another agreement would be worse than none.
        require.push(Require::At(fleet::keys::fence(&record), fence.modified));
        Ok(Proof { kind, require })
    }

    fn disagreement(&self, task: &Rewrite) -> String {
        match self.agreement(&task.resource) {
            Ok((version, _)) if version == task.version => {
                format!("the servers agreed on something else in between, and on {version} again")
            }
            Ok((version, _)) => format!("the servers have agreed on {version} instead of {}", task.version),
            Err(error) => error.to_string(),
        }
    }

    /// Reads the next page if the last one is used up. Whoever cannot is told so by the next step.
    async fn look_ahead(&self, task: &Rewrite, kind: &Kind, ahead: &mut Ahead) {
        if let (Some(after), Some(collection)) = (ahead.is_used_up_at(), kind.collection()) {
            let _ = self.read_ahead(task, &kind.scope(""), collection, &after, ahead).await;
        }
    }

    /// Reads what comes behind the key `after`.
    async fn read_ahead(
        &self,
        task: &Rewrite,
        prefix: &str,
        collection: &Arc<Collection>,
        after: &str,
        ahead: &mut Ahead,
    ) -> Result<(), RewriteError> {
        let limit = task.limit.max(PAGE);
        let known = collection.snapshot().map_err(|it| RewriteError::Unavailable(it.to_string()))?;
        let left = match ahead.left(task, after) {
            Some(left) => left,
            None if after.is_empty() => known.len_in(prefix) as u64,
            None => known.readable(prefix, Some(after)).count() as u64,
        };
        let mut range = Range::prefix(prefix);
        if !after.is_empty() {
            range = range.after(&Key::new(after));
        }
        let end = |range: &Range| end_of_page(known.from(range), limit);
        let tile = tile::read(&self.store, range, ReadAt::Latest, limit, end).await;
        let tile = tile.map_err(|it| RewriteError::Unavailable(it.to_string()))?;
        // Without a count there is more to read, if only to see that there is nothing.
        let n_read = tile.entries.len() as u64;
        let behind = tile.n_left.unwrap_or_else(|| left.saturating_sub(n_read).max(1));
        // Beside the writes of the last page, which are encoded meanwhile.
        let collection = Arc::clone(collection);
        let parsed = move || tile.entries.iter().map(|it| parse(&collection, it)).collect();
        let parsed = tokio::task::spawn_blocking(parsed).await;
        ahead.fill(task, parsed.map_err(|it| RewriteError::Unavailable(it.to_string()))?, behind);
        Ok(())
    }

    /// Takes some keys: counts those that are stored as wanted, and returns the others.
    async fn read_some(
        &self,
        task: &Rewrite,
        kind: &Kind,
        after: &str,
        ahead: &mut Ahead,
    ) -> Result<(Rewritten, Vec<Arc<Item>>), RewriteError> {
        let collection = kind.collection().ok_or(RewriteError::Unknown)?;
        if !ahead.is_at(task, after) {
            self.read_ahead(task, &kind.scope(""), collection, after, ahead).await?;
        }
        let (entries, remaining) = ahead.take(task.limit);
        let mut seen = Rewritten { remaining, ..Rewritten::default() };
        if remaining > 0 {
            seen.next = entries.last().map(|it| it.key.as_str().to_owned());
        }
        let mut others = Vec::new();
        for read in entries {
            match read.item {
                Err((name, _)) if !task.covers_namespace_of(&name) => {}
                Err(unreadable) => seen.unreadable.push(unreadable),
                Ok(item) if !task.covers(&item) => {}
                Ok(item) if item.storage_version().as_str() == task.version => seen.unchanged += 1,
                Ok(item) => others.push(item),
            }
        }
        Ok((seen, others))
    }

    /// Encodes what is to be rewritten.
    async fn encode_all(
        &self,
        task: &Rewrite,
        proof: &Proof,
        items: &[Arc<Item>],
    ) -> Result<Vec<Pending>, RewriteError> {
        let group_version = GroupVersion::parse(&task.version)
            .ok_or_else(|| RewriteError::Disagreement(task.version.clone()))?;
        let target = Target {
            kind: Arc::clone(&proof.kind),
            group_version,
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
        };
        if proof.kind.custom.is_none() {
            let converter = proof.kind.converter();
            let encode = |item: &Arc<Item>| {
                let tree = converter.convert(serve::stored_tree(item), &task.version);
                Pending { item: Arc::clone(item), value: Ok(schema::json::encode_stored(&tree)) }
            };
            return Ok(items.iter().map(encode).collect());
        }
        match self.encode_custom(task, &target, items).await {
            Ok(pending) => return Ok(pending),
            // None of them is the reason, and asking once for each of them would take long.
            Err(status) if convert::is_unreached(&status) => {
                return Err(RewriteError::Unavailable(status.message));
            }
            Err(_) => {}
        }
        // One of them is the reason: it must not hold up the others.
        let mut pending = Vec::with_capacity(items.len());
        for item in items {
            match self.encode_custom(task, &target, std::slice::from_ref(item)).await {
                Ok(mut one) => pending.append(&mut one),
                Err(status) if convert::is_unreached(&status) => {
                    return Err(RewriteError::Unavailable(status.message));
                }
                Err(status) => pending.push(Pending { item: Arc::clone(item), value: Err(status.message) }),
            }
        }
        Ok(pending)
    }

    async fn encode_custom(
        &self,
        task: &Rewrite,
        target: &Target,
        items: &[Arc<Item>],
    ) -> Result<Vec<Pending>, Status> {
        let custom = target.kind.custom.as_deref().ok_or_else(Status::no_such_resource)?;
        let version = meta::StorageVersion::new(task.version.as_str());
        let trees = self.presenter(target).trees(items).await?;
        let mut pending = Vec::with_capacity(items.len());
        for (item, tree) in items.iter().zip(trees) {
            let value = self.custom_to_storage(custom, &tree, &version).await?;
            pending.push(Pending { item: Arc::clone(item), value: Ok(value) });
        }
        Ok(pending)
    }

    /// Puts one object, if nobody else has written it meanwhile.
    async fn put_one(
        &self,
        task: &Rewrite,
        proof: &Proof,
        pending: Pending,
    ) -> Result<Outcome, RewriteError> {
        let Pending { item, value } = pending;
        let value = match value {
            Ok(value) => value,
            Err(why) => return Ok(Outcome::Failed(object_of(&item), why)),
        };
        if value.len() > limits::MAX_OBJECT_BYTES {
            return Ok(Outcome::Failed(object_of(&item), format!("limit is {}", limits::MAX_OBJECT_BYTES)));
        }
        let mut txn = Txn::new();
        txn.require.extend(proof.require.iter().cloned());
        txn = txn.require_at(item.key(), item.revision());
        txn = match item.lease().filter(|_| proof.kind.expires()) {
            Some(lease) => txn.put_leased(item.key(), value, lease),
            None => txn.put(item.key(), value),
        };
        match self.store.commit(txn).await {
            Ok(_) => Ok(Outcome::Rewritten),
            // The agreement stood when this was found, so that the newer value tells what became of the object.
            Err(CommitError::Unmet { failed, current, .. }) if failed >= proof.require.len() => {
                let Some(Some(entry)) = current.get(failed) else { return Ok(Outcome::Gone) };
                let collection = proof.kind.collection().ok_or(RewriteError::Unknown)?;
                let newer = collection.parse(entry);
                let is_done = newer.is_ok_and(|it| it.storage_version().as_str() == task.version);
                Ok(if is_done { Outcome::Unchanged } else { Outcome::Raced(object_of(&item)) })
            }
            Err(CommitError::Unmet { .. }) => Ok(Outcome::Moved(item)),
            // A key with a lease that has just ended is about to go.
            Err(CommitError::NoLease(_)) => Ok(Outcome::Gone),
            Err(error) => Err(RewriteError::Unavailable(error.to_string())),
        }
    }
}

impl Rewrite {
    /// Whether an object that cannot be read is asked for, by `namespace/name`.
    fn covers_namespace_of(&self, object: &str) -> bool {
        let namespace = object.split_once('/').map_or("", |it| it.0);
        self.namespaces.is_empty() || self.namespaces.iter().any(|it| it == namespace)
    }

    fn covers(&self, item: &Item) -> bool {
        (self.namespaces.is_empty() || self.namespaces.iter().any(|it| it == item.namespace()))
            && self.selector.matches(|key| item.label(key))
    }
}

/// The last key of a page, if more than a page is known.
fn end_of_page<'a>(known: impl Iterator<Item = &'a Arc<Item>>, limit: usize) -> Option<Key> {
    let mut n_bytes = 0;
    for (n, item) in known.enumerate() {
        n_bytes += item.text().len();
        if n + 1 >= limit || n_bytes >= PAGE_BYTES {
            return Some(item.key().clone());
        }
    }
    None
}

/// `namespace/name`, or the name.
fn object_of(item: &Item) -> String {
    match item.namespace() {
        "" => item.name().to_owned(),
        namespace => format!("{namespace}/{}", item.name()),
    }
}

fn parse(collection: &Collection, entry: &Entry) -> Read {
    let item = collection.parse(entry).map(Arc::new);
    Read { key: entry.key.clone(), item: item.map_err(|why| (named(collection, entry), why.to_string())) }
}

/// The same for one that cannot be read.
fn named(collection: &Collection, entry: &Entry) -> String {
    entry.key.as_str().trim_start_matches(collection.spec().prefix.as_str()).to_owned()
}
