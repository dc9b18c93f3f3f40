//! Trees as YAML for people: blocks, keys in order, quotes only where a reader could take the text for something else.

use crate::{Map, Value};

/// Words that some reader of YAML takes for a truth value or for nothing.
const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];

/// The text of one document.
pub fn to_text(value: &Value) -> String {
    let mut out = String::with_capacity(1024);
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut out, map, 0),
        Value::Array(elements) if !elements.is_empty() => write_list(&mut out, elements, 0),
        other => {
            write_single(&mut out, other, 0);
            out.push('\n');
        }
    }
    out
}

/// The first line continues where the output is; all others are indented.
fn write_map(out: &mut String, map: &Map, indent: usize) {
    for (at, (key, value)) in map.iter().enumerate() {
        if at > 0 {
            pad(out, indent);
        }
        write_text(out, key, None);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                pad(out, indent + 2);
                write_map(out, inner, indent + 2);
            }
            // As kubectl has it: lists are not indented.
            Value::Array(elements) if !elements.is_empty() => {
                out.push('\n');
                pad(out, indent);
                write_list(out, elements, indent);
            }
            single => {
                out.push(' ');
                write_single(out, single, indent);
                out.push('\n');
            }
        }
    }
}

fn write_list(out: &mut String, elements: &[Value], indent: usize) {
    for (at, element) in elements.iter().enumerate() {
        if at > 0 {
            pad(out, indent);
        }
        out.push_str("- ");
        match element {
            Value::Object(inner) if !inner.is_empty() => write_map(out, inner, indent + 2),
            Value::Array(inner) if !inner.is_empty() => write_list(out, inner, indent + 2),
            single => {
                write_single(out, single, indent);
                out.push('\n');
            }
        }
    }
}

fn write_single(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::String(text) => write_text(out, text, Some(indent + 2)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

/// Plain, as a block at an indent where one is given, or quoted.
fn write_text(out: &mut String, text: &str, block: Option<usize>) {
    if is_plain(text) {
        out.push_str(text);
    } else if let Some(indent) = block
        && is_block(text)
    {
        out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
        for line in text.trim_end_matches('\n').split('\n') {
            out.push('\n');
            if !line.is_empty() {
                pad(out, indent);
                out.push_str(line);
            }
        }
    } else {
        // What JSON quotes, YAML understands, but for a few characters that it takes for line ends.
        let quoted = Value::from(text).to_string();
        for char in quoted.chars() {
            match char {
                '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                    out.push_str(&format!("\\u{:04x}", u32::from(char)));
                }
                char => out.push(char),
            }
        }
    }
}

/// Whether no reader takes the text for anything else.
fn is_plain(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = chars.next().is_some_and(|it| it.is_ascii_alphabetic() || it == '/' || it == '_');
    let is_tame = |it: char| it.is_ascii_alphanumeric() || "-_./+,@()= ".contains(it);
    let is_word = || WORDS.contains(&text.to_ascii_lowercase().as_str());
    begins && text.len() < 1000 && chars.all(is_tame) && !text.ends_with(' ') && !is_word()
}

/// Whether the text can stand as lines of its own.
fn is_block(text: &str) -> bool {
    let n_ends = text.len() - text.trim_end_matches('\n').len();
    let is_shown = |it: char| it == '\n' || (' '..='~').contains(&it) || ('\u{a0}'..'\u{2028}').contains(&it);
    text.contains('\n')
        && n_ends <= 1
        && !text.starts_with([' ', '\n'])
        && text.chars().all(is_shown)
        && text.len() > n_ends
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        json::{self, Limits},
        yaml,
    };

    #[test]
    fn objects_look_as_people_write_them() {
        let object = json!({
            "apiVersion": "v1", "empty": {}, "kind": "Pod", "list": [1, "a", [], [[2]], {"a": "b", "c": {"d": null}}],
            "number": "1", "script": "#!/bin/sh\n\necho hi\n", "url": "http://a:80", "yes": "no", "z": "two\nlines",
        });
        let expected = "apiVersion: v1\nempty: {}\nkind: Pod\nlist:\n- 1\n- a\n- []\n- - - 2\n- a: b\n  c:\n    d: null\n\
                        number: \"1\"\nscript: |\n  #!/bin/sh\n\n  echo hi\nurl: \"http://a:80\"\n\"yes\": \"no\"\nz: |-\n  \
                        two\n  lines\n";
        assert_eq!(to_text(&object), expected);
        assert_eq!(to_text(&json!({})), "{}\n");
    }

    #[test]
    fn odd_text_survives() {
        for text in [
            "",
            " ",
            "a ",
            " a",
            "\n",
            "a\n\n",
            "\na",
            " a\nb",
            "a\n b\n",
            "a\tb",
            "a\r\nb",
            "- a",
            "a: b",
            "a #b",
            "0x1",
            "1e3",
            "2026-11-15",
            "~",
            "Null",
            "=",
            "<<",
            "a\u{85}b",
            "a\n\u{2028}b",
            "\u{feff}",
            "é\nü",
            "---",
            "...",
            "a\n---\nb",
            "%",
            "@a",
            "`",
            "'",
            "\"",
            "\\",
            "a\u{0}b",
            "12:30:45",
            "0o17",
            ".5",
            "/",
            "_",
            "a,b",
            "?",
        ] {
            let value = json!({"k": text, "l": [text, [text]], "m": {"n": text}});
            let read = yaml::parse(to_text(&value).as_bytes(), Limits::REQUEST);
            assert_eq!(read, Ok(value), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_written_is_read_again(value in json::any_value()) {
            let value = json!({"value": value});
            let expected = json::parse(&json::to_vec(&value), Limits::REQUEST).unwrap();
            prop_assert_eq!(yaml::parse(to_text(&expected).as_bytes(), Limits::REQUEST), Ok(expected));
        }
    }
}
