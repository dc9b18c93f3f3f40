//! How fast objects are rewritten. Pure.

use std::time::Duration;

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

/// When the next step is due, and how fast it goes. A moment is a [`Duration`] since some beginning.
///
/// What was not done in a pause is not made up for: after one, the next step is due at once and those behind it keep the
/// rate. Time in which nothing could be done counts for no estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Objects per second that the due time was reckoned with.
    rate: u64,
    /// The next step must not begin before.
    due: Duration,
    /// Since when work goes on without a pause; `None` in one.
    since: Option<Duration>,
    /// How long was worked before.
    worked: Duration,
    objects: u64,
}

impl Pace {
    /// A step begins.
    pub(super) fn begin(&mut self, now: Duration, rate: u64) {
        if self.rate != rate {
            // Neither a debt at the old rate nor a credit.
            (self.rate, self.due) = (rate, now);
        }
        self.since.get_or_insert(now);
        self.due = self.due.max(now);
    }

    /// It is over, after so many objects.
    pub(super) fn note(&mut self, objects: u64) {
        self.objects += objects;
        let millis = objects.saturating_mul(1_000).checked_div(self.rate);
        self.due += Duration::from_millis(millis.unwrap_or_default());
    }

    /// Nothing is done from now on, for a reason that is not the rate.
    pub(super) fn pause(&mut self, now: Duration) {
        if let Some(since) = self.since.take() {
            self.worked += now.saturating_sub(since);
        }
    }

    pub(super) fn objects(&self) -> u64 {
        self.objects
    }

    /// How long was worked. A rest for the sake of the rate is work; the last one is reckoned in as a whole.
    pub(super) fn millis(&self, now: Duration) -> u64 {
        let now = now.max(self.due);
        let worked = self.worked + self.since.map_or(Duration::ZERO, |it| now.saturating_sub(it));
        u64::try_from(worked.as_millis()).unwrap_or(u64::MAX)
    }

    /// How long to rest before the next step.
    pub(super) fn rest(&self, now: Duration, rate: u64) -> Duration {
        if rate == self.rate && rate > 0 { self.due.saturating_sub(now) } else { Duration::ZERO }
    }
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

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Steps of 100 objects, one as soon as it may begin: what happens at which moment, and when the next one may begin.
    #[test]
    fn a_rate_is_kept_after_whatever_happened() {
        let check = |what: &str, story: &[(u64, &str, u64)], expect: u64| {
            let mut pace = Pace::default();
            let mut last = (0, 0);
            for (at, event, rate) in story {
                last = (*at, *rate);
                match *event {
                    "step" => {
                        pace.begin(ms(*at), *rate);
                        pace.note(100);
                    }
                    _ => pace.pause(ms(*at)),
                }
            }
            assert_eq!(ms(last.0) + pace.rest(ms(last.0), last.1), ms(expect), "{what}");
        };
        check("one step", &[(0, "step", 100)], 1_000);
        check("two steps", &[(0, "step", 100), (1_000, "step", 100)], 2_000);
        check("no limit", &[(0, "step", 0), (5, "step", 0)], 5);
        check("a slow server earns nothing", &[(0, "step", 100), (9_000, "step", 100)], 10_000);
        check("nor does a pause", &[(0, "step", 100), (10, "pause", 100), (9_000, "step", 100)], 10_000);
        check("a pause pays no debt", &[(0, "step", 1), (10, "pause", 1)], 100_000);
        check("a lower rate", &[(0, "step", 1_000), (100, "step", 1_000), (200, "step", 10)], 10_200);
        check("a higher rate ends a rest", &[(0, "step", 1), (500, "step", 1_000)], 600);
    }

    #[test]
    fn a_change_of_the_rate_is_heard_at_once() {
        let mut pace = Pace::default();
        pace.begin(ms(0), 1);
        pace.note(100);
        assert_eq!(pace.rest(ms(0), 1), ms(100_000));
        assert_eq!(pace.rest(ms(0), 1_000), Duration::ZERO);
    }

    #[test]
    fn pauses_count_for_no_estimate() {
        let mut pace = Pace::default();
        pace.begin(ms(0), 100);
        pace.note(100);
        pace.begin(ms(1_000), 100);
        pace.note(100);
        pace.pause(ms(2_000));
        assert_eq!((pace.objects(), pace.millis(ms(60_000))), (200, 2_000));
        pace.begin(ms(60_000), 100);
        pace.note(100);
        assert_eq!((pace.objects(), pace.millis(ms(60_010))), (300, 3_000));
    }
}
