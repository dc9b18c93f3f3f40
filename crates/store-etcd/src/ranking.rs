//! Which member is asked first: the one that answers, until it does not. Whoever failed is asked last, until it answers
//! again. Pure; the calls are in [`crate::client`].

/// The order in which members are asked.
#[derive(Debug)]
pub(crate) struct Ranking {
    /// Who is asked now.
    current: usize,
    /// When each member last failed, counted in failures; nothing once it has answered since.
    failed: Vec<Option<u64>>,
    n_failures: u64,
}

impl Ranking {
    pub(crate) fn new(n_members: usize) -> Self {
        Self { current: 0, failed: vec![None; n_members], n_failures: 0 }
    }

    /// Who is asked first.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// A member answered.
    pub(crate) fn answered(&mut self, member: usize) {
        self.failed[member] = None;
    }

    /// A member did not answer, or not with anything useful.
    pub(crate) fn failed(&mut self, member: usize) {
        self.n_failures += 1;
        self.failed[member] = Some(self.n_failures);
        if member == self.current {
            self.current = self.best(|_| true).unwrap_or(member);
        }
    }

    /// Who is asked next, after these.
    pub(crate) fn next(&self, tried: &[usize]) -> Option<usize> {
        self.best(|it| !tried.contains(&it))
    }

    /// The one that has not failed, or did so the longest ago; of several the next in the circle.
    fn best(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let n_members = self.failed.len();
        let circle = (0..n_members).map(|it| (self.current + it) % n_members);
        circle.filter(|it| may(*it)).min_by_key(|it| self.failed[*it])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_answers_is_asked_until_it_fails() {
        let mut ranking = Ranking::new(3);
        ranking.answered(0);
        assert_eq!(ranking.current(), 0);
        ranking.failed(0);
        assert_eq!(ranking.current(), 1);
        ranking.answered(0);
        assert_eq!(ranking.current(), 1, "no reason to go back");
    }

    #[test]
    fn whoever_failed_is_asked_last_until_it_answers() {
        let mut ranking = Ranking::new(3);
        ranking.failed(0);
        ranking.failed(1);
        assert_eq!((ranking.current(), ranking.next(&[2])), (2, Some(0)), "0 failed longer ago than 1");
        ranking.answered(1);
        assert_eq!(ranking.next(&[2]), Some(1));
        assert_eq!(ranking.next(&[0, 1, 2]), None);
    }

    #[test]
    fn where_all_have_failed_the_circle_goes_on() {
        let mut ranking = Ranking::new(3);
        let mut asked = Vec::new();
        for _ in 0..6 {
            asked.push(ranking.current());
            ranking.failed(ranking.current());
        }
        assert_eq!(asked, [0, 1, 2, 0, 1, 2]);
    }
}
