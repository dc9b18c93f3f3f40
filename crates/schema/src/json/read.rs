//! The reader: one pass over the text, recursion as deep as the limit allows, complaints in Go's words.

use super::{Limits, ParseError, ParseReport, number};
use crate::{Map, Value};

/// What a map with entries, and each further entry, takes in memory.
const MAP_MEMORY: usize = 640;
const ENTRY_MEMORY: usize = 110;
const VALUE_MEMORY: usize = 32;

const MAX_DUPLICATES: usize = 100;

pub(super) fn document(text: &[u8], limits: Limits) -> Result<ParseReport, ParseError> {
    let mut reader = Reader { text, at: 0, limits, memory: 0, duplicates: Vec::new(), bad_number: None };
    let value = reader.value(0)?;
    reader.space();
    if let Some(byte) = reader.peek() {
        return Err(unexpected(byte, "after top-level value"));
    }
    if let Some(literal) = reader.bad_number {
        return Err(ParseError::Number(literal));
    }
    Ok(ParseReport { value, duplicates: reader.duplicates.iter().map(|it| join(it)).collect() })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    limits: Limits,
    memory: usize,
    /// Each path is written from its end to its beginning, as the reader returns.
    duplicates: Vec<Vec<Step>>,
    /// Go tells about syntax first, wherever it is.
    bad_number: Option<String>,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|it| matches!(it, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The next byte that is no space.
    fn token(&mut self) -> Result<u8, ParseError> {
        self.space();
        self.peek().ok_or_else(end)
    }

    fn charge(&mut self, memory: usize) -> Result<(), ParseError> {
        self.memory = self.memory.saturating_add(memory);
        if self.memory > self.limits.max_memory { Err(ParseError::TooManyValues) } else { Ok(()) }
    }

    fn value(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.charge(VALUE_MEMORY)?;
        match self.token()? {
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => self.string().map(Value::String),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true", Value::Bool(true)),
            b'f' => self.word("false", Value::Bool(false)),
            b'n' => self.word("null", Value::Null),
            byte => Err(unexpected(byte, "looking for beginning of value")),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.check_depth(depth)?;
        self.at += 1;
        let mut map = Map::new();
        if self.token()? == b'}' {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            match self.token()? {
                b'"' => {}
                byte => return Err(unexpected(byte, "looking for beginning of object key string")),
            }
            let key = self.string()?;
            match self.token()? {
                b':' => self.at += 1,
                byte => return Err(unexpected(byte, "after object key")),
            }
            self.charge(if map.is_empty() { MAP_MEMORY } else { ENTRY_MEMORY })?;
            self.field(&mut map, key, depth)?;
            match self.token()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(Value::Object(map));
                }
                byte => return Err(unexpected(byte, "after object key:value pair")),
            }
        }
    }

    fn field(&mut self, map: &mut Map, key: String, depth: usize) -> Result<(), ParseError> {
        if self.duplicates.len() < MAX_DUPLICATES && map.contains_key(&key) {
            self.duplicates.push(vec![Step::Key(key.clone())]);
        }
        let n_before = self.duplicates.len();
        let value = self.value(depth)?;
        for duplicate in &mut self.duplicates[n_before..] {
            duplicate.push(Step::Key(key.clone()));
        }
        map.insert(key, value);
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<Value, ParseError> {
        self.check_depth(depth)?;
        self.at += 1;
        let mut items = Vec::new();
        if self.token()? == b']' {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            let n_before = self.duplicates.len();
            let value = self.value(depth)?;
            for duplicate in &mut self.duplicates[n_before..] {
                duplicate.push(Step::Index(items.len()));
            }
            items.push(value);
            match self.token()? {
                b',' => self.at += 1,
                b']' => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                byte => return Err(unexpected(byte, "after array element")),
            }
        }
    }

    fn check_depth(&self, depth: usize) -> Result<(), ParseError> {
        if depth > self.limits.max_depth { Err(ParseError::TooDeep) } else { Ok(()) }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, ParseError> {
        for expected in word.bytes() {
            match self.peek() {
                Some(byte) if byte == expected => self.at += 1,
                Some(byte) => {
                    let place = format!("in literal {word} (expecting '{}')", char::from(expected));
                    return Err(unexpected(byte, &place));
                }
                None => return Err(end()),
            }
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, ParseError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        // A zero stands alone; what follows it is somebody else's problem.
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let literal = String::from_utf8_lossy(&self.text[start..self.at]);
        let Some(number) = number::from_literal(&literal) else {
            self.bad_number.get_or_insert_with(|| literal.into_owned());
            return Ok(Value::Null);
        };
        Ok(Value::Number(number))
    }

    fn digits(&mut self, place: &str) -> Result<(), ParseError> {
        match self.peek() {
            Some(b'0'..=b'9') => {}
            Some(byte) => return Err(unexpected(byte, place)),
            None => return Err(end()),
        }
        while self.peek().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    /// A string whose opening quote is next.
    fn string(&mut self) -> Result<String, ParseError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let n_plain =
                rest.iter().position(|it| matches!(it, b'"' | b'\\' | 0..=0x1f)).unwrap_or(rest.len());
            push_text(&mut out, &rest[..n_plain]);
            self.at += n_plain;
            match self.peek() {
                None => return Err(end()),
                Some(b'"') => {
                    self.at += 1;
                    self.charge(out.len())?;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                Some(byte) => return Err(unexpected(byte, "in string literal")),
            }
        }
    }

    /// What follows a backslash.
    fn escape(&mut self, out: &mut String) -> Result<(), ParseError> {
        let byte = self.peek().ok_or_else(end)?;
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => char::from(byte),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.unicode_escape()?,
            byte => return Err(unexpected(byte, "in string escape code")),
        });
        Ok(())
    }

    /// The character of `\uXXXX`, or of a pair of them. Half a pair becomes U+FFFD, as in Go.
    fn unicode_escape(&mut self) -> Result<char, ParseError> {
        let first = self.hex4()?;
        if !(0xd800..0xe000).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if first < 0xdc00 && self.text[self.at..].starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex4(&mut self) -> Result<u32, ParseError> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or_else(end)?;
            let digit = char::from(byte)
                .to_digit(16)
                .ok_or_else(|| unexpected(byte, "in \\u hexadecimal character escape"))?;
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }
}

/// Every byte that is no UTF-8 becomes U+FFFD, as in Go.
fn push_text(out: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

fn join(path: &[Step]) -> String {
    let mut out = String::new();
    for step in path.iter().rev() {
        match step {
            Step::Key(key) if out.is_empty() => out.push_str(key),
            Step::Key(key) => {
                out.push('.');
                out.push_str(key);
            }
            Step::Index(index) => out.push_str(&format!("[{index}]")),
        }
    }
    out
}

fn end() -> ParseError {
    ParseError::Syntax("unexpected end of JSON input".to_owned())
}

fn unexpected(byte: u8, place: &str) -> ParseError {
    ParseError::Syntax(format!("invalid character {} {place}", quoted(byte)))
}

/// A byte in single quotes, as Go's decoder shows it.
fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        0x07 => "'\\a'".to_owned(),
        0x08 => "'\\b'".to_owned(),
        0x0b => "'\\v'".to_owned(),
        0x0c => "'\\f'".to_owned(),
        b'\n' => "'\\n'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        0..=0x1f | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..=0xa0 | 0xad => format!("'\\u{byte:04x}'"),
        byte => format!("'{}'", char::from(byte)),
    }
}
