//! A list of texts that somebody else wrote, kept so that its length costs little: neither memory nor time to look one up.

/// Lists up to this length are gone through; longer ones are searched.
const FEW: usize = 16;

/// The texts of one list, in their order.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// One behind the other.
    text: Box<str>,
    /// Where each ends.
    ends: Box<[u32]>,
    /// Their places in alphabetical order; empty if there are few.
    sorted: Box<[u32]>,
}

impl Words {
    pub(super) fn of(words: &[String]) -> Self {
        let place = |at: usize| u32::try_from(at).expect("a stored object must be smaller than 4 GiB");
        let mut end = 0;
        let ends = words.iter().map(|it| {
            end += it.len();
            place(end)
        });
        let ends = ends.collect();
        let mut sorted: Vec<u32> =
            if words.len() <= FEW { Vec::new() } else { (0..words.len()).map(place).collect() };
        sorted.sort_unstable_by_key(|at| &words[*at as usize]);
        Self { text: words.concat().into(), ends, sorted: sorted.into() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How much there is of it, roughly as it is sent.
    pub(super) fn n_bytes(&self) -> usize {
        self.text.len() + 3 * self.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|at| self.get(at))
    }

    pub(super) fn has(&self, word: &str) -> bool {
        if self.sorted.is_empty() {
            return self.iter().any(|it| it == word);
        }
        self.sorted.binary_search_by(|at| self.get(*at as usize).cmp(word)).is_ok()
    }

    pub(super) fn to_vec(&self) -> Vec<String> {
        self.iter().map(str::to_owned).collect()
    }

    fn get(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[at] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_is_found_and_nothing_else() {
        for n in [0, 1, FEW, FEW + 1, 1_000] {
            let mut given: Vec<String> = (0..n).rev().map(|it| (it * 2).to_string()).collect();
            given.extend(given.first().cloned()); // twice
            given.push(String::new());
            let words = Words::of(&given);
            assert_eq!(words.to_vec(), given);
            assert!(given.iter().all(|it| words.has(it)));
            assert!((0..n).all(|it| !words.has(&(it * 2 + 1).to_string())));
        }
        assert!(!Words::of(&[]).has(""));
    }
}
