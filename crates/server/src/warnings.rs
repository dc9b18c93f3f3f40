//! `Warning` headers: every text once, and bounded, because clients choose what some of them say.
//!
//! As upstream: once all texts together are longer than [`MAX_TOTAL`], each is cut to [`MAX_CUT`], and what comes after
//! the cut texts fill the bound is dropped. A text with control characters is no header and is left out.

use http::{HeaderMap, HeaderValue, header};

/// Characters of all warnings of one answer.
const MAX_TOTAL: usize = 4 * 1024;

/// Characters of one warning, once there are too many.
const MAX_CUT: usize = 256;

/// The warnings of one answer.
#[derive(Debug, Default)]
pub struct Warnings {
    texts: Vec<String>,
    n_written: usize,
    is_cutting: bool,
}

impl Warnings {
    /// Adds a warning, unless it is there already or nothing more fits.
    pub fn add(&mut self, text: &str, headers: &mut HeaderMap) {
        if text.is_empty() || (self.is_cutting && self.n_written >= MAX_TOTAL) {
            return;
        }
        if self.texts.iter().any(|it| it == text) {
            return;
        }
        self.texts.push(text.to_owned());
        if self.is_cutting || self.n_written + text.chars().count() <= MAX_TOTAL {
            self.write(text, headers);
            return;
        }
        self.is_cutting = true;
        self.n_written = 0;
        headers.remove(header::WARNING);
        for text in std::mem::take(&mut self.texts) {
            self.write(&text, headers);
            self.texts.push(text);
        }
    }

    fn write(&mut self, text: &str, headers: &mut HeaderMap) {
        let limit = if self.is_cutting { MAX_CUT } else { MAX_TOTAL };
        let text: String = text.chars().take(limit).collect();
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
        let value = HeaderValue::from_bytes(format!("299 - \"{escaped}\"").as_bytes());
        if let Ok(value) = value
            && !text.chars().any(char::is_control)
        {
            self.n_written += text.chars().count();
            headers.append(header::WARNING, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warn(texts: &[String]) -> Vec<String> {
        let (mut warnings, mut headers) = (Warnings::default(), HeaderMap::new());
        for text in texts {
            warnings.add(text, &mut headers);
        }
        let values = headers.get_all(header::WARNING).iter();
        values.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn a_warning_is_quoted_and_given_once() {
        let texts = ["a \"b\" \\c", "ü", "a \"b\" \\c", "two\nlines", ""].map(str::to_owned);
        assert_eq!(warn(&texts), ["299 - \"a \\\"b\\\" \\\\c\"", "299 - \"ü\""]);
    }

    #[test]
    fn many_long_warnings_are_cut_and_then_dropped() {
        let texts: Vec<String> = (0..100).map(|n| format!("{n}{}", "x".repeat(100_000))).collect();
        let values = warn(&texts);
        assert_eq!(values.len(), 16);
        assert!(values.iter().all(|it| it.chars().count() == MAX_CUT + "299 - \"\"".len()));
    }
}
