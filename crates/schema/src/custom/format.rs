//! The formats of texts that upstream knows. Others mean nothing and are let pass.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::{Engine, engine::general_purpose::STANDARD};

/// A format of texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    ObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

const NAMES: &[(&str, Format)] = &[
    ("int32", Format::Int32),
    ("int64", Format::Int64),
    ("float", Format::Float),
    ("double", Format::Double),
    ("bsonobjectid", Format::ObjectId),
    ("uri", Format::Uri),
    ("email", Format::Email),
    ("hostname", Format::Hostname),
    ("ipv4", Format::Ipv4),
    ("ipv6", Format::Ipv6),
    ("cidr", Format::Cidr),
    ("mac", Format::Mac),
    ("uuid", Format::Uuid),
    ("uuid3", Format::Uuid3),
    ("uuid4", Format::Uuid4),
    ("uuid5", Format::Uuid5),
    ("isbn", Format::Isbn),
    ("isbn10", Format::Isbn10),
    ("isbn13", Format::Isbn13),
    ("creditcard", Format::CreditCard),
    ("ssn", Format::Ssn),
    ("hexcolor", Format::HexColor),
    ("rgbcolor", Format::RgbColor),
    ("byte", Format::Byte),
    ("password", Format::Password),
    ("date", Format::Date),
    ("duration", Format::Duration),
    ("date-time", Format::DateTime),
    ("datetime", Format::DateTime),
    ("k8s-short-name", Format::ShortName),
    ("k8s-long-name", Format::LongName),
];

impl Format {
    /// `None` for formats that mean nothing here.
    pub(super) fn parse(name: &str) -> Option<Self> {
        NAMES.iter().find(|(it, _)| *it == name).map(|(_, it)| *it)
    }

    /// As schemas write it.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, it)| *it == self).map_or("", |(name, _)| name)
    }

    /// Whether a text has the format. Formats of numbers let every text pass.
    pub(super) fn fits(self, text: &str) -> bool {
        match self {
            Self::Int32 | Self::Int64 | Self::Float | Self::Double | Self::Password => true,
            Self::ObjectId => text.len() == 24 && is_hex(text),
            Self::Uri => is_uri(text),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => text.parse::<Ipv4Addr>().is_ok(),
            Self::Ipv6 => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
            Self::Cidr => is_cidr(text),
            Self::Mac => is_mac(text),
            Self::Uuid => is_uuid(text, None),
            Self::Uuid3 => is_uuid(text, Some('3')),
            Self::Uuid4 => is_uuid(text, Some('4')),
            Self::Uuid5 => is_uuid(text, Some('5')),
            Self::Isbn => is_isbn10(text) || is_isbn13(text),
            Self::Isbn10 => is_isbn10(text),
            Self::Isbn13 => is_isbn13(text),
            Self::CreditCard => is_credit_card(text),
            Self::Ssn => is_ssn(text),
            Self::HexColor => is_hex_color(text),
            Self::RgbColor => is_rgb_color(text),
            Self::Byte => STANDARD.decode(text).is_ok() && !text.is_empty(),
            Self::Date => text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10,
            Self::Duration => is_duration(text),
            Self::DateTime => is_date_time(text),
            Self::ShortName => meta::name::dns_label(text).is_empty(),
            Self::LongName => meta::name::dns_subdomain(text).is_empty(),
        }
    }
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_hexdigit())
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// What Go's `url.ParseRequestURI` takes: a path, or a scheme and something behind it.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|it| it < 0x20 || it == 0x7f || it == b' ') {
        return false;
    }
    if text.starts_with('/') || text == "*" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.bytes();
    letters.next().is_some_and(|it| it.is_ascii_alphabetic())
        && letters.all(|it| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'-' | b'.'))
        && !rest.starts_with('?')
}

fn is_email(text: &str) -> bool {
    let text = match (text.rfind('<'), text.ends_with('>')) {
        (Some(at), true) => &text[at + 1..text.len() - 1],
        _ => text,
    };
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    let is_local =
        |it: u8| it.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&it) || !it.is_ascii();
    let is_quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let is_plain = !local.is_empty()
        && local.bytes().all(is_local)
        && !local.starts_with('.')
        && !local.ends_with('.')
        && !local.contains("..");
    (is_plain || is_quoted) && !domain.is_empty() && !domain.contains(char::is_whitespace)
}

fn is_hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || !it.is_ascii())
    };
    text.len() <= 255 && text.split('.').all(is_label)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let max = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    is_digits(bits) && bits.len() <= 3 && bits.parse::<u8>().is_ok_and(|it| it <= max)
}

fn is_mac(text: &str) -> bool {
    let separator = if text.contains(':') { ':' } else { '-' };
    let parts: Vec<&str> = text.split(separator).collect();
    if matches!(parts.len(), 6 | 8 | 20) {
        return parts.iter().all(|it| it.len() == 2 && is_hex(it));
    }
    let parts: Vec<&str> = text.split('.').collect();
    matches!(parts.len(), 3 | 4 | 10) && parts.iter().all(|it| it.len() == 4 && is_hex(it))
}

/// With or without hyphens, as upstream has it.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let plain: String = text.chars().filter(|it| *it != '-').collect();
    if plain.len() != 32 || !is_hex(&plain) {
        return false;
    }
    let is_spread = text.len() == 32
        || (text.len() == 36 && [8, 13, 18, 23].iter().all(|at| text.as_bytes().get(*at) == Some(&b'-')));
    let letter = plain.chars().nth(16).unwrap_or_default();
    match version {
        None => is_spread,
        Some('3') => is_spread && plain.chars().nth(12) == Some('3'),
        Some(version) => {
            is_spread
                && plain.chars().nth(12) == Some(version)
                && matches!(letter.to_ascii_lowercase(), '8' | '9' | 'a' | 'b')
        }
    }
}

