//! What goes wrong, and when: a pure function of a seed. Nothing here waits, or touches a server.

use std::{fmt, time::Duration};

use rand::{RngExt, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Something that goes wrong. Servers are named by their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `kill -9`; started again at its end.
    Kill(usize),
    /// Told to stop; started again at its end.
    Stop(usize),
    /// Stopped, and started as another release.
    Roll(usize, u16),
    /// All servers, one after the other, by `convoy rollout`, which must see no error; waited for.
    Rollout(u16),
    /// Stopped in its tracks.
    Sleep(usize),
    /// The same at the moment its next write is about to be sent to the store.
    SleepInCommit(usize),
    /// Cut off from the store; what is under way does not arrive.
    CutOff(usize),
    /// The same; what is under way arrives, but not the answer.
    AnswersLost(usize),
    /// Its store takes this long for everything, in milliseconds.
    SlowStore(usize, u64),
    /// Its time of day is set, in seconds.
    ClockSet(usize, i64),
    /// It was away for so many seconds, by its own clock.
    ClockLeap(usize, u64),
    /// Its machine is suspended: it does nothing, and its clock stands still.
    Suspend(usize),
    /// What it asks of the store arrives, and the answers are held back.
    AnswersHeld(usize),
    /// Connections of clients are cut at moments that follow from this seed.
    CutClients(u64),
    /// The storage version of the custom resource becomes this one.
    Flip(&'static str),
    /// The member of etcd that leads the others is killed; started again at its end.
    LeaderKilled,
    /// It is stopped in its tracks.
    LeaderAsleep,
    /// One member of etcd is, whoever leads.
    MemberAsleep(usize),
    /// Each sync of the disk takes so many milliseconds longer.
    SlowDisk(u64),
    /// There is no space left; at its end there is, and all servers are started again.
    FullDisk,
    /// The store's clock leaps by so many seconds: all leases end at once.
    LeasesEnd(u64),
}

/// A kind of fault, as a cluster can suffer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Kill,
    Stop,
    Roll,
    Sleep,
    SleepInCommit,
    CutOff,
    AnswersLost,
    SlowStore,
    ClockSet,
    ClockLeap,
    Suspend,
    AnswersHeld,
    CutClients,
    Flip,
    LeaderKilled,
    LeaderAsleep,
    MemberAsleep,
    SlowDisk,
    FullDisk,
    LeasesEnd,
}

/// One thing to do, and when, counted from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Duration,
    pub turn: Turn,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    Begin(Fault),
    End(Fault),
}

/// How many servers there are.
pub const SERVERS: usize = 3;

/// Releases that read each other's device classes.
const RELEASES: std::ops::RangeInclusive<u16> = 34..=36;

/// What may go wrong at the same time: something with one server, and something around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Servers,
    Around,
    /// Nothing else at that time.
    Alone,
}

/// Faults of these kinds for so long. The same seed gives the same plan.
pub fn plan(seed: u64, kinds: &[Kind], length: Duration) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    let mut free = [Duration::ZERO; 2];
    loop {
        let lane = usize::from(free[1] < free[0]);
        let of_lane = |it: &&Kind| match it.lane() {
            Lane::Servers => lane == 0,
            Lane::Around | Lane::Alone => lane == 1,
        };
        let choices: Vec<&Kind> = kinds.iter().filter(of_lane).collect();
        let Some(kind) = choices.choose(&mut random) else {
            free[lane] = Duration::MAX;
            if free == [Duration::MAX; 2] {
                break;
            }
            continue;
        };
        let is_alone = kind.lane() == Lane::Alone && free[0] < Duration::MAX;
        let free_at = if is_alone { free[0].max(free[1]) } else { free[lane] };
        let begin = free_at + millis(&mut random, 300..3_000);
        let (fault, lasts) = kind.draw(&mut random);
        let end = begin + lasts;
        if end > length {
            break;
        }
        if lasts.is_zero() {
            steps.push(Step { at: begin, turn: Turn::Begin(fault) });
        } else {
            steps.push(Step { at: begin, turn: Turn::Begin(fault.clone()) });
            steps.push(Step { at: end, turn: Turn::End(fault) });
        }
        free[lane] = end;
        if is_alone {
            free[0] = end;
        }
    }
    steps.sort_by_key(|it| it.at);
    steps
}

