//! The commands of docs/quick-start.md, as a reader types them.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use testkit::tools;

use crate::fixture::BINARY;

/// The blocks of the page that a shell runs.
fn script(page: &str) -> String {
    let mut script = "set -euxo pipefail\n".to_owned();
    let mut is_inside = false;
    for line in page.lines() {
        match line {
            "```sh" => is_inside = true,
            it if it.starts_with("```") => is_inside = false,
            it if is_inside => {
                script.push_str(it);
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

#[test]
fn the_quick_start_works_as_it_stands() {
    let Some(kubectl) = tools::kubectl() else {
        tools::skipped("the quick start", "there is no kubectl");
        return;
    };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/quick-start.md");
    let script = script(&std::fs::read_to_string(page).unwrap());
    assert!(script.contains("convoy up") && script.contains("convoy rollout"), "{script}");
    let home = tempfile::tempdir().unwrap();
    let (bin, work) = (home.path().join("bin"), home.path().join("work"));
    for folder in [&bin, &work] {
        std::fs::create_dir(folder).unwrap();
    }
    std::os::unix::fs::symlink(BINARY, bin.join("convoy")).unwrap();
    std::os::unix::fs::symlink(kubectl, bin.join("kubectl")).unwrap();
    // What still runs in the end goes with the shell.
    let guarded = format!("trap 'jobs -p | xargs -r kill' EXIT\n{script}");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let said = Command::new("bash")
        .args(["-c", &guarded])
        .current_dir(&work)
        .env("PATH", path)
        .env("HOME", home.path())
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null())
        .output()
        .expect("there must be a bash");
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}\n{err}");
    for promised in [" 0 errors", "resources agreed on", "safe to drop", "exit code 3"] {
        assert!(out.contains(promised), "{promised:?} in {out}\n{err}");
    }
}
