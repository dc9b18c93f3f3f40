//! One server process: what it remembers, and the steps it can take between two transactions.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash},
    sync::Arc,
};

use fleet::{
    Encoding, Identity, Incarnation, MemberRecord, agree,
    agree::Report,
    cluster::{Guarantee, PROTOCOL},
    collect,
    custom::{self, Reporter},
    fence::Fence,
    keys,
    member::{self, Applicant, FEATURE, Join, Other, Persisted, Standing},
    put::{self, Failed, Next},
    record::{FORMAT, Unknown},
    stored::{Census, undecodable},
    write,
};
use meta::Release;
use store::{LeaseId, Require, Revision, Txn};

use super::{Build, Decided, Fault, Rules, Violation, World};

/// Where a process is in its life.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not running.
    Down,
    /// Running, not a member.
    Up,
    /// A member, as far as it knows, by the record of this revision.
    Member(Revision),
}

#[derive(Clone, Debug)]
pub struct Process {
    pub identity: Identity,
    pub build: Build,
    pub phase: Phase,
    n_starts: u32,
    /// The fence as it last saw it.
    fence: Option<Fence>,
    /// The definition as it last saw it.
    definition: Option<custom::Definition>,
    /// What is promised of puts, as it last saw it, and when that was written.
    modes: (Guarantee, Option<Revision>),
    /// A change of records that it has decided on and not committed.
    pending: Option<(Task, Decided)>,
    /// An object that it has encoded and not committed. It may arrive after the process has died.
    put: Option<InFlight>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    Join,
    Clear,
    Report,
}

#[derive(Clone, Debug)]
struct InFlight {
    encoding: Encoding,
    is_mark: bool,
}

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A new process starts.
    Start,
    /// It reads what it needs and decides how to join.
    Look,
    /// It reads fence and members and decides what to report.
    Plan,
    /// What it decided on reaches the store.
    Commit,
    /// The same, and it does not hear of it.
    CommitUnheard,
    /// It encodes an object.
    Encode,
    /// It encodes the mark that a DELETE leaves.
    Mark,
    /// The object reaches the store.
    Send,
    /// It looks at its own record.
    Notice,
    /// It sees the newest definition.
    Watch,
    /// It sees what is promised of puts.
    Hear,
    /// It leaves after its writes are drained.
    Leave,
    /// It dies.
    Crash,
}

impl Step {
    pub const ALL: [Step; 13] = [
        Step::Start,
        Step::Look,
        Step::Plan,
        Step::Commit,
        Step::CommitUnheard,
        Step::Encode,
        Step::Mark,
        Step::Send,
        Step::Notice,
        Step::Watch,
        Step::Hear,
        Step::Leave,
        Step::Crash,
    ];
}

impl Process {
    pub fn new(name: &str, build: Build) -> Self {
        let identity = Identity::new(name);
        let (phase, n_starts) = (Phase::Down, 0);
        let modes = (Guarantee::Strict, None);
        Self {
            identity,
            build,
            phase,
            n_starts,
            fence: None,
            definition: None,
            modes,
            pending: None,
            put: None,
        }
    }

    pub fn incarnation(&self, number: usize) -> Incarnation {
        Incarnation::new(format!("{number}.{}", self.n_starts))
    }

    pub(super) fn each_revision(&self, visit: &mut impl FnMut(Revision)) {
        if let Phase::Member(revision) = self.phase {
            visit(revision);
        }
        if let Some(fence) = &self.fence {
            visit(fence.modified);
        }
        if let Some(definition) = &self.definition {
            visit(definition.revision);
        }
        self.modes.1.into_iter().for_each(&mut *visit);
        if let Some((_, decided)) = &self.pending {
            super::each_required(decided, visit);
        }
        if let Some(InFlight { encoding: Encoding { fence: Some(Require::At(_, revision)), .. }, .. }) =
            &self.put
        {
            visit(*revision);
        }
    }