fn is_isbn10(text: &str) -> bool {
    let digits: Vec<char> = text.chars().filter(|it| !matches!(it, '-' | ' ')).collect();
    if digits.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (at, c) in digits.iter().enumerate() {
        let digit = match c {
            'X' | 'x' if at == 9 => 10,
            c => match c.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += digit * (10 - u32::try_from(at).unwrap_or(0));
    }
    sum % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits: Option<Vec<u32>> =
        text.chars().filter(|it| !matches!(it, '-' | ' ')).map(|it| it.to_digit(10)).collect();
    let Some(digits) = digits.filter(|it| it.len() == 13) else { return false };
    let sum: u32 = digits.iter().enumerate().map(|(at, it)| if at % 2 == 0 { *it } else { it * 3 }).sum();
    sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Option<Vec<u32>> =
        text.chars().filter(|it| !matches!(it, '-' | ' ')).map(|it| it.to_digit(10)).collect();
    let Some(digits) = digits.filter(|it| (13..=19).contains(&it.len())) else { return false };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, it)| match (at % 2, it * 2) {
            (0, _) => *it,
            (_, double) if double > 9 => double - 9,
            (_, double) => double,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_ssn(text: &str) -> bool {
    let parts: Vec<&str> = text.split(['-', ' ']).collect();
    match parts.as_slice() {
        [one] => one.len() == 9 && is_digits(one),
        [a, b, c] => (a.len(), b.len(), c.len()) == (3, 2, 4) && [a, b, c].iter().all(|it| is_digits(it)),
        _ => false,
    }
}

fn is_hex_color(text: &str) -> bool {
    let text = text.strip_prefix('#').unwrap_or(text);
    matches!(text.len(), 3 | 6) && is_hex(text)
}

fn is_rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|it| it.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|it| is_digits(it) && it.parse::<u8>().is_ok())
}

/// Go's durations, and numbers with a unit in words: `3 hours`.
fn is_duration(text: &str) -> bool {
    if crate::check::is_go_duration(text) {
        return true;
    }
    let text = text.trim();
    let n_digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit = text[n_digits..].trim();
    let units = [
        "ns", "nano", "us", "µs", "micro", "ms", "milli", "s", "sec", "second", "m", "min", "minute", "h",
        "hr", "hour", "d", "day", "w", "wk", "week",
    ];
    n_digits > 0 && units.iter().any(|it| unit == *it || unit.strip_suffix('s') == Some(it))
}

/// RFC 3339, with a space or a small letter between date and time, as upstream has it.
fn is_date_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !matches!(bytes[10], b'T' | b't' | b' ') || !text.is_ascii() {
        return false;
    }
    let is_zoned = matches!(bytes[bytes.len() - 1], b'Z' | b'z')
        || matches!(bytes[bytes.len() - 6], b'+' | b'-') && bytes[bytes.len() - 3] == b':';
    is_zoned && text.parse::<jiff::Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_formats_or_not() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (
                "date-time",
                &["2020-01-02T03:04:05Z", "2020-01-02T03:04:05.123+02:00"],
                &["noon", "2020-01-02"],
            ),
            ("date", &["2020-02-29"], &["2021-02-29", "2020-1-2", ""]),
            ("duration", &["1h30m", "3 hours", "0"], &["", "soon", "5 apples"]),
            ("ipv4", &["10.0.0.1"], &["10.0.0.256", "::1", ""]),
            ("ipv6", &["::1", "fe80::1"], &["10.0.0.1", "g::"]),
            ("cidr", &["10.0.0.0/8", "::/0"], &["10.0.0.0", "10.0.0.0/33", "x/8"]),
            (
                "uuid",
                &["123e4567-e89b-12d3-a456-426614174000"],
                &["123", "123e4567e89b-12d3-a456-426614174000-"],
            ),
            ("uuid4", &["123e4567-e89b-42d3-a456-426614174000"], &["123e4567-e89b-12d3-a456-426614174000"]),
            ("uri", &["https://a/b", "/x", "mailto:a@b"], &["", "a b", "nothing"]),
            ("email", &["a@b.c", "A B <a@b>"], &["a", "@b", "a@"]),
            ("hostname", &["a.b-c", "x"], &["-a", "a..b", ""]),
            ("mac", &["01:23:45:67:89:ab", "0123.4567.89ab"], &["01:23", "zz:zz:zz:zz:zz:zz"]),
            ("byte", &["YWJj"], &["Y", "?"]),
            ("hexcolor", &["#fff", "a0b1c2"], &["#ff", "#ggg"]),
            ("rgbcolor", &["rgb(1, 2,255)"], &["rgb(1,2)", "rgb(1,2,256)"]),
            ("isbn10", &["0-306-40615-2"], &["0-306-40615-3"]),
            ("isbn13", &["978-0-306-40615-7"], &["978-0-306-40615-8"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112"]),
            ("ssn", &["111-22-3333"], &["11-22-3333"]),
            ("password", &["anything"], &[]),
        ];
        for (name, good, bad) in cases {
            let format = Format::parse(name).unwrap_or_else(|| panic!("{name}"));
            good.iter().for_each(|it| assert!(format.fits(it), "{name}: {it}"));
            bad.iter().for_each(|it| assert!(!format.fits(it), "{name}: {it}"));
            assert_eq!(format.name(), *name);
        }
        assert_eq!(Format::parse("quantity"), None);
    }
}
