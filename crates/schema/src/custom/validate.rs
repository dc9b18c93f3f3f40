//! What a schema has against an object, in upstream's words and order.
//!
//! On an update only what changed can be wrong: a value that is equal to the one it replaces is not looked at, so that
//! objects stay usable when a schema gets stricter. Elements of a list are compared where keys tell them apart.
//! Deliberately not here: duplicates in lists (`lists`), metadata, and CEL.

use meta::{FieldError, field::FieldProblem};

use super::{
    format::Format,
    lists,
    node::{Additional, Bound, Kind, Node, Pattern, Rules},
};
use crate::{Map, Value, go_text, json, model::ListKind};

/// At most this many complaints: an answer to garbage must not outgrow the garbage.
const MAX_ERRORS: usize = 200;

/// Steps that all patterns may take on all texts of an object together: the states of a pattern times the bytes of the text
/// that it is held against. Matching does some hundred million a second at worst.
const PATTERN_BUDGET: u64 = 100_000_000;

/// Everything that the schema has against a value. `base` is where the value stands; empty for a whole object.
pub fn validate(node: &Node, value: &Value, base: &str) -> Vec<FieldError> {
    run(node, value, None, base)
}

/// Everything that the schema has against what changed.
pub fn validate_changed(node: &Node, new: &Value, old: &Value, base: &str) -> Vec<FieldError> {
    run(node, new, Some(old), base)
}

fn run(node: &Node, value: &Value, old: Option<&Value>, base: &str) -> Vec<FieldError> {
    let mut result = Outcome::default();
    let mut validator = Validator::new(base, String::new());
    validator.node(node, value, old, &mut result);
    if validator.is_exhausted && result.errors.is_empty() {
        // Where a schema says what must *not* be, a text that was not looked at seems to be fine.
        let detail = format!("matching patterns exceeds the budget of {PATTERN_BUDGET} steps");
        validator.push(FieldProblem::Invalid, None, detail, &mut result);
    }
    result.errors
}

/// What one part of a schema found, and how much of it fitted: of several alternatives the one that fits best is told.
#[derive(Default)]
struct Outcome {
    errors: Vec<FieldError>,
    n_checked: u64,
}

struct Validator<'a> {
    base: &'a str,
    path: String,
    /// Steps that patterns may still take, and whether that was too little for one of them.
    pattern_budget: u64,
    is_exhausted: bool,
}

impl<'a> Validator<'a> {
    fn new(base: &'a str, path: String) -> Self {
        Self { base, path, pattern_budget: PATTERN_BUDGET, is_exhausted: false }
    }

    fn node(&mut self, node: &Node, value: &Value, old: Option<&Value>, out: &mut Outcome) {
        out.n_checked += 1;
        if out.errors.len() >= MAX_ERRORS || old == Some(value) {
            return;
        }
        let rules = node.rules.as_deref();
        self.kind(node, rules.and_then(|it| it.format), value, out);
        if value.is_null() {
            if let Some(rules) = rules {
                self.values(rules, value, out);
            }
            return;
        }
        if let Some(rules) = rules {
            self.alternatives(rules, value, old, out);
            match value {
                Value::String(text) => self.text(rules, text, out),
                Value::Number(number) => self.number(node, rules, number, out),
                Value::Array(items) => self.length(rules, items.len(), out),
                _ => {}
            }
        }
        if let Value::Array(items) = value {
            self.items(node, items, old, out);
        }
        if let Some(rules) = rules {
            self.values(rules, value, out);
        }
        if let Value::Object(map) = value {
            self.object(node, map, old, out);
        }
    }

    /// The type of the value. Texts with a format are judged by that alone.
    fn kind(&self, node: &Node, format: Option<Format>, value: &Value, out: &mut Outcome) {
        let wanted = if node.is_int_or_string { "integer,string" } else { node.kind.name() };
        if wanted.is_empty() {
            return;
        }
        if value.is_null() {
            if !node.is_nullable {
                self.wrong_type(wanted, "null", "null", out);
            }
            return;
        }
        let (is, is_format) = type_of(value);
        let is_number = matches!(node.kind, Kind::Number | Kind::Integer);
        let fits = match (node.kind, is) {
            _ if node.is_int_or_string => matches!(is, "integer" | "string"),
            (Kind::Number, "integer") => true,
            (kind, is) => kind.name() == is,
        };
        match (format, value) {
            (Some(_), Value::String(_) | Value::Array(_)) if !is_number => {}
            (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) if !fits => {
                self.wrong_type(format.name(), is_format, is_format, out);
            }
            _ if !fits => self.wrong_type(wanted, is, is, out),
            _ => {}
        }
    }