    pub(super) fn hash_with(&self, hasher: &mut DefaultHasher, rank: &impl Fn(Revision) -> Option<usize>) {
        (&self.build, self.n_starts).hash(hasher);
        match self.phase {
            Phase::Down => 0.hash(hasher),
            Phase::Up => 1.hash(hasher),
            Phase::Member(revision) => (2, rank(revision)).hash(hasher),
        }
        self.fence.as_ref().map(|it| (rank(it.modified), &it.record.entries)).hash(hasher);
        self.definition.as_ref().map(|it| (rank(it.revision), &it.storage)).hash(hasher);
        (self.modes.0, self.modes.1.map(rank)).hash(hasher);
        if let Some((task, decided)) = &self.pending {
            task.hash(hasher);
            super::hash_decided(decided, hasher, rank);
        }
        if let Some(InFlight { encoding, is_mark }) = &self.put {
            (&encoding.version, is_mark).hash(hasher);
            if let Some(Require::At(key, revision)) = &encoding.fence {
                (key, rank(*revision)).hash(hasher);
            }
        }
    }

    fn forget(&mut self) {
        (self.fence, self.definition) = (None, None);
    }
}

impl World {
    /// Whether a step would do anything.
    pub fn can(&self, rules: &Rules, n: usize, step: Step) -> bool {
        let process = &self.processes[n];
        let is_member = matches!(process.phase, Phase::Member(_));
        let is_idle = process.pending.is_none();
        match step {
            Step::Start => process.phase == Phase::Down && process.put.is_none() && is_idle,
            Step::Look => process.phase == Phase::Up && is_idle,
            Step::Plan => is_member && is_idle && (!rules.is_custom || process.definition.is_some()),
            Step::Commit | Step::CommitUnheard => process.pending.is_some(),
            Step::Hear => is_member && process.modes != self.modes(),
            Step::Encode | Step::Mark => is_member && process.put.is_none() && self.own_encoding(n).is_some(),
            Step::Send => process.put.is_some(),
            Step::Notice => is_member,
            Step::Watch => rules.is_custom && is_member && process.definition != self.definition(),
            Step::Leave => is_member && process.put.is_none() && is_idle,
            Step::Crash => process.phase != Phase::Down,
        }
    }

    /// Takes a step.
    pub fn step(&mut self, rules: &Rules, n: usize, step: Step) -> Result<(), Violation> {
        match step {
            Step::Start => {
                self.processes[n].phase = Phase::Up;
                self.processes[n].n_starts += 1;
            }
            Step::Look => {
                let _ = self.look(rules, n);
            }
            Step::Plan => {
                let _ = self.plan(rules, n);
            }
            Step::Commit => self.commit_pending(rules, n, true)?,
            Step::CommitUnheard => self.commit_pending(rules, n, false)?,
            Step::Hear => self.processes[n].modes = self.modes(),
            Step::Encode => self.encode(rules, n, false),
            Step::Mark => self.encode(rules, n, true),
            Step::Send => self.send(n)?,
            Step::Notice => self.notice(n),
            Step::Watch => self.processes[n].definition = self.definition(),
            Step::Leave => self.leave(n),
            Step::Crash => {
                self.processes[n].phase = Phase::Down;
                self.processes[n].forget();
            }
        }
        Ok(())
    }

    pub fn member_record(&self, rules: &Rules, n: usize) -> MemberRecord {
        let process = &self.processes[n];
        let Build { preferred, decodable, is_on } = process.build.clone();
        MemberRecord {
            format: FORMAT,
            identity: process.identity.clone(),
            incarnation: process.incarnation(n),
            release: Release::v1(36),
            emulated: Release::v1(36),
            min_compatible: Release::v1(35),
            peer_address: None,
            protocol: PROTOCOL,
            cluster: None,
            features: [(FEATURE.to_owned(), is_on)].into(),
            // Custom resources are everybody's; only built-in ones are listed.
            persisted: match rules.is_custom {
                true => BTreeMap::new(),
                false => [(Self::resource(), Persisted { preferred, decodable })].into(),
            },
            offer: Arc::default(),
            since: self.now,
            unknown: Unknown::new(),
        }
    }

