//! Upgrades, rollbacks and accidents as scripts that a person can read: `tests/stories/*.txt`.
//!
//! A line is a command; the indented lines below it are what it must print. Servers run one of the releases of
//! seed 001's table: `x` prefers and reads v1; `x1` prefers v1, reads both; `x2` prefers v2, reads both; `x3`
//! prefers and reads v2.
//! - `start NAME RELEASE [off]`: a new process joins and reports; `join` only joins; `report NAME` reports again
//! - `stop NAME`: leaves, and the collector looks; `lapse NAME`: dies, and its lease ends, unseen; `cut NAME`: the lease
//!   ends, the process lives on
//! - `collect`, `wait SECONDS`, `hold` (sets or lifts), `delete mirror`, `mend`
//! - `encode NAME` and `send NAME`: an object is encoded, and reaches the store; `put NAME` is both

use std::path::Path;

use fleet::{agree::Waiting, cluster::Agreement, fence::Fence};
use jiff::SignedDuration;
use meta::StorageVersion;

use crate::{
    explore,
    world::{Build, Phase, Process, Rules, Step, World},
};

fn play(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories").join(name);
    let script = std::fs::read_to_string(&path).unwrap();
    let mut teller = Teller::new();
    let mut told = String::new();
    for line in script.lines() {
        if line.starts_with(' ') {
            continue;
        }
        told.push_str(line);
        told.push('\n');
        if !line.is_empty() && !line.starts_with('#') {
            for answer in teller.command(line) {
                told.push_str(&format!("  {answer}\n"));
            }
        }
    }
    if std::env::var_os("CONVOY_BLESS").is_some() {
        std::fs::write(&path, told).unwrap();
        return;
    }
    assert!(told == script, "{name} goes differently (CONVOY_BLESS=1 writes it down):\n{told}");
}

struct Teller {
    rules: Rules,
    world: World,
}

impl Teller {
    fn new() -> Self {
        let versions = ["v1", "v2"].map(StorageVersion::new).to_vec();
        let rules = Rules { agreement: Agreement::Vote, is_custom: false, fault: None, versions };
        Self { rules, world: World::new(Vec::new()) }
    }

