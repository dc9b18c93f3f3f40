//! Closed-loop load: so many connections, each sending its next request when the last is answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{LoadError, wire::Target};

/// What a run of load showed.
#[derive(Debug, Clone)]
pub struct Load {
    pub requests: usize,
    pub bytes: usize,
    pub elapsed: Duration,
    pub latency: Latency,
}

/// Latencies, sorted.
#[derive(Debug, Clone, Default)]
pub struct Latency(Vec<Duration>);

/// Objects of about 1 KB with a field `data`, and where they are.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    pub path: &'static str,
    pub api_version: &'static str,
    pub kind: &'static str,
}

/// Makes the nth request of a run.
pub type MakeRequest = Arc<dyn Fn(u64) -> Arc<[u8]> + Send + Sync>;

impl Load {
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn per_second(&self) -> f64 {
        self.requests as f64 / self.elapsed.as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub fn megabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64() / 1e6
    }
}

impl Latency {
    pub fn new(mut samples: Vec<Duration>) -> Latency {
        samples.sort_unstable();
        Latency(samples)
    }

    /// The value that `percent` of all samples do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * percent / 100).copied().unwrap_or_default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Runs `connections` for `time`; every answer must have the status `expected`.
pub async fn run(
    target: &Target,
    connections: usize,
    time: Duration,
    expected: u16,
    make: MakeRequest,
) -> Result<Load, LoadError> {
    let counter = Arc::new(AtomicU64::new(0));
    let mut open = Vec::new();
    for _ in 0..connections {
        open.push(target.connect().await?);
    }
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for mut connection in open {
        let (make, counter) = (Arc::clone(&make), Arc::clone(&counter));
        tasks.spawn(async move {
            let (mut samples, mut bytes) = (Vec::new(), 0);
            while start.elapsed() < time {
                let request = make(counter.fetch_add(1, Ordering::Relaxed));
                let sent = Instant::now();
                let reply = connection.exchange(&request).await?;
                if reply.status != expected {
                    let what = format!("a request that expects {expected}");
                    return Err(LoadError::Refused { what, status: reply.status });
                }
                samples.push(sent.elapsed());
                bytes += reply.bytes;
            }
            Ok((samples, bytes))
        });
    }
    let (mut samples, mut bytes) = (Vec::new(), 0);
    while let Some(done) = tasks.join_next().await {
        let (some, n_bytes) = done??;
        samples.extend(some);
        bytes += n_bytes;
    }
    let elapsed = start.elapsed();
    Ok(Load { requests: samples.len(), bytes, elapsed, latency: Latency::new(samples) })
}

/// Sends exactly `count` requests over `connections`.
pub async fn send_all(
    target: &Target,
    connections: u64,
    count: u64,
    make: MakeRequest,
) -> Result<Duration, LoadError> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for first in 0..connections {
        let mut connection = target.connect().await?;
        let make = Arc::clone(&make);
        tasks.spawn(async move {
            let mut number = first;
            while number < count {
                let reply = connection.exchange(&make(number)).await?;
                if !(200..300).contains(&reply.status) {
                    let what = format!("request {number}");
                    return Err(LoadError::Refused { what, status: reply.status });
                }
                number += connections;
            }
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(start.elapsed())
}

impl Subject {
    /// Creates one object after the other, `PREFIX-0` and so on.
    pub fn creates(self, target: &Target, prefix: &str) -> MakeRequest {
        let target = target.clone();
        let path = self.path;
        let start = format!(
            "{{\"apiVersion\":\"{}\",\"kind\":\"{}\",\"metadata\":{{\"name\":\"{prefix}-",
            self.api_version, self.kind
        );
        let end = format!("\"}},\"data\":{{\"key\":\"{}\"}}}}", "x".repeat(1_000));
        Arc::new(move |number| {
            target.request("POST", path, format!("{start}{number}{end}").as_bytes()).into()
        })
    }
}

/// The same request again and again.
pub fn always(request: Vec<u8>) -> MakeRequest {
    let request: Arc<[u8]> = request.into();
    Arc::new(move |_| Arc::clone(&request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_taken_from_sorted_samples() {
        let latency = Latency::new((1..=101).rev().map(Duration::from_millis).collect());
        assert_eq!(latency.percentile(50), Duration::from_millis(51));
        assert_eq!(latency.percentile(99), Duration::from_millis(100));
        assert_eq!(Latency::default().percentile(99), Duration::ZERO);
    }
}
