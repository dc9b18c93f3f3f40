//! Requests at the edge of what is allowed, with the answers that upstream's code gives: bad patches, options, paths,
//! selectors, bodies and media types. The same form as the recorded answers, but without a list of differences.

use access::TokenFile;
use meta::Release;

use crate::{harness::TestServer, replay};

macro_rules! cases {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("edges/", $name, ".jsonl")))),*]
    };
}

const CASES: &[(&str, &str)] = cases![
    "accept",
    "apply",
    "choices",
    "columns",
    "deletes",
    "field-selectors",
    "field-validation",
    "fixed",
    "json-patch",
    "lists",
    "merge-patches",
    "paths",
    "status",
    "tokens",
    "warnings",
    "writes",
    "yaml",
];

#[tokio::test]
async fn odd_requests_are_answered_as_upstream_answers_them() {
    let server = TestServer::start_still(Release::v1(36), |settings| {
        settings.tokens = Some(TokenFile::parse(replay::TOKENS).unwrap());
    })
    .await;
    let mut wrong = Vec::new();
    for (n, (case, steps)) in CASES.iter().enumerate() {
        for it in replay::play(&server, &format!("ns{n}"), steps).await {
            wrong.push(format!("{case} {} {}: {}", it.step, it.path, it.story));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
