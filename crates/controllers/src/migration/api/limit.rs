//! How many requests may be under way, learnt from how the server copes with them. Pure.

use std::time::Duration;

/// How the server coped with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
    /// It answered, after this long.
    Answered(Duration),
    /// It had too much to do.
    Pressed,
}

/// Halved under pressure, grown by one after as many answers as it has room for.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    most: usize,
    now: usize,
    /// Answers since it was last changed.
    answers: usize,
    /// A moving mean; `None` before the first answer.
    usual: Option<Duration>,
    /// Requests that began earlier were under way when the limit was last halved: they say nothing new.
    halved_at: u64,
}

/// What is quicker than this is no reason to slow down, whatever is usual.
const QUICK: Duration = Duration::from_secs(1);

/// An answer is slow if it takes this much longer than usual.
const SLOW: u32 = 4;

const FIRST: usize = 4;

impl Limit {
    /// Never more than `most`, never less than one.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, now: most.min(FIRST), answers: 0, usual: None, halved_at: 0 }
    }

    pub(super) fn now(&self) -> usize {
        self.now
    }

    /// Learns from request number `begun`; `last` is the number of the latest one.
    pub(super) fn learn(&mut self, sign: Sign, begun: u64, last: u64) {
        match sign {
            Sign::Answered(took) if !self.is_slow(took) => self.answered(),
            Sign::Answered(_) | Sign::Pressed if begun > self.halved_at => {
                (self.now, self.answers, self.halved_at) = ((self.now / 2).max(1), 0, last);
            }
            Sign::Answered(_) | Sign::Pressed => {}
        }
        if let Sign::Answered(took) = sign {
            self.usual = Some(self.usual.map_or(took, |usual| (usual * 15 + took) / 16));
        }
    }

    fn answered(&mut self) {
        self.answers += 1;
        if self.answers >= self.now && self.now < self.most {
            (self.now, self.answers) = (self.now + 1, 0);
        }
    }

    fn is_slow(&self, took: Duration) -> bool {
        took > QUICK && self.usual.is_some_and(|usual| took > usual * SLOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Sign = Sign::Answered(Duration::from_millis(10));

    /// `f` is a fast answer, `s` a slow one, `p` pressure; one request after the other.
    fn after(most: usize, signs: &str) -> usize {
        let mut limit = Limit::new(most);
        for (number, sign) in (1..).zip(signs.chars()) {
            let sign = match sign {
                'f' => FAST,
                's' => Sign::Answered(Duration::from_secs(3)),
                _ => Sign::Pressed,
            };
            limit.learn(sign, number, number);
        }
        limit.now()
    }

    #[test]
    fn it_grows_slowly_and_is_halved_quickly() {
        for (most, signs, expect) in [
            (16, "", 4),
            (2, "", 2),
            (0, "", 1),
            (16, "fff", 4),
            (16, "ffff", 5),
            (16, "fffffffff", 6),
            (5, &"f".repeat(100), 5),
            (16, &"f".repeat(200), 16),
            (16, "p", 2),
            (16, "ppp", 1),
            (16, "fs", 2),
            // Slow from the start is what is usual there.
            (16, "ssss", 5),
            (16, "pff", 3),
        ] {
            assert_eq!(after(most, signs), expect, "{signs}");
        }
    }

    #[test]
    fn requests_that_were_under_way_together_halve_it_once() {
        let mut limit = Limit::new(16);
        for number in 1..=200 {
            limit.learn(FAST, number, number);
        }
        for number in 201..=216 {
            limit.learn(Sign::Pressed, number, 216);
        }
        assert_eq!(limit.now(), 8);
        limit.learn(Sign::Pressed, 217, 217);
        assert_eq!(limit.now(), 4);
    }
}
