//! What a release consists of: `cargo xtask release` puts the binary, its bill of materials and their SHA-256 sums into
//! `target/release-artifacts`; `cargo xtask sbom` writes the bill alone.
//!
//! The bill is CycloneDX in JSON: every crate that is compiled into the binary or run to build it, with its licence and
//! the sum that `Cargo.lock` pins, and which needs which. Nothing in it depends on the time or the machine, so the same
//! sources have the same bill.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::run::{self, cargo};
use crate::{checksum, lock, metadata};

const BINARY: &str = "convoy";
const BILL: &str = "convoy.cdx.json";
const SUMS: &str = "SHA256SUMS";

/// Builds the binary and writes everything.
pub fn all() -> Result<()> {
    run::run(cargo().args(["build", "--release", "--locked", "--package", BINARY]))?;
    let folder = folder()?;
    let binary = folder.join(BINARY);
    let built = run::target().join("release").join(BINARY);
    std::fs::copy(&built, &binary).with_context(|| format!("cannot copy {}", built.display()))?;
    let bill = write_bill(&folder)?;
    write_sums(&folder, &[&binary, &bill])?;
    println!("release: {}", folder.display());
    Ok(())
}

/// Writes the bill of materials.
pub fn sbom() -> Result<()> {
    println!("sbom: {}", write_bill(&folder()?)?.display());
    Ok(())
}

fn folder() -> Result<PathBuf> {
    let folder = run::target().join("release-artifacts");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn write_bill(folder: &Path) -> Result<PathBuf> {
    let lock = std::fs::read_to_string(run::root().join("Cargo.lock")).context("cannot read Cargo.lock")?;
    let bill = bill(&metadata::resolved()?, &pinned(&lock))?;
    let path = folder.join(BILL);
    std::fs::write(&path, serde_json::to_string_pretty(&bill)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// As `sha256sum` writes it, so that `sha256sum --check` reads it.
fn write_sums(folder: &Path, files: &[&Path]) -> Result<()> {
    let mut lines = String::new();
    for file in files {
        let name = file.file_name().context("a file must have a name")?.to_string_lossy();
        lines += &format!("{}  {name}\n", checksum::of(file)?);
    }
    let path = folder.join(SUMS);
    std::fs::write(&path, lines).with_context(|| format!("cannot write {}", path.display()))
}

/// The sums of a lock file, by name and version.
fn pinned(lock: &str) -> BTreeMap<(String, String), String> {
    lock::parse(lock).into_iter().filter_map(|it| Some(((it.name, it.version), it.checksum?))).collect()
}

/// The bill, from what `cargo metadata` says with its graph resolved.
fn bill(metadata: &Value, sums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|it| (text(&it["id"]), it)).collect();
    let root = packages.values().find(|it| it["name"] == BINARY && it["source"].is_null());
    let root = text(&root.context("the workspace must have the binary's package")?["id"]);
    // Everything that it needs, but for its tests.
    let needs = |id: &str| -> BTreeSet<String> {
        let is_built = |it: &Value| list(&it["dep_kinds"]).iter().any(|kind| kind["kind"] != "dev");
        let deps = nodes.get(id).map(|it| list(&it["deps"])).unwrap_or_default();
        deps.iter().filter(|it| is_built(it)).map(|it| text(&it["pkg"])).collect()
    };
    let mut reached = BTreeSet::from([root.clone()]);
    let mut waiting = vec![root.clone()];
    while let Some(id) = waiting.pop() {
        for next in needs(&id) {
            if reached.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    let package = |id: &str| packages.get(id).with_context(|| format!("`{id}` must be a package"));
    let reference = |id: &str| package(id).map(purl);
    let (mut components, mut dependencies) = (BTreeMap::new(), BTreeMap::new());
    for id in &reached {
        let depends: BTreeSet<String> = needs(id).iter().map(|it| reference(it)).collect::<Result<_>>()?;
        dependencies.insert(reference(id)?, depends);
        if *id != root {
            components.insert(reference(id)?, component(package(id)?, "library", sums));
        }
    }
    let dependencies: Vec<Value> =
        dependencies.into_iter().map(|(id, on)| json!({"ref": id, "dependsOn": on})).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": component(package(&root)?, "application", sums),
            "tools": {"components": [{"type": "application", "name": "cargo xtask sbom"}]},
        },
        "components": components.into_values().collect::<Vec<_>>(),
        "dependencies": dependencies,
    }))
}