    /// Reads and decides how to join. Nobody ever answers a probe: the other process may be paused.
    pub fn look(&mut self, rules: &Rules, n: usize) -> Result<(), String> {
        let me = self.member_record(rules, n);
        let (members, fence) = (self.members(), self.fence());
        let fences: Vec<_> = fence.iter().map(|it| it.record.clone()).filter(|_| !rules.is_custom).collect();
        let counts = self.stored.iter().map(|it| (it.clone(), 1)).collect();
        let census = Census::from([(Self::resource(), counts)]);
        let decodable = [(Self::resource(), self.processes[n].build.decodable.clone())].into();
        let unreadable = match rules.is_custom {
            true => Vec::new(),
            false => undecodable(&census, &decodable, &[], me.emulated),
        };
        let taken = self.member(&me.identity);
        let applicant = Applicant {
            me: &me,
            taken: taken.as_ref().map(|(record, revision)| (record, *revision)),
            other: Other::Silent,
            members: &members,
            fences: &fences,
            unreadable: &unreadable,
            defined: &[],
        };
        let how = member::join(&applicant).map_err(|it| it.to_string())?;
        self.processes[n].pending = match (&how, &fence) {
            (Join::Prune(_), Some(fence)) => {
                let resource = Self::resource();
                let facts = self.facts(rules, &resource, None, &members);
                let plan = collect::clear_for(&facts, &fence.record, &me);
                let basis = self.basis(rules, Some(fence.modified), None);
                plan.changed
                    .then(|| (Task::Clear, self.transaction(rules, &plan, &basis, Some(&me.identity))))
            }
            _ => {
                let moved = self.modified(&keys::moved());
                let txn = write::join(&me, &how, moved, None, LeaseId(1)).unwrap();
                txn.map(|mut txn| {
                    if rules.fault == Some(Fault::BlindToMoves) {
                        txn.require.retain(|it| *it.key() != keys::moved());
                    }
                    (Task::Join, Decided::join(txn))
                })
            }
        };
        Ok(())
    }

    /// Reads fence and members and decides what to report.
    pub fn plan(&mut self, rules: &Rules, n: usize) -> Result<Option<agree::Waiting>, String> {
        let Phase::Member(revision) = self.processes[n].phase else { return Ok(None) };
        let (members, fence) = (self.members(), self.fence());
        let resource = Self::resource();
        let facts = self.facts(rules, &resource, fence.as_ref().map(|it| &it.record), &members);
        let process = &self.processes[n];
        let Build { preferred, decodable, is_on: votes } = process.build.clone();
        let (identity, incarnation) = (process.identity.clone(), process.incarnation(n));
        let plan = match (rules.is_custom, &process.definition) {
            (true, Some(definition)) => {
                custom::plan(&facts, Some(&Reporter { identity, incarnation, votes }), definition)
            }
            _ => {
                let served = decodable.clone();
                let report = Report { identity, incarnation, preferred, decodable, served, votes };
                agree::plan(&facts, Some(&report))
            }
        };
        let plan = plan.map_err(|it| it.to_string())?;
        if plan.changed {
            let identity = process.identity.clone();
            let mut basis =
                self.basis(rules, fence.map(|it| it.modified), Some((identity.clone(), revision)));
            if let Some(definition) = process.definition.as_ref().filter(|_| rules.is_custom) {
                // What it knows, not what is there now.
                basis.also = vec![Require::At(super::definition_key(), definition.revision)];
            }
            let txn = self.transaction(rules, &plan, &basis, Some(&identity));
            self.processes[n].pending = Some((Task::Report, txn));
        } else {
            self.processes[n].fence = fence;
        }
        Ok(plan.waiting)
    }

