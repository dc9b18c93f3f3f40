//! The grammar of label selectors, with upstream's complaints. What a requirement means is in the parent module.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = [ "!" ] KEY | KEY ( "in" | "notin" ) set | KEY ( "=" | "==" | "!=" | ">" | "<" ) [ VALUE ]
//! set         = "(" [ VALUE ] { "," [ VALUE ] } ")"
//! ```

use std::collections::BTreeSet;

use super::{LabelOperator, LabelRequirement};
use crate::{FieldError, name};

/// All requirements in the order of the text.
pub(super) fn requirements(text: &str) -> Result<Vec<LabelRequirement>, String> {
    let mut parser = Parser { tokens: Lexer { text, at: 0 }.tokens(), at: 0 };
    let mut requirements = Vec::new();
    loop {
        let (kind, literal) = parser.peek();
        match kind {
            Kind::Identifier | Kind::Not => {
                let requirement = parser.requirement();
                requirements.push(requirement.map_err(|it| format!("unable to parse requirement: {it}"))?);
            }
            Kind::End => return Ok(requirements),
            _ => return Err(format!("found '{literal}', expected: !, identifier, or 'end of string'")),
        }
        match parser.next() {
            (Kind::End, _) => return Ok(requirements),
            (Kind::Comma, _) => {
                let (kind, literal) = parser.peek();
                if !matches!(kind, Kind::Identifier | Kind::Not) {
                    return Err(format!("found '{literal}', expected: identifier after ','"));
                }
            }
            (_, literal) => return Err(format!("found '{literal}', expected: ',' or 'end of string'")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Error,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    Open,
}

struct Parser<'a> {
    /// Ends with [`Kind::End`].
    tokens: Vec<(Kind, &'a str)>,
    at: usize,
}

impl<'a> Parser<'a> {
    /// The next token, with the words `in` and `notin` as identifiers.
    fn peek(&self) -> (Kind, &'a str) {
        match self.peek_operator() {
            (Kind::In | Kind::NotIn, literal) => (Kind::Identifier, literal),
            token => token,
        }
    }

    fn peek_operator(&self) -> (Kind, &'a str) {
        self.tokens.get(self.at).copied().unwrap_or((Kind::End, ""))
    }

    fn next(&mut self) -> (Kind, &'a str) {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<LabelRequirement, String> {
        let (key, is_negated) = self.key()?;
        if is_negated {
            return LabelRequirement::checked(key, LabelOperator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return LabelRequirement::checked(key, LabelOperator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let values = match operator {
            LabelOperator::In | LabelOperator::NotIn => self.set()?,
            _ => BTreeSet::from([self.exact_value()?]),
        };
        LabelRequirement::checked(key, operator, values.into_iter().map(str::to_owned).collect())
    }

    fn key(&mut self) -> Result<(String, bool), String> {
        let (mut kind, mut literal) = self.next();
        let is_negated = kind == Kind::Not;
        if is_negated {
            (kind, literal) = self.next();
        }
        if kind != Kind::Identifier {
            return Err(format!("found '{literal}', expected: identifier"));
        }
        let complaints = name::qualified(literal);
        if !complaints.is_empty() {
            // Upstream has no path here and prints the missing one.
            return Err(FieldError::invalid("<nil>", literal, complaints.join("; ")).to_string());
        }
        Ok((literal.to_owned(), is_negated))
    }

    fn operator(&mut self) -> Result<LabelOperator, String> {
        let (kind, literal) = self.peek_operator();
        self.at += 1;
        Ok(match kind {
            Kind::In => LabelOperator::In,
            Kind::NotIn => LabelOperator::NotIn,
            Kind::Equals => LabelOperator::Equals,
            Kind::DoubleEquals => LabelOperator::DoubleEquals,
            Kind::NotEquals => LabelOperator::NotEquals,
            Kind::GreaterThan => LabelOperator::GreaterThan,
            Kind::LessThan => LabelOperator::LessThan,
            _ => return Err(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    fn exact_value(&mut self) -> Result<&'a str, String> {
        if matches!(self.peek().0, Kind::End | Kind::Comma) {
            return Ok("");
        }
        match self.next() {
            (Kind::Identifier, literal) => Ok(literal),
            (_, literal) => Err(format!("found '{literal}', expected: identifier")),
        }
    }

    fn set(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let (kind, literal) = self.next();
        if kind != Kind::Open {
            return Err(format!("found '{literal}' expected: '('"));
        }
        match self.peek() {
            (Kind::Identifier | Kind::Comma, _) => {
                let values = self.values()?;
                // `values` stops only before a closing parenthesis.
                self.at += 1;
                Ok(values)
            }
            (Kind::Close, _) => {
                self.at += 1;
                Ok(BTreeSet::from([""]))
            }
            (_, literal) => Err(format!("found '{literal}', expected: ',', ')' or identifier")),
        }
    }

    /// Values, each of which may be empty, up to the closing parenthesis.
    fn values(&mut self) -> Result<BTreeSet<&'a str>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Kind::Identifier, literal) => {
                    values.insert(literal);
                    match self.peek() {
                        (Kind::Comma, _) => {}
                        (Kind::Close, _) => return Ok(values),
                        (_, literal) => return Err(format!("found '{literal}', expected: ',' or ')'")),
                    }
                }
                (Kind::Comma, _) => {
                    if values.is_empty() {
                        values.insert("");
                    }
                    match self.peek().0 {
                        Kind::Close => {
                            values.insert("");
                            return Ok(values);
                        }
                        Kind::Comma => {
                            self.at += 1;
                            values.insert("");
                        }
                        _ => {}
                    }
                }
                (_, literal) => return Err(format!("found '{literal}', expected: ',', or identifier")),
            }
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn tokens(mut self) -> Vec<(Kind, &'a str)> {
        let mut tokens = Vec::new();
        loop {
            let token = self.token();
            tokens.push(token);
            if token.0 == Kind::End {
                return tokens;
            }
        }
    }

    fn token(&mut self) -> (Kind, &'a str) {
        while self.byte().is_some_and(|it| matches!(it, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
        match self.byte() {
            // Upstream takes a NUL for the end of the text.
            None | Some(0) => (Kind::End, ""),
            Some(byte) if is_special(byte) => self.symbol(),
            Some(_) => self.word(),
        }
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn word(&mut self) -> (Kind, &'a str) {
        let start = self.at;
        let is_end = |it: u8| is_special(it) || matches!(it, b' ' | b'\t' | b'\r' | b'\n' | 0);
        while self.byte().is_some_and(|it| !is_end(it)) {
            self.at += 1;
        }
        // Both ends are next to ASCII bytes, so this never cuts a character.
        let word = &self.text[start..self.at];
        self.skip_nul();
        match word {
            "in" => (Kind::In, word),
            "notin" => (Kind::NotIn, word),
            _ => (Kind::Identifier, word),
        }
    }

    /// The longest symbol that begins here; every single special byte is one.
    fn symbol(&mut self) -> (Kind, &'a str) {
        let rest = &self.text[self.at..];
        let symbols = [
            ("==", Kind::DoubleEquals),
            ("!=", Kind::NotEquals),
            ("=", Kind::Equals),
            ("!", Kind::Not),
            (">", Kind::GreaterThan),
            ("<", Kind::LessThan),
            ("(", Kind::Open),
            (")", Kind::Close),
            (",", Kind::Comma),
        ];
        let (text, kind) =
            symbols.into_iter().find(|(text, _)| rest.starts_with(text)).unwrap_or(("", Kind::Error));
        self.at += text.len().max(1);
        self.skip_nul();
        (kind, &rest[..text.len()])
    }

    /// A NUL right behind a token only separates, as upstream has it.
    fn skip_nul(&mut self) {
        if self.byte() == Some(0) {
            self.at += 1;
        }
    }
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}
