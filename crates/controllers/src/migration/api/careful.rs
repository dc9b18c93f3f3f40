//! A walk around objects whose stored form cannot be read.
//!
//! # Flow
//! A server refuses a list that such an object is in, as a whole, and gives no token to go on behind it. So each namespace
//! is listed by itself, and one that is refused is listed object by object, up to the one that cannot be read. What is
//! behind that one in its namespace is not reached, and named as such; all other namespaces are.
//!
//! # Guarantees
//! Whatever was not reached is a failure of the class `Undecodable`, so that nothing is proven by such a walk.

use super::position::{Careful, Position};
use super::walk::{Listed, Unlisted, Walk};
use crate::api::Collection;
use crate::migration::engine::{Class, Failure, Trouble};

/// A part of the walk.
pub(super) struct Part {
    pub(super) listed: Listed,
    /// What cannot be reached.
    pub(super) failures: Vec<Failure>,
    /// Where to go on; `None` if this was the last namespace.
    pub(super) next: Option<Careful>,
}

impl Walk<'_> {
    /// The part at this place.
    pub(super) async fn part(&self, at: &Careful) -> Result<Part, Trouble> {
        let namespaces = self.namespaces().await?;
        let Some(namespace) = at.namespace(&namespaces) else {
            let failures = self.unfound(at.has_found).into_iter().collect();
            return Ok(Part { listed: Listed::default(), failures, next: None });
        };
        let (listed, mut failures) = match self.list_in(namespace, at.token.clone(), self.task.batch).await {
            Ok(listed) => (listed, Vec::new()),
            Err(Unlisted::Trouble(trouble)) => return Err(trouble),
            Err(Unlisted::Undecodable(why)) => self.one_by_one(namespace, at.token.clone(), why).await?,
        };
        let has_found = at.has_found || !failures.is_empty();
        let next = Careful { behind: Some(namespace.to_owned()), token: listed.token.clone(), has_found };
        let is_last = next.token.is_none() && namespaces.last().is_none_or(|it| it == namespace);
        if is_last {
            failures.extend(self.unfound(has_found));
        }
        Ok(Part { listed, failures, next: (!is_last).then_some(next) })
    }

    /// All objects could not be listed together, each namespace could: what cannot be read is in none of them.
    fn unfound(&self, has_found: bool) -> Option<Failure> {
        let is_everywhere = self.place.offered.is_namespaced && self.task.namespaces.is_empty();
        (is_everywhere && !has_found).then(|| Failure {
            class: Class::Undecodable,
            object: "all".to_owned(),
            message: "the list of all objects is refused, and that of each namespace is not: something may be left of a \
                      namespace that is gone"
                .to_owned(),
        })
    }

    /// The objects of a page up to the one that cannot be read.
    async fn one_by_one(
        &self,
        namespace: &str,
        mut token: Option<String>,
        mut why: String,
    ) -> Result<(Listed, Vec<Failure>), Trouble> {
        let mut listed = Listed::default();
        for _ in 0..self.task.batch.max(1) {
            match self.list_in(namespace, token.clone(), 1).await {
                Ok(mut one) => {
                    listed.objects.append(&mut one.objects);
                    token = one.token;
                    if token.is_none() {
                        return Ok((listed, Vec::new()));
                    }
                }
                Err(Unlisted::Trouble(trouble)) => return Err(trouble),
                Err(Unlisted::Undecodable(message)) => {
                    why = message;
                    token = None;
                    break;
                }
            }
        }
        if token.is_some() {
            listed.token = token;
            return Ok((listed, Vec::new()));
        }
        let behind = listed.objects.last().map(|it| format!(", behind {}", it.name()));
        let place = if namespace.is_empty() { "all".to_owned() } else { format!("{namespace}/*") };
        let object = format!("{place}{}", behind.unwrap_or_default());
        Ok((listed, vec![Failure { class: Class::Undecodable, object, message: why }]))
    }

    /// Those that are walked through, in order.
    async fn namespaces(&self) -> Result<Vec<String>, Trouble> {
        if !self.place.offered.is_namespaced {
            return Ok(vec![String::new()]);
        }
        let mut names = self.task.namespaces.clone();
        if names.is_empty() {
            let (all, mut token) = (Collection::cluster("", "v1", "namespaces"), None);
            loop {
                let request = |client| all.page_of_metadata(client, "", 500, token.as_deref());
                let page = self.caller.call_patiently(request).await;
                let page =
                    page.map_err(|it| Trouble::Later(format!("namespaces cannot be listed: {}", it.text())))?;
                let (mut found, next) = page.open();
                names.extend(found.drain(..).map(|it: super::object::Object| it.name().to_owned()));
                token = next;
                if token.is_none() {
                    break;
                }
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }
}

impl Position {
    /// The same endpoint from the beginning, with care.
    pub(super) fn with_care(&self) -> Self {
        Self { careful: Some(Careful::default()), namespace: 0, token: None, ..*self }
    }

    /// Behind a part; the next endpoint begins without care, as its server may know better.
    pub(super) fn behind(&self, part: Option<Careful>, endpoints: usize) -> Option<Self> {
        match part {
            Some(careful) => Some(Self { careful: Some(careful), ..self.clone() }),
            None => Self { careful: None, ..self.clone() }.next(None, endpoints, 0),
        }
    }
}
