//! How Kubernetes writes time: whole seconds in `Time`, microseconds in `MicroTime`, always UTC.

use jiff::Timestamp;

use crate::field::quote;

/// `2026-11-15T21:10:53Z`, as in `creationTimestamp`.
pub fn format_time(time: Timestamp) -> String {
    let whole = Timestamp::from_second(time.as_second()).unwrap_or(time);
    whole.to_string()
}

/// `2026-11-15T21:10:53.000000Z`, as in a Lease's `renewTime`.
pub fn format_micro_time(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Reads either form, with any offset.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Whether the text is a `Time`, with the words of upstream's decoder if it is not.
pub fn check_time(text: &str) -> Result<(), String> {
    check_layout(text, "2006-01-02T15:04:05Z07:00")
}

/// Whether the text is a `MicroTime`, with the words of upstream's decoder if it is not.
pub fn check_micro_time(text: &str) -> Result<(), String> {
    check_layout(text, "2006-01-02T15:04:05.000000Z07:00")
}

fn check_layout(text: &str, layout: &str) -> Result<(), String> {
    let mut rest = text;
    for element in ["2006", "-", "01", "-", "02", "T", "15", ":", "04", ":", "05"] {
        let n_digits = if element.len() == 1 { 0 } else { element.len() };
        let fits = match n_digits {
            0 => rest.starts_with(element),
            n => rest.len() >= n && rest.bytes().take(n).all(|b| b.is_ascii_digit()),
        };
        if !fits {
            return Err(format!(
                "parsing time {} as \"{layout}\": cannot parse {} as \"{element}\"",
                quote(text),
                quote(rest)
            ));
        }
        rest = &rest[element.len()..];
    }
    let fraction =
        rest.strip_prefix('.').map_or(0, |it| 1 + it.bytes().take_while(u8::is_ascii_digit).count());
    if layout.contains('.') && fraction != 7 {
        return Err(format!(
            "parsing time {} as \"{layout}\": cannot parse {} as \".000000\"",
            quote(text),
            quote(rest)
        ));
    }
    rest = &rest[fraction..];
    if rest != "Z" && !is_offset(rest) {
        return Err(format!(
            "parsing time {} as \"{layout}\": cannot parse {} as \"Z07:00\"",
            quote(text),
            quote(rest)
        ));
    }
    if parse_time(text).is_none() {
        return Err(format!("parsing time {}: {} out of range", quote(text), part_out_of_range(text)));
    }
    Ok(())
}

fn is_offset(text: &str) -> bool {
    matches!(text.as_bytes(), [b'+' | b'-', a, b, b':', c, d] if [a, b, c, d].iter().all(|it| it.is_ascii_digit()))
}

/// Which part of a well-formed time cannot be.
fn part_out_of_range(text: &str) -> &'static str {
    let number = |at: std::ops::Range<usize>| text.get(at).and_then(|it| it.parse::<u32>().ok()).unwrap_or(0);
    match () {
        () if !(1..=12).contains(&number(5..7)) => "month",
        () if number(11..13) > 23 => "hour",
        () if number(14..16) > 59 => "minute",
        () if number(17..19) > 59 => "second",
        () => "day",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_upstream_does() {
        let time = parse_time("2026-11-15T21:10:53.123456789Z").unwrap();
        assert_eq!(format_time(time), "2026-11-15T21:10:53Z");
        assert_eq!(format_micro_time(time), "2026-11-15T21:10:53.123456Z");
        assert_eq!(format_time(parse_time("2026-11-15T22:10:53+01:00").unwrap()), "2026-11-15T21:10:53Z");
    }

    #[test]
    fn bad_times_are_refused_in_upstreams_words() {
        let check = |text: &str| check_micro_time(text).unwrap_err();
        assert_eq!(
            check("yesterday"),
            "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\""
        );
        assert_eq!(check_time("2026-11-15T21:10:53.5+01:00"), Ok(()));
        assert_eq!(check_micro_time("2026-11-15T21:10:53.123456Z"), Ok(()));
        assert_eq!(
            check_time("2026-11-15 x").unwrap_err(),
            "parsing time \"2026-11-15 x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \" x\" as \"T\""
        );
        assert_eq!(
            check_time("2026-13-15T21:10:53Z").unwrap_err(),
            "parsing time \"2026-13-15T21:10:53Z\": month out of range"
        );
        assert_eq!(
            check_time("2026-02-30T21:10:53Z").unwrap_err(),
            "parsing time \"2026-02-30T21:10:53Z\": day out of range"
        );
        assert!(check_time("2026-11-1\u{e9}").is_err());
    }
}
