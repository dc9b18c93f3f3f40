//! JSONPath as printer columns use it: fields, indices, slices, wildcards, descent, unions and filters.
//!
//! Parsed once, evaluated with a budget: a path that visits too much of an object finds nothing more.
//! Deliberately not here: the templates around it (`{range}`), which definitions cannot use.

mod parse;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

pub use parse::PathError;

use crate::Value;

/// How many values one evaluation looks at.
const MAX_VISITS: usize = 10_000;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// `.name`, `['name']`
    Field(Box<str>),
    /// `[1]`, `[-1]`, `[1:3]`, `[::2]`
    Slice(Slice),
    /// `.*`, `[*]`
    Wildcard,
    /// `..`
    Descent,
    /// `[?(@.type=="Ready")]`
    Filter(Filter),
    /// `['a','b']`, `[0,2]`
    Union(Vec<Step>),
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Slice {
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    operator: Operator,
    right: Option<Operand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

impl JsonPath {
    /// Reads a path such as `.spec.size` or `.status.conditions[?(@.type=="Ready")].status`.
    pub fn parse(text: &str) -> Result<Self, PathError> {
        parse::parse(text).map(Self)
    }

    /// The values that the path leads to, in order.
    pub fn find<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut budget = MAX_VISITS;
        walk(&self.0, vec![value], &mut budget)
    }

    /// The names, if the path is nothing but names.
    pub fn fields(&self) -> Option<Vec<&str>> {
        self.0
            .iter()
            .map(|it| match it {
                Step::Field(name) => Some(&**name),
                _ => None,
            })
            .collect()
    }
}

fn walk<'a>(steps: &[Step], mut values: Vec<&'a Value>, budget: &mut usize) -> Vec<&'a Value> {
    for step in steps {
        let mut found = Vec::new();
        for value in values {
            take(step, value, &mut found, budget);
        }
        values = found;
    }
    values
}

fn take<'a>(step: &Step, value: &'a Value, found: &mut Vec<&'a Value>, budget: &mut usize) {
    let Some(left) = budget.checked_sub(1) else { return };
    *budget = left;
    match (step, value) {
        (Step::Field(name), Value::Object(map)) => found.extend(map.get(&**name)),
        (Step::Slice(slice), Value::Array(items)) => {
            let chosen: Vec<&Value> = slice.of(items);
            *budget = budget.saturating_sub(chosen.len());
            found.extend(chosen);
        }
        (Step::Wildcard, Value::Array(items)) => {
            *budget = budget.saturating_sub(items.len());
            found.extend(items);
        }
        (Step::Wildcard, Value::Object(map)) => {
            *budget = budget.saturating_sub(map.len());
            found.extend(map.values());
        }
        (Step::Descent, value) => descend(value, found, budget),
        (Step::Filter(filter), Value::Array(items)) => {
            for item in items {
                if filter.holds(item, budget) {
                    found.push(item);
                }
            }
        }
        (Step::Union(steps), value) => steps.iter().for_each(|it| take(it, value, found, budget)),
        _ => {}
    }
}

fn descend<'a>(value: &'a Value, found: &mut Vec<&'a Value>, budget: &mut usize) {
    let Some(left) = budget.checked_sub(1) else { return };
    *budget = left;
    found.push(value);
    match value {
        Value::Object(map) => map.values().for_each(|it| descend(it, found, budget)),
        Value::Array(items) => items.iter().for_each(|it| descend(it, found, budget)),
        _ => {}
    }
}

impl Slice {
    fn of<'a>(&self, items: &'a [Value]) -> Vec<&'a Value> {
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let place = |at: i64| if at < 0 { at + length } else { at };
        let start = self.start.map_or(0, place);
        let end = self.end.map_or(length, place).min(length);
        let step = self.step.unwrap_or(1);
        if step <= 0 || start < 0 {
            return Vec::new();
        }
        let (Ok(start), Ok(end), Ok(step)) =
            (usize::try_from(start), usize::try_from(end), usize::try_from(step))
        else {
            return Vec::new();
        };
        (start..end).step_by(step).filter_map(|at| items.get(at)).collect()
    }
}

impl Filter {
    fn holds(&self, item: &Value, budget: &mut usize) -> bool {
        let left = self.left.values(item, budget);
        let Some(right) = &self.right else { return !left.is_empty() };
        let right = right.values(item, budget);
        let (Some(left), Some(right)) = (left.first(), right.first()) else { return false };
        let order = compare(left, right);
        match self.operator {
            Operator::Exists => true,
            Operator::Equal => order == Some(Ordering::Equal),
            Operator::NotEqual => order != Some(Ordering::Equal),
            Operator::Less => order == Some(Ordering::Less),
            Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Operator::Greater => order == Some(Ordering::Greater),
            Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

impl Operand {
    fn values<'a>(&'a self, item: &'a Value, budget: &mut usize) -> Vec<&'a Value> {
        match self {
            Self::Path(steps) => walk(steps, vec![item], budget),
            Self::Literal(value) => vec![value],
        }
    }
}

fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Null, Value::Null) => Some(Ordering::Equal),
        _ => None,
    }
}