/// Over and over: the last server that stores the old version falls asleep in the middle of a write, the others go on to
/// the new one, and it wakes up. This is what the fence is for.
pub fn sleepers(seed: u64, n_cycles: usize) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    let mut at = Duration::ZERO;
    for _ in 0..n_cycles {
        let sleeper = random.random_range(0..SERVERS);
        let others = || (0..SERVERS).filter(|it| *it != sleeper);
        let mut turns = Vec::new();
        turns.extend((0..SERVERS).map(|it| (200, Turn::Begin(Fault::Roll(it, 34)))));
        turns.extend(others().map(|it| (200, Turn::Begin(Fault::Roll(it, 36)))));
        turns.push((1_000, Turn::Begin(Fault::SleepInCommit(sleeper))));
        // Longer than a lease, and shorter than clients wait: what they sent is still under way.
        turns.push((random.random_range(3_200..3_900), Turn::End(Fault::SleepInCommit(sleeper))));
        turns.push((1_000, Turn::Begin(Fault::Roll(sleeper, 36))));
        for (after, turn) in turns {
            at += Duration::from_millis(after);
            steps.push(Step { at, turn });
        }
    }
    steps
}

/// One rollout after the other. Before each, people move the storage version of the widgets, so that something is
/// migrated at every step.
pub fn rollouts(seed: u64, minors: &[u16]) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for (n, minor) in (0..).zip(minors) {
        let at = Duration::from_secs(n);
        let (flip, _) = Kind::Flip.draw(&mut random);
        steps.push(Step { at, turn: Turn::Begin(flip) });
        steps.push(Step { at: at + millis(&mut random, 0..900), turn: Turn::Begin(Fault::Rollout(*minor)) });
    }
    steps
}

fn millis(random: &mut StdRng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(random.random_range(range))
}

impl Kind {
    fn lane(self) -> Lane {
        match self {
            Kind::Kill
            | Kind::Stop
            | Kind::Roll
            | Kind::Sleep
            | Kind::SleepInCommit
            | Kind::CutOff
            | Kind::AnswersLost
            | Kind::SlowStore
            | Kind::ClockSet
            | Kind::ClockLeap
            | Kind::Suspend
            | Kind::AnswersHeld => Lane::Servers,
            Kind::CutClients
            | Kind::Flip
            | Kind::LeaderKilled
            | Kind::LeaderAsleep
            | Kind::MemberAsleep
            | Kind::SlowDisk => Lane::Around,
            Kind::FullDisk | Kind::LeasesEnd => Lane::Alone,
        }
    }

    /// A fault of this kind, and how long it lasts; nothing if it is over at once.
    fn draw(self, random: &mut StdRng) -> (Fault, Duration) {
        let server = random.random_range(0..SERVERS);
        let (fault, lasts) = match self {
            Kind::Kill => (Fault::Kill(server), 1..2_500),
            Kind::Stop => (Fault::Stop(server), 1..1_500),
            Kind::Roll => (Fault::Roll(server, random.random_range(RELEASES)), 0..1),
            Kind::Sleep => (Fault::Sleep(server), 100..5_000),
            Kind::SleepInCommit => (Fault::SleepInCommit(server), 500..5_000),
            Kind::CutOff => (Fault::CutOff(server), 50..4_000),
            Kind::AnswersLost => (Fault::AnswersLost(server), 50..2_000),
            Kind::SlowStore => (Fault::SlowStore(server, random.random_range(5..400)), 500..4_000),
            Kind::ClockSet => {
                let seconds = random.random_range(30..600) * [-1, 1][random.random_range(0..2)];
                (Fault::ClockSet(server, seconds), 0..1)
            }
            Kind::ClockLeap => (Fault::ClockLeap(server, random.random_range(5..600)), 0..1),
            Kind::Suspend => (Fault::Suspend(server), 500..5_000),
            Kind::AnswersHeld => (Fault::AnswersHeld(server), 50..3_000),
            Kind::CutClients => (Fault::CutClients(random.random()), 500..4_000),
            Kind::Flip => (Fault::Flip(["v1", "v2", "v3"][random.random_range(0..3)]), 0..1),
            Kind::LeaderKilled => (Fault::LeaderKilled, 200..3_000),
            Kind::LeaderAsleep => (Fault::LeaderAsleep, 200..4_000),
            Kind::MemberAsleep => (Fault::MemberAsleep(server), 200..6_000),
            Kind::SlowDisk => (Fault::SlowDisk(random.random_range(5..300)), 500..4_000),
            Kind::FullDisk => (Fault::FullDisk, 100..1_000),
            Kind::LeasesEnd => (Fault::LeasesEnd(random.random_range(5..600)), 0..1),
        };
        let lasts = if lasts.end == 1 { Duration::ZERO } else { millis(random, lasts) };
        (fault, lasts)
    }
}

