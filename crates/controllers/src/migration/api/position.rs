//! Where a walk over all objects stands, as text. Pure.

/// Stands for the index of a namespace in a walk with care.
const CAREFUL: &str = "c";
/// The same after something was found that cannot be read.
const FOUND: &str = "f";

/// Behind the page that this token was given with, of this namespace, through this endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Index in the list of endpoints. Only the second pass goes through more than the first.
    pub(super) endpoint: usize,
    /// Index in the list of namespaces; 0 if there is none.
    pub(super) namespace: usize,
    /// The server's own; `None` at the beginning of the namespace.
    pub(super) token: Option<String>,
    /// Where it stands among all namespaces, if there are objects that cannot be read.
    pub(super) careful: Option<Careful>,
}

/// A place in a walk namespace by namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Careful {
    /// The namespace that was looked at last; `None` at the beginning.
    pub(super) behind: Option<String>,
    /// How its list goes on; `None` if it is done.
    pub(super) token: Option<String>,
    /// Whether something that cannot be read was found on the way.
    pub(super) has_found: bool,
}

impl Careful {
    /// Which of these namespaces, which are in order, is next.
    pub(super) fn namespace<'a>(&'a self, all: &'a [String]) -> Option<&'a str> {
        match (&self.behind, &self.token) {
            (Some(namespace), Some(_)) => Some(namespace),
            (Some(done), None) => all.iter().find(|it| *it > done).map(String::as_str),
            (None, _) => all.first().map(String::as_str),
        }
    }

    fn read(text: &str, has_found: bool) -> Self {
        match text.split_once('/') {
            Some((namespace, token)) => {
                let token = Some(token.to_owned()).filter(|it| !it.is_empty());
                Self { behind: Some(namespace.to_owned()), token, has_found }
            }
            None => Self::default(),
        }
    }

    fn text(&self) -> String {
        let token = self.token.as_deref().unwrap_or_default();
        self.behind.as_ref().map(|it| format!("{it}/{token}")).unwrap_or_default()
    }
}

impl Position {
    /// What cannot be read is the beginning: then too much is looked at, never too little.
    pub(super) fn parse(text: &str) -> Self {
        Self::read(text).unwrap_or_default()
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let endpoint = parts.next()?.parse().ok()?;
        let (namespace, rest) = (parts.next()?, parts.next().unwrap_or_default());
        if namespace == CAREFUL || namespace == FOUND {
            let careful = Some(Careful::read(rest, namespace == FOUND));
            return Some(Self { endpoint, careful, ..Self::default() });
        }
        let token = Some(rest.to_owned()).filter(|it| !it.is_empty());
        Some(Self { endpoint, namespace: namespace.parse().ok()?, token, careful: None })
    }

    pub(super) fn text(&self) -> String {
        let Self { endpoint, namespace, token, careful } = self;
        if let Some(careful) = careful {
            let mark = if careful.has_found { FOUND } else { CAREFUL };
            return format!("{endpoint}.{mark}.{}", careful.text());
        }
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
            Some(_) => Self { endpoint, namespace, token, careful: None },
            None if namespace + 1 < namespaces => {
                Self { endpoint, namespace: namespace + 1, token, careful: None }
            }
            None => Self { endpoint: endpoint + 1, namespace: 0, token, careful: None },
        };
        (next.endpoint < endpoints).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in [
            "0.0.",
            "2.1.",
            "0.3.eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ",
            "1.0.a.b==",
            "0.c.",
            "1.c.a/",
            "1.c.a/b.c/d",
            "0.c./t",
            "1.f.a/t",
        ] {
            assert_eq!(Position::parse(text).text(), text);
        }
        for text in ["", "x", "1", "1.x.t", "-1.0.", "registry/widgets/a"] {
            assert_eq!(Position::parse(text), Position::default(), "{text}");
        }
    }

    #[test]
    fn a_careful_walk_goes_through_every_namespace() {
        let all = ["a", "b", "d"].map(str::to_owned);
        for (text, expect) in [
            ("0.c.", Some("a")),
            ("0.c.a/", Some("b")),
            ("0.c.a/t", Some("a")),
            // One that came or went meanwhile.
            ("0.c.c/", Some("d")),
            ("0.c.d/", None),
        ] {
            let careful = Position::parse(text).careful.unwrap();
            assert_eq!(careful.namespace(&all), expect, "{text}");
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
