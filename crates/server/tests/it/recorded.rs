//! What kube-apiserver 1.36 answered to the same requests, and where this server answers otherwise on purpose.
//!
//! [`KNOWN`] is the whole list of differences, each with the decision that explains it. The test fails when there is
//! another one, and when a listed one is gone.

use access::TokenFile;
use meta::Release;

use crate::{
    harness::TestServer,
    replay::{self, Difference},
};

/// A case and its steps.
macro_rules! cases {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("recorded/", $name, ".jsonl")))),*]
    };
}

const CASES: &[(&str, &str)] = cases![
    "apply",
    "bad-bodies",
    "create-basics",
    "custom-resources",
    "deployment-defaults",
    "field-validation",
    "finalizers",
    "forbidden",
    "hpa-conversion",
    "json-patch",
    "leases",
    "names",
    "not-found",
    "selectors",
    "storageversion",
    "stored-versions",
    "tables",
    "update-conflict",
];

/// A difference that is meant: case, step, path, and the decision that says why.
const KNOWN: &[(&str, u64, &str, &str)] = &[
    ("forbidden", 5, ".compiler", "0018"),
    ("forbidden", 5, ".gitCommit", "0018"),
    ("forbidden", 5, ".gitVersion", "0018"),
    ("forbidden", 5, ".goVersion", "0018"),
];

#[tokio::test]
async fn recorded_answers_differ_only_where_a_decision_says_why() {
    let server = TestServer::start_still(Release::v1(36), |settings| {
        settings.tokens = Some(TokenFile::parse(replay::TOKENS).unwrap());
    })
    .await;
    let mut wrong = Vec::new();
    for (n, (case, steps)) in CASES.iter().enumerate() {
        let differences = replay::play(&server, &format!("ns{n}"), steps).await;
        wrong.extend(unlisted(case, &differences));
        wrong.extend(disappeared(case, &differences));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_known_difference_names_a_decision_that_exists() {
    let decisions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/decisions");
    let files: Vec<String> = std::fs::read_dir(decisions)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    for (case, step, path, decision) in KNOWN {
        assert!(CASES.iter().any(|it| it.0 == *case), "{case} is not replayed");
        let is_there = files.iter().any(|it| it.starts_with(&format!("{decision}-")));
        assert!(is_there, "{case} {step} {path}: there is no decision {decision}");
    }
}

fn unlisted(case: &str, differences: &[Difference]) -> Vec<String> {
    let is_known = |it: &Difference| {
        KNOWN.iter().any(|known| (known.0, known.1, known.2) == (case, it.step, it.path.as_str()))
    };
    let new = differences.iter().filter(|it| !is_known(it));
    new.map(|it| format!("{case} {} {}: {}", it.step, it.path, it.story)).collect()
}

fn disappeared(case: &str, differences: &[Difference]) -> Vec<String> {
    let listed = KNOWN.iter().filter(|it| it.0 == case);
    let gone = listed
        .filter(|known| !differences.iter().any(|it| (it.step, it.path.as_str()) == (known.1, known.2)));
    gone.map(|(case, step, path, _)| format!("{case} {step} {path} agrees now: take it off the list"))
        .collect()
}
