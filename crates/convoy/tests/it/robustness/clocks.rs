//! A clock that goes as the machine's does, and can be moved: set, as by a person, leapt, as by a machine that slept, or
//! stopped, as by a machine that was suspended and does not know it.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use parking_lot::Mutex;
use store::{Clock, SystemClock};
use tokio::sync::watch;

/// A clock of one server, or of the store.
#[derive(Debug)]
pub struct MovedClock {
    machine: SystemClock,
    /// How far the time of day is off, in seconds.
    set: Mutex<i64>,
    moved: watch::Sender<Moved>,
}

/// How a clock differs from the machine's.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    /// How much longer it has gone.
    leapt: Duration,
    /// How long it stood still, all times together.
    lost: Duration,
    /// What the machine's clock said when it was stopped.
    stopped: Option<Duration>,
}

impl Moved {
    fn monotonic(&self, machine: Duration) -> Duration {
        self.stopped.unwrap_or(machine) + self.leapt - self.lost
    }
}

impl MovedClock {
    pub fn shared() -> Arc<Self> {
        let (machine, set) = (SystemClock::new(), Mutex::new(0));
        Arc::new(Self { machine, set, moved: watch::Sender::default() })
    }

    /// Sets the time of day forth or back.
    pub fn set(&self, seconds: i64) {
        *self.set.lock() += seconds;
    }

    /// So much time has passed all at once.
    pub fn leap(&self, seconds: u64) {
        self.moved.send_modify(|it| it.leapt += Duration::from_secs(seconds));
    }

    /// Stands still; the time of day does not.
    pub fn stop(&self) {
        let now = self.machine.monotonic();
        self.moved.send_modify(|it| it.stopped = it.stopped.or(Some(now)));
    }

    /// Goes on from where it stood.
    pub fn go_on(&self) {
        let now = self.machine.monotonic();
        self.moved.send_modify(|it| {
            if let Some(stopped) = it.stopped.take() {
                it.lost += now - stopped;
            }
        });
    }
}

impl Clock for MovedClock {
    fn now(&self) -> jiff::Timestamp {
        let now = self.machine.now() + self.moved.borrow().leapt;
        now + jiff::SignedDuration::from_secs(*self.set.lock())
    }

    fn monotonic(&self) -> Duration {
        self.moved.borrow().monotonic(self.machine.monotonic())
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (machine, mut moved) = (self.machine, self.moved.subscribe());
        let until = moved.borrow().monotonic(machine.monotonic()) + duration;
        Box::pin(async move {
            loop {
                let state = *moved.borrow_and_update();
                let now = state.monotonic(machine.monotonic());
                let Some(left) = until.checked_sub(now).filter(|it| !it.is_zero()) else { return };
                tokio::select! {
                    () = tokio::time::sleep(left), if state.stopped.is_none() => return,
                    changed = moved.changed() => {
                        if changed.is_err() {
                            return tokio::time::sleep(left).await;
                        }
                    }
                }
            }
        })
    }
}

#[tokio::test]
async fn whoever_sleeps_by_a_clock_that_leaps_wakes_up() {
    let clock = MovedClock::shared();
    let asleep = clock.sleep(Duration::from_secs(500));
    let (monotonic, now) = (clock.monotonic(), clock.now());
    clock.set(-100);
    clock.leap(600);
    asleep.await;
    assert!(clock.monotonic() - monotonic >= Duration::from_secs(600));
    assert!((clock.now() - now).get_seconds() >= 500);
}

#[tokio::test]
async fn whoever_sleeps_by_a_clock_that_stands_still_does_not_wake_up() {
    let clock = MovedClock::shared();
    clock.stop();
    let (asleep, monotonic) = (clock.sleep(Duration::from_millis(20)), clock.monotonic());
    assert!(tokio::time::timeout(Duration::from_millis(100), asleep).await.is_err());
    assert_eq!(clock.monotonic(), monotonic);
    clock.go_on();
    clock.sleep(Duration::from_millis(20)).await;
    let gone_by = clock.monotonic() - monotonic;
    assert!(gone_by >= Duration::from_millis(20) && gone_by < Duration::from_secs(60), "{gone_by:?}");
}
