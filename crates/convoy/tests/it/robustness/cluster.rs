//! The clusters that are put through it: processes on etcd, a control plane in one process, servers in this process.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use parking_lot::RwLock;
use store::SharedStore;
use testkit::{etcd::Etcd, tools};

use super::{
    control_plane::{self, ControlPlane},
    doors::Doors,
    faults::{Fault, Kind},
    processes::{self, Processes},
    seams::{Fence, Ground, Seams},
    season::Course,
};

/// The controllers of servers here: those that migrate, and nobody else who would write our objects.
pub const MIGRATION: &str = "storage-version-gc,storage-version-migrator,storage-version-trigger";

/// The same, and those that remove what has lost its owner or its namespace.
pub const REMOVAL: &str =
    "garbage-collector,namespace,storage-version-gc,storage-version-migrator,storage-version-trigger";

/// The server that lacks a resource which the others have.
pub const WITHOUT_JOBS: usize = 2;

/// A store that may be replaced by another one; none where its servers have it to themselves.
pub type Gauge = Arc<RwLock<Option<SharedStore>>>;

/// A cluster that can be disturbed.
pub enum Cluster {
    Processes(Box<Processes>),
    ControlPlane(Box<ControlPlane>),
    Seams(Box<Seams>),
}

impl Cluster {
    pub async fn processes(controllers: &'static str) -> Result<Self> {
        Ok(Self::Processes(Box::new(Processes::start(controllers).await?)))
    }

    pub async fn control_plane() -> Result<Self> {
        Ok(Self::ControlPlane(Box::new(ControlPlane::start().await?)))
    }

    /// A control plane at 1.33 whose clients use its common address; on etcd, or on its own store.
    pub async fn behind_one_address(etcd: Option<Etcd>) -> Result<Self> {
        Ok(Self::ControlPlane(Box::new(ControlPlane::behind_one_address(etcd).await?)))
    }

    pub async fn seams(ground: Ground, fence: Fence) -> Result<Self> {
        Ok(Self::Seams(Box::new(Seams::start(ground, fence, MIGRATION).await?)))
    }

    /// Servers in this process whose controllers remove what has lost its reason to be.
    pub async fn removing_seams(ground: Ground, fence: Fence) -> Result<Self> {
        Ok(Self::Seams(Box::new(Seams::start(ground, fence, REMOVAL).await?)))
    }

    pub fn kinds(&self) -> &'static [Kind] {
        match self {
            Self::Processes(_) => processes::KINDS,
            Self::ControlPlane(_) => control_plane::KINDS,
            Self::Seams(it) => it.kinds(),
        }
    }

    pub fn doors(&self) -> Arc<Doors> {
        match self {
            Self::Processes(it) => Arc::clone(&it.doors),
            Self::ControlPlane(it) => Arc::clone(&it.doors),
            Self::Seams(it) => Arc::clone(&it.doors),
        }
    }

    /// The store past the servers, for whoever wants to know how far it is.
    pub fn gauge(&self) -> Gauge {
        match self {
            Self::Processes(it) => Gauge::clone(&it.gauge),
            Self::ControlPlane(_) => Gauge::default(),
            Self::Seams(it) => Gauge::clone(&it.gauge),
        }
    }

    /// Where its servers are rolled to.
    pub fn course(&self) -> Course {
        match self {
            Self::ControlPlane(it) => it.course.clone(),
            Self::Processes(_) | Self::Seams(_) => Course::away(),
        }
    }

    pub async fn begin(&mut self, fault: &Fault) -> Result<()> {
        match self {
            Self::Processes(it) => it.begin(fault).await,
            Self::ControlPlane(it) => it.begin(fault).await,
            Self::Seams(it) => it.begin(fault).await,
        }
    }

    pub async fn end(&mut self, fault: &Fault) -> Result<()> {
        match self {
            Self::Processes(it) => it.end(fault).await,
            Self::ControlPlane(it) => it.end(fault).await,
            Self::Seams(it) => it.end(fault).await,
        }
    }

    /// Waits for what still goes on by itself.
    pub async fn settle(&mut self) -> Result<()> {
        match self {
            Self::Processes(_) | Self::Seams(_) => Ok(()),
            Self::ControlPlane(it) => it.settle().await,
        }
    }

    /// The store itself. Whoever has it to itself is stopped until [`Cluster::go_on`].
    pub async fn store(&mut self) -> Result<SharedStore> {
        match self {
            Self::Processes(it) => it.store().await,
            Self::ControlPlane(it) => it.store().await,
            Self::Seams(it) => it.store(),
        }
    }

    pub async fn go_on(&mut self) -> Result<()> {
        match self {
            Self::Processes(_) | Self::Seams(_) => Ok(()),
            Self::ControlPlane(it) => it.go_on().await,
        }
    }

    /// What the servers said, where they are processes.
    pub fn logs(&self) -> Vec<String> {
        match self {
            Self::Processes(it) => it.logs(),
            Self::ControlPlane(it) => it.logs(),
            Self::Seams(_) => Vec::new(),
        }
    }
}

/// How long faults are injected in one round: shorter in CI.
pub fn round_length() -> Duration {
    Duration::from_secs(if tools::minutes().is_some() { 45 } else { 8 })
}
