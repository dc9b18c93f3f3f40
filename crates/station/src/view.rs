//! What `convoy status` shows: the records of the fleet as one document. Its shape is stable; fields are only added.

use std::time::Duration;

use fleet::{
    Entry, FenceRecord, MemberRecord, Members,
    agree::{self, Facts, Waiting},
    cluster::{Agreement, ClusterRecord},
    keys, record,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{ReadAt, SharedStore};

use crate::{Life, Station, follow, refusal::Refusal};

/// The fleet as one server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct View {
    /// The server that was asked; `None` if the records were read from a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerView>,
    /// How the cluster agrees; `None` before its first server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterView>,
    /// The live members.
    pub members: Vec<MemberView>,
    /// Servers that may not take part.
    pub refused: Vec<RefusedView>,
    /// What is agreed on, by resource.
    pub resources: Vec<ResourceView>,
}

/// The server that was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerView {
    /// Its identity.
    pub identity: String,
    /// Its process.
    pub incarnation: String,
    /// `Joining`, `Member`, `Refused`, `Lost`, `Ended` or `Left`.
    pub state: String,
    /// Why it is refused or ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// The modes of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    /// `vote` or `report`.
    pub agreement: String,
    /// `strict` or `loose`.
    pub guarantee: String,
    /// The newest protocol in use.
    pub protocol: u32,
    /// Which cluster this is: new at every restore. `None` as long as only servers of 0.1.0 have used the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    /// The server.
    pub identity: String,
    /// The process.
    pub incarnation: String,
    /// What the binary is.
    pub release: String,
    /// What it behaves as.
    pub emulated_version: String,
    /// The oldest release it stays compatible with.
    pub min_compatibility_version: String,
    /// Where other servers reach it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// Since when, RFC 3339.
    pub since: String,
    /// Whether it takes part in agreements.
    pub votes: bool,
    /// Whether it hands on requests that only others can answer.
    #[serde(default)]
    pub forwards: bool,
    /// What only this member serves, such as `batch/v1 jobs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serves_alone: Vec<String>,
}

/// A server that may not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedView {
    /// The server.
    pub identity: String,
    /// What it behaves as.
    pub emulated_version: String,
    /// What stands in the way and what to do.
    pub reason: String,
}

/// One resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    /// Such as `deployments.apps`.
    pub resource: String,
    /// Whether users defined it.
    pub custom: bool,
    /// What everybody writes, where that is agreed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected_version: Option<String>,
    /// What all entries name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub common_encoding_version: Option<String>,
    /// Grows with every change of the common version.
    pub epoch: u64,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
    /// What keeps the selection from moving to what somebody prefers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waiting: String,
    /// Who holds it and why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hold: String,
    /// What each server said.
    pub servers: Vec<EntryView>,
}

impl ResourceView {
    /// Whether somebody stores it and it is not agreed on in what. What no server serves any more is nobody's to agree on.
    pub fn is_disputed(&self) -> bool {
        self.common_encoding_version.is_none() && !self.servers.is_empty()
    }
}

/// What one server said of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EntryView {
    /// The server.
    pub identity: String,
    /// What it writes.
    pub encoding_version: String,
    /// What it would like to write.
    pub preferred_version: String,
    /// What it can read.
    pub decodable_versions: Vec<String>,
    /// What it serves.
    pub served_versions: Vec<String>,
}

impl Station {
    /// What is known of the fleet now.
    pub fn view(&self) -> View {
        let (cluster, members, refusals, fences) = {
            let board = self.inner.board.read();
            let refusals: Vec<_> = board.refusals.values().cloned().collect();
            (board.cluster.clone(), board.members(), refusals, board.fences())
        };
        let records: Vec<&FenceRecord> = fences.values().map(|it| &it.record).collect();
        let (settle, now) = (self.inner.config.settle, self.inner.clock.now());
        let mut view = view_of(cluster.as_ref(), &members, &records, settle, now);
        let (state, reason) = match self.life() {
            Life::Joining => ("Joining", String::new()),
            Life::Refused(why) => ("Refused", why),
            Life::Member(_) => ("Member", String::new()),
            Life::Lost => ("Lost", String::new()),
            Life::Ended(why) => ("Ended", why),
            Life::Left => ("Left", String::new()),
        };
        view.server = Some(ServerView {
            identity: self.identity().to_string(),
            incarnation: self.incarnation().to_string(),
            state: state.to_owned(),
            reason,
        });
        view.refused = refusals.into_iter().map(refused).collect();
        view
    }
}

