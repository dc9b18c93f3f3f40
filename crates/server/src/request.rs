//! What a request is about, read from its method, path and query. Every layer below reads this, none reads the path.
//!
//! Deliberately not here: whether the resource exists, and who asks.

use http::Method;
use meta::{FieldSelector, LabelSelector, Status};

/// Parameters that say what is asked for. They are read here, once, and then taken out of the query.
const READ_HERE: [&str; 3] = ["watch", "fieldSelector", "labelSelector"];

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// What is to be done: an API verb for resources, the lower-case method otherwise.
    pub verb: &'static str,
    /// The path, decoded, without the query; several slashes in a row are one.
    pub path: String,
    /// The resource, if the path names one.
    pub resource: Option<ResourcePath>,
    /// Something was missing between two slashes. It is authorized and recorded like the path without the gap, and then
    /// it is nobody's, as upstream.
    pub is_gapped: bool,
    /// Which objects of a collection are meant, or why that cannot be read.
    selection: Result<Selection, String>,
}

/// A path of the form `/apis/GROUP/VERSION/[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE]]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    /// The namespace that the request is authorized in. For a namespace that is itself.
    pub namespace: String,
    /// Whether the path leads through that namespace to what is in it.
    pub is_in_namespace: bool,
    pub resource: String,
    /// The object: the path names it, or a selector that allows no other.
    pub name: String,
    /// Whether it is the path that names it.
    pub is_named: bool,
    pub subresource: String,
    /// What follows behind the subresource, as in `pods/x/proxy/some/path`.
    pub rest: String,
}

/// Which objects of a collection are meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub labels: LabelSelector,
    /// If an object is named, these allow no other.
    pub fields: FieldSelector,
}

/// The query string, decoded. Keeps the order; bounded by the header limit.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl RequestInfo {
    /// Reads a request line.
    pub fn resolve(method: &Method, path: &str, query: &Query) -> Self {
        let decoded = percent_decode(path);
        let segments: Vec<&str> = decoded.split('/').filter(|it| !it.is_empty()).collect();
        let plain = Self {
            verb: lower(method),
            path: one_slash_each(&decoded),
            resource: None,
            is_gapped: decoded.trim_matches('/').contains("//"),
            selection: Ok(Selection::default()),
        };
        let (group, version, mut rest) = match segments.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return plain,
        };
        let mut prefix = None;
        if let [first @ ("watch" | "proxy"), behind @ ..] = rest
            && !behind.is_empty()
        {
            (prefix, rest) = (Some(*first), behind);
        }
        let mut found = ResourcePath::read(group, version, rest);
        let verb = match prefix {
            Some("watch") => "watch",
            Some(_) => "proxy",
            None => verb_of(method, found.is_named, query),
        };
        if matches!(verb, "list" | "watch") && prefix.is_none() {
            // A rule that names an object also covers a list of just that object.
            found.name = single_name(query).unwrap_or_default();
        }
        let selection = match verb {
            "list" | "watch" => Selection::of(query, &found.name),
            "deletecollection" => Selection::of(query, ""),
            _ => Ok(Selection::default()),
        };
        Self { verb, resource: Some(found), selection, ..plain }
    }

    /// Whether the answer may go on for a long time, so that no time-out and no in-flight limit applies.
    pub fn is_long_running(&self) -> bool {
        self.verb == "watch"
    }

    /// Which objects of a collection are meant, or 400.
    pub fn selection(&self) -> Result<&Selection, Status> {
        self.selection.as_ref().map_err(Status::bad_request)
    }
}

impl Selection {
    /// What the query selects. The object that is named is always part of it.
    fn of(query: &Query, name: &str) -> Result<Self, String> {
        let labels = LabelSelector::parse(query.get("labelSelector")).map_err(|it| it.to_string())?;
        let mut fields = FieldSelector::parse(query.get("fieldSelector")).map_err(|it| it.to_string())?;
        if !name.is_empty() {
            if fields.is_everything() {
                fields = FieldSelector::equals("metadata.name", name);
            } else if fields.required_value("metadata.name") != Some(name) {
                return Err("fieldSelector metadata.name doesn't match requested name".to_owned());
            }
        }
        Ok(Self { labels, fields })
    }
}

impl ResourcePath {
    fn read(group: &str, version: &str, segments: &[&str]) -> Self {
        let mut found =
            Self { group: group.to_owned(), version: version.to_owned(), ..ResourcePath::default() };
        let mut segments = segments;
        if let ["namespaces", namespace, behind @ ..] = segments {
            // The namespace itself is authorized as something in that namespace.
            found.namespace = (*namespace).to_owned();
            if !matches!(behind, [] | ["status" | "finalize", ..]) {
                found.is_in_namespace = true;
                segments = behind;
            }
        }
        let part = |n: usize| segments.get(n).copied().unwrap_or_default().to_owned();
        found.resource = part(0);
        found.name = part(1);
        found.is_named = !found.name.is_empty();
        found.subresource = part(2);
        found.rest = segments.get(3..).unwrap_or_default().join("/");
        found
    }

