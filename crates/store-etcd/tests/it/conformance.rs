//! The contract and the model, on one etcd that is emptied in between.

use store::{
    SharedStore,
    conformance::{Progress, Subject, Time, cases, run},
    model::check_against_model,
};
use testkit::etcd;

use crate::support::{connect, start, wipe};

#[tokio::test(flavor = "multi_thread")]
async fn etcd_conforms() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    for case in cases() {
        let store = connect(&etcd).await;
        wipe(&store, "/conformance/").await;
        let store = SharedStore::new(store);
        let subject = Subject { store, time: Time::Real, progress: Progress::Unpromised, keep: None };
        run(&case, subject).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_agrees_with_the_model() {
    if etcd::is_missing() {
        return;
    }
    let etcd = start().await;
    for seed in 1..=8 {
        let store = connect(&etcd).await;
        wipe(&store, "/model/").await;
        check_against_model(SharedStore::new(store), seed, 250).await;
    }
}
