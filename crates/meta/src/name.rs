//! What names, label keys and label values may look like, with upstream's exact complaints.
//!
//! Every function returns the complaints, none if the text is acceptable.
//! Deliberately not here: which rule applies to which resource; see [`crate::validate`].

const DNS_LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const DNS_SUBDOMAIN_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS_1035_FORM: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const CONFIG_KEY_FORM: &str = "[-._a-zA-Z0-9]+";
const VALUE_FORM: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";

const KEY_WORDS: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                         an alphanumeric character";

/// A DNS label as in RFC 1123: `my-name`, at most 63 bytes.
pub fn dns_label(text: &str) -> Vec<String> {
    let mut complaints = too_long_in_characters(text, 63);
    if !is_label(text) {
        complaints.push(if is_subdomain(text) {
            "must not contain dots".to_owned()
        } else {
            let words = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                         and must start and end with an alphanumeric character";
            form(words, DNS_LABEL_FORM, &["my-name", "123-abc"])
        });
    }
    complaints
}

/// A DNS subdomain as in RFC 1123: `my.example.com`, at most 253 bytes.
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut complaints = too_long_in_characters(text, 253);
    complaints.extend(subdomain_form(text));
    complaints
}

/// A DNS label as in RFC 1035: as [`dns_label`], but it starts with a letter.
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut complaints = too_long_in_characters(text, 63);
    if !(is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())) {
        let words = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                     alphabetic character, and end with an alphanumeric character";
        complaints.push(form(words, DNS_1035_FORM, &["my-name", "abc-123"]));
    }
    complaints
}

/// A label key, annotation key or finalizer: `name` or `example.com/name`.
pub fn qualified(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.splitn(3, '/').collect();
    let mut complaints = Vec::new();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            complaints.extend(prefix_part(prefix));
            name
        }
        _ => {
            let words = format!("a valid label key {KEY_WORDS}");
            let form = form(&words, KEY_FORM, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "{form} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        complaints.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_key(name) {
        complaints.push(form(&format!("name part {KEY_WORDS}"), KEY_FORM, &["MyName", "my.name", "123-abc"]));
    }
    complaints
}

/// The value of a label: empty, or like the name of a label key.
pub fn label_value(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if text.len() > 63 {
        complaints.push("must be no more than 63 bytes".to_owned());
    }
    if !(text.is_empty() || is_key(text)) {
        let words = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                     '.', and must start and end with an alphanumeric character";
        complaints.push(form(words, VALUE_FORM, &["MyValue", "my_value", "12345"]));
    }
    complaints
}

/// A key of a config map or secret, which becomes the name of a file.
pub fn config_key(text: &str) -> Vec<String> {
    let mut complaints = too_long_in_characters(text, 253);
    let is_fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(is_fine) {
        let words = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        complaints.push(form(words, CONFIG_KEY_FORM, &["key.name", "KEY_NAME", "key-name"]));
    }
    match text {
        "." | ".." => complaints.push(format!("must not be '{text}'")),
        _ if text.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// Anything that can stand between two slashes of a path.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

/// The beginning of something that passes [`path_segment`].
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    ["/", "%"]
        .into_iter()
        .filter(|it| text.contains(it))
        .map(|it| format!("may not contain '{it}'"))
        .collect()
}

fn prefix_part(prefix: &str) -> Vec<String> {
    if prefix.is_empty() {
        return vec!["prefix part must be non-empty".to_owned()];
    }
    let mut complaints = Vec::new();
    if prefix.len() > 253 {
        complaints.push("prefix part must be no more than 253 bytes".to_owned());
    }
    complaints.extend(subdomain_form(prefix).map(|it| format!("prefix part {it}")));
    complaints
}

fn subdomain_form(text: &str) -> Option<String> {
    let words = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                 and must start and end with an alphanumeric character";
    (!is_subdomain(text)).then(|| form(words, DNS_SUBDOMAIN_FORM, &["example.com"]))
}

fn too_long_in_characters(text: &str, max: usize) -> Vec<String> {
    // Upstream counts bytes and says "characters" in these places.
    if text.len() > max { vec![format!("must be no more than {max} characters")] } else { Vec::new() }
}

fn form(words: &str, form: &str, examples: &[&str]) -> String {
    // The comma and the two spaces between examples are upstream's.
    let examples: Vec<String> = examples.iter().map(|it| format!("'{it}', ")).collect();
    format!("{words} (e.g. {}regex used for validation is '{form}')", examples.join(" or "))
}

fn is_label(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for text in ["a", "0", "a-b", "123-abc", &"x".repeat(63)] {
            assert_eq!(dns_label(text), Vec::<String>::new(), "{text}");
        }
        for text in ["a.b", "example.com", "0.0", &"x".repeat(253)] {
            assert_eq!(dns_subdomain(text), Vec::<String>::new(), "{text}");
        }
        for text in ["a", "A_b.c", "example.com/MyName", "a/b"] {
            assert_eq!(qualified(text), Vec::<String>::new(), "{text}");
        }
        for text in ["", "a", "1.0_x"] {
            assert_eq!(label_value(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(dns_1035_label("my-svc"), Vec::<String>::new());
        assert_eq!(path_segment("system:node"), Vec::<String>::new());
    }

    #[test]
    fn complaints_are_upstreams() {
        assert_eq!(
            dns_subdomain("UPPER"),
            [
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
              must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
        assert_eq!(dns_subdomain(&"x".repeat(254)), ["must be no more than 253 characters"]);
        assert_eq!(dns_label("bad.ns"), ["must not contain dots"]);
        assert_eq!(
            qualified(""),
            [
                "name part must be non-empty",
                "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
              alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
              '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ]
        );
        assert_eq!(
            label_value("-bad"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
              must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
              used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
        assert!(dns_1035_label("1a")[0].starts_with("a DNS-1035 label must"));
        assert!(qualified("a/b/c")[0].ends_with("(e.g. 'example.com/MyName')"));
        assert_eq!(qualified("/x"), ["prefix part must be non-empty"]);
    }

    #[test]
    fn hyphens_and_dots_stand_only_inside() {
        for text in ["-a", "a-", "", "a..b", ".a", "a.", "ä", "a\n"] {
            assert!(!dns_subdomain(text).is_empty(), "{text:?}");
        }
    }
}
