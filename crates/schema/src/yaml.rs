//! YAML text to trees, as clients send configurations, and back.
//!
//! JSON is YAML, and most bodies are JSON: those are read as such. What is left is read with a budget for aliases,
//! anchors, nodes and depth, and then made what the JSON reader would have made of it, so that numbers are the same.
//! Start at [`parse`] and [`to_text`].

mod write;

pub use write::to_text;

use crate::{
    Value,
    json::{self, Limits},
};

/// Values of a document, after aliases are followed.
const MAX_NODES: usize = 250_000;

/// Aliases in a document. Manifests that people write have few.
const MAX_ALIASES: usize = 1_000;

/// Objects and lists inside each other. The reader recurses, and 128 levels overflow the stack of a thread in debug builds.
const MAX_DEPTH: usize = 48;

/// What YAML reads one document as, with its complaint if it cannot.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, String> {
    let start = text.iter().find(|it| !it.is_ascii_whitespace());
    if start == Some(&b'{')
        && let Ok(value) = json::parse(text, limits)
    {
        return Ok(value);
    }
    if text.len() > limits.max_bytes {
        return Err(format!("limit is {}", limits.max_bytes));
    }
    let text = str::from_utf8(text).map_err(|_| "yaml: invalid UTF-8".to_owned())?;
    let budget = serde_saphyr::budget! {
        max_depth: limits.max_depth.min(MAX_DEPTH),
        max_nodes: MAX_NODES,
        max_aliases: MAX_ALIASES,
        max_documents: 1,
    };
    let options = serde_saphyr::options! {
        budget: budget,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
    };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|it| format!("yaml: {}", first_line(&it.to_string())))?;
    json::parse(&json::to_vec(&value), limits).map_err(|it| it.to_string())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        parse(text.as_bytes(), Limits::REQUEST)
    }

    #[test]
    fn manifests_are_read() {
        let text = "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  n: \"1\"\n  t: |\n    x\n    y\n";
        let expect = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"n": "1", "t": "x\ny\n"}
        });
        assert_eq!(read(text).unwrap(), expect);
        assert_eq!(
            read("{\"a\": 1.0, \"b\": [1e3, true, null]}").unwrap(),
            json!({"a": 1, "b": [1000, true, null]})
        );
        assert_eq!(
            read("a: 1.5\nb: 0644\nc: ~\nd: 2.0\n").unwrap(),
            json!({"a": 1.5, "b": 420, "c": null, "d": 2})
        );
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{}", level - 1);
            bomb.push_str(&format!("a{level}: &a{level} [{}]\n", vec![below; 10].join(", ")));
        }
        assert!(read(&bomb).is_err());
        assert!(read(&"[".repeat(100_000)).is_err());
        assert!(read(&"- ".repeat(5_000)).is_err());
        assert!(read("a: [").is_err());
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
            let _ = read(&text);
        }
    }
}
