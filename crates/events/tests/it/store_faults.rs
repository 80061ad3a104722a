//! An unreadable device: errors that name the place, no wrong data, and everything readable again
//! afterwards.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_base::clock::ManualClock;
use forebay_base::error_chain::chain;
use forebay_base::fs::sim::{Rng, SimFs};
use forebay_base::fs::{Access, DirEntry, File, FileSystem, Lock};
use forebay_events::query::Query;
use forebay_events::{EventId, Store};

use crate::store_model::{DIR, Model, START_MS, options};

/// A disk whose reads fail while a flag is set.
#[derive(Debug, Clone)]
struct Unreadable {
    disk: SimFs,
    fails: Arc<AtomicBool>,
}

#[derive(Debug)]
struct UnreadableFile {
    file: Arc<dyn File>,
    fails: Arc<AtomicBool>,
}

impl Unreadable {
    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(UnreadableFile { file, fails: Arc::clone(&self.fails) })
    }
}

impl FileSystem for Unreadable {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.disk.create_new(path).map(|file| self.file(file))
    }
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        self.disk.open(path, access).map(|file| self.file(file))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_file(path)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.disk.create_dir_all(path)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.sync_dir(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }
    fn len(&self, path: &Path) -> io::Result<u64> {
        self.disk.len(path)
    }
    fn lock_exclusive(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        self.disk.lock_exclusive(path)
    }
}

impl File for UnreadableFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.fails.load(Ordering::Relaxed) {
            return Err(io::Error::other("the device cannot be read"));
        }
        self.file.read_at(buf, offset)
    }
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(data, offset)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn allocate(&self, len: u64) -> io::Result<()> {
        self.file.allocate(len)
    }
    fn disk_size(&self) -> io::Result<u64> {
        self.file.disk_size()
    }
}

#[test]
fn while_the_device_cannot_be_read_nothing_wrong_is_and_nothing_is_lost() {
    let fails = Arc::new(AtomicBool::new(false));
    let disk = Unreadable { disk: SimFs::new(1), fails: Arc::clone(&fails) };
    let clock = Arc::new(ManualClock::new(START_MS));
    let mut small = options("sync".parse().unwrap());
    small.block_cache_size = 0;
    small.retention = Vec::new();
    let open =
        || Store::open_quiet(Arc::new(disk.clone()), clock.clone(), Path::new(DIR), small.clone());
    let (store, _) = open().unwrap();
    let (mut model, mut rng) = (Model::default(), Rng::new(4));
    for _ in 0..14 {
        model.append(&store, &mut rng, &clock, 21).unwrap();
    }
    store.flush().unwrap();
    model.append(&store, &mut rng, &clock, 21).unwrap();
    fails.store(true, Ordering::Relaxed);
    for seq in 0..model.events.len() {
        let found = store.at(seq as u64);
        match found {
            Ok(found) => assert!(found.unwrap().leaf() == model.events[seq].leaf),
            Err(error) => {
                let message = chain(&error).to_string();
                assert!(message.contains(".segment: the device cannot be read"), "{message}");
            }
        }
    }
    assert!(store.at(0).is_err() && store.at(model.events.len() as u64 - 1).is_ok());
    assert!(store.scan(Query::default()).next().is_err());
    assert!(
        store.get(EventId(77)).is_ok_and(|found| found.is_none())
            || store.get(EventId(77)).is_err()
    );
    // Writing needs no reading.
    model.append(&store, &mut rng, &clock, 5).unwrap();
    assert!(store.compact().is_err());
    fails.store(false, Ordering::Relaxed);
    store.compact().unwrap();
    let all = model.events.len();
    model.judge(&store, all);
    store.close().unwrap();
    fails.store(true, Ordering::Relaxed);
    assert!(open().is_err());
    fails.store(false, Ordering::Relaxed);
    let (store, _) = open().unwrap();
    model.judge(&store, all);
    drop(store);
    model.verify(&disk.disk);
}
