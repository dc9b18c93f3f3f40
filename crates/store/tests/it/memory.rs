//! The in-memory store passes what every store passes.

use store::{
    ManualClock, MemoryStore, SharedStore,
    conformance::{self, Progress, Subject, Time},
    model,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_store_conforms() {
    conformance::run_all(async || {
        let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
        Subject {
            store: SharedStore::new(MemoryStore::new(clock.clone())),
            time: Time::Manual(clock),
            progress: Progress::Prompt,
            keep: None,
        }
    })
    .await;
}

#[tokio::test]
async fn memory_store_behaves_like_the_model() {
    for seed in 0..20 {
        let clock = ManualClock::at(jiff::Timestamp::UNIX_EPOCH);
        let store = SharedStore::new(MemoryStore::new(clock));
        model::check_against_model(store, seed, 400).await;
    }
}
