//! What comes and goes with the releases of a control plane, and when nobody may deny it (G2).
//!
//! There is no looking past the servers while they run. But whoever was served knows that a member has it, and while
//! servers are not rolled away from it, it stays.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Where servers are rolled to: towards releases that have it, or away from them.
///
/// Twice the number of rolls away, and one more from the beginning of such a roll until the next one back begins.
#[derive(Debug, Clone)]
pub struct Course(Arc<AtomicU64>);

/// What one client knows.
#[derive(Debug)]
pub struct Season {
    course: Course,
    /// Where the course was when it was served last.
    served: Option<u64>,
}

impl Course {
    /// Of a cluster whose servers do not have it.
    pub fn away() -> Self {
        Self(Arc::new(AtomicU64::new(1)))
    }

    /// A roll begins.
    pub fn turn(&self, is_away: bool) {
        let next = |now: u64| Some(if is_away { (now / 2 + 1) * 2 + 1 } else { now / 2 * 2 });
        let _ = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// To be read before a request.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Season {
    pub fn new(course: Course) -> Self {
        Self { course, served: None }
    }

    pub fn now(&self) -> u64 {
        self.course.now()
    }

    /// It was served to a request that began at `asked`.
    pub fn was_served(&mut self, asked: u64) {
        self.served = asked.is_multiple_of(2).then_some(asked);
    }

    /// Whether it may be denied: nobody was served since servers were last rolled away from it.
    pub fn may_be_denied(&self) -> bool {
        self.served != Some(self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_served_is_not_denied_until_servers_are_rolled_away() {
        let course = Course::away();
        let mut season = Season::new(course.clone());
        assert!(season.may_be_denied(), "nobody has it");
        course.turn(false);
        assert!(season.may_be_denied(), "maybe nobody has it yet");
        season.was_served(season.now());
        assert!(!season.may_be_denied());
        course.turn(false);
        assert!(!season.may_be_denied(), "the next release has it, too");
        course.turn(true);
        assert!(season.may_be_denied());
        season.was_served(season.now());
        assert!(season.may_be_denied(), "the last one who has it may go at any time");
        course.turn(false);
        assert!(season.may_be_denied());
    }

    #[test]
    fn an_answer_that_took_a_whole_roll_proves_nothing() {
        let course = Course::away();
        course.turn(false);
        let mut season = Season::new(course.clone());
        let asked = season.now();
        course.turn(true);
        course.turn(false);
        season.was_served(asked);
        assert!(season.may_be_denied());
    }
}
