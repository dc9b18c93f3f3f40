//! Time as something that is handed in. Nothing else in the project reads a clock, so that tests can
//! stop time, let it jump, and run two servers whose clocks disagree.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A clock that is shared by everything in one server.
pub type SharedClock = Arc<dyn Clock>;

/// Wall time for people, monotonic time for decisions.
pub trait Clock: Send + Sync + 'static {
    /// The time of day: for timestamps in objects and logs, never for deciding whether something expired here.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;

    /// Ends when `duration` of monotonic time has passed.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;

    /// Ends when monotonic time has reached `at`; at once if it already has. Use this for deadlines: a clock
    /// that moves between reading it and calling [`Clock::sleep`] would make the sleep too long.
    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleep(at.saturating_sub(self.monotonic()))
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// The machine's clock; its monotonic time starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    pub fn new() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// The machine's clock, to hand in.
    pub fn shared() -> SharedClock {
        Arc::new(Self::new())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    wall: Mutex<Timestamp>,
    monotonic: watch::Sender<Duration>,
}

impl ManualClock {
    /// Stands at `wall`.
    pub fn at(wall: Timestamp) -> Arc<Self> {
        Arc::new(Self { wall: Mutex::new(wall), monotonic: watch::Sender::new(Duration::ZERO) })
    }

    /// Lets time pass: wall and monotonic time alike.
    pub fn advance(&self, duration: Duration) {
        self.jump_wall(duration);
        self.monotonic.send_modify(|it| *it += duration);
    }

    /// Sets only the wall clock forward, as an operator or a time daemon would.
    pub fn jump_wall(&self, duration: Duration) {
        *self.wall.lock() += duration;
    }

    /// Sets only the wall clock back.
    pub fn jump_wall_back(&self, duration: Duration) {
        *self.wall.lock() -= duration;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.wall.lock()
    }

    fn monotonic(&self) -> Duration {
        *self.monotonic.borrow()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.sleep_until(self.monotonic() + duration)
    }

    fn sleep_until(&self, at: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let mut monotonic = self.monotonic.subscribe();
        Box::pin(async move {
            // The sender lives as long as the clock; if a test drops it, sleeping for ever is right.
            if monotonic.wait_for(|it| *it >= at).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}
