//! Label selectors: `app=web,tier in (a,b),!canary,weight>3`. Start at [`LabelSelector::parse`].
//!
//! Deliberately not here: the `matchLabels`/`matchExpressions` form inside objects.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use super::{SelectorError, check_length};
use crate::{FieldError, name};

/// Requirements on labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector {
    requirements: Vec<LabelRequirement>,
}

/// One requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// What is required of it.
    pub operator: LabelOperator,
    /// Sorted, each once: any number for `in` and `notin`, none for (not) existing, one otherwise.
    pub values: Vec<String>,
}

/// What is required of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// `=`
    Equals,
    /// `==`
    DoubleEquals,
    /// `!=`
    NotEquals,
    /// `in (…)`
    In,
    /// `notin (…)`
    NotIn,
    /// the bare key
    Exists,
    /// `!` and the key
    DoesNotExist,
    /// `>`
    GreaterThan,
    /// `<`
    LessThan,
}

impl LabelSelector {
    /// Reads the text of a `labelSelector` parameter. Empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        check_length(text)?;
        let mut requirements = parse::requirements(text).map_err(SelectorError::Malformed)?;
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self { requirements })
    }

    /// Whether nothing is required.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// What is required, sorted by key.
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.requirements
    }

    /// Whether all requirements hold for these labels.
    pub fn matches<'a>(&self, labels: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|it| it.matches(labels(&it.key)))
    }
}

impl LabelRequirement {
    /// Checks key and values as upstream does.
    fn checked(key: String, operator: LabelOperator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = Vec::new();
        let complaints = name::qualified(&key);
        if !complaints.is_empty() {
            errors.push(FieldError::invalid("key", &key, complaints.join("; ")));
        }
        let is_number = matches!(operator, LabelOperator::GreaterThan | LabelOperator::LessThan);
        for (index, value) in values.iter().enumerate().filter(|_| is_number) {
            if value.parse::<i64>().is_err() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{index}]"), value, detail));
            }
        }
        for (index, value) in values.iter().enumerate() {
            let complaints = name::label_value(value);
            if !complaints.is_empty() {
                let field = format!("values[{index}][{key}]");
                errors.push(FieldError::invalid(field, value, complaints.join("; ")));
            }
        }
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        match texts.as_slice() {
            [] => Ok(Self { key, operator, values }),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    /// Whether it holds for the value that the label has, if it has one.
    pub fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = |value: &str| self.values.binary_search_by(|it| it.as_str().cmp(value)).is_ok();
        match self.operator {
            LabelOperator::Equals | LabelOperator::DoubleEquals | LabelOperator::In => {
                value.is_some_and(is_listed)
            }
            LabelOperator::NotEquals | LabelOperator::NotIn => !value.is_some_and(is_listed),
            LabelOperator::Exists => value.is_some(),
            LabelOperator::DoesNotExist => value.is_none(),
            LabelOperator::GreaterThan => self.compares(value, |label, bound| label > bound),
            LabelOperator::LessThan => self.compares(value, |label, bound| label < bound),
        }
    }

    fn compares(&self, value: Option<&str>, holds: fn(i64, i64) -> bool) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = self.values.first().and_then(|it| number(it));
        match (value.and_then(number), bound) {
            (Some(label), Some(bound)) => holds(label, bound),
            _ => false,
        }
    }
}

impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, it) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{it}")?;
        }
        Ok(())
    }
}

impl fmt::Display for LabelRequirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, operator, values } = self;
        let values = values.join(",");
        match operator {
            LabelOperator::Equals => write!(f, "{key}={values}"),
            LabelOperator::DoubleEquals => write!(f, "{key}=={values}"),
            LabelOperator::NotEquals => write!(f, "{key}!={values}"),
            LabelOperator::In => write!(f, "{key} in ({values})"),
            LabelOperator::NotIn => write!(f, "{key} notin ({values})"),
            LabelOperator::Exists => f.write_str(key),
            LabelOperator::DoesNotExist => write!(f, "!{key}"),
            LabelOperator::GreaterThan => write!(f, "{key}>{values}"),
            LabelOperator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}
