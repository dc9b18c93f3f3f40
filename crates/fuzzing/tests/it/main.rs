//! The checked-in corpus, replayed without a fuzzer.
#![cfg(test)]

use std::{collections::BTreeSet, fs, path::PathBuf};

fn home() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn listed() -> BTreeSet<String> {
    fuzzing::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect()
}

fn names(dir: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(home().join(dir)).unwrap();
    entries.map(|it| it.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn corpus_replays() {
    for (name, target) in fuzzing::TARGETS {
        let mut n_files = 0;
        for entry in fs::read_dir(home().join("corpus").join(name)).unwrap() {
            target(&fs::read(entry.unwrap().path()).unwrap());
            n_files += 1;
        }
        assert!(n_files > 0, "{name} has no corpus");
    }
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus() {
    assert_eq!(names("corpus"), listed());
    assert_eq!(names("fuzz_targets"), listed());
    let manifest = fs::read_to_string(home().join("Cargo.toml")).unwrap();
    for name in listed() {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
}

#[test]
fn nothing_at_all_is_survived() {
    for (_, target) in fuzzing::TARGETS {
        for data in [&b""[..], b"\n", b"\xff\xfe", b"{}\n{}", b"null\nnull", b"[\n["] {
            target(data);
        }
    }
}
