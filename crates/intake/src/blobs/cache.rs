//! A cache of extents of packs in one file of fixed size.
//!
//! Slots of [`EXTENT_SIZE`] bytes; which slot has which extent is in memory, so a start begins with an empty
//! one. A slot is given to another extent by the clock algorithm: one that was used since the hand passed it is
//! spared once.
//!
//! Invariants: the file has at most the bytes it was given; a slot is not overwritten while it is read; what is
//! returned may be damaged, which the checksums of its blocks show ([`BlockReader`](crate::blocks::BlockReader));
//! nothing says that an extent does not exist.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use foldhash::{HashMap, HashMapExt as _};
use forebay_base::fs::{File, FileSystem};
use parking_lot::Mutex;

use super::pack::PackId;

/// Bytes of an extent. That of the end of a pack is shorter.
pub(crate) const EXTENT_SIZE: u64 = 64 << 10;

/// An extent of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Extent {
    pub(crate) pack: PackId,
    /// Its number in the pack.
    pub(crate) number: u64,
}

#[derive(Debug)]
pub(crate) struct Cache {
    /// `None`: nothing is cached.
    file: Option<Arc<dyn File>>,
    slots_max: usize,
    table: Mutex<Table>,
    /// Whether the last use of the file failed, which is logged once.
    is_failing: AtomicBool,
}

#[derive(Debug)]
struct Table {
    slots: Vec<Slot>,
    places: HashMap<Extent, usize>,
    hand: usize,
}

#[derive(Debug)]
struct Slot {
    /// `None`: its content is not to be read.
    extent: Option<Extent>,
    size: usize,
    /// Reads and writes in progress.
    users: u32,
    used: bool,
}

/// What the cache holds and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheState {
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
}

impl Cache {
    /// Makes the cache file again.
    ///
    /// * `size_max`: of it, in bytes. Less than an extent: nothing is cached.
    ///
    /// # Errors
    /// The file system's error.
    pub(crate) fn create(fs: &dyn FileSystem, path: &Path, size_max: u64) -> io::Result<Self> {
        match fs.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let slots_max = usize::try_from(size_max / EXTENT_SIZE).unwrap_or(usize::MAX);
        let file = if slots_max > 0 { Some(fs.create_new(path)?) } else { None };
        let table = Table { slots: Vec::new(), places: HashMap::new(), hand: 0 };
        Ok(Self { file, slots_max, table: Mutex::new(table), is_failing: AtomicBool::new(false) })
    }

    /// Reads an extent; `None` if it is not cached.
    pub(crate) fn get(&self, extent: Extent) -> Option<Vec<u8>> {
        let file = self.file.as_ref()?;
        let (at, size) = {
            let mut table = self.table.lock();
            let at = *table.places.get(&extent)?;
            let slot = table.slots.get_mut(at)?;
            slot.users += 1;
            slot.used = true;
            (at, slot.size)
        };
        let mut bytes = vec![0; size];
        let read = file.read_exact_at(&mut bytes, offset(at));
        self.table.lock().leave(at);
        match read {
            Ok(()) => Some(bytes),
            Err(error) => {
                self.failed(&error);
                self.forget(extent);
                None
            }
        }
    }

    /// Keeps an extent, in the place of another if there is no room.
    pub(crate) fn put(&self, extent: Extent, bytes: &[u8]) {
        let Some(file) = &self.file else { return };
        if bytes.is_empty() || bytes.len() as u64 > EXTENT_SIZE {
            return;
        }
        let Some(at) = self.table.lock().claim(extent, self.slots_max) else { return };
        let written = file.write_all_at(bytes, offset(at));
        let mut table = self.table.lock();
        table.leave(at);
        match written {
            Ok(()) => {
                table.fill(at, extent, bytes.len());
                self.is_failing.store(false, Relaxed);
            }
            Err(error) => {
                drop(table);
                self.failed(&error);
            }
        }
    }

    fn failed(&self, error: &io::Error) {
        if !self.is_failing.swap(true, Relaxed) {
            tracing::warn!(%error, "the cache of blobs cannot be used; they are read from object storage");
        }
    }

    /// Drops an extent. Returns whether it was cached.
    pub(crate) fn forget(&self, extent: Extent) -> bool {
        let mut table = self.table.lock();
        let Some(at) = table.places.remove(&extent) else { return false };
        if let Some(slot) = table.slots.get_mut(at) {
            slot.extent = None;
            slot.used = false;
        }
        true
    }

