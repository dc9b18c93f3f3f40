//! Front-proxy authentication: who a request is for, in headers that a trusted proxy has set.
//!
//! Deliberately not here: whether the proxy is trusted. The caller asks that first, of its certificate
//! ([`crate::certificate::check_allowed_name`]), and removes the headers afterwards.

use crate::User;

/// Which headers are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestHeaderConfig {
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
    /// Common names that the proxy's certificate may have; empty means any.
    pub allowed_names: Vec<String>,
}

impl RequestHeaderConfig {
    /// The headers that Kubernetes' own components use.
    pub fn standard() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            username_headers: one("x-remote-user"),
            uid_headers: one("x-remote-uid"),
            group_headers: one("x-remote-group"),
            extra_prefixes: one("x-remote-extra-"),
            allowed_names: Vec::new(),
        }
    }

    /// Whether the header is one that must not be passed on.
    pub fn is_identity(&self, header: &str) -> bool {
        let is = |name: &String| name.eq_ignore_ascii_case(header);
        self.username_headers.iter().any(is)
            || self.uid_headers.iter().any(is)
            || self.group_headers.iter().any(is)
            || self.extra_prefixes.iter().any(|it| strip_prefix(header, it).is_some())
    }
}

/// The user that the headers name; `None` if they name nobody. Header names are compared without case.
pub fn user_from_headers<'a>(
    config: &RequestHeaderConfig,
    headers: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Option<User> {
    let first = |names: &[String]| {
        let found = names.iter().find_map(|name| {
            headers
                .clone()
                .find(|(header, value)| header.eq_ignore_ascii_case(name) && !value.trim().is_empty())
        });
        found.map(|(_, value)| value.trim().to_owned())
    };
    let name = first(&config.username_headers)?;
    let mut user = User { name, uid: first(&config.uid_headers).unwrap_or_default(), ..User::default() };
    for name in &config.group_headers {
        let values =
            headers.clone().filter(|(header, value)| header.eq_ignore_ascii_case(name) && !value.is_empty());
        user.groups.extend(values.map(|(_, value)| value.to_owned()));
    }
    for (header, value) in headers {
        for prefix in &config.extra_prefixes {
            if let Some(key) = strip_prefix(header, prefix) {
                let key = unescape_extra_key(&key.to_ascii_lowercase());
                user.extra.entry(key).or_default().push(value.to_owned());
            }
        }
    }
    user.add_authenticated_group();
    Some(user)
}

/// The headers that name this user to a server that reads them with the same `config`; `None` if headers cannot say it
/// so that exactly this user is read back.
pub fn headers_of_user(config: &RequestHeaderConfig, user: &User) -> Option<Vec<(String, String)>> {
    let first = |names: &[String], usual: &str| {
        names.first().map_or_else(|| usual.to_owned(), |it| it.to_ascii_lowercase())
    };
    let mut headers = vec![(first(&config.username_headers, "x-remote-user"), user.name.clone())];
    if !user.uid.is_empty() {
        headers.push((first(&config.uid_headers, "x-remote-uid"), user.uid.clone()));
    }
    let group = first(&config.group_headers, "x-remote-group");
    headers.extend(user.groups.iter().map(|it| (group.clone(), it.clone())));
    let is_whole = |(_, value): &(String, String)| {
        !value.is_empty() && value.trim() == value && !value.chars().any(char::is_control)
    };
    if !headers.iter().all(is_whole) {
        return None;
    }
    let prefix = first(&config.extra_prefixes, "x-remote-extra-");
    for (key, values) in &user.extra {
        for value in values {
            if value.trim() != value || value.chars().any(char::is_control) {
                return None;
            }
            headers.push((format!("{prefix}{}", escape_extra_key(key)), value.clone()));
        }
    }
    Some(headers)
}

/// The part of a header's name behind a prefix, compared without case.
pub(crate) fn strip_prefix<'a>(header: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = header.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Percent-encoding of everything that a header's name cannot hold, or would not keep: upper case, too.
fn escape_extra_key(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        if matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.') {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02x}");
        }
    }
    escaped
}

/// Percent-decoding of an extra key; a key that cannot be decoded stays as it is.
pub(crate) fn unescape_extra_key(key: &str) -> String {
    let mut bytes = Vec::with_capacity(key.len());
    let mut rest = key.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, after @ ..] = rest else { return key.to_owned() };
        let digit = |it: u8| char::from(it).to_digit(16).and_then(|it| u8::try_from(it).ok());
        let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return key.to_owned() };
        bytes.push(high * 16 + low);
        rest = after;
    }
    String::from_utf8(bytes).unwrap_or_else(|_| key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&str, &str)]) -> Option<User> {
        user_from_headers(&RequestHeaderConfig::standard(), headers.iter().copied())
    }

    #[test]
    fn headers_name_a_user() {
        let user = read(&[
            ("X-Remote-User", " bob "),
            ("x-remote-group", "dev"),
            ("X-Remote-Group", "ops"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Extra-Acme.com%2fproject", "one"),
            ("X-Remote-Extra-acme.com%2Fproject", "two"),
        ])
        .unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "7"));
        assert_eq!(user.groups, ["dev", "ops", "system:authenticated"]);
        assert_eq!(user.extra["acme.com/project"], ["one", "two"]);
    }

    #[test]
    fn without_a_name_there_is_nobody() {
        assert_eq!(read(&[("x-remote-group", "system:masters"), ("x-remote-user", " ")]), None);
    }

    #[test]
    fn identity_headers_are_recognised() {
        let config = RequestHeaderConfig::standard();
        for header in ["X-Remote-User", "x-remote-uid", "X-Remote-Extra-foo", "x-remote-group"] {
            assert!(config.is_identity(header), "{header}");
        }
        assert!(!config.is_identity("accept"));
        assert!(!config.is_identity("x-rémote"));
    }

    #[test]
    fn a_user_is_read_back_as_it_was_named() {
        let mut user = User::named("Bob Ü");
        user.uid = "1-2".to_owned();
        user.groups = vec!["a b".to_owned(), "system:authenticated".to_owned()];
        user.extra = [
            ("Key/With Space%".to_owned(), vec!["one".to_owned(), "two".to_owned()]),
            ("empty".to_owned(), vec![String::new()]),
        ]
        .into();
        let config = RequestHeaderConfig::standard();
        let headers = headers_of_user(&config, &user).unwrap();
        let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        assert_eq!(user_from_headers(&config, headers), Some(user));
    }

    #[test]
    fn a_user_that_would_be_read_as_another_is_not_named() {
        let config = RequestHeaderConfig::standard();
        for name in ["", " admin", "admin\t", "admin\n"] {
            assert_eq!(headers_of_user(&config, &User::named(name)), None, "{name:?}");
        }
    }

    #[test]
    fn extra_keys_are_decoded() {
        for (key, want) in [("a%2fb", "a/b"), ("a%", "a%"), ("a%zz", "a%zz"), ("%ff", "%ff"), ("", "")] {
            assert_eq!(unescape_extra_key(key), want);
        }
    }
}