    /// The namespace in which objects are looked for; empty for none, or for all.
    pub fn home(&self) -> &str {
        if self.is_in_namespace { &self.namespace } else { "" }
    }
}

fn verb_of(method: &Method, is_named: bool, query: &Query) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if is_named => "delete",
        Method::DELETE => "deletecollection",
        // Of one object: whatever the query says, as upstream.
        Method::GET | Method::HEAD if is_named => "get",
        Method::GET | Method::HEAD if query.is_true("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        _ => "",
    }
}

/// The one object that a selector allows, if a path could name it.
fn single_name(query: &Query) -> Option<String> {
    let selector = FieldSelector::parse(query.get("fieldSelector")).ok()?;
    let name = selector.required_value("metadata.name")?;
    (!matches!(name, "." | "..") && !name.contains(['/', '%'])).then(|| name.to_owned())
}

fn one_slash_each(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for it in path.chars() {
        if it != '/' || !out.ends_with('/') {
            out.push(it);
        }
    }
    out
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

    /// The query without what [`RequestInfo`] has read from it, so that nobody behind it reads that in another way.
    #[must_use]
    pub fn without_what_is_asked_for(mut self) -> Self {
        self.0.retain(|(key, _)| !READ_HERE.contains(&key.as_str()));
        self
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
        check("GET", "/api/v1/namespaces/a/secrets/b", "watch=true", "get /v1 ns=a secrets/b/");
        check("GET", "/api/v1/watch/namespaces/a/secrets/b", "", "watch /v1 ns=a secrets/b/");
        check("POST", "/api/v1/watch/namespaces/a/secrets", "", "watch /v1 ns=a secrets//");
        check("GET", "/api/v1/proxy/nodes/a", "", "proxy /v1 ns= nodes/a/");
        check("GET", "/api/v1/watch/secrets", "fieldSelector=metadata.name%3Dx", "watch /v1 ns= secrets//");
        check(
            "DELETE",
            "/api/v1/namespaces/a/secrets",
            "fieldSelector=metadata.name%3Dx",
            "deletecollection /v1 ns=a secrets//",
        );
        check("GET", "/api/v1/secrets", "fieldSelector=metadata.name%3Da%252Fb", "list /v1 ns= secrets//");
        check("GET", "/api/v1/namespaces/a%2Fsecrets", "", "list /v1 ns=a secrets//");
        check("GET", "//api/v1//namespaces/a///secrets/", "", "list /v1 ns=a secrets//");
    }

    /// A namespace is authorized in itself and is in none; what is in a namespace is nowhere else.
    #[test]
    fn only_what_the_path_leads_through_is_looked_into() {
        let home = |path: &str| {
            let info = RequestInfo::resolve(&Method::GET, path, &Query::default());
            info.resource.unwrap().home().to_owned()
        };
        assert_eq!(home("/api/v1/namespaces/a"), "");
        assert_eq!(home("/api/v1/namespaces/a/status"), "");
        assert_eq!(home("/api/v1/namespaces/a/namespaces/a"), "a");
        assert_eq!(home("/api/v1/namespaces/a/namespaces"), "a");
        assert_eq!(home("/api/v1/namespaces/a/secrets/b"), "a");
        assert_eq!(home("/api/v1/secrets"), "");
    }

    #[test]
    fn a_name_is_always_part_of_the_selection() {
        let selected = |path: &str, query: &str| {
            let info = RequestInfo::resolve(&Method::GET, path, &Query::parse(query));
            info.selection().map(|it| it.fields.to_string()).map_err(|it| it.message)
        };
        let one = "/api/v1/watch/namespaces/a/secrets/b";
        assert_eq!(selected(one, ""), Ok("metadata.name=b".to_owned()));
        assert_eq!(
            selected(one, "fieldSelector=metadata.name%3Db,type%3DOpaque"),
            Ok("metadata.name=b,type=Opaque".to_owned())
        );
        for other in ["type%3DOpaque", "metadata.name!%3Db", "metadata.name%3Dc"] {
            let why = selected(one, &format!("fieldSelector={other}")).unwrap_err();
            assert_eq!(why, "fieldSelector metadata.name doesn't match requested name");
        }
        let all = "/api/v1/namespaces/a/secrets";
        assert_eq!(selected(all, "watch=1&fieldSelector=type%3DOpaque"), Ok("type=Opaque".to_owned()));
    }

    #[test]
    fn several_slashes_are_one() {
        let info = RequestInfo::resolve(&Method::GET, "//metrics//%2F", &Query::default());
        assert_eq!((info.path.as_str(), info.is_gapped), ("/metrics/", false));
        let info = RequestInfo::resolve(&Method::GET, "/healthz//etcd", &Query::default());
        assert_eq!((info.path.as_str(), info.is_gapped), ("/healthz/etcd", true));
        let query = Query::parse("watch=1&fieldSelector=a%3Db&limit=2").without_what_is_asked_for();
        assert!(!query.has("watch") && !query.has("fieldSelector") && query.has("limit"));
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
