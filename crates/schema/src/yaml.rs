//! YAML text to trees, as clients send configurations, and back.
//!
//! JSON is YAML, and most bodies are JSON: those are read as such. What is left is read with a budget for aliases,
//! anchors, nodes and depth, and then made what the JSON reader would have made of it, so that numbers are the same.
//! Start at [`parse`] and [`to_text`].

mod write;

pub use write::to_text;

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::{
    Map, Value,
    json::{self, Limits},
};

/// Values of a document, after aliases are followed.
const MAX_NODES: usize = 250_000;

/// Aliases in a document. Manifests that people write have few.
const MAX_ALIASES: usize = 1_000;

/// Objects and lists inside each other. The reader recurses, and 128 levels overflow the stack of a thread in debug builds.
const MAX_DEPTH: usize = 48;

/// The first document of a text; upstream does not look at those that follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its tree. Of keys that are there twice the last one counts.
    pub value: Value,
    /// The complaint of a strict reader about the first key that is there twice.
    pub duplicate: Option<String>,
}

/// What YAML reads the first document as, with its complaint if it cannot.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, String> {
    read(text, limits).map(|it| it.value)
}

/// The same, and whether a key is there twice.
pub fn read(text: &[u8], limits: Limits) -> Result<Document, String> {
    let start = text.iter().find(|it| !it.is_ascii_whitespace());
    if start == Some(&b'{')
        && let Ok(report) = json::parse_report(text, limits)
        && report.duplicates.is_empty()
    {
        return Ok(Document { value: report.value, duplicate: None });
    }
    if text.len() > limits.max_bytes {
        return Err(format!("limit is {}", limits.max_bytes));
    }
    let text = str::from_utf8(text).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let text = first_document(text);
    let error = match read_tree(text, limits, DuplicateKeyPolicy::Error) {
        Ok(value) => return Ok(Document { value: as_json(&value, limits)?, duplicate: None }),
        Err(error) => error,
    };
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return Err(complaint(&error));
    };
    let value = read_tree(text, limits, DuplicateKeyPolicy::LastWins).map_err(|it| complaint(&it))?;
    let (line, key) = (location.line(), crate::go_text::quote(key.as_deref().unwrap_or_default()));
    let duplicate = format!("yaml: unmarshal errors:\n  line {line}: key {key} already set in map");
    Ok(Document { value: as_json(&value, limits)?, duplicate: Some(duplicate) })
}

fn read_tree(
    text: &str,
    limits: Limits,
    duplicates: DuplicateKeyPolicy,
) -> Result<Value, serde_saphyr::Error> {
    let budget = serde_saphyr::budget! {
        max_depth: limits.max_depth.min(MAX_DEPTH),
        max_nodes: MAX_NODES,
        max_aliases: MAX_ALIASES,
        max_documents: 1,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        duplicate_keys: duplicates,
        legacy_octal_numbers: true,
    };
    serde_saphyr::from_str_with_options(text, options).map(|Tree(value)| value)
}

fn as_json(value: &Value, limits: Limits) -> Result<Value, String> {
    json::parse(&json::to_vec(value), limits).map_err(|it| it.to_string())
}

/// Up to the line that ends the first document. Such a line ends it wherever it stands, in a block of text too.
fn first_document(text: &str) -> &str {
    let is_marker = |line: &str, mark: &str| {
        line.strip_prefix(mark).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
    };
    let (mut at, mut has_begun) = (0, false);
    for whole in text.split_inclusive('\n') {
        let line = whole.trim_end_matches(['\n', '\r']);
        let is_start = is_marker(line, "---");
        if has_begun && (is_start || is_marker(line, "...")) {
            return &text[..at];
        }
        let is_content = !line.trim_start().is_empty() && !line.starts_with(['#', '%']);
        has_begun |= is_start || is_content;
        at += whole.len();
    }
    text
}

/// `error: line 1 column 4: why` in the form of upstream's reader.
fn complaint(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    match line.split_once(" column ").zip(line.split_once(": ")) {
        Some(((place, _), (_, why))) if place.starts_with("line ") => format!("yaml: {place}: {why}"),
        _ => format!("yaml: {line}"),
    }
}

/// A tree whose keys are texts, whatever they were in YAML: `1`, `true` and `1.5` become what JSON would call them.
struct Tree(Value);

struct TreeVisitor;

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Self)
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        let number = serde_json::Number::from_f64(value);
        number.map(Value::Number).ok_or_else(|| E::custom("unsupported value: not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            out.push(item);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some((Tree(key), Tree(value))) = entries.next_entry()? {
            out.insert(key_text(key)?, value);
        }
        Ok(Value::Object(out))
    }
}

