//! Controllers that start before their server, lose it, or are stopped.

use std::time::Duration;

use crate::fake::Fake;

#[tokio::test(start_paused = true)]
async fn controllers_wait_for_a_server_that_is_not_there_yet() {
    let fake = Fake::new();
    fake.with(|it| it.faults.push(("", 0)));
    fake.run("*");
    tokio::time::sleep(Duration::from_secs(30)).await;
    fake.with(|it| it.faults.clear());
    fake.until(|it| it.is_gone()).await;
}

/// Other controllers get nothing but errors all the while.
#[tokio::test(start_paused = true)]
async fn one_controller_without_rights_does_not_stop_another() {
    let fake = Fake::new();
    fake.with(|it| it.faults.push(("GET /apis/rbac", 403)));
    fake.with(|it| it.faults.push(("GET /api/v1/serviceaccounts", 403)));
    fake.run("*");
    fake.until(|it| it.is_gone()).await;
}

#[tokio::test(start_paused = true)]
async fn conflicts_are_tried_again() {
    let fake = Fake::new();
    fake.with(|it| it.faults.push(("PUT /api/v1/namespaces/a/finalize", 409)));
    fake.run("namespace");
    fake.until(|it| it.count("PUT /api/v1/namespaces/a/finalize") == 3).await;
    fake.with(|it| it.faults.clear());
    fake.until(|it| it.is_gone()).await;
}

/// In a pass, and in a watch where the whole controller goes down with it.
#[tokio::test(start_paused = true)]
async fn a_panic_is_survived() {
    for begin in ["GET /apis", "GET /api/v1/namespaces"] {
        let fake = Fake::new();
        fake.with(|it| it.faults.push((begin, 1)));
        fake.run("*");
        tokio::time::sleep(Duration::from_secs(30)).await;
        fake.with(|it| it.faults.clear());
        fake.until(|it| it.is_gone()).await;
    }
}
