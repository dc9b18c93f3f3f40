//! Regular expressions as Go understands them, in the words of the `regex` crate, which is of the same family.
//!
//! The two differ in small things: Go's `\d`, `\w`, `\s` and `\b` mean ASCII, `[` is an ordinary character inside a
//! class, `\Q…\E` quotes. Size is bounded; time is linear by the nature of both.

use std::collections::HashMap;

use regex_syntax::hir::{Class, Hir, HirKind};

/// A compiled pattern may take this much memory. Go needs little for `[\p{L}\p{N}]{1,256}`, of which people that mean
/// names are fond; here every repetition of such a class takes some 50 KiB.
const MAX_COMPILED: usize = 16 << 20;

/// What most patterns fit into, and the next size: what a pattern is reckoned to take is the first that is enough.
const SIZES: [usize; 3] = [64 << 10, 1 << 20, MAX_COMPILED];

/// All patterns of one schema together may take this much.
const MAX_TOGETHER: usize = 256 << 20;

/// What matching may keep of the states that it has been in.
const MAX_CACHED: usize = 1 << 20;

/// Deeper ones are refused.
const NEST_LIMIT: u32 = 200;

/// Longer patterns are refused: nobody writes them by hand.
const MAX_TEXT: usize = 64 << 10;

/// Compiles a pattern, or says why it is none.
pub(super) fn compile(text: &str) -> Result<regex::Regex, String> {
    match build(text, MAX_COMPILED) {
        Ok(Some(regex)) => Ok(regex),
        Ok(None) => Err(refusal(text, TOO_LARGE)),
        Err(why) => Err(refusal(text, &why)),
    }
}

/// About how many states a pattern has: at worst, matching takes as many steps for each byte of the text. 0 for what is no
/// pattern.
pub(super) fn weight(text: &str) -> u64 {
    let translated = translate(text).filter(|_| text.len() <= MAX_TEXT);
    let parsed = translated
        .and_then(|it| regex_syntax::ParserBuilder::new().nest_limit(NEST_LIMIT).build().parse(&it).ok());
    parsed.map_or(0, |it| states(&it))
}

/// Of a class only some ranges can be in question at a time.
const CLASS_STATES: u64 = 4;

fn states(hir: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().fold(1_u64, |sum, it| sum.saturating_add(states(it)));
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(it) => it.0.len() as u64,
        HirKind::Class(Class::Unicode(it)) => (it.ranges().len() as u64).clamp(1, CLASS_STATES),
        HirKind::Class(Class::Bytes(it)) => (it.ranges().len() as u64).clamp(1, CLASS_STATES),
        HirKind::Repetition(it) => {
            let times = it.max.unwrap_or(it.min.saturating_add(1)).max(1);
            states(&it.sub).saturating_add(1).saturating_mul(times.into())
        }
        HirKind::Capture(it) => states(&it.sub).saturating_add(1),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

/// The patterns of one schema. Each is compiled once, however often it is there, and all of them have one bound.
#[derive(Default)]
pub(super) struct Patterns<'a> {
    seen: HashMap<&'a str, Option<String>>,
    reckoned: usize,
}

impl<'a> Patterns<'a> {
    /// What is wrong with a pattern.
    pub(super) fn complaint(&mut self, text: &'a str) -> Option<String> {
        if let Some(complaint) = self.seen.get(text) {
            return complaint.clone();
        }
        let complaint = self.check(text).err().map(|why| refusal(text, &why));
        self.seen.insert(text, complaint.clone());
        complaint
    }

    fn check(&mut self, text: &str) -> Result<(), String> {
        for size in SIZES {
            if self.reckoned + size > MAX_TOGETHER {
                break;
            }
            self.reckoned += size;
            if build(text, size)?.is_some() {
                return Ok(());
            }
        }
        Err(TOO_LARGE.to_owned())
    }
}

const TOO_LARGE: &str = "expression too large";

fn refusal(text: &str, why: &str) -> String {
    format!("error parsing regexp: {why}: `{text}`")
}

/// `None` if the pattern takes more than `size`.
fn build(text: &str, size: usize) -> Result<Option<regex::Regex>, String> {
    if text.len() > MAX_TEXT {
        return Ok(None);
    }
    let translated = translate(text).ok_or("invalid escape sequence")?;
    let built = regex::RegexBuilder::new(&translated)
        .size_limit(size)
        .dfa_size_limit(MAX_CACHED)
        .nest_limit(NEST_LIMIT)
        .build();
    match built {
        Ok(regex) => Ok(Some(regex)),
        Err(regex::Error::CompiledTooBig(_)) => Ok(None),
        Err(error) => Err(brief(&error.to_string())),
    }
}