fn key_text<E: de::Error>(key: Value) -> Result<String, E> {
    match key {
        Value::String(text) => Ok(text),
        Value::Bool(_) | Value::Number(_) => Ok(key.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(E::custom("invalid map key")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read_value(text: &str) -> Result<Value, String> {
        parse(text.as_bytes(), Limits::REQUEST)
    }

    #[test]
    fn manifests_are_read() {
        let text = "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: \"1\"\n  t: |\n    x\n    y\n";
        let expect = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1", "t": "x\ny\n"}
        });
        assert_eq!(read_value(text).unwrap(), expect);
        assert_eq!(
            read_value("{\"a\": 1.0, \"b\": [1e3, true, null]}").unwrap(),
            json!({"a": 1, "b": [1000, true, null]})
        );
        assert_eq!(
            read_value("a: 1.5\nb: 0644\nc: ~\nd: 2.0\n").unwrap(),
            json!({"a": 1.5, "b": 420, "c": null, "d": 2})
        );
    }

    #[test]
    fn scalars_are_read_as_upstream_reads_them() {
        let check = |text: &str, expect: Value| assert_eq!(read_value(text).unwrap(), expect, "{text}");
        check("[yes, No, on, OFF, y, n, true]", json!([true, false, true, false, true, false, true]));
        check("[0644, 0x1F, 1_000, +5, -7]", json!([420, 31, 1000, 5, -7]));
        check("[2020-01-01, 2020-01-01T00:00:00Z]", json!(["2020-01-01", "2020-01-01T00:00:00Z"]));
        check("[~, null, '~', \"\"]", json!([null, null, "~", ""]));
        check("[9223372036854775807, -9223372036854775808]", json!([i64::MAX, i64::MIN]));
        check(
            "{1: a, yes: b, n: c, 1.5: d, 0x10: e, '2': f}",
            json!({"1": "a", "true": "b", "false": "c", "1.5": "d", "16": "e", "2": "f"}),
        );
        check("a: &x {b: 1}\nc: {<<: *x, d: 2}", json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}}));
        check("a: !!binary aGk=", json!({"a": "hi"}));
        assert!(read_value("{? [a] : b}").is_err());
        assert!(read_value("a: .nan").is_err());
    }

    #[test]
    fn only_the_first_document_is_read() {
        let check = |text: &str, expect: Value| assert_eq!(read_value(text).unwrap(), expect, "{text}");
        check("a: 1\n---\nb: 2\n", json!({"a": 1}));
        check("# first\n---\na: 1\n---\n: [\n", json!({"a": 1}));
        check("%YAML 1.1\n---\na: 1\n...\nb: 2\n", json!({"a": 1}));
        check("---\n---\na: 1\n", json!(null));
        check("a: |\n  x\n--- \nb: 2\n", json!({"a": "x\n"}));
        check("a: ---x\n", json!({"a": "---x"}));
        check("", json!(null));
    }

    #[test]
    fn a_key_that_is_there_twice_is_told() {
        let duplicate = |text: &str| read(text.as_bytes(), Limits::REQUEST).unwrap();
        let document = duplicate("a: 1\nb:\n  c: 1\n  c: 2\n");
        assert_eq!(document.value, json!({"a": 1, "b": {"c": 2}}));
        let told = "yaml: unmarshal errors:\n  line 4: key \"c\" already set in map";
        assert_eq!(document.duplicate.as_deref(), Some(told));
        assert_eq!(duplicate("{\"a\": 1, \"a\": 2}").value, json!({"a": 2}));
        assert!(duplicate("{\"a\": 1, \"a\": 2}").duplicate.is_some());
        assert_eq!(duplicate("a: {b: 1}\nc: {b: 1}").duplicate, None);
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", ")));
        }
        assert!(read_value(&bomb).is_err());
        assert!(read_value(&"[".repeat(100_000)).is_err());
        assert!(read_value(&"- ".repeat(5_000)).is_err());
        assert!(read_value("a: [").is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn json_is_yaml(value in json::any_value()) {
            let text = json::to_vec(&value);
            let as_json = json::parse(&text, Limits::REQUEST).unwrap();
            if value.is_object() {
                prop_assert_eq!(parse(&text, Limits::REQUEST).unwrap(), as_json);
            }
        }

        #[test]
        fn hostile_text_never_panics(text in "[-:#&*!|>{}\\[\\],a-c \n\"'0-9]{0,60}") {
            let _ = read_value(&text);
        }
    }
}
