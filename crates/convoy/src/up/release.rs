//! The release that `convoy up` was last rolled to, kept beside its data so that it is the same after a restart.
//!
//! All servers start at one release. While they are rolled it is the older of the two until the last server is about to
//! leave it: only then can something be stored that the older one cannot read.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use meta::Release;

use crate::{failure::Failure, flags::parse_release};

const FILE: &str = "up.release";

/// Where the release is kept.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    path: PathBuf,
}

impl Remembered {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join(FILE) }
    }

    /// What was kept, if anything was.
    pub(super) fn read(&self) -> Result<Option<Release>, Failure> {
        let wrong = |it: &dyn std::fmt::Display| {
            let path = self.path.display();
            Failure::failed(format!(
                "{path} does not say which release this was rolled to: {it}; name one with --emulated-version"
            ))
        };
        match fs::read_to_string(&self.path) {
            Ok(text) => parse_release(text.trim()).map(Some).map_err(|it| wrong(&it)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrong(&error)),
        }
    }

    /// Keeps it; should that fail, the next start is at what was kept before.
    pub(super) fn write(&self, release: Release) {
        let written = (|| {
            let draft = self.path.with_added_extension("new");
            let mut file = File::create(&draft)?;
            writeln!(file, "{release}")?;
            file.sync_all()?;
            fs::rename(&draft, &self.path)?;
            File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
        })();
        if let Err(error) = written {
            let path = self.path.display();
            tracing::warn!("{path} cannot be written, so that a restart forgets release {release}: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_kept_and_nonsense_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let remembered = Remembered::in_folder(folder.path());
        assert_eq!(remembered.read().unwrap(), None);
        for release in [Release::v1(35), Release::v1(34)] {
            remembered.write(release);
            assert_eq!(remembered.read().unwrap(), Some(release));
        }
        fs::write(folder.path().join(FILE), "1.99\n").unwrap();
        let failure = remembered.read().unwrap_err().to_string();
        assert!(failure.contains(FILE) && failure.contains("--emulated-version"), "{failure}");
    }
}
