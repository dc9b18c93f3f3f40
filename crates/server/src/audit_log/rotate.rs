//! A file that is put aside when it gets too large. Old files carry the time in their names, as upstream's do:
//! `audit.log` becomes `audit-2026-11-15T21-30-00.123.log`.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp, civil::DateTime, tz::TimeZone};
use store::SharedClock;

use super::Rotation;

const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";

pub(super) struct RotatedFile {
    rotation: Rotation,
    clock: SharedClock,
    file: BufWriter<File>,
    bytes: u64,
}

impl RotatedFile {
    pub(super) fn open(rotation: Rotation, clock: SharedClock) -> io::Result<Self> {
        if let Some(folder) = rotation.path.parent().filter(|it| !it.as_os_str().is_empty()) {
            fs::create_dir_all(folder)?;
        }
        let file = append(&rotation.path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { rotation, clock, file: BufWriter::new(file), bytes })
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        fs::rename(&self.rotation.path, self.backup_path())?;
        self.file = BufWriter::new(append(&self.rotation.path)?);
        self.bytes = 0;
        self.remove_old()
    }

    fn backup_path(&self) -> PathBuf {
        let mut at = self.clock.now();
        loop {
            let (stem, extension) = self.name_parts();
            let time = at.to_zoned(TimeZone::UTC).strftime(TIME_FORMAT).to_string();
            let path = self.rotation.path.with_file_name(format!("{stem}-{time}{extension}"));
            if !path.exists() {
                return path;
            }
            // Several within one millisecond: the next one takes the next name.
            at += SignedDuration::from_millis(1);
        }
    }

    fn name_parts(&self) -> (String, String) {
        let path = &self.rotation.path;
        let text = |it: Option<&OsStr>| it.map(|it| it.to_string_lossy().into_owned());
        let extension = text(path.extension()).map(|it| format!(".{it}")).unwrap_or_default();
        (text(path.file_stem()).unwrap_or_default(), extension)
    }

    fn remove_old(&self) -> io::Result<()> {
        let mut backups = self.backups()?;
        backups.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
        let now = self.clock.now();
        let max_age = SignedDuration::try_from(self.rotation.max_age).unwrap_or(SignedDuration::MAX);
        for (index, (time, path)) in backups.iter().enumerate() {
            let too_many = self.rotation.max_backups > 0 && index >= self.rotation.max_backups;
            let too_old = !self.rotation.max_age.is_zero() && now.duration_since(*time) > max_age;
            if too_many || too_old {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn backups(&self) -> io::Result<Vec<(Timestamp, PathBuf)>> {
        let folder = self.rotation.path.parent().filter(|it| !it.as_os_str().is_empty());
        let (stem, extension) = self.name_parts();
        let prefix = format!("{stem}-");
        let mut backups = Vec::new();
        for entry in fs::read_dir(folder.unwrap_or(Path::new(".")))? {
            let path = entry?.path();
            let Some(name) = path.file_name().and_then(OsStr::to_str) else { continue };
            let Some(time) = name.strip_prefix(&prefix).and_then(|it| it.strip_suffix(&extension)) else {
                continue;
            };
            // A file that somebody else put there does not parse, and is left alone.
            let Ok(time) = DateTime::strptime(TIME_FORMAT, time) else { continue };
            let Ok(time) = time.to_zoned(TimeZone::UTC) else { continue };
            backups.push((time.timestamp(), path));
        }
        Ok(backups)
    }
}

impl Write for RotatedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let max = self.rotation.max_bytes;
        if max > 0 && self.bytes > 0 && self.bytes.saturating_add(length) > max {
            self.rotate()?;
        }
        self.file.write_all(line)?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}
