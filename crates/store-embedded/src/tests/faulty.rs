//! A file that fails at a chosen moment, or loses what was not synced when the power goes.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex},
};

use rand::{RngExt, rngs::StdRng, seq::SliceRandom};
use redb::StorageBackend;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Writes fail, the first one halfway.
    Write,
    /// There is no space left; syncs still work.
    NoSpace,
    /// Syncs fail, writes do not.
    Sync,
    /// Nothing works any more, and nothing that was not synced can be relied on.
    Power,
}

/// A file with faults. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Faulty(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    file: File,
    kind: Kind,
    n_operations: u64,
    fails_at: u64,
    /// What would be there after a power cut, and what may or may not be.
    durable: Vec<u8>,
    unsynced: Vec<Operation>,
}

#[derive(Clone, Debug)]
enum Operation {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Faulty {
    /// Goes wrong at the `fails_at`th change or sync, and from then on.
    pub(super) fn new(file: File, kind: Kind, fails_at: u64) -> Self {
        let mut durable = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
        file.read_exact_at(&mut durable, 0).unwrap();
        Self(Arc::new(Mutex::new(Inner {
            file,
            kind,
            n_operations: 0,
            fails_at,
            durable,
            unsynced: Vec::new(),
        })))
    }

    /// How many changes and syncs there were.
    pub(super) fn n_operations(&self) -> u64 {
        self.0.lock().unwrap().n_operations
    }

    /// What a disk may hold after the power cut: everything synced, and any part of the rest, also torn.
    pub(super) fn after_power_cut(&self, random: &mut StdRng) -> Vec<u8> {
        let inner = self.0.lock().unwrap();
        let mut image = inner.durable.clone();
        let mut unsynced = inner.unsynced.clone();
        unsynced.retain(|_| random.random_bool(0.5));
        unsynced.shuffle(random);
        for operation in &mut unsynced {
            if let Operation::Write(_, data) = operation
                && random.random_bool(0.3)
            {
                // Disks write sectors.
                let n_sectors = data.len() / 512;
                data.truncate(random.random_range(0..=n_sectors) * 512);
            }
            apply(&mut image, operation);
        }
        image
    }
}

fn apply(image: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::SetLen(len) => image.resize(*len, 0),
        Operation::Write(offset, data) => {
            let end = offset + data.len();
            image.resize(image.len().max(end), 0);
            image[*offset..end].copy_from_slice(data);
        }
    }
}

impl Inner {
    fn step(&mut self, fails: bool) -> io::Result<()> {
        self.n_operations += 1;
        if fails && self.n_operations >= self.fails_at {
            let error = if self.kind == Kind::NoSpace { 28 } else { 5 };
            return Err(io::Error::from_raw_os_error(error));
        }
        Ok(())
    }
}

impl StorageBackend for Faulty {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().file.metadata()?.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.lock().unwrap().file.read_exact_at(out, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fails = matches!(inner.kind, Kind::Write | Kind::NoSpace | Kind::Power);
        inner.step(fails)?;
        inner.unsynced.push(Operation::SetLen(usize::try_from(len).unwrap()));
        inner.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fails = matches!(inner.kind, Kind::Sync | Kind::Power);
        inner.step(fails)?;
        let Inner { durable, unsynced, .. } = &mut *inner;
        for operation in unsynced.drain(..) {
            apply(durable, &operation);
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fails = matches!(inner.kind, Kind::Write | Kind::NoSpace | Kind::Power);
        let result = inner.step(fails);
        let at = usize::try_from(offset).unwrap();
        // A failed write may have changed something all the same; the power may go in the middle of one.
        let data = if result.is_err() { &data[..data.len() / 2] } else { data };
        if result.is_ok() || inner.n_operations == inner.fails_at {
            inner.unsynced.push(Operation::Write(at, data.to_vec()));
            inner.file.write_all_at(data, offset)?;
        }
        result
    }
}
