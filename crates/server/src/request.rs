//! What a request is about, read from its method, path and query. Every layer below reads this, none reads the path.
//!
//! Deliberately not here: whether the resource exists, and who asks.

use http::Method;

/// What the path says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// What is to be done: an API verb for resources, the lower-case method otherwise.
    pub verb: &'static str,
    /// The path as it was sent, without the query.
    pub path: String,
    /// The resource, if the path names one.
    pub resource: Option<ResourcePath>,
}

/// A path of the form `/apis/GROUP/VERSION/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What follows behind the subresource, as in `pods/x/proxy/some/path`.
    pub rest: String,
}

/// The query string, decoded. Keeps the order; bounded by the header limit.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl RequestInfo {
    /// Reads a request line.
    pub fn resolve(method: &Method, path: &str, query: &Query) -> Self {
        let mut segments: Vec<String> = Vec::new();
        for segment in path.split('/').filter(|it| !it.is_empty()) {
            segments.push(percent_decode(segment));
        }
        let plain = Self { verb: lower(method), path: path.to_owned(), resource: None };
        if path.trim_matches('/').contains("//") {
            return plain;
        }
        let mut rest: &[String] = &segments;
        let (group, version) = match segments.first().map(String::as_str) {
            Some("api") if segments.len() >= 3 => {
                rest = &rest[2..];
                (String::new(), segments[1].clone())
            }
            Some("apis") if segments.len() >= 4 => {
                rest = &rest[3..];
                (segments[1].clone(), segments[2].clone())
            }
            _ => return plain,
        };
        let is_old_watch = rest.len() > 1 && rest[0] == "watch";
        if is_old_watch {
            rest = &rest[1..];
        }
        let mut found = ResourcePath { group, version, ..ResourcePath::default() };
        found.read(rest);
        let verb = verb_of(method, &found, query, is_old_watch);
        if matches!(verb, "list" | "watch" | "deletecollection") && found.name.is_empty() {
            // A rule that names an object also covers a list of just that object.
            found.name = single_name(query).unwrap_or_default();
        }
        Self { verb, resource: Some(found), ..plain }
    }

    /// Whether the answer may go on for a long time, so that no time-out and no in-flight limit applies.
    pub fn is_long_running(&self) -> bool {
        self.verb == "watch"
    }
}

impl ResourcePath {
    fn read(&mut self, segments: &[String]) {
        let mut segments = segments;
        if segments.first().is_some_and(|it| it == "namespaces")
            && segments.len() > 2
            && !matches!(segments[2].as_str(), "status" | "finalize")
        {
            self.namespace.clone_from(&segments[1]);
            segments = &segments[2..];
        } else if segments.first().is_some_and(|it| it == "namespaces") && segments.len() > 1 {
            // The namespace itself is authorized as something in that namespace.
            self.namespace.clone_from(&segments[1]);
        }
        let part = |n: usize| segments.get(n).cloned().unwrap_or_default();
        self.resource = part(0);
        self.name = part(1);
        self.subresource = part(2);
        self.rest = segments.get(3..).unwrap_or_default().join("/");
    }
}

fn verb_of(method: &Method, found: &ResourcePath, query: &Query, is_old_watch: bool) -> &'static str {
    let has_name = !found.name.is_empty();
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if has_name => "delete",
        Method::DELETE => "deletecollection",
        Method::GET | Method::HEAD if is_old_watch => "watch",
        Method::GET | Method::HEAD
            if has_name && !(found.subresource.is_empty() && query.is_true("watch")) =>
        {
            "get"
        }
        Method::GET | Method::HEAD if query.is_true("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        _ => "",
    }
}

fn single_name(query: &Query) -> Option<String> {
    let selector = meta::FieldSelector::parse(query.get("fieldSelector")).ok()?;
    selector.required_value("metadata.name").map(str::to_owned)
}

fn lower(method: &Method) -> &'static str {
    match *method {
        Method::GET | Method::HEAD => "get",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "",
    }
}

impl Query {
    /// Reads a raw query string. Broken escapes stay as they are.
    pub fn parse(raw: &str) -> Self {
        let pairs = raw.split('&').filter(|it| !it.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(&key.replace('+', " ")), percent_decode(&value.replace('+', " ")))
        });
        Self(pairs.collect())
    }

    /// The first value; empty if there is none.
    pub fn get(&self, key: &str) -> &str {
        self.0.iter().find(|(own, _)| own == key).map_or("", |(_, value)| value)
    }

    /// Whether the parameter stands there at all.
    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(own, _)| own == key)
    }

    /// All values.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == key).map(|(_, value)| value.as_str())
    }

    /// Whether it is set, as upstream reads a boolean: anything but `0` and `false` is true, an empty value too.
    pub fn is_true(&self, key: &str) -> bool {
        let value = self.get(key);
        self.has(key) && value != "0" && !value.eq_ignore_ascii_case("false")
    }
}

/// Decodes `%xx`. What is no UTF-8 afterwards is replaced, so that it matches nothing.
pub fn percent_decode(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        let hex = hex.filter(|it| it.bytes().all(|it| it.is_ascii_hexdigit()));
        match hex.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, query: &str, expect: &str) {
        let info = RequestInfo::resolve(&method.parse().unwrap(), path, &Query::parse(query));
        let shown = match &info.resource {
            None => info.verb.to_owned(),
            Some(it) => format!(
                "{} {}/{} ns={} {}/{}/{}",
                info.verb, it.group, it.version, it.namespace, it.resource, it.name, it.subresource
            ),
        };
        assert_eq!(shown, expect, "{method} {path}?{query}");
    }

    #[test]
    fn paths_are_read_as_upstream_reads_them() {
        check("GET", "/api/v1/pods", "", "list /v1 ns= pods//");
        check("GET", "/api/v1/pods", "watch=true", "watch /v1 ns= pods//");
        check("GET", "/api/v1/pods", "watch=false", "list /v1 ns= pods//");
        check("GET", "/api/v1/watch/pods", "", "watch /v1 ns= pods//");
        check("GET", "/api/v1/namespaces/a/pods/b", "", "get /v1 ns=a pods/b/");
        check("GET", "/api/v1/namespaces/a/pods/b/log", "follow=true", "get /v1 ns=a pods/b/log");
        check("GET", "/api/v1/namespaces", "", "list /v1 ns= namespaces//");
        check("GET", "/api/v1/namespaces/a", "", "get /v1 ns=a namespaces/a/");
        check("PUT", "/api/v1/namespaces/a/finalize", "", "update /v1 ns=a namespaces/a/finalize");
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "",
            "patch apps/v1 ns=a deployments/b/scale",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "",
            "deletecollection apps/v1 ns=a deployments//",
        );
        check("GET", "/api/v1/configmaps", "fieldSelector=metadata.name%3Dx", "list /v1 ns= configmaps/x/");
        check("GET", "/apis", "", "get");
        check("GET", "/apis/apps/v1", "", "get");
        check("GET", "/api/v1", "", "get");
        check("POST", "/healthz", "", "post");
    }

    #[test]
    fn escapes_are_decoded_and_broken_ones_stay() {
        assert_eq!(percent_decode("a%2Fb"), "a/b");
        assert_eq!(percent_decode("%zz%4%+1"), "%zz%4%+1");
        assert_eq!(percent_decode("%e4%bd%a0"), "你");
        assert_eq!(Query::parse("a=1+2&b&a=3").get("a"), "1 2");
        assert!(Query::parse("watch").is_true("watch"));
    }
}