fn component(package: &Value, kind: &str, sums: &BTreeMap<(String, String), String>) -> Value {
    let (name, version, purl) = (text(&package["name"]), text(&package["version"]), purl(package));
    let mut component =
        json!({"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl});
    if let Some(licence) = package["license"].as_str() {
        // Old manifests write `MIT/Apache-2.0`.
        component["licenses"] = json!([{"expression": licence.replace('/', " OR ")}]);
    }
    if let Some(sum) = sums.get(&(name, version)) {
        component["hashes"] = json!([{"alg": "SHA-256", "content": sum}]);
    }
    component
}

/// `pkg:cargo/name@1.2.3`
fn purl(package: &Value) -> String {
    // The only character of a version that means something in a purl.
    format!("pkg:cargo/{}@{}", text(&package["name"]), text(&package["version"]).replace('+', "%2B"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list<'a>(value: &'a Value, field: &str) -> Vec<&'a str> {
        value[field].as_array().unwrap().iter().map(|it| it["purl"].as_str().unwrap()).collect()
    }

    #[test]
    fn the_bill_has_what_is_built_and_not_what_is_tested_with() {
        let package = |name: &str, source: Option<&str>| json!({"id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0"});
        let dep = |name: &str, kind: Option<&str>| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("convoy", None), package("a", Some("x")), package("b", Some("x")), package("t", Some("x"))],
            "resolve": {"nodes": [
                {"id": "convoy", "deps": [dep("a", None), dep("t", Some("dev"))]},
                {"id": "a", "deps": [dep("b", Some("build"))]},
                {"id": "b", "deps": []}, {"id": "t", "deps": []},
            ]},
        });
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00ff\"\n";
        let bill = bill(&metadata, &pinned(lock)).unwrap();
        assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/convoy@1.0.0");
        assert_eq!(list(&bill, "components"), ["pkg:cargo/a@1.0.0", "pkg:cargo/b@1.0.0"]);
        assert_eq!(bill["components"][0]["hashes"], json!([{"alg": "SHA-256", "content": "00ff"}]));
        assert_eq!(bill["components"][0]["licenses"], json!([{"expression": "MIT OR Apache-2.0"}]));
        let first = json!({"ref": "pkg:cargo/a@1.0.0", "dependsOn": ["pkg:cargo/b@1.0.0"]});
        assert_eq!(bill["dependencies"][0], first);
    }

    /// On the workspace itself: everything has a licence, and everything from elsewhere is pinned.
    #[test]
    fn the_bill_of_this_repository_is_whole() {
        let lock = std::fs::read_to_string(run::root().join("Cargo.lock")).unwrap();
        let bill = bill(&metadata::resolved().unwrap(), &pinned(&lock)).unwrap();
        let components = bill["components"].as_array().unwrap();
        assert!(components.len() > 100, "{}", components.len());
        for component in components {
            let name = component["name"].as_str().unwrap();
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
            if component["hashes"].is_null() {
                let path = run::root().join("crates").join(name);
                assert!(path.is_dir(), "{name} comes from elsewhere and is not pinned");
            }
        }
        let names: Vec<&str> = components.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"rustls") && names.contains(&"server") && !names.contains(&"testkit"));
        let known: BTreeSet<&str> =
            bill["dependencies"].as_array().unwrap().iter().map(|it| it["ref"].as_str().unwrap()).collect();
        for dependency in bill["dependencies"].as_array().unwrap() {
            for on in dependency["dependsOn"].as_array().unwrap() {
                assert!(known.contains(on.as_str().unwrap()), "{on}");
            }
        }
    }

    #[test]
    fn sums_are_written_as_they_are_checked() {
        let folder = run::target().join("xtask-release-test");
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("abc");
        std::fs::write(&file, "abc").unwrap();
        write_sums(&folder, &[&file]).unwrap();
        let mut check = std::process::Command::new("sha256sum");
        assert!(run::succeeds(check.args(["--check", "--strict", SUMS]).current_dir(&folder)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