    fn wrong_type(&self, wanted: &str, is: &str, shown: &str, out: &mut Outcome) {
        let detail = format!("{} in body must be of type {wanted}: {}", self.path, go_text::quote(is));
        self.push(FieldProblem::TypeInvalid, Some(go_text::quote(shown)), detail, out);
    }

    fn text(&mut self, rules: &Rules, text: &str, out: &mut Outcome) {
        let length = text.chars().count() as u64;
        if let Some(max) = rules.max_length.filter(|it| length > *it) {
            let detail = format!("may not be more than {max} bytes");
            self.push(FieldProblem::TooLong, None, detail, out);
        }
        let shown = || Some(meta::field::quote(text));
        if let Some(min) = rules.min_length.filter(|it| length < *it) {
            let detail = format!("{} in body should be at least {min} chars long", self.path);
            self.push(FieldProblem::Invalid, shown(), detail, out);
        }
        if let Some(pattern) = &rules.pattern {
            self.pattern(pattern, text, out);
        }
        if let Some(format) = rules.format.filter(|it| !it.fits(text)) {
            let shown_text = meta::field::quote(text);
            let detail = format!("{} in body must be of type {}: {shown_text}", self.path, format.name());
            self.push(FieldProblem::TypeInvalid, shown(), detail, out);
        }
    }

    /// A text that its pattern has no budget for is refused unseen: otherwise a definition and a long text would keep a
    /// processor busy for as long as their author likes.
    fn pattern(&mut self, pattern: &Pattern, text: &str, out: &mut Outcome) {
        let steps = pattern.weight.saturating_mul(text.len() as u64);
        let shown = Some(meta::field::quote(text));
        match self.pattern_budget.checked_sub(steps) {
            None => {
                self.is_exhausted = true;
                let detail = format!(
                    "{} in body is too long for the pattern '{}': matching exceeds the budget of {PATTERN_BUDGET} steps",
                    self.path, pattern.text
                );
                self.push(FieldProblem::Invalid, shown, detail, out);
            }
            Some(left) => {
                self.pattern_budget = left;
                if !pattern.matches(text) {
                    let detail = format!("{} in body should match '{}'", self.path, pattern.text);
                    self.push(FieldProblem::Invalid, shown, detail, out);
                }
            }
        }
    }

    fn number(&self, node: &Node, rules: &Rules, number: &serde_json::Number, out: &mut Outcome) {
        let Some(value) = number.as_f64() else { return };
        let shown = || Some(shown(&Value::Number(number.clone())));
        if node.kind == Kind::Integer
            && rules.format == Some(Format::Int32)
            && number.as_i64().is_none_or(|it| i32::try_from(it).is_err())
        {
            let path = &self.path;
            let detail = format!("Checked value must be of type integer with format int32 in {path}");
            self.push_unplaced(detail, out);
        }
        if let Some(factor) = rules.multiple_of.filter(|it| *it > 0.0)
            && !is_multiple(value, factor)
        {
            let detail = format!("{} in body should be a multiple of {}", self.path, go_float(factor));
            self.push(FieldProblem::Invalid, shown(), detail, out);
        }
        if let Some(Bound { at, is_exclusive }) = rules.maximum
            && (value > at || (is_exclusive && value >= at))
        {
            let words = if is_exclusive { "less than" } else { "less than or equal to" };
            let detail = format!("{} in body should be {words} {}", self.path, go_float(at));
            self.push(FieldProblem::Invalid, shown(), detail, out);
        }
        if let Some(Bound { at, is_exclusive }) = rules.minimum
            && (value < at || (is_exclusive && value <= at))
        {
            let words = if is_exclusive { "greater than" } else { "greater than or equal to" };
            let detail = format!("{} in body should be {words} {}", self.path, go_float(at));
            self.push(FieldProblem::Invalid, shown(), detail, out);
        }
    }

    fn length(&self, rules: &Rules, n_items: usize, out: &mut Outcome) {
        let n_items = n_items as u64;
        if let Some(min) = rules.min_items.filter(|it| n_items < *it) {
            let detail = format!("{} in body should have at least {min} items", self.path);
            self.push(FieldProblem::Invalid, Some(n_items.to_string()), detail, out);
        }
        if let Some(max) = rules.max_items.filter(|it| n_items > *it) {
            self.too_many(n_items, max, out);
        }
    }

