//! The text of a path.

use super::{Filter, Operand, Operator, Slice, Step};
use crate::Value;

/// Longer paths, and deeper filters, are refused.
const MAX_TEXT: usize = 4096;
const MAX_DEPTH: usize = 8;

/// Why a text is no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// It is too long, or has filters inside filters.
    #[error("the path is too long or too deep")]
    TooLarge,
    /// Something stands where it cannot.
    #[error("unexpected {0:?}")]
    Unexpected(String),
}

pub(super) fn parse(text: &str) -> Result<Vec<Step>, PathError> {
    if text.len() > MAX_TEXT {
        return Err(PathError::TooLarge);
    }
    let mut parser = Parser { rest: text.strip_prefix('$').unwrap_or(text), depth: 0 };
    let steps = parser.steps()?;
    if parser.rest.is_empty() { Ok(steps) } else { Err(parser.unexpected()) }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    /// Steps, up to something that begins none.
    fn steps(&mut self) -> Result<Vec<Step>, PathError> {
        let mut steps = Vec::new();
        loop {
            if self.eat("..") {
                steps.push(Step::Descent);
                if !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat(".") {
                if self.rest.is_empty() {
                    return Ok(steps);
                }
                if !self.rest.starts_with('[') {
                    steps.push(self.name()?);
                }
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                return Ok(steps);
            }
        }
    }

    fn name(&mut self) -> Result<Step, PathError> {
        if self.eat("*") {
            return Ok(Step::Wildcard);
        }
        let mut name = String::new();
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' | ']' | ')' | '(' | '=' | '!' | '<' | '>' | ',' => {
                    end = at;
                    break;
                }
                c if c.is_whitespace() => {
                    end = at;
                    break;
                }
                c => name.push(c),
            }
        }
        if name.is_empty() {
            return Err(self.unexpected());
        }
        self.rest = &self.rest[end..];
        Ok(Step::Field(name.into()))
    }

    /// What stands in brackets, behind the first.
    fn bracket(&mut self) -> Result<Step, PathError> {
        self.blank();
        if self.eat("?(") {
            let filter = self.filter()?;
            return if self.eat(")") && self.eat("]") { Ok(filter) } else { Err(self.unexpected()) };
        }
        let mut parts = vec![self.part()?];
        loop {
            self.blank();
            if self.eat("]") {
                break;
            }
            if !self.eat(",") {
                return Err(self.unexpected());
            }
            self.blank();
            parts.push(self.part()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Step::Union(parts) })
    }

    fn part(&mut self) -> Result<Step, PathError> {
        if self.eat("*") {
            return Ok(Step::Wildcard);
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.quoted().map(|it| Step::Field(it.into()));
        }
        let start = self.number()?;
        if !self.eat(":") {
            let at = start.ok_or_else(|| self.unexpected())?;
            // The element itself: for the last one there is no end behind it.
            let end = if at == -1 { None } else { Some(at + 1) };
            return Ok(Step::Slice(Slice { start: Some(at), end, step: None }));
        }
        let end = self.number()?;
        let step = if self.eat(":") { self.number()? } else { None };
        Ok(Step::Slice(Slice { start, end, step }))
    }

    fn number(&mut self) -> Result<Option<i64>, PathError> {
        let is_part = |c: char| c.is_ascii_digit() || c == '-';
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Ok(None);
        }
        let number = self.rest[..end].parse::<i32>().map_err(|_| self.unexpected())?;
        self.rest = &self.rest[end..];
        Ok(Some(i64::from(number)))
    }

    fn filter(&mut self) -> Result<Step, PathError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(PathError::TooLarge);
        }
        self.blank();
        let left = self.operand()?;
        self.blank();
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let operator = operators.into_iter().find(|(text, _)| self.eat(text)).map(|(_, it)| it);
        let filter = match operator {
            None => Filter { left, operator: Operator::Exists, right: None },
            Some(operator) => {
                self.blank();
                let right = self.operand()?;
                self.blank();
                Filter { left, operator, right: Some(right) }
            }
        };
        self.depth -= 1;
        Ok(Step::Filter(filter))
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        if self.eat("@") {
            return self.steps().map(Operand::Path);
        }
        if self.rest.starts_with(['\'', '"']) {
            return self.quoted().map(|it| Operand::Literal(Value::from(it)));
        }
        for (word, value) in
            [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)]
        {
            if self.eat(word) {
                return Ok(Operand::Literal(value));
            }
        }
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let end = self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len());
        let number: f64 = self.rest[..end].parse().map_err(|_| self.unexpected())?;
        self.rest = &self.rest[end..];
        Ok(Operand::Literal(Value::from(number)))
    }

    fn quoted(&mut self) -> Result<String, PathError> {
        let mut chars = self.rest.char_indices();
        let Some((_, quote)) = chars.next() else { return Err(self.unexpected()) };
        let mut text = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.extend(chars.next().map(|(_, c)| c)),
                c if c == quote => {
                    self.rest = &self.rest[at + c.len_utf8()..];
                    return Ok(text);
                }
                c => text.push(c),
            }
        }
        Err(self.unexpected())
    }

    fn eat(&mut self, text: &str) -> bool {
        match self.rest.strip_prefix(text) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn blank(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn unexpected(&self) -> PathError {
        PathError::Unexpected(self.rest.chars().take(20).collect())
    }
}