    fn commit_pending(&mut self, rules: &Rules, n: usize, is_heard: bool) -> Result<(), Violation> {
        let Some((task, decided)) = self.processes[n].pending.take() else { return Ok(()) };
        let is_done = match task {
            Task::Join => self.commit(&decided.txn).is_ok(),
            Task::Clear | Task::Report => self.commit_fence(rules, &decided)?,
        };
        // A process that has died meanwhile learns nothing of it, nor does one whose answer is lost.
        if !is_done || !is_heard || self.processes[n].phase == Phase::Down {
            return Ok(());
        }
        match task {
            Task::Join => self.processes[n].phase = Phase::Member(self.revision),
            Task::Clear => {}
            Task::Report => self.processes[n].fence = self.fence(),
        }
        Ok(())
    }

    /// What the process believes it must encode puts in.
    fn own_encoding(&self, n: usize) -> Option<Encoding> {
        let process = &self.processes[n];
        let fence = process.fence.as_ref()?;
        let (guarantee, changed) = process.modes;
        let encoding = put::encoding(fence, &process.identity, &process.incarnation(n), guarantee)?;
        // Where no fence is required, it is required that this is still so.
        let modes = changed.map(|it| Require::At(keys::cluster(), it));
        Some(Encoding { fence: encoding.fence.or(modes), ..encoding })
    }

    fn encode(&mut self, rules: &Rules, n: usize, is_mark: bool) {
        let Some(mut encoding) = self.own_encoding(n) else { return };
        let is_loose = self.processes[n].modes.0 == Guarantee::Loose;
        if is_loose && rules.fault == Some(Fault::LooseRequiresNothing) {
            encoding.fence = None;
        }
        if rules.fault == Some(Fault::NoFence) || is_mark && rules.fault == Some(Fault::MarksExempt) {
            encoding.fence = None;
        }
        self.processes[n].put = Some(InFlight { encoding, is_mark });
    }

    fn send(&mut self, n: usize) -> Result<(), Violation> {
        let Some(InFlight { encoding, is_mark }) = self.processes[n].put.take() else { return Ok(()) };
        let mut txn = Txn::new().put(&store::Key::new("/registry/things/x"), "x".into());
        txn.require.extend(encoding.fence.clone());
        if self.commit(&txn).is_ok() {
            return self.stored_as(&encoding.version);
        }
        if self.processes[n].phase == Phase::Down {
            return Ok(());
        }
        let fence = self.fence();
        let incarnation = self.processes[n].incarnation(n);
        let process = &self.processes[n];
        let next = put::after_failure(&Failed {
            fence: fence.as_ref(),
            identity: &process.identity,
            incarnation: &incarnation,
            is_member: matches!(process.phase, Phase::Member(_)),
            is_defined: true,
            refused: None,
        });
        let definition = self.definition();
        let process = &mut self.processes[n];
        match next {
            Next::Encode(encoding, wanted) => {
                if process.definition.as_ref().map(|it| it.revision) < wanted {
                    process.definition = definition;
                }
                process.fence = fence;
                process.put = Some(InFlight { encoding, is_mark });
            }
            Next::Report => process.fence = None,
            Next::Rejoin | Next::Gone | Next::Refused(_) => {
                process.phase = Phase::Up;
                process.forget();
            }
        }
        Ok(())
    }

    fn notice(&mut self, n: usize) {
        let current = self.member(&self.processes[n].identity).map(|(record, _)| record);
        let incarnation = self.processes[n].incarnation(n);
        let process = &mut self.processes[n];
        match member::standing(&process.identity, &incarnation, current.as_ref()) {
            Standing::Member => {}
            Standing::Lost => {
                process.phase = Phase::Up;
                process.forget();
            }
            Standing::TakenOver(_) => {
                process.phase = Phase::Down;
                process.forget();
            }
        }
    }

    fn leave(&mut self, n: usize) {
        if let Phase::Member(revision) = self.processes[n].phase {
            let _ = self.commit(&write::leave(&self.processes[n].identity, revision));
        }
        self.processes[n].phase = Phase::Down;
        self.processes[n].forget();
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{self:?}").to_lowercase();
        f.write_str(&text)
    }
}
