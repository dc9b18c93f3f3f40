//! Files that are either all there or not at all.
//!
//! Responsible for: writing a set of files so that nobody ever reads half of one, and keeping private ones private.
//! Deliberately not here: what is in them.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Its owner: 0600.
    Private,
    /// Everybody: 0644.
    Public,
}

/// A file to write.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub contents: Vec<u8>,
    /// For whom.
    pub access: Access,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct WriteError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Writes one file: a reader sees the old one or the new one, also after a power cut.
pub fn write(path: &Path, contents: &[u8], access: Access) -> Result<(), WriteError> {
    write_all(&[NewFile { path: path.to_owned(), contents: contents.to_vec(), access }])
}

/// Writes each of the files as [`write()`] does, in this order. All reach the disk together, so that a dozen cost
/// little more than one.
pub fn write_all(files: &[NewFile]) -> Result<(), WriteError> {
    let drafts: Vec<Draft<'_>> = files.iter().map(Draft::create).collect::<Result<_, _>>()?;
    // Concurrent syncs share the file system's commit.
    let synced: Vec<_> = std::thread::scope(|scope| {
        let syncing: Vec<_> = drafts.iter().map(|it| scope.spawn(|| it.file.sync_all())).collect();
        syncing.into_iter().map(|it| it.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))).collect()
    });
    for (draft, synced) in drafts.iter().zip(synced) {
        synced.map_err(|source| draft.failed(source))?;
    }
    for draft in &drafts {
        fs::rename(&draft.path, &draft.target.path).map_err(|source| draft.failed(source))?;
    }
    let mut folders: Vec<_> = files.iter().filter_map(|it| it.path.parent()).collect();
    folders.dedup();
    for folder in folders {
        sync_folder(folder)?;
    }
    Ok(())
}

/// A file under a name that nobody reads; removed if it never gets its real one.
struct Draft<'a> {
    target: &'a NewFile,
    path: PathBuf,
    file: File,
}

impl<'a> Draft<'a> {
    fn create(target: &'a NewFile) -> Result<Self, WriteError> {
        let failed = |source| WriteError { path: target.path.clone(), source };
        let name = target.path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
        let draft = format!(".{}.{:016x}", name.to_string_lossy(), rand::random::<u64>());
        let path = target.path.with_file_name(draft);
        let mode = match target.access {
            Access::Private => 0o600,
            Access::Public => 0o644,
        };
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&path).map_err(failed)?;
        let written = file.write_all(&target.contents);
        let draft = Self { target, path, file };
        match written {
            Ok(()) => Ok(draft),
            Err(source) => Err(failed(source)),
        }
    }

    fn failed(&self, source: io::Error) -> WriteError {
        WriteError { path: self.target.path.clone(), source }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Gone already if it got its real name.
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes new names in a folder last.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), WriteError> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let synced = File::open(folder).and_then(|it| it.sync_all());
    synced.map_err(|source| WriteError { path: folder.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn files_are_replaced_whole_and_leave_no_drafts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, b"one", Access::Public).unwrap();
        write(&path, b"two", Access::Private).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_error_names_the_file_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write(&taken, b"x", Access::Public).unwrap_err();
        assert!(error.to_string().ends_with("/taken"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
