//! A file that is only read: writes go to memory and are forgotten. With it the engine can recover and read
//! the last durable state of a file on a disk that takes no writes.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    io,
    os::unix::fs::FileExt,
};

use parking_lot::Mutex;
use redb::StorageBackend;

/// The unit in which writes are kept.
const PAGE: usize = 4096;
const PAGE_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct Overlay {
    base: File,
    base_len: u64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// Where the base ends as far as reads are concerned: it shrinks for good when the file is cut.
    base_end: u64,
    pages: HashMap<u64, Box<[u8]>>,
}

impl Overlay {
    pub(super) fn over(base: File) -> io::Result<Self> {
        let len = base.metadata()?.len();
        let state = State { len, base_end: len, pages: HashMap::new() };
        Ok(Self { base, base_len: len, state: Mutex::new(state) })
    }

    /// What the base holds there, with zeros behind its end.
    fn read_base(&self, base_end: u64, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let available = base_end.min(self.base_len).saturating_sub(offset);
        let n_read = usize::try_from(available).unwrap_or(usize::MAX).min(out.len());
        let (from_base, behind) = out.split_at_mut(n_read);
        behind.fill(0);
        self.base.read_exact_at(from_base, offset)
    }

    /// Calls `visit` for every piece of a stretch with its page, its place in the page and in the stretch.
    fn pieces(
        offset: u64,
        len: usize,
        mut visit: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < len {
            let at = offset + u64::try_from(done).map_err(io::Error::other)?;
            let page = at / PAGE_BYTES;
            let within = usize::try_from(at % PAGE_BYTES).map_err(io::Error::other)?;
            let count = (PAGE - within).min(len - done);
            visit(page, within..within + count, done..done + count)?;
            done += count;
        }
        Ok(())
    }
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state.lock();
        let end = offset.checked_add(u64::try_from(out.len()).map_err(io::Error::other)?);
        if end.is_none_or(|it| it > state.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_base(state.base_end, offset, out)?;
        Self::pieces(offset, out.len(), |page, within, of_out| {
            if let Some(page) = state.pages.get(&page) {
                out[of_out].copy_from_slice(&page[within]);
            }
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        state.len = len;
        state.base_end = state.base_end.min(len);
        let n_pages = len.div_ceil(PAGE_BYTES);
        state.pages.retain(|page, _| *page < n_pages);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let base_end = state.base_end;
        Self::pieces(offset, data.len(), |page, within, of_data| {
            let bytes = match state.pages.entry(page) {
                Entry::Occupied(it) => it.into_mut(),
                Entry::Vacant(it) => {
                    let mut bytes = vec![0; PAGE].into_boxed_slice();
                    self.read_base(base_end, page * PAGE_BYTES, &mut bytes)?;
                    it.insert(bytes)
                }
            };
            bytes[within].copy_from_slice(&data[of_data]);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn writes_are_seen_and_the_file_stays_as_it_was() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 10_000]).unwrap();
        let overlay = Overlay::over(file.try_clone().unwrap()).unwrap();
        overlay.write(4090, &[1; 10]).unwrap();
        overlay.set_len(20_000).unwrap();
        overlay.write(15_000, &[2; 4]).unwrap();
        let mut out = [0; 20];
        overlay.read(4085, &mut out).unwrap();
        assert_eq!(out, [7, 7, 7, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7]);
        overlay.read(9_995, &mut out[..10]).unwrap();
        assert_eq!(out[..10], [7, 7, 7, 7, 7, 0, 0, 0, 0, 0]);
        overlay.read(14_998, &mut out[..8]).unwrap();
        assert_eq!(out[..8], [0, 0, 2, 2, 2, 2, 0, 0]);
        assert!(overlay.read(19_990, &mut out).is_err());
        let mut base = [0; 10];
        file.read_exact_at(&mut base, 4090).unwrap();
        assert_eq!((base, file.metadata().unwrap().len()), ([7; 10], 10_000));
    }
}
