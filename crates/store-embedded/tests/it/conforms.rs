//! The embedded store passes what every store passes.

use store::{
    SharedStore,
    conformance::{self, Progress, Subject, Time},
    model,
};
use store_embedded::{EmbeddedStore, Options};

use crate::support::manual;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_store_conforms() {
    conformance::run_all(async || {
        let directory = tempfile::tempdir().unwrap();
        let clock = manual();
        let store = EmbeddedStore::open_or_make(directory.path(), Options::new(clock.clone())).unwrap();
        Subject {
            store: SharedStore::new(store),
            time: Time::Manual(clock),
            progress: Progress::Prompt,
            keep: Some(Box::new(directory)),
        }
    })
    .await;
}

#[tokio::test]
async fn embedded_store_behaves_like_the_model() {
    for seed in 0..6 {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open_or_make(directory.path(), Options::new(manual())).unwrap();
        model::check_against_model(SharedStore::new(store), seed, 300).await;
    }
}

#[tokio::test]
async fn without_memory_everything_comes_from_disk_and_is_the_same() {
    for seed in 100..104 {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { cache_bytes: 1 << 16, recent_bytes: 0, ..Options::new(manual()) };
        let store = EmbeddedStore::open_or_make(directory.path(), options).unwrap();
        model::check_against_model(SharedStore::new(store), seed, 300).await;
    }
}
