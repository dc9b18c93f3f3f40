//! Quantities: `100m`, `1.5Gi`, `12e6`. Read, and brought into the one form in which upstream writes them.

/// Upstream's words for a text that is no quantity.
pub(super) const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";

/// More digits than this stay as they were written: they do not occur in earnest.
const MAX_DIGITS: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `k`, `m`
    Decimal,
    /// `Ki`
    Binary,
    /// `e3`
    Exponent,
}

/// The quantity as upstream writes it: `1000m` is `1`, `1024Mi` is `1Gi`, `0.5` is `500m`.
pub fn canonical(text: &str) -> Result<String, &'static str> {
    let parts = split(text).ok_or(FORMAT_WRONG)?;
    let (format, exponent) = suffix(parts.suffix).ok_or(SUFFIX_WRONG)?;
    Ok(shorten(&parts, format, exponent).unwrap_or_else(|| text.to_owned()))
}

/// How many billionths it is; `None` for what is no quantity, is negative or too large to count.
pub fn nanos(text: &str) -> Option<i128> {
    let parts = split(text).filter(|it| !it.is_negative)?;
    let (format, exponent) = suffix(parts.suffix)?;
    let digits = format!("{}{}", parts.whole.trim_start_matches('0'), parts.fraction);
    if digits.len() > MAX_DIGITS {
        return None;
    }
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let scale = 9 - i32::try_from(parts.fraction.len()).ok()?;
    let (scale, factor) = match format {
        Format::Binary => (scale, 1_i128.checked_shl(u32::try_from(exponent).ok()?)?),
        Format::Decimal | Format::Exponent => (scale.checked_add(exponent)?, 1),
    };
    let power = 10_i128.checked_pow(scale.unsigned_abs())?;
    let mantissa = mantissa.checked_mul(factor)?;
    if scale >= 0 { mantissa.checked_mul(power) } else { Some(mantissa / power) }
}

struct Parts<'a> {
    is_negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Option<Parts<'_>> {
    let is_negative = text.starts_with('-');
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if text.is_empty() {
        return None;
    }
    let n_whole = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (whole, rest) = rest.split_at(n_whole);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("", rest),
    };
    let n_letters = suffix.bytes().take_while(|it| b"eEinumkKMGTP".contains(it)).count();
    let number = &suffix[n_letters..];
    let number = number.strip_prefix(['-', '+']).unwrap_or(number);
    if !number.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    Some(Parts { is_negative, whole, fraction, suffix })
}

/// The format, and the power of ten or of two.
fn suffix(text: &str) -> Option<(Format, i32)> {
    Some(match text {
        "Ki" => (Format::Binary, 10),
        "Mi" => (Format::Binary, 20),
        "Gi" => (Format::Binary, 30),
        "Ti" => (Format::Binary, 40),
        "Pi" => (Format::Binary, 50),
        "Ei" => (Format::Binary, 60),
        "n" => (Format::Decimal, -9),
        "u" => (Format::Decimal, -6),
        "m" => (Format::Decimal, -3),
        "" => (Format::Decimal, 0),
        "k" => (Format::Decimal, 3),
        "M" => (Format::Decimal, 6),
        "G" => (Format::Decimal, 9),
        "T" => (Format::Decimal, 12),
        "P" => (Format::Decimal, 15),
        "E" => (Format::Decimal, 18),
        _ => (Format::Exponent, text.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// `None` for numbers too large to be worth the trouble.
fn shorten(parts: &Parts<'_>, format: Format, exponent: i32) -> Option<String> {
    let digits = format!("{}{}", parts.whole.trim_start_matches('0'), parts.fraction);
    if digits.len() > MAX_DIGITS || exponent.abs() > 60 {
        return None;
    }
    let mut mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    let mut scale = -i32::try_from(parts.fraction.len()).ok()?;
    match format {
        Format::Binary => {
            mantissa = mantissa.checked_mul(1_i128.checked_shl(u32::try_from(exponent).ok()?)?)?
        }
        Format::Decimal | Format::Exponent => scale += exponent,
    }
    // Nothing is finer than a nano; what is left over rounds away from zero.
    while scale < -9 {
        mantissa = mantissa / 10 + i128::from(mantissa % 10 != 0);
        scale += 1;
    }
    if mantissa == 0 {
        return Some("0".to_owned());
    }
    let sign = if parts.is_negative { "-" } else { "" };
    let is_small = whole(mantissa, scale).is_some_and(|it| it < 1024);
    if format == Format::Binary && !is_small {
        let (number, suffix) = binary(mantissa, scale)?;
        return Some(format!("{sign}{number}{suffix}"));
    }
    let (number, exponent) = decimal(mantissa, scale)?;
    let suffix = match (format, exponent) {
        (_, 0) => String::new(),
        (Format::Exponent, exponent) => format!("e{exponent}"),
        (Format::Decimal | Format::Binary, exponent) => decimal_suffix(exponent)?.to_owned(),
    };
    Some(format!("{sign}{number}{suffix}"))
}

/// The whole part of the number.
fn whole(mantissa: i128, scale: i32) -> Option<i128> {
    let power = 10_i128.checked_pow(scale.unsigned_abs())?;
    if scale < 0 { Some(mantissa / power) } else { mantissa.checked_mul(power) }
}

/// Without zeros at the end, and with an exponent that three divides.
fn decimal(mut mantissa: i128, mut exponent: i32) -> Option<(i128, i32)> {
    while mantissa % 10 == 0 {
        mantissa /= 10;
        exponent += 1;
    }
    while exponent % 3 != 0 {
        mantissa = mantissa.checked_mul(10)?;
        exponent -= 1;
    }
    Some((mantissa, exponent))
}

/// A whole number, divided by 1024 as often as nothing is lost.
fn binary(mantissa: i128, scale: i32) -> Option<(i128, &'static str)> {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let floor = whole(mantissa, scale)?;
    let has_rest = scale < 0 && mantissa % 10_i128.checked_pow(scale.unsigned_abs())? != 0;
    let mut number = floor + i128::from(has_rest);
    if number > i128::from(i64::MAX) {
        return None;
    }
    let mut n_divisions = 0;
    while number % 1024 == 0 && n_divisions < SUFFIXES.len() - 1 {
        number /= 1024;
        n_divisions += 1;
    }
    Some((number, SUFFIXES[n_divisions]))
}

fn decimal_suffix(exponent: i32) -> Option<&'static str> {
    Some(match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        18 => "E",
        _ => return None,
    })
}