    fn too_many(&self, n_items: u64, max: u64, out: &mut Outcome) {
        let detail = format!("must have at most {max} items");
        self.push(FieldProblem::TooMany, Some(n_items.to_string()), detail, out);
    }

    fn items(&mut self, node: &Node, items: &[Value], old: Option<&Value>, out: &mut Outcome) {
        let Some(inner) = node.items.as_deref() else { return };
        let olds: &[Value] = old.and_then(Value::as_array).map_or(&[], Vec::as_slice);
        for (index, item) in items.iter().enumerate() {
            let old = correlate(node, olds, item);
            self.inside(&format!("[{index}]"), inner, item, old, out);
        }
    }

    fn values(&self, rules: &Rules, value: &Value, out: &mut Outcome) {
        if rules.values.is_empty() || rules.values.iter().any(|it| is_same(it, value)) {
            return;
        }
        let names: Vec<String> = rules
            .values
            .iter()
            .map(|it| match it {
                Value::String(text) => meta::field::quote(text),
                other => meta::field::quote(&String::from_utf8_lossy(&json::to_vec(other))),
            })
            .collect();
        let detail = format!("supported values: {}", names.join(", "));
        self.push(FieldProblem::NotSupported, Some(shown(value)), detail, out);
    }

    fn object(&mut self, node: &Node, map: &Map, old: Option<&Value>, out: &mut Outcome) {
        let n_fields = map.len() as u64;
        if let Some(rules) = node.rules.as_deref() {
            if let Some(min) = rules.min_properties.filter(|it| n_fields < *it) {
                let detail = format!("{} in body should have at least {min} properties", self.path);
                self.push(FieldProblem::Invalid, Some(n_fields.to_string()), detail, out);
            }
            if let Some(max) = rules.max_properties.filter(|it| n_fields > *it) {
                self.too_many(n_fields, max, out);
            }
        }
        for (name, value) in map {
            let child = match (node.property(name), &node.additional) {
                (Some(property), _) => property,
                (None, Some(Additional::Of(inner))) => &**inner,
                (None, Some(Additional::Nothing)) => {
                    let detail = format!("{}.{name} in body is a forbidden property", self.path);
                    self.push(FieldProblem::Invalid, Some(meta::field::quote(name)), detail, out);
                    continue;
                }
                (None, Some(Additional::Anything) | None) => continue,
            };
            let old = old.and_then(|it| it.get(name));
            let step = if self.path.is_empty() { name.clone() } else { format!(".{name}") };
            self.inside(&step, child, value, old, out);
        }
        for name in node.rules.iter().flat_map(|it| &it.required) {
            if !map.contains_key(&**name) {
                let step = if self.path.is_empty() { name.to_string() } else { format!(".{name}") };
                let mut validator = Validator::new(self.base, self.path.clone());
                validator.path.push_str(&step);
                validator.push(FieldProblem::Required, None, String::new(), out);
            }
        }
    }

    fn inside(&mut self, step: &str, node: &Node, value: &Value, old: Option<&Value>, out: &mut Outcome) {
        let end = self.path.len();
        self.path.push_str(step);
        self.node(node, value, old, out);
        self.path.truncate(end);
    }

    fn alternatives(&mut self, rules: &Rules, value: &Value, old: Option<&Value>, out: &mut Outcome) {
        let path = go_text::quote(&self.path);
        if !rules.any_of.is_empty() {
            let (n_valid, best) = self.best(&rules.any_of, value, old);
            if n_valid == 0 {
                self.push_unplaced(format!("{path} must validate at least one schema (anyOf)"), out);
                out.errors.extend(best);
            }
        }
        if !rules.one_of.is_empty() {
            let (n_valid, best) = self.best(&rules.one_of, value, old);
            if n_valid != 1 {
                let found = match n_valid {
                    0 => "Found none valid".to_owned(),
                    _ => format!("Found {n_valid} valid alternatives"),
                };
                let detail = format!("{path} must validate one and only one schema (oneOf). {found}");
                self.push_unplaced(detail, out);
                if n_valid == 0 {
                    out.errors.extend(best);
                }
            }
        }
        let mut n_valid = 0;
        for part in &rules.all_of {
            let mut one = Outcome::default();
            self.node(part, value, old, &mut one);
            n_valid += usize::from(one.errors.is_empty());
            out.n_checked += one.n_checked;
            out.errors.extend(one.errors);
        }
        if n_valid < rules.all_of.len() {
            let none = if n_valid == 0 { ". None validated" } else { "" };
            self.push_unplaced(format!("{path} must validate all the schemas (allOf){none}"), out);
        }
        if let Some(not) = &rules.not {
            let mut one = Outcome::default();
            self.node(not, value, None, &mut one);
            if one.errors.is_empty() {
                self.push_unplaced(format!("{path} must not validate the schema (not)"), out);
            }
        }
    }