    fn command(&mut self, line: &str) -> Vec<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["agreement", mode] => self.rules.agreement = mode.parse().unwrap(),
            ["start" | "join", name, release, ref gate @ ..] => {
                let n = self.process(name, build(release, gate.is_empty()));
                if let Err(why) = self.join(n) {
                    return vec![format!("refused: {why}")];
                }
                return if words[0] == "start" { self.report(n) } else { self.state(None) };
            }
            ["report", name] => {
                let n = self.find(name);
                return self.report(n);
            }
            ["stop", name] => {
                let n = self.find(name);
                self.step(n, Step::Leave);
                return self.collect();
            }
            ["lapse", name] => {
                let n = self.find(name);
                self.step(n, Step::Crash);
                self.world.lapse(&self.world.processes[n].identity.clone());
            }
            ["cut", name] => {
                let n = self.find(name);
                self.world.lapse(&self.world.processes[n].identity.clone());
            }
            ["collect"] => return self.collect(),
            ["wait", seconds] => {
                let time = SignedDuration::from_secs(seconds.parse().unwrap());
                self.world.now = self.world.now.checked_add(time).unwrap();
                return self.collect();
            }
            ["hold"] => explore::hold(&mut self.world, &self.rules).unwrap(),
            ["delete", "mirror"] => self.world.delete_mirror(),
            ["mend"] => self.world.mend_mirror(),
            ["encode", name] => {
                let n = self.find(name);
                if !self.world.can(&self.rules, n, Step::Encode) {
                    return vec!["cannot write".to_owned()];
                }
                self.step(n, Step::Encode);
                return Vec::new();
            }
            ["send", name] => return self.send(name),
            ["put", name] => {
                self.command(&format!("encode {name}"));
                return self.send(name);
            }
            _ => panic!("no such command: {line}"),
        }
        self.state(None)
    }

    fn process(&mut self, name: &str, build: Build) -> usize {
        match self.world.processes.iter().position(|it| it.identity.as_str() == name) {
            Some(n) => {
                if self.world.processes[n].phase != Phase::Down {
                    self.step(n, Step::Crash);
                }
                self.world.processes[n].build = build;
                n
            }
            None => {
                self.world.processes.push(Process::new(name, build));
                self.world.processes.len() - 1
            }
        }
    }

    fn find(&self, name: &str) -> usize {
        self.world.processes.iter().position(|it| it.identity.as_str() == name).unwrap()
    }

    fn step(&mut self, n: usize, step: Step) {
        self.world.step(&self.rules, n, step).unwrap();
    }

    /// Starts and joins; a prune may come first.
    fn join(&mut self, n: usize) -> Result<(), String> {
        if self.world.processes[n].phase == Phase::Down {
            self.step(n, Step::Start);
        }
        for _ in 0..3 {
            self.world.look(&self.rules, n)?;
            self.step(n, Step::Commit);
            if matches!(self.world.processes[n].phase, Phase::Member(_)) {
                return Ok(());
            }
        }
        panic!("process {n} does not get in");
    }

    fn report(&mut self, n: usize) -> Vec<String> {
        match self.world.plan(&self.rules, n) {
            Ok(waiting) => {
                self.step(n, Step::Commit);
                self.state(waiting)
            }
            Err(why) => {
                let mut lines = vec![format!("blocked: {why}")];
                lines.extend(self.state(None));
                lines
            }
        }
    }

    fn send(&mut self, name: &str) -> Vec<String> {
        let n = self.find(name);
        let mut lines = Vec::new();
        for _ in 0..5 {
            if !self.world.can(&self.rules, n, Step::Send) {
                lines.push("503".to_owned());
                return lines;
            }
            let before = self.world.revision;
            self.step(n, Step::Send);
            if self.world.revision > before {
                let stored: Vec<&str> = self.world.stored.iter().map(StorageVersion::as_str).collect();
                lines.push(format!("stored; there is {}", stored.join(" and ")));
                return lines;
            }
            lines.push("fenced off".to_owned());
        }
        panic!("{name} goes on for ever");
    }

    fn collect(&mut self) -> Vec<String> {
        self.world.collector_looks(&self.rules, None);
        if let Some(decided) = self.world.collector.take() {
            self.world.commit_fence(&self.rules, &decided).unwrap();
        }
        self.state(None)
    }

    /// What the record says, in a line or two.
    fn state(&self, waiting: Option<Waiting>) -> Vec<String> {
        let Some(Fence { record, .. }) = self.world.fence() else { return vec!["no record".to_owned()] };
        let version = |it: &Option<StorageVersion>| it.as_ref().map_or("-".to_owned(), ToString::to_string);
        let entry = |it: &fleet::Entry| format!("{} writes {}", it.identity, it.encoding);
        let mut entries: Vec<String> = record.entries.iter().map(entry).collect();
        if entries.is_empty() {
            entries.push("nobody writes".to_owned());
        }
        let (selection, common) = (version(&record.selection), version(&record.common));
        let mut lines = vec![format!("selected {selection}, common {common}: {}", entries.join(", "))];
        if record.common.is_none() {
            lines.push(format!("{}: {}", record.condition.reason.as_str(), record.condition.message));
        }
        if self.world.mirror().is_none() && !record.entries.is_empty() {
            lines.push("no mirror".to_owned());
        }
        match waiting {
            None => {}
            Some(Waiting::Votes(by)) => lines.push(format!("waits for the votes of {}", names(&by))),
            Some(Waiting::Settle(by, _)) => lines.push(format!("waits whether {} come back", names(&by))),
            Some(Waiting::Hold { by }) => lines.push(format!("held by {by}")),
        }
        lines
    }
}

fn names(servers: &[fleet::Identity]) -> String {
    servers.iter().map(fleet::Identity::as_str).collect::<Vec<_>>().join(", ")
}

fn build(release: &str, is_on: bool) -> Build {
    let (preferred, reads): (_, &[&str]) = match release {
        "x" => ("v1", &["v1"]),
        "x1" => ("v1", &["v1", "v2"]),
        "x2" => ("v2", &["v1", "v2"]),
        "x3" => ("v2", &["v2"]),
        _ => panic!("no release {release}"),
    };
    let decodable = reads.iter().map(|it| StorageVersion::new(*it)).collect();
    Build { preferred: StorageVersion::new(preferred), decodable, is_on }
}

#[test]
fn a_rolling_upgrade_moves_with_the_last_vote() {
    play("rolling-upgrade.txt");
}

#[test]
fn a_rollback_half_way_changes_nothing() {
    play("rollback.txt");
}

#[test]
fn the_last_old_server_may_come_back_unchanged() {
    play("last-old-server.txt");
}

#[test]
fn when_all_were_down_the_newest_waits_for_the_others() {
    play("all-down.txt");
}

#[test]
fn servers_with_new_names_replace_old_ones() {
    play("new-names.txt");
}

#[test]
fn a_gate_stays_closed_while_a_member_could_not_read() {
    play("readers.txt");
}

#[test]
fn the_first_selection_is_readable_by_all() {
    play("first-selection.txt");
}

#[test]
fn the_feature_is_turned_on_server_by_server() {
    play("feature-on.txt");
}

#[test]
fn a_skipped_release_is_refused() {
    play("skipped-release.txt");
}

#[test]
fn reports_show_who_writes_what() {
    play("reports.txt");
}

#[test]
fn an_operator_holds_a_selection() {
    play("hold.txt");
}

#[test]
fn a_paused_server_is_fenced_off() {
    play("paused.txt");
}
