//! A disk that is slow or full, for tests of whatever stands on the store. Nothing else uses it.
//!
//! # Flow
//! Open with [`EmbeddedStore::open_with_faults`](crate::EmbeddedStore::open_with_faults) and keep the [`DiskFaults`].
//! They can be used again for the same directory.

use std::{collections::BTreeSet, fs::File, io, sync::Arc, time::Duration};

use parking_lot::Mutex;
use redb::{DatabaseError, StorageBackend, backends::FileBackend};

use crate::volume::{Room, Volume};

/// The unit in which a disk gives space.
const BLOCK: u64 = 4096;

/// What is free on a disk that is not full.
const PLENTY: u64 = 1 << 40;

/// `ENOSPC`, as Linux says it.
const NO_SPACE: i32 = 28;

/// Steers the disk of one store. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DiskFaults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    is_full: bool,
    /// Whether nobody can tell before a write fails.
    is_unseen: bool,
    /// What is left on a full disk.
    spare: u64,
    /// What is kept for removals.
    kept: u64,
    /// The blocks that the file has: these can always be written again.
    blocks: BTreeSet<u64>,
    delay: Duration,
}

impl DiskFaults {
    /// From now on there is no space for anything new.
    pub fn fill(&self) {
        let mut state = self.0.lock();
        (state.is_full, state.is_unseen, state.spare) = (true, false, 0);
    }

    /// The same, but somebody else takes the space between a look at the disk and a write to it.
    pub fn fill_unseen(&self) {
        self.fill();
        self.0.lock().is_unseen = true;
    }

    /// There is space again.
    pub fn free(&self) {
        self.0.lock().is_full = false;
    }

    /// How many bytes the file takes up.
    pub fn used(&self) -> u64 {
        u64::try_from(self.0.lock().blocks.len()).unwrap_or(u64::MAX).saturating_mul(BLOCK)
    }

    /// Every sync takes this much longer.
    pub fn slow(&self, delay: Duration) {
        self.0.lock().delay = delay;
    }

    pub(crate) fn volume(&self) -> Volume {
        let faults = self.clone();
        Volume::new(move |file| Disturbed::new(file, faults.clone()), self.clone())
    }
}

impl Room for DiskFaults {
    fn free(&self) -> io::Result<u64> {
        let state = self.0.lock();
        Ok(if state.is_full && !state.is_unseen { state.spare } else { PLENTY })
    }

    fn keep(&self, n_bytes: u64) -> io::Result<()> {
        let mut state = self.0.lock();
        if state.is_full {
            state.spare = state.spare.checked_sub(n_bytes).ok_or(io::Error::from_raw_os_error(NO_SPACE))?;
        }
        state.kept = n_bytes;
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        let mut state = self.0.lock();
        state.spare += std::mem::take(&mut state.kept);
        Ok(())
    }

    fn is_kept(&self, n_bytes: u64) -> bool {
        self.0.lock().kept >= n_bytes
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
        let n_blocks = file.metadata().map_or(0, |it| it.len().div_ceil(BLOCK));
        faults.0.lock().blocks = (0..n_blocks).collect();
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
        let mut state = self.faults.0.lock();
        let cut = state.blocks.split_off(&len.div_ceil(BLOCK));
        state.spare += u64::try_from(cut.len()).unwrap_or(0) * BLOCK;
        drop(state);
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        // The writer has a thread of its own, which a slow disk would hold up just so.
        let delay = self.faults.0.lock().delay;
        std::thread::sleep(delay);
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.faults.0.lock();
        let end = offset + u64::try_from(data.len()).map_err(io::Error::other)?;
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            if !state.blocks.contains(&block) {
                if state.is_full && state.spare < BLOCK {
                    state.is_unseen = false;
                    return Err(io::Error::from_raw_os_error(NO_SPACE));
                }
                state.spare = state.spare.saturating_sub(BLOCK);
                state.blocks.insert(block);
            }
        }
        drop(state);
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}
