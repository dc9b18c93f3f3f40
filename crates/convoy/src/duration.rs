//! Durations as Go writes them: `1h30m0s`, `300ms`, `0`.

use std::{fmt, str::FromStr, time::Duration};

/// A duration given on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a duration such as 1h30m, 5m0s or 300ms"))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let millis = self.0.subsec_millis();
        match (seconds / 3600, seconds % 3600 / 60, seconds % 60) {
            (0, 0, 0) if millis > 0 => write!(f, "{millis}ms"),
            (0, 0, seconds) => write!(f, "{seconds}s"),
            (0, minutes, seconds) => write!(f, "{minutes}m{seconds}s"),
            (hours, minutes, seconds) => write!(f, "{hours}h{minutes}m{seconds}s"),
        }
    }
}

fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() || text.len() > 64 {
        return None;
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let end = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|it: char| it.is_ascii_digit() || it == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" | "μs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * unit).ok()?)?;
        rest = &rest[end..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_does() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("300ms", 300),
            ("1m", 60_000),
            ("5m0s", 300_000),
            ("1h30m0s", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1h1ms", 3_600_001),
        ] {
            assert_eq!(text.parse(), Ok(GoDuration(Duration::from_millis(millis))), "{text}");
        }
        for text in ["", "5", "s", "1x", "-5s", "1h 5m", "1e3s", "99999999999999999999h", "..s", "5m0"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_does() {
        for (millis, text) in
            [(0, "0s"), (300, "300ms"), (60_000, "1m0s"), (3_600_000, "1h0m0s"), (90_000, "1m30s")]
        {
            assert_eq!(GoDuration(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