/// The same, read from a store. What cannot be read is left out, except for the modes.
pub async fn read(store: &SharedStore, now: Timestamp) -> Result<View, String> {
    let (entries, _) = follow::list(store, "/convoy/", ReadAt::Latest).await.map_err(|it| it.to_string())?;
    let within = |range: store::Range| entries.iter().filter(move |it| range.contains(it.key.as_str()));
    let cluster = entries.iter().find(|it| it.key == keys::cluster());
    let cluster: Option<ClusterRecord> = crate::board::read(cluster)?;
    let members = within(keys::members()).filter_map(|it| record::read(&it.key, &it.value).ok());
    let members = Members::of(members);
    let fences: Vec<FenceRecord> =
        within(keys::fences()).filter_map(|it| record::read(&it.key, &it.value).ok()).collect();
    let fences: Vec<&FenceRecord> = fences.iter().collect();
    let mut view = view_of(cluster.as_ref(), &members, &fences, Duration::ZERO, now);
    view.refused = entries.iter().filter_map(crate::refusal::read).map(refused).collect();
    Ok(view)
}

/// The same from records, wherever they were read.
pub fn view_of(
    cluster: Option<&ClusterRecord>,
    members: &Members,
    fences: &[&FenceRecord],
    settle: Duration,
    now: Timestamp,
) -> View {
    let agreement = cluster.map_or(Agreement::Vote, |it| it.agreement);
    View {
        server: None,
        cluster: cluster.map(|it| ClusterView {
            agreement: it.agreement.to_string(),
            guarantee: it.guarantee.to_string(),
            protocol: it.protocol,
            id: it.id.as_ref().map(ToString::to_string),
        }),
        members: members.iter().map(|it| member(it, members)).collect(),
        refused: Vec::new(),
        resources: fences.iter().map(|it| resource(it, members, agreement, settle, now)).collect(),
    }
}

fn refused(refusal: Refusal) -> RefusedView {
    let Refusal { identity, emulated, reason, .. } = refusal;
    RefusedView { identity: identity.to_string(), emulated_version: emulated, reason }
}

fn member(record: &MemberRecord, members: &Members) -> MemberView {
    MemberView {
        identity: record.identity.to_string(),
        incarnation: record.incarnation.to_string(),
        release: record.release.to_string(),
        emulated_version: record.emulated.to_string(),
        min_compatibility_version: record.min_compatible.to_string(),
        address: record.peer_address.clone().unwrap_or_default(),
        since: meta::time::format_time(record.since),
        votes: record.takes_part(),
        forwards: record.features.get(fleet::route::FEATURE).copied().unwrap_or(false),
        serves_alone: serves_alone(record, members),
    }
}

/// The resources that a member offers and no other one does; nothing for a lone member.
fn serves_alone(record: &MemberRecord, members: &Members) -> Vec<String> {
    let others: Vec<&MemberRecord> = members.iter().filter(|it| it.identity != record.identity).collect();
    if others.is_empty() {
        return Vec::new();
    }
    let mut alone = Vec::new();
    for (group, offered) in &record.offer.0 {
        for (version, resources) in &offered.versions {
            let group_version = meta::GroupVersion::new(group.as_str(), version.as_str());
            let only = resources
                .keys()
                .filter(|name| others.iter().all(|it| it.offer.resource(group, version, name).is_none()));
            alone.extend(only.map(|name| format!("{group_version} {name}")));
        }
    }
    alone
}

fn resource(
    record: &FenceRecord,
    members: &Members,
    agreement: Agreement,
    settle: Duration,
    now: Timestamp,
) -> ResourceView {
    let facts = Facts {
        resource: &record.resource,
        fence: Some(record),
        members,
        agreement,
        settle,
        now,
        revision: store::Revision::ZERO,
    };
    let waiting = match record.definition {
        Some(_) => None,
        None => agree::plan(&facts, None).ok().and_then(|it| it.waiting),
    };
    let hold = record.hold.as_ref().map(|it| format!("{}: {}", it.by, it.reason));
    ResourceView {
        resource: record.resource.to_string(),
        custom: record.definition.is_some(),
        selected_version: record.selection.as_ref().map(ToString::to_string),
        common_encoding_version: record.common.as_ref().map(ToString::to_string),
        epoch: record.epoch.get(),
        reason: record.condition.reason.as_str().to_owned(),
        message: record.condition.message.clone(),
        waiting: waiting.as_ref().map(in_words).unwrap_or_default(),
        hold: hold.unwrap_or_default(),
        servers: record.entries.iter().map(entry).collect(),
    }
}

fn in_words(waiting: &Waiting) -> String {
    let names = |servers: &[fleet::Identity]| {
        servers.iter().map(fleet::Identity::as_str).collect::<Vec<_>>().join(", ")
    };
    match waiting {
        Waiting::Votes(servers) => format!("for the votes of {}", names(servers)),
        Waiting::Settle(servers, at) => {
            format!("until {}, in case {} comes back", meta::time::format_time(*at), names(servers))
        }
        Waiting::Hold { by } => format!("held by {by}"),
    }
}

fn entry(entry: &Entry) -> EntryView {
    let texts = |it: &[meta::StorageVersion]| it.iter().map(ToString::to_string).collect();
    EntryView {
        identity: entry.identity.to_string(),
        encoding_version: entry.encoding.to_string(),
        preferred_version: entry.preferred.to_string(),
        decodable_versions: texts(&entry.decodable),
        served_versions: texts(&entry.served),
    }
}