    pub(crate) fn state(&self) -> CacheState {
        let table = self.table.lock();
        let bytes = table.slots.iter().filter(|slot| slot.extent.is_some());
        CacheState {
            bytes: bytes.map(|slot| slot.size as u64).sum(),
            bytes_max: self.slots_max as u64 * EXTENT_SIZE,
        }
    }
}

impl Table {
    /// Takes a slot for an extent, which is not to be read until it is filled. `None` if it is cached already, or
    /// every slot is in use.
    fn claim(&mut self, extent: Extent, slots_max: usize) -> Option<usize> {
        if self.places.contains_key(&extent) {
            return None;
        }
        if self.slots.len() < slots_max {
            self.slots.push(Slot { extent: None, size: 0, users: 1, used: false });
            return Some(self.slots.len() - 1);
        }
        // Two rounds: the first may only take the marks away.
        for _ in 0..self.slots.len().saturating_mul(2) {
            let at = self.hand;
            self.hand = (at + 1) % self.slots.len();
            let slot = self.slots.get_mut(at)?;
            if slot.users > 0 {
                continue;
            }
            if std::mem::take(&mut slot.used) {
                continue;
            }
            slot.users = 1;
            if let Some(before) = slot.extent.take() {
                self.places.remove(&before);
            }
            return Some(at);
        }
        None
    }

    fn leave(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.users = slot.users.saturating_sub(1);
        }
    }

    fn fill(&mut self, at: usize, extent: Extent, size: usize) {
        // Another may have cached the same meanwhile; then this slot stays free.
        if self.places.contains_key(&extent) {
            return;
        }
        if let Some(slot) = self.slots.get_mut(at) {
            (slot.extent, slot.size) = (Some(extent), size);
            self.places.insert(extent, at);
        }
    }
}

fn offset(slot: usize) -> u64 {
    slot as u64 * EXTENT_SIZE
}

#[cfg(test)]
mod tests {
    use forebay_base::fs::RealFs;

    use super::*;

    fn extent(number: u64) -> Extent {
        Extent { pack: PackId(1), number }
    }

    #[test]
    fn the_file_never_exceeds_its_size_and_what_is_used_stays_longer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("blob-cache");
        std::fs::write(&path, b"of an earlier process").unwrap();
        let cache = Cache::create(&RealFs, &path, 4 * EXTENT_SIZE + 5).unwrap();
        assert_eq!(cache.get(extent(0)), None);
        let content =
            |number: u64| vec![u8::try_from(number).unwrap(); 1 + usize::try_from(number).unwrap()];
        for number in 0..40 {
            cache.put(extent(number), &content(number));
            assert_eq!(cache.get(extent(number)), Some(content(number)), "{number}");
        }
        assert!(std::fs::metadata(&path).unwrap().len() <= 4 * EXTENT_SIZE);
        let kept = (0..40).filter(|number| cache.get(extent(*number)).is_some()).count();
        assert_eq!(kept, 4);
        // All four were used: the first round takes the marks away, and the second one the first slot. After that
        // one that was used again is spared.
        cache.put(extent(40), b"40");
        let left: Vec<u64> =
            (36..40).filter(|n| cache.table.lock().places.contains_key(&extent(*n))).collect();
        let [used, unused, ..] = left[..] else { panic!("{left:?}") };
        assert!(cache.get(extent(used)).is_some());
        cache.put(extent(41), b"41");
        let has = |number| cache.table.lock().places.contains_key(&extent(number));
        assert!(has(used) && !has(unused) && has(40) && has(41));
        assert!(cache.forget(extent(39)) && !cache.forget(extent(39)));
        assert_eq!(cache.get(extent(39)), None);
        assert_eq!(cache.state().bytes_max, 4 * EXTENT_SIZE);
    }

    #[test]
    fn a_slot_that_is_read_is_not_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::create(&RealFs, &dir.path().join("c"), EXTENT_SIZE).unwrap();
        cache.put(extent(1), b"one");
        cache.table.lock().slots[0].users = 1;
        cache.put(extent(2), b"two");
        assert_eq!(cache.get(extent(2)), None);
        cache.table.lock().leave(0);
        cache.put(extent(2), b"two");
        assert_eq!(cache.get(extent(2)).as_deref(), Some(&b"two"[..]));
        assert_eq!(cache.get(extent(1)), None);
    }

    #[test]
    fn without_room_nothing_is_cached_and_nothing_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        let cache = Cache::create(&RealFs, &path, EXTENT_SIZE - 1).unwrap();
        cache.put(extent(1), b"one");
        assert_eq!((cache.get(extent(1)), path.exists()), (None, false));
    }
}