/// The last line of the crate's picture of what is wrong.
fn brief(error: &str) -> String {
    let last = error.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

/// `None` for escapes that Go has and we do not.
fn translate(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.chars().peekable();
    // Within a class: whether nothing of it has been read yet.
    let mut class: Option<bool> = None;
    while let Some(c) = rest.next() {
        let is_first = class == Some(true);
        match (c, class.is_some()) {
            ('\\', in_class) => {
                let escaped = rest.next()?;
                if escaped == 'Q' && !in_class {
                    quote(&mut rest, &mut out);
                    continue;
                }
                let was_set = escape(escaped, in_class, &mut out)?;
                if was_set && in_class && rest.peek() == Some(&'-') {
                    // Behind a set of characters Go takes a hyphen as itself.
                    rest.next();
                    out.push_str("\\-");
                }
            }
            ('[', false) => {
                out.push('[');
                if rest.peek() == Some(&'^') {
                    rest.next();
                    out.push('^');
                }
                class = Some(true);
                continue;
            }
            ('[', true) if rest.peek() == Some(&':') => posix(&mut rest, &mut out),
            (']', true) if is_first => out.push_str("\\]"),
            (']', true) => {
                out.push(']');
                class = None;
                continue;
            }
            ('[' | '&' | '~' | '#', true) => {
                out.push('\\');
                out.push(c);
            }
            (other, _) => out.push(other),
        }
        if class.is_some() {
            class = Some(false);
        }
    }
    Some(out)
}

/// Writes one escape; says whether it stands for a set of characters.
fn escape(c: char, in_class: bool, out: &mut String) -> Option<bool> {
    let set = match c {
        'd' => Some("0-9"),
        'w' => Some("0-9A-Za-z_"),
        's' => Some("\\t\\n\\f\\r "),
        _ => None,
    };
    if let Some(set) = set {
        if in_class {
            out.push_str(set);
        } else {
            out.push('[');
            out.push_str(set);
            out.push(']');
        }
        return Some(true);
    }
    match c {
        'D' => out.push_str("[^0-9]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        'S' => out.push_str("[^\\t\\n\\f\\r ]"),
        'b' | 'B' if !in_class => {
            out.push_str("(?-u:\\");
            out.push(c);
            out.push(')');
            return Some(false);
        }
        'C' | 'E' | 'X' | 'R' | 'h' | 'H' | 'G' | 'Z' | 'K' => return None,
        '<' | '>' => {
            out.push(c);
            return Some(false);
        }
        _ => {
            out.push('\\');
            out.push(c);
            return Some(matches!(c, 'p' | 'P'));
        }
    }
    Some(true)
}

fn quote(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    while let Some(c) = rest.next() {
        if c == '\\' && rest.peek() == Some(&'E') {
            rest.next();
            return;
        }
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

/// `[:alpha:]` is the same in both.
fn posix(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, out: &mut String) {
    out.push('[');
    for c in rest.by_ref() {
        out.push(c);
        if c == ']' {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        let check = |pattern: &str, text: &str, matches: bool| {
            let compiled = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), matches, "{pattern} on {text}");
        };
        check(r"^\d+$", "123", true);
        check(r"^\d+$", "١٢٣", false);
        check(r"^\w+$", "é", false);
        check(r"^.$", "é", true);
        check(r"^[\w-.]+$", "a-b.c", true);
        check(r"^[a[b]$", "[", true);
        check(r"^[]a]$", "]", true);
        check(r"^[^\d]$", "x", true);
        check(r"^\Qa.b\E$", "a.b", true);
        check(r"^\Qa.b\E$", "axb", false);
        check(r"^[[:alpha:]]+$", "abc", true);
        check(r"^a\/b$", "a/b", true);
        check(r"^[a&&b]+$", "&", true);
        check(r"\bfoo\b", "a foo b", true);
        check("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-b", true);
        check("^$|^(Fail|Ignore)$", "Fail", true);
    }

    #[test]
    fn what_is_no_pattern_is_refused_and_large_ones_are_too() {
        for pattern in ["(", "a{2,1}", "[z-a]", "(?=x)", r"\1", "((a{900}){900}){900}"] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
        assert!(compile(&"(".repeat(10_000)).is_err());
    }

    #[test]
    fn classes_of_many_letters_can_be_counted() {
        for pattern in [r"^[\p{L}\p{Z}\p{N}_.:/=+\-@]{0,256}$", r"^(.|\n){0,1000}$"] {
            assert!(compile(pattern).unwrap().is_match("Grüße = 1"), "{pattern}");
        }
    }

    #[test]
    fn the_patterns_of_a_schema_have_one_bound() {
        let large: Vec<String> = (200..240).map(|n| format!(r"^\p{{L}}{{{n}}}$")).collect();
        let mut patterns = Patterns::default();
        let n_fine = large.iter().filter(|it| patterns.complaint(it).is_none()).count();
        assert!((8..20).contains(&n_fine), "{n_fine}");
        assert_eq!(patterns.complaint(&large[0]), None, "what was seen before costs nothing");
        assert!(patterns.complaint(&large[39]).unwrap().contains("expression too large"));
        let mut patterns = Patterns::default();
        let small: Vec<String> = (0..2000).map(|n| format!("^a{n}$")).collect();
        assert!(small.iter().all(|it| patterns.complaint(it).is_none()));
    }
}
