//! How fast objects are rewritten.

use std::time::Duration;

use tokio::time::Instant;

/// Objects per second if nobody says otherwise: other clients should hardly notice.
pub(super) const DEFAULT_RATE: u64 = 2_000;

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
    fn a_rate_is_kept_and_zero_is_none() {
        let second = Duration::from_secs(1);
        assert_eq!(rest(2_000, second, 1_000), second);
        assert_eq!(rest(500, second, 1_000), Duration::ZERO);
        assert_eq!(rest(1_000_000, second, 0), Duration::ZERO);
    }
}