    /// How many of the alternatives the value fits, and what the one has against it that it fits best.
    fn best(&mut self, parts: &[Node], value: &Value, old: Option<&Value>) -> (usize, Vec<FieldError>) {
        let mut best: Option<Outcome> = None;
        let mut n_valid = 0;
        for part in parts {
            let mut one = Outcome::default();
            self.node(part, value, old, &mut one);
            if one.errors.is_empty() {
                n_valid += 1;
            } else if best.as_ref().is_none_or(|it| one.n_checked > it.n_checked) {
                best = Some(one);
            }
        }
        (n_valid, best.map(|it| it.errors).unwrap_or_default())
    }

    fn push(&self, problem: FieldProblem, shown: Option<String>, detail: String, out: &mut Outcome) {
        let field = match (self.base, self.path.as_str()) {
            ("", "") => "<nil>".to_owned(),
            ("", path) => path.to_owned(),
            (base, "") => base.to_owned(),
            (base, path) => format!("{base}.{path}"),
        };
        if out.errors.len() < MAX_ERRORS {
            out.errors.push(FieldError { field, problem, shown, detail });
        }
    }

    /// What upstream does not say a place for.
    fn push_unplaced(&self, detail: String, out: &mut Outcome) {
        let field = if self.base.is_empty() { "<nil>" } else { self.base };
        if out.errors.len() < MAX_ERRORS {
            let shown = Some("\"\"".to_owned());
            out.errors.push(FieldError {
                field: field.to_owned(),
                problem: FieldProblem::Invalid,
                shown,
                detail,
            });
        }
    }
}

/// The element that this one replaces, where that can be told.
fn correlate<'a>(node: &Node, olds: &'a [Value], item: &Value) -> Option<&'a Value> {
    let kind = node.list.as_deref().filter(|it| matches!(it, ListKind::Map(_)))?;
    let identity = lists::identity(node, kind, item)?;
    olds.iter().find(|it| lists::identity(node, kind, it).as_ref() == Some(&identity))
}

/// The type of a value, and the format of numbers, as Go's validator names them.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", "null"),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() || number.is_u64() => ("integer", "int64"),
        Value::Number(_) => ("number", "double"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (a, b) => a == b,
    }
}

#[expect(clippy::float_cmp, reason = "a quotient is whole or it is not")]
fn is_multiple(value: f64, factor: f64) -> bool {
    let quotient = value / factor;
    quotient == quotient.trunc()
}

/// A value as messages show it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => meta::field::quote(text),
        Value::Number(number) if number.is_f64() => go_float(number.as_f64().unwrap_or_default()),
        other => String::from_utf8_lossy(&json::to_vec(other)).into_owned(),
    }
}

/// A number as Go's `%v` prints it: `9`, `0.5`, `2.147483647e+09`.
fn go_float(number: f64) -> String {
    let exponent = if number == 0.0 { 0.0 } else { number.abs().log10().floor() };
    if (-4.0..21.0).contains(&exponent) && (exponent < 6.0 || number.to_string().len() <= 6) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    let Some((digits, power)) = text.split_once('e') else { return text };
    let (sign, power) = match power.strip_prefix('-') {
        Some(power) => ('-', power),
        None => ('+', power),
    };
    format!("{digits}e{sign}{power:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_go_prints_them() {
        let check = |number: f64, text: &str| assert_eq!(go_float(number), text);
        check(9.0, "9");
        check(0.5, "0.5");
        check(65535.0, "65535");
        check(100_000.0, "100000");
        check(1_000_000.0, "1e+06");
        check(2_147_483_647.0, "2.147483647e+09");
        check(-3.25, "-3.25");
        check(0.0, "0");
        check(0.00001, "1e-05");
    }
}