impl Fault {
    /// The server that it is about, if it is about one.
    pub fn server(&self) -> Option<usize> {
        match self {
            Fault::Kill(n)
            | Fault::Stop(n)
            | Fault::Roll(n, _)
            | Fault::Sleep(n)
            | Fault::SleepInCommit(n)
            | Fault::CutOff(n)
            | Fault::AnswersLost(n)
            | Fault::SlowStore(n, _)
            | Fault::ClockSet(n, _)
            | Fault::ClockLeap(n, _)
            | Fault::Suspend(n)
            | Fault::AnswersHeld(n) => Some(*n),
            Fault::Rollout(_)
            | Fault::CutClients(_)
            | Fault::Flip(_)
            | Fault::LeaderKilled
            | Fault::LeaderAsleep
            | Fault::MemberAsleep(_)
            | Fault::SlowDisk(_)
            | Fault::FullDisk
            | Fault::LeasesEnd(_) => None,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Fault::Kill(_) => "kill",
            Fault::Stop(_) => "stop",
            Fault::Roll(..) => "roll",
            Fault::Rollout(_) => "rollout",
            Fault::Sleep(_) => "sleep",
            Fault::SleepInCommit(_) => "sleep in a commit",
            Fault::CutOff(_) => "cut off",
            Fault::AnswersLost(_) => "answers lost",
            Fault::SlowStore(..) => "slow store",
            Fault::ClockSet(..) => "clock set",
            Fault::ClockLeap(..) => "clock leap",
            Fault::Suspend(_) => "suspended",
            Fault::AnswersHeld(_) => "answers held back",
            Fault::CutClients(_) => "clients cut",
            Fault::Flip(_) => "flip",
            Fault::LeaderKilled => "leader killed",
            Fault::LeaderAsleep => "leader asleep",
            Fault::MemberAsleep(_) => "member asleep",
            Fault::SlowDisk(_) => "slow disk",
            Fault::FullDisk => "full disk",
            Fault::LeasesEnd(_) => "leases end",
        }
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Turn::Begin(fault) => write!(f, "{fault:?}"),
            Turn::End(fault) => write!(f, "end of {fault:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Kind; 7] = [
        Kind::Kill,
        Kind::Roll,
        Kind::Sleep,
        Kind::CutClients,
        Kind::Flip,
        Kind::LeaderKilled,
        Kind::FullDisk,
    ];
    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn a_seed_is_a_plan() {
        assert_eq!(plan(7, &ALL, LONG), plan(7, &ALL, LONG));
        assert_ne!(plan(7, &ALL, LONG), plan(8, &ALL, LONG));
        assert_eq!(plan(7, &[], LONG), []);
        let only = plan(7, &[Kind::Flip], LONG);
        assert!(only.len() > 20 && only.iter().all(|it| matches!(it.turn, Turn::Begin(Fault::Flip(_)))));
    }

    /// What has begun ends, in time, and never overlaps with what it cannot be combined with.
    #[test]
    fn plans_make_sense() {
        for seed in 0..200 {
            let mut active: Vec<Fault> = Vec::new();
            let steps = plan(seed, &ALL, LONG);
            assert!(steps.len() > 30, "seed {seed}: {}", steps.len());
            assert!(steps.is_sorted_by_key(|it| it.at) && steps.last().unwrap().at <= LONG);
            for step in steps {
                match step.turn {
                    Turn::Begin(fault) => {
                        let is_alone = |it: &Fault| matches!(it, Fault::FullDisk);
                        assert!(active.len() < 2, "seed {seed}: {fault:?} during {active:?}");
                        let is_free = active.is_empty() || !(is_alone(&fault) || active.iter().any(is_alone));
                        assert!(is_free, "seed {seed}: {fault:?} during {active:?}");
                        assert!(
                            fault.server().is_none() || active.iter().all(|it| it.server().is_none()),
                            "seed {seed}: {fault:?} during {active:?}"
                        );
                        let ends = !matches!(fault, Fault::Roll(..) | Fault::Flip(_));
                        active.extend(ends.then_some(fault));
                    }
                    Turn::End(fault) => {
                        let place = active.iter().position(|it| *it == fault).expect("it must have begun");
                        active.remove(place);
                    }
                }
            }
            assert_eq!(active, [], "seed {seed}");
        }
    }

    #[test]
    fn a_sleeper_is_the_last_of_its_release() {
        let steps = sleepers(3, 2);
        let turns: Vec<&Turn> = steps.iter().map(|it| &it.turn).collect();
        let Turn::Begin(Fault::SleepInCommit(sleeper)) = turns[5] else { panic!("{turns:?}") };
        let rolled = |n: usize| match turns[n] {
            Turn::Begin(Fault::Roll(server, minor)) => (*server, *minor),
            other => panic!("{other:?}"),
        };
        assert_eq!([rolled(0), rolled(1), rolled(2)], [(0, 34), (1, 34), (2, 34)]);
        for n in [3, 4] {
            assert!(rolled(n).0 != *sleeper && rolled(n).1 == 36);
        }
        assert!(steps[6].at - steps[5].at > Duration::from_secs(2), "longer than a lease");
        assert_eq!(rolled(7), (*sleeper, 36));
    }
}
