//! A disk that is slow or full, for tests of whatever stands on the store. Nothing else uses it.
//!
//! # Flow
//! Open with [`EmbeddedStore::open_with_faults`](crate::EmbeddedStore::open_with_faults) and keep the [`DiskFaults`].
//! A store that met a full disk takes no writes until it is opened anew, which the same faults can be used for.

use std::{fs::File, io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use redb::{DatabaseError, StorageBackend, backends::FileBackend};

/// `ENOSPC`, as Linux says it.
const NO_SPACE: i32 = 28;

/// Steers the disk of one store. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DiskFaults(Arc<Mutex<State>>);

#[derive(Clone, Copy, Debug, Default)]
struct State {
    is_full: bool,
    delay: Duration,
}

impl DiskFaults {
    /// From now on there is no space for anything new.
    pub fn fill(&self) {
        self.0.lock().is_full = true;
    }

    /// There is space again. A store that noticed that there was none has to be opened anew.
    pub fn free(&self) {
        self.0.lock().is_full = false;
    }

    /// Every sync takes this much longer.
    pub fn slow(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    fn now(&self) -> State {
        *self.0.lock()
    }

    fn check_space(&self) -> io::Result<()> {
        if self.now().is_full { Err(io::Error::from_raw_os_error(NO_SPACE)) } else { Ok(()) }
    }
}

/// The file of a store on such a disk.
#[derive(Debug)]
pub(crate) struct Disturbed {
    file: FileBackend,
    faults: DiskFaults,
}

impl Disturbed {
    pub(crate) fn new(file: File, faults: DiskFaults) -> Result<Self, DatabaseError> {
        Ok(Self { file: FileBackend::new(file)?, faults })
    }
}

impl StorageBackend for Disturbed {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.check_space()?;
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // The writer has a thread of its own, which a slow disk would hold up just so.
        std::thread::sleep(self.faults.now().delay);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.check_space()?;
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
