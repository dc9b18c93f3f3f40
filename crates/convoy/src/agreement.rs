//! `convoy agreement`: shows how the servers of a cluster agree, and changes it while none of them runs.
//!
//! The modes are recorded once, so that all servers act alike. They are changed only when no member is alive, in a
//! transaction that fails if somebody joins: no server can act by the old modes then.

use clap::Args;
use fleet::{
    cluster::{Agreement, ClusterRecord, Guarantee},
    keys, record,
};
use serde_json::{Value, json};
use station::view::ClusterView;
use store::{CommitError, ReadAt, Require, SharedStore, Store, Txn};

use crate::{
    cli::say,
    cluster::{self, ClusterFlags},
    failure::Failure,
    output::Output,
    status,
};

/// The flags of `convoy agreement`.
#[derive(Debug, Args)]
pub struct AgreementFlags {
    #[command(flatten)]
    cluster: ClusterFlags,

    /// Agree in this way from now on; needs the store itself, and no server may be running
    #[arg(long, value_name = "vote|report")]
    set_agreement: Option<Agreement>,

    /// Promise this of writes from now on; needs the store itself, and no server may be running
    #[arg(long, value_name = "strict|loose")]
    set_guarantee: Option<Guarantee>,

    /// How to show it
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Shows or changes the modes.
pub fn run(flags: &AgreementFlags) -> Result<(), Failure> {
    cluster::block_on(async {
        let cluster = flags.cluster.open().await?;
        if flags.set_agreement.is_some() || flags.set_guarantee.is_some() {
            let store = cluster.store().ok_or_else(|| {
                Failure::failed("stop all servers, then change the modes with --data-dir or --etcd-servers")
            })?;
            change(&store, cluster.is_exclusive(), flags.set_agreement, flags.set_guarantee).await?;
        }
        let view = status::read(&cluster).await?;
        let Some(modes) = view.cluster else {
            say("Nothing is recorded yet: the first server will.\n");
            return Ok(());
        };
        let line = || format!("Agreement: {}; guarantee: {}\n", modes.agreement, modes.guarantee);
        say(&flags.output.document(&document(&modes)).unwrap_or_else(line));
        Ok(())
    })
}

/// What `-o json` shows; docs/api-fields.md lists its fields.
pub fn document(modes: &ClusterView) -> Value {
    let ClusterView { agreement, guarantee, protocol, id } = modes;
    let mut document = json!({"agreement": agreement, "guarantee": guarantee, "protocol": protocol});
    if let Some(id) = id {
        document["id"] = json!(id);
    }
    document
}

/// Changes the modes. Where this process has the store `alone`, members are what servers left that have crashed: their
/// records go in the same transaction. Elsewhere they may be alive.
async fn change(
    store: &SharedStore,
    alone: bool,
    agreement: Option<Agreement>,
    guarantee: Option<Guarantee>,
) -> Result<(), Failure> {
    let unreadable = |it: store::ReadError| Failure::because(&it);
    let members = store.list(&keys::members(), ReadAt::Latest, usize::MAX).await.map_err(unreadable)?;
    if let Some(member) = members.entries.first().filter(|_| !alone) {
        let name = member.key.as_str().trim_start_matches(keys::members().start.as_str()).to_owned();
        return Err(Failure::unsafe_to(format!(
            "{name} is still a member: stop all servers first (one that crashed is forgotten within seconds)"
        )));
    }
    let joined = store.get(&keys::joined()).await.map_err(unreadable)?;
    let key = keys::cluster();
    let entry = store.get(&key).await.map_err(unreadable)?;
    let entry = entry.ok_or_else(|| {
        Failure::failed("nothing is recorded yet: give the first server --storage-version-agreement")
    })?;
    let mut cluster: ClusterRecord = record::read(&key, &entry.value).map_err(|it| Failure::because(&it))?;
    cluster.agreement = agreement.unwrap_or(cluster.agreement);
    cluster.guarantee = guarantee.unwrap_or(cluster.guarantee);
    let bytes = record::write(&key, &cluster).map_err(|it| Failure::because(&it))?;
    let nobody_joined = match joined {
        Some(joined) => Require::At(joined.key, joined.modified),
        None => Require::Absent(keys::joined()),
    };
    let txn = Txn::new().require_at(&key, entry.modified).require(nobody_joined).put(&key, bytes);
    let gone = |txn: Txn, it: &store::Entry| txn.require_at(&it.key, it.modified).delete(&it.key);
    let txn = members.entries.iter().fold(txn, gone);
    match store.commit(txn).await {
        Ok(_) => Ok(()),
        Err(CommitError::Unmet { .. }) => {
            Err(Failure::unsafe_to("a server joined meanwhile: stop all servers first"))
        }
        Err(error) => Err(Failure::because(&error)),
    }
}
