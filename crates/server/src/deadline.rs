//! No request but a watch runs for ever.

use std::{future::Future, time::Duration};

use meta::Status;

use crate::{
    answer::Answer,
    chain::{Chain, Exchange},
};

/// Lets `work` run for the time that the server, or the client with `?timeout=`, gives it.
pub(crate) async fn step(
    chain: &Chain,
    exchange: &Exchange,
    work: impl Future<Output = Result<Answer, Status>>,
) -> Result<Answer, Status> {
    if exchange.info.is_long_running() {
        return work.await;
    }
    let allotted = allotted(chain.request_timeout, exchange.query.get("timeout"))?;
    tokio::select! {
        biased;
        done = work => done,
        () = chain.clock.sleep(allotted) => {
            let message = "request did not complete within the allotted timeout";
            Err(Status::timeout(message))
        }
    }
}

/// The client may ask for less than the server gives, not for more.
fn allotted(most: Duration, wanted: &str) -> Result<Duration, Status> {
    if wanted.is_empty() {
        return Ok(most);
    }
    let refuse = || {
        Status::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {wanted:?}"
        ))
    };
    let wanted = parse_duration(wanted).ok_or_else(refuse)?;
    Ok(if wanted.is_zero() { most } else { wanted.min(most) })
}

/// Reads `30s`, `1m30s`, `500ms`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    if rest == "0" {
        return Some(total);
    }
    while !rest.is_empty() {
        let digits = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|it: char| it.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "h" => 3600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            "ns" => 1e-9,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5h"), Some(Duration::from_secs(5400)));
        for wrong in ["", "5", "x", "5x", "-1s", "1e400s"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_client_can_shorten_but_not_stretch() {
        let most = Duration::from_secs(60);
        assert_eq!(allotted(most, "5s"), Ok(Duration::from_secs(5)));
        assert_eq!(allotted(most, "5h"), Ok(most));
        assert_eq!(allotted(most, "x").unwrap_err().code, 400);
    }
}
