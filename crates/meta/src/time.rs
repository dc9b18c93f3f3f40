//! How Kubernetes writes time: whole seconds in `Time`, microseconds in `MicroTime`, always UTC.

use jiff::Timestamp;

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
}
