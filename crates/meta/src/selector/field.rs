//! Field selectors: `metadata.name=a,status.phase!=Running`, with `\` before `,`, `=` and `\` in values.

use std::fmt;

use super::{SelectorError, check_length};

/// Requirements on fields, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

/// One requirement: a field equals a value, or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    /// The field, such as `metadata.name`.
    pub field: String,
    /// Whether the field must equal the value.
    pub operator: FieldOperator,
    /// The value, without escapes.
    pub value: String,
}

/// How field and value relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldOperator {
    /// `=` or `==`
    Equals,
    /// `!=`
    NotEquals,
}

impl FieldSelector {
    /// Reads `a=b,c!=d`. Empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut terms = split_terms(text);
        terms.sort_unstable();
        let mut requirements = Vec::new();
        for term in terms.into_iter().filter(|it| !it.is_empty()) {
            let (field, operator, value) = split_term(term).ok_or_else(|| {
                SelectorError::Malformed(format!("invalid selector: '{text}'; can't understand '{term}'"))
            })?;
            requirements.push(FieldRequirement {
                field: field.to_owned(),
                operator,
                value: unescape(value)?,
            });
        }
        Ok(Self { requirements })
    }

    /// The selector that requires one field to have one value.
    pub fn equals(field: &str, value: &str) -> Self {
        let operator = FieldOperator::Equals;
        Self {
            requirements: vec![FieldRequirement {
                field: field.to_owned(),
                operator,
                value: value.to_owned(),
            }],
        }
    }

    /// Whether nothing is required.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What is required, in the order of the text of the terms.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that the field must have, if the selector says so.
    pub fn required_value(&self, field: &str) -> Option<&str> {
        self.requirements
            .iter()
            .find(|it| it.field == field && it.operator == FieldOperator::Equals)
            .map(|it| it.value.as_str())
    }

    /// Whether all requirements hold. A field that is not there counts as empty.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|it| {
            let is_equal = get(&it.field).unwrap_or("") == it.value;
            is_equal == (it.operator == FieldOperator::Equals)
        })
    }
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, it) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if it.operator == FieldOperator::Equals { "=" } else { "!=" };
            write!(f, "{comma}{}{operator}{}", it.field, escape(&it.value))?;
        }
        Ok(())
    }
}

/// A value as it stands in a selector.
pub fn escape(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        if matches!(c, '\\' | ',' | '=') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// Splits at commas that no backslash protects.
fn split_terms(text: &str) -> Vec<&str> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// Splits at the first operator.
fn split_term(term: &str) -> Option<(&str, FieldOperator, &str)> {
    let at = term.char_indices().map(|(at, _)| at).find(|at| {
        let rest = &term[*at..];
        rest.starts_with('=') || rest.starts_with("!=")
    })?;
    let (field, rest) = term.split_at(at);
    let (operator, value) = if let Some(value) = rest.strip_prefix("!=") {
        (FieldOperator::NotEquals, value)
    } else {
        (FieldOperator::Equals, rest.strip_prefix("==").unwrap_or(&rest[1..]))
    };
    Some((field, operator, value))
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let bad_escape = |sequence: String| {
        SelectorError::Malformed(format!("invalid field selector: invalid escape sequence: {sequence}"))
    };
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(next @ ('\\' | ',' | '=')) => out.push(next),
                Some(next) => return Err(bad_escape(format!("\\{next}"))),
                None => return Err(bad_escape("\\".to_owned())),
            },
            // Upstream prints the character's number.
            ',' | '=' => {
                return Err(SelectorError::Malformed(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get<'a>(fields: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<&'a str> {
        move |field| fields.iter().find(|(it, _)| *it == field).map(|(_, value)| *value)
    }

    #[test]
    fn equal_and_unequal_fields_are_told_apart() {
        let fields = [("metadata.name", "a"), ("phase", "Running")];
        for (text, expect) in [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a", true),
            ("metadata.name=b", false),
            ("metadata.name!=b,phase=Running", true),
            ("metadata.name=a,,phase!=Running", false),
            ("absent=", true),
            ("absent!=", false),
            ("absent!=x", true),
        ] {
            let selector = FieldSelector::parse(text).unwrap();
            assert_eq!(selector.matches(get(&fields)), expect, "{text}");
        }
    }

    #[test]
    fn escapes_are_read_and_written() {
        let selector = FieldSelector::parse(r"a=x\,y\=z\\,b!=1").unwrap();
        assert_eq!(selector.required_value("a"), Some(r"x,y=z\"));
        assert_eq!(selector.to_string(), r"a=x\,y\=z\\,b!=1");
    }

    #[test]
    fn complaints_are_upstreams() {
        for (text, expect) in [
            ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            ("a=b=c", "invalid field selector: unescaped character in value: 61"),
            (r"a=\x", r"invalid field selector: invalid escape sequence: \x"),
            (r"a=\", r"invalid field selector: invalid escape sequence: \"),
        ] {
            assert_eq!(FieldSelector::parse(text).unwrap_err().to_string(), expect, "{text}");
        }
        assert!(matches!(FieldSelector::parse(&"a".repeat(70_000)), Err(SelectorError::TooLong(70_000))));
    }

    #[test]
    fn a_required_value_needs_equality() {
        let selector = FieldSelector::parse("spec.nodeName!=x,metadata.name=a").unwrap();
        assert_eq!(selector.required_value("metadata.name"), Some("a"));
        assert_eq!(selector.required_value("spec.nodeName"), None);
        assert_eq!(selector.requirements().len(), 2);
        assert_eq!(FieldSelector::equals("metadata.name", "a").to_string(), "metadata.name=a");
    }
}
