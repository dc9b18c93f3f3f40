//! One copy of every string that many objects share.

use std::{collections::HashSet, sync::Arc};

use super::Text;

#[derive(Debug, Default)]
pub(super) struct Strings {
    known: HashSet<Text>,
    /// When there are more than this, those that nobody uses are dropped.
    limit: usize,
}

impl Strings {
    pub(super) fn share(&mut self, text: Text) -> Text {
        if let Some(known) = self.known.get(&text) {
            return known.clone();
        }
        if self.known.len() >= self.limit {
            self.known.retain(|it| Arc::strong_count(it) > 1);
            self.limit = (self.known.len() * 2).max(64);
        }
        self.known.insert(text.clone());
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_kept_once_and_only_while_they_are_used() {
        let mut strings = Strings::default();
        let first = strings.share("a".into());
        assert!(Arc::ptr_eq(&first, &strings.share("a".into())));
        for n in 0..10_000 {
            strings.share(n.to_string().into());
        }
        assert!(strings.known.len() <= 64, "{}", strings.known.len());
        assert!(Arc::ptr_eq(&first, &strings.share("a".into())));
    }
}
