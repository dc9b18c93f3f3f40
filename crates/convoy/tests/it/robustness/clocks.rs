//! A clock that goes as the machine's does, and can be moved: set, as by a person, or leapt, as by a machine that slept.

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
    /// How much longer than the machine's it has gone.
    leapt: watch::Sender<Duration>,
}

impl MovedClock {
    pub fn shared() -> Arc<Self> {
        let (machine, set) = (SystemClock::new(), Mutex::new(0));
        Arc::new(Self { machine, set, leapt: watch::Sender::new(Duration::ZERO) })
    }

    /// Sets the time of day forth or back.
    pub fn set(&self, seconds: i64) {
        *self.set.lock() += seconds;
    }

    /// So much time has passed all at once.
    pub fn leap(&self, seconds: u64) {
        self.leapt.send_modify(|it| *it += Duration::from_secs(seconds));
    }
}

impl Clock for MovedClock {
    fn now(&self) -> jiff::Timestamp {
        let now = self.machine.now() + *self.leapt.borrow();
        now + jiff::SignedDuration::from_secs(*self.set.lock())
    }

    fn monotonic(&self) -> Duration {
        self.machine.monotonic() + *self.leapt.borrow()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let (machine, mut leapt) = (self.machine, self.leapt.subscribe());
        let until = machine.monotonic() + *leapt.borrow() + duration;
        Box::pin(async move {
            loop {
                let now = machine.monotonic() + *leapt.borrow_and_update();
                let Some(left) = until.checked_sub(now).filter(|it| !it.is_zero()) else { return };
                tokio::select! {
                    () = tokio::time::sleep(left) => return,
                    moved = leapt.changed() => {
                        if moved.is_err() {
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
