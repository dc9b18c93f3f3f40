//! Where a walk over all objects stands, as text. Pure.

/// Behind the page that this token was given with, of this namespace, through this endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Index in the list of endpoints. Only the second pass goes through more than the first.
    pub(super) endpoint: usize,
    /// Index in the list of namespaces; 0 if there is none.
    pub(super) namespace: usize,
    /// The server's own; `None` at the beginning of the namespace.
    pub(super) token: Option<String>,
}

impl Position {
    /// What cannot be read is the beginning: then too much is looked at, never too little.
    pub(super) fn parse(text: &str) -> Self {
        Self::read(text).unwrap_or_default()
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let endpoint = parts.next()?.parse().ok()?;
        let namespace = parts.next()?.parse().ok()?;
        let token = parts.next().filter(|it| !it.is_empty()).map(str::to_owned);
        Some(Self { endpoint, namespace, token })
    }

    pub(super) fn text(&self) -> String {
        let Self { endpoint, namespace, token } = self;
        format!("{endpoint}.{namespace}.{}", token.as_deref().unwrap_or_default())
    }

    /// Whether this is in a walk through so many endpoints and namespaces. If not, it is from another walk.
    pub(super) fn is_within(&self, endpoints: usize, namespaces: usize) -> bool {
        self.endpoint < endpoints && self.namespace < namespaces.max(1)
    }

    /// Where to go on behind a page whose own continuation is `token`; `None` at the end.
    pub(super) fn next(&self, token: Option<String>, endpoints: usize, namespaces: usize) -> Option<Self> {
        let Self { endpoint, namespace, .. } = *self;
        let next = match token {
            Some(_) => Self { endpoint, namespace, token },
            None if namespace + 1 < namespaces => Self { endpoint, namespace: namespace + 1, token },
            None => Self { endpoint: endpoint + 1, namespace: 0, token },
        };
        (next.endpoint < endpoints).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["0.0.", "2.1.", "0.3.eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "1.0.a.b=="] {
            assert_eq!(Position::parse(text).text(), text);
        }
        for text in ["", "x", "1", "1.x.t", "-1.0.", "registry/widgets/a"] {
            assert_eq!(Position::parse(text), Position::default(), "{text}");
        }
    }

    /// Endpoints, namespaces, and every position of a walk in which each namespace has two pages.
    #[test]
    fn a_walk_goes_through_every_page_of_every_namespace_of_every_endpoint() {
        for (endpoints, namespaces, expect) in [
            (1, 0, "0.0. 0.0.t"),
            (1, 2, "0.0. 0.0.t 0.1. 0.1.t"),
            (2, 0, "0.0. 0.0.t 1.0. 1.0.t"),
            (2, 2, "0.0. 0.0.t 0.1. 0.1.t 1.0. 1.0.t 1.1. 1.1.t"),
        ] {
            let mut seen = Vec::new();
            let mut at = Some(Position::default());
            while let Some(position) = at {
                assert!(position.is_within(endpoints, namespaces));
                seen.push(position.text());
                let token = position.token.is_none().then(|| "t".to_owned());
                at = position.next(token, endpoints, namespaces);
            }
            assert_eq!(seen.join(" "), expect);
        }
        assert!(!Position::parse("1.0.").is_within(1, 0));
        assert!(!Position::parse("0.1.").is_within(1, 1));
    }
}
