//! SHA-256 sums of files, by the `sha256sum` that every Linux has.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// The sum of a file, in hexadecimal.
pub fn of(path: &Path) -> Result<String> {
    let said = run::output(Command::new("sha256sum").arg("--").arg(path))?;
    let sum = said.split_whitespace().next().context("sha256sum must print a sum")?;
    // A backslash before it says that the name is escaped.
    Ok(sum.trim_start_matches('\\').to_owned())
}

/// Fails, and removes the file, unless it has this sum.
pub fn verify(path: &Path, wanted: &str) -> Result<()> {
    let found = of(path)?;
    if found != wanted {
        let _ = std::fs::remove_file(path);
        bail!("{} has the SHA-256 sum {found}, not {wanted}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_what_it_was_is_refused_and_removed() {
        let path = run::target().join("xtask-checksum-test");
        std::fs::create_dir_all(run::target()).unwrap();
        std::fs::write(&path, "abc").unwrap();
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(&path).unwrap(), sum);
        verify(&path, sum).unwrap();
        std::fs::write(&path, "abd").unwrap();
        assert!(verify(&path, sum).unwrap_err().to_string().contains(sum));
        assert!(!path.exists());
    }
}
