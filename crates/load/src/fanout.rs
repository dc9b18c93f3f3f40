//! Watch fan-out: writes at a steady rate, many watchers, and how long a change takes to each of them.
//!
//! The clock starts before a write is sent and stops when a watcher has read the event, so the commit
//! is part of the figure.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::{
    LoadError,
    closed_loop::{Latency, Subject},
    wire::{Connection, Target},
};

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct FanOut {
    pub watchers: usize,
    pub writes_per_second: u32,
    pub seconds: u32,
}

/// How long one watch may take to begin.
const START: Duration = Duration::from_secs(30);

/// Watches a collection and writes into it; latencies of all events at all watchers.
pub async fn run(target: &Target, subject: Subject, config: FanOut) -> Result<Latency, LoadError> {
    let FanOut { watchers, writes_per_second, seconds } = config;
    let origin = Instant::now();
    let writes = writes_per_second * seconds;
    let (report, mut reports) = mpsc::channel(watchers);
    let mut tasks = JoinSet::new();
    // Handshakes are dear; a few at a time keeps them from starving each other.
    let handshakes = Arc::new(Semaphore::new(16));
    let (ready, mut readies) = mpsc::channel(watchers);
    for _ in 0..watchers {
        let (target, report, ready) = (target.clone(), report.clone(), ready.clone());
        let request =
            target.request("GET", &format!("{}?watch=true&labelSelector=bench%3Dfanout", subject.path), b"");
        let handshakes = Arc::clone(&handshakes);
        tasks.spawn(async move {
            let permit = handshakes.acquire_owned().await;
            let begun = tokio::time::timeout(START, async {
                let mut connection = target.connect().await?;
                let status = connection.begin(&request).await?;
                Ok::<_, LoadError>((connection, status))
            });
            let late = |_| LoadError::protocol(format!("a watch did not begin within {START:?}"));
            let (mut connection, status) = begun.await.map_err(late)??;
            drop(permit);
            if status != 200 {
                return Err(LoadError::Refused { what: "a watch".to_owned(), status });
            }
            ready.send(()).await.ok();
            drop(ready);
            report.send(receive(&mut connection, writes, origin).await?).await.ok();
            Ok(())
        });
    }
    drop((report, ready));
    let mut n_ready = 0;
    while n_ready < watchers {
        tokio::select! {
            Some(()) = readies.recv() => n_ready += 1,
            // One that cannot start ends the measurement, and the others with it.
            Some(done) = tasks.join_next() => done??,
            else => return Err(LoadError::protocol("a watcher ended before it began")),
        }
    }
    let wait = Duration::from_secs(1) / writes_per_second;
    send(target, subject, writes, wait, origin).await?;
    let mut samples = Vec::new();
    while let Some(some) = reports.recv().await {
        samples.extend::<Vec<Duration>>(some);
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(Latency::new(samples))
}

/// Creates one object per tick; several connections, so that a slow commit does not slow the rate.
async fn send(
    target: &Target,
    subject: Subject,
    writes: u32,
    wait: Duration,
    origin: Instant,
) -> Result<(), LoadError> {
    let (work, queue) = mpsc::channel::<u32>(1024);
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    let mut tasks = JoinSet::new();
    for _ in 0..16 {
        let mut connection = target.connect().await?;
        let (target, queue) = (target.clone(), Arc::clone(&queue));
        tasks.spawn(async move {
            loop {
                let next = queue.lock().await.recv().await;
                let Some(number) = next else { return Ok(()) };
                let body = object(subject, number, origin);
                let reply =
                    connection.exchange(&target.request("POST", subject.path, body.as_bytes())).await?;
                if reply.status != 201 {
                    return Err(LoadError::Refused { what: "a create".to_owned(), status: reply.status });
                }
            }
        });
    }
    // Writers alone have it, so that nobody waits for them when they have all failed.
    drop(queue);
    let mut tick = tokio::time::interval(wait);
    for number in 0..writes {
        tick.tick().await;
        if work.send(number).await.is_err() {
            // The writers have all failed; one of them says why.
            break;
        }
    }
    drop(work);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn object(subject: Subject, number: u32, origin: Instant) -> String {
    let Subject { api_version, kind, .. } = subject;
    let at = origin.elapsed().as_nanos();
    let filler = "x".repeat(900);
    format!(
        "{{\"apiVersion\":\"{api_version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"fan-{at}-{number}\",\
         \"labels\":{{\"bench\":\"fanout\"}}}},\"data\":{{\"sent\":\"{at}\",\"filler\":\"{filler}\"}}}}"
    )
}

async fn receive(
    connection: &mut Connection,
    writes: u32,
    origin: Instant,
) -> Result<Vec<Duration>, LoadError> {
    let mut samples = Vec::new();
    let mut text = Vec::new();
    while samples.len() < usize::try_from(writes).unwrap_or(usize::MAX) {
        if !connection.chunk(&mut text).await? {
            let seen = samples.len();
            return Err(LoadError::protocol(format!("the watch ended after {seen} of {writes} events")));
        }
        let now = origin.elapsed();
        while let Some(end) = text.iter().position(|it| *it == b'\n') {
            if let Some(sent) = sent_at(&text[..end]) {
                samples.push(now.saturating_sub(sent));
            }
            text.drain(..=end);
        }
    }
    Ok(samples)
}

/// When the object of an event was sent, as written into it.
fn sent_at(line: &[u8]) -> Option<Duration> {
    let mark = b"\"sent\":\"";
    let at = line.windows(mark.len()).position(|it| it == mark)? + mark.len();
    let digits = line[at..].iter().take_while(|it| it.is_ascii_digit()).count();
    let nanos: u64 = std::str::from_utf8(&line[at..at + digits]).ok()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_sending_is_found_in_an_event() {
        let line = br#"{"type":"ADDED","object":{"data":{"filler":"x","sent":"1500"}}}"#;
        assert_eq!(sent_at(line), Some(Duration::from_nanos(1500)));
        assert_eq!(sent_at(b"{}"), None);
    }
}
