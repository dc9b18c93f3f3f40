//! Prints how fast the embedded store is on this machine: `cargo run --release -p store-embedded --example
//! throughput [DIRECTORY]`. The directory should be on the disk in question and not exist yet.
#![expect(clippy::print_stdout, reason = "its purpose")]

use std::{error::Error, path::Path, time::Duration};

use bytes::Bytes;
use store::{Key, Range, ReadAt, SharedClock, Store, SystemClock, Txn};
use store_embedded::{EmbeddedStore, Options};

const VALUE: usize = 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).unwrap_or_else(|| "./throughput-data".into());
    let clock = SystemClock::shared();
    let store = EmbeddedStore::open_or_make(Path::new(&directory), Options::new(clock.clone()))?;
    let mut times = Vec::new();
    for n in 0..1000 {
        let start = clock.monotonic();
        store.commit(put(0, n)).await?;
        times.push(clock.monotonic() - start);
    }
    times.sort_unstable();
    println!("one writer: p50 {:?}, p99 {:?}", times[500], times[990]);
    for n_tasks in [16, 64, 256] {
        let rate = concurrent(&store, &clock, n_tasks, 200).await?;
        println!("{n_tasks} writers: {rate:.0} puts/s of {VALUE} bytes");
    }
    let start = clock.monotonic();
    for n in 0..2000_u64 {
        store.get(&key(0, n % 1000)).await?;
    }
    println!("get: {:?} each", (clock.monotonic() - start) / 2000);
    let start = clock.monotonic();
    let page = store.list(&Range::prefix("/bench/"), ReadAt::Latest, usize::MAX).await?;
    println!("list of {} entries: {:?}", page.entries.len(), clock.monotonic() - start);
    store.close().await;
    drop(store);
    let start = clock.monotonic();
    let store = EmbeddedStore::open_or_make(Path::new(&directory), Options::new(clock.clone()))?;
    println!("open: {:?}", clock.monotonic() - start);
    store.close().await;
    Ok(())
}

fn key(task: u64, n: u64) -> Key {
    Key::new(format!("/bench/{task:04}/{n:06}"))
}

fn put(task: u64, n: u64) -> Txn {
    Txn::new().put(&key(task, n), Bytes::from(vec![b'x'; VALUE]))
}

/// Puts per second of `n_tasks` tasks that each do `n_puts`, one after the other.
async fn concurrent(
    store: &EmbeddedStore,
    clock: &SharedClock,
    n_tasks: u64,
    n_puts: u64,
) -> Result<f64, Box<dyn Error>> {
    let start = clock.monotonic();
    let tasks: Vec<_> = (0..n_tasks)
        .map(|task| {
            let store = store.clone();
            tokio::spawn(async move {
                for n in 0..n_puts {
                    store.commit(put(1000 + n_tasks + task, n)).await?;
                }
                Ok::<_, store::CommitError>(())
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let seconds = (clock.monotonic() - start).max(Duration::from_millis(1)).as_secs_f64();
    Ok(f64::from(u32::try_from(n_tasks * n_puts)?) / seconds)
}
