//! Regular expressions as Go understands them, in the words of the `regex` crate, which is of the same family.
//!
//! The two differ in small things: Go's `\d`, `\w`, `\s` and `\b` mean ASCII, `[` is an ordinary character inside a
//! class, `\Q…\E` quotes. Size is bounded; time is linear by the nature of both.

/// A compiled pattern may take this much memory.
const MAX_COMPILED: usize = 1 << 20;

/// Longer patterns are refused: nobody writes them by hand.
const MAX_TEXT: usize = 64 << 10;

/// Compiles a pattern, or says why it is none.
pub(super) fn compile(text: &str) -> Result<regex::Regex, String> {
    let refuse = |why: &str| Err(format!("error parsing regexp: {why}: `{text}`"));
    if text.len() > MAX_TEXT {
        return refuse("expression too large");
    }
    let Some(translated) = translate(text) else { return refuse("invalid escape sequence") };
    let built = regex::RegexBuilder::new(&translated)
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .nest_limit(200)
        .build();
    match built {
        Ok(regex) => Ok(regex),
        Err(regex::Error::CompiledTooBig(_)) => refuse("expression too large"),
        Err(error) => refuse(&brief(&error.to_string())),
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
}
