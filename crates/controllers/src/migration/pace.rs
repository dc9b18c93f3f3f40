//! How fast objects are rewritten.

use std::time::Duration;

use tokio::time::Instant;

/// Objects per second if nobody says otherwise: other clients should hardly notice.
pub(super) const DEFAULT_RATE: u64 = 500;

/// Objects in one step without a limit.
const BATCH: usize = 1_000;
/// Writes that are under way at the same time without a limit.
const AT_ONCE: usize = 256;

/// Objects in one step, and writes that are under way at the same time: with a limit they are spread over the time, so
/// that others never wait behind a burst.
pub(super) fn stride(rate: u64) -> (usize, usize) {
    let share = |part: u64, least: usize, most: usize| {
        usize::try_from(rate / part).unwrap_or(most).clamp(least, most)
    };
    if rate == 0 { (BATCH, AT_ONCE) } else { (share(20, 5, BATCH), share(250, 1, AT_ONCE)) }
}

/// Counts objects since a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    since: Instant,
    objects: u64,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), objects: 0 }
    }

    pub(super) fn note(&mut self, objects: u64) {
        self.objects += objects;
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    pub(super) fn millis(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// How long to rest so that no more than `rate` objects a second are looked at.
    pub(super) fn rest(&self, rate: u64) -> Duration {
        rest(self.objects, self.since.elapsed(), rate)
    }
}

fn rest(objects: u64, elapsed: Duration, rate: u64) -> Duration {
    let Some(due) = objects.saturating_mul(1_000).checked_div(rate) else { return Duration::ZERO };
    Duration::from_millis(due).saturating_sub(elapsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_rate_makes_small_steps() {
        assert_eq!(stride(0), (1_000, 256));
        assert_eq!(stride(1), (5, 1));
        assert_eq!(stride(1_000), (50, 4));
        assert_eq!(stride(u64::MAX), (1_000, 256));
    }

    #[test]
    fn a_rate_is_kept_and_zero_is_none() {
        let second = Duration::from_secs(1);
        assert_eq!(rest(2_000, second, 1_000), second);
        assert_eq!(rest(500, second, 1_000), Duration::ZERO);
        assert_eq!(rest(1_000_000, second, 0), Duration::ZERO);
    }
}
