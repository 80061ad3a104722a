//! A disk in memory that can fail, fill up, or lose power at any operation.
//!
//! Every operation that changes something, including a sync, has a number. A test runs its workload
//! once to count them ([`SimFs::operations`]), then once for each number with a [`Fault`] planned
//! there ([`SimFs::plan`]), and checks what is left:
//!
//! - [`SimFs::power_off`]: what was synced survives. Of the rest any part may survive: writes
//!   whole, torn at any byte, reordered or lost, and names likewise.
//! - [`SimFs::kill`]: the process ends but the kernel does not: everything written survives.
//!
//! Invariant: the same seeds and the same operations produce the same disk.
//!
//! ```
//! use forebay_base::fs::{FileSystem, sim::SimFs};
//! use std::path::Path;
//! let disk = SimFs::new(1);
//! let file = disk.create_new(Path::new("/a"))?;
//! file.write_all_at(b"kept", 0)?;
//! file.sync_all()?;
//! disk.sync_dir(Path::new("/"))?;
//! let after = disk.power_off(7);
//! assert_eq!(after.len(Path::new("/a"))?, 4);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;

use super::{Access, DirEntry, File, FileSystem, Lock};

mod disk;
mod rng;

pub use rng::Rng;

use disk::{Change, Disk, NameChange, Node};

/// The failure of a planned operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The device fails (EIO). A write may be partial; a failed sync loses what it should have made
    /// durable.
    Io,
    /// There is no space left (ENOSPC). A write may be partial; a sync fails as for [`Fault::Io`].
    Full,
    /// Every later operation fails. The operation itself may or may not take effect.
    Stop,
}

/// A simulated disk. Clones are the same disk.
#[derive(Debug, Clone)]
pub struct SimFs {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    disk: Disk,
    rng: Rng,
    operations: u64,
    plan: Vec<(u64, Fault)>,
    stopped: bool,
    locked: BTreeSet<PathBuf>,
}

/// The planned outcome of an operation that changes something.
enum Course {
    Done,
    /// Fails after part of it took effect.
    Failed(io::Error),
    /// May take effect; the caller never learns of it.
    Stopped(io::Error),
}

impl SimFs {
    /// Returns an empty disk with a root directory `/`.
    ///
    /// * `seed`: decides how much of a failed write or sync took effect.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut disk = Disk::default();
        let root = NameChange::Set { path: PathBuf::from("/"), node: Node::Dir };
        disk.names.change(root);
        Self::with_disk(disk, seed)
    }

    fn with_disk(mut disk: Disk, seed: u64) -> Self {
        // The root has no directory above it to be synced through.
        disk.names.sync_root();
        let state = State {
            disk,
            rng: Rng::new(seed),
            operations: 0,
            plan: Vec::new(),
            stopped: false,
            locked: BTreeSet::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the number of operations that changed something or tried to.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Makes `fault` happen at operation number `at`, counted from 0 as [`SimFs::operations`] does.
    pub fn plan(&self, at: u64, fault: Fault) {
        self.state.lock().plan.push((at, fault));
    }

    /// Limits the bytes that files may take; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().disk.capacity = bytes;
    }

    /// Returns whether a planned [`Fault::Stop`] was met.
    #[must_use]
    pub fn stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Returns the disk as it may be after a power loss now; this one stops working.
    ///
    /// * `seed`: selects which unsynced changes survive. May be called again with another seed.
    #[must_use]
    pub fn power_off(&self, seed: u64) -> Self {
        let mut state = self.state.lock();
        state.stopped = true;
        let mut rng = Rng::new(seed);
        let disk = state.disk.power_off(&mut rng);
        Self::with_disk(disk, rng.next_u64())
    }

    /// Returns the disk as the next process finds it after this process was killed: with all that
    /// was written, synced or not. This one stops working.
    #[must_use]
    pub fn kill(&self) -> Self {
        let mut state = self.state.lock();
        state.stopped = true;
        let seed = state.rng.clone().next_u64();
        Self::with_disk(state.disk.clone(), seed)
    }

    /// Returns an independent copy of the disk, unsynced changes included.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = self.state.lock();
        Self::with_disk(state.disk.clone(), state.rng.clone().next_u64())
    }

    /// Flips the bits of `mask` in the byte at `offset` of a file, permanently, as ageing media
    /// does.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`], or [`io::ErrorKind::UnexpectedEof`] beyond the file's end.
    pub fn corrupt(&self, path: &Path, offset: u64, mask: u8) -> io::Result<()> {
        let mut state = self.state.lock();
        let inode = state.file(path)?;
        let offset = index(offset)?;
        let flipped = state.disk.inodes.get_mut(&inode).is_some_and(|i| i.flip(offset, mask));
        if flipped { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl State {
    /// Counts an operation and decides its outcome.
    fn begin(&mut self) -> io::Result<Course> {
        self.check_running()?;
        let now = self.operations;
        self.operations += 1;
        let Some((_, fault)) = self.plan.iter().find(|(at, _)| *at == now) else {
            return Ok(Course::Done);
        };
        Ok(match fault {
            Fault::Io => Course::Failed(io::Error::other("simulated device failure")),
            Fault::Full => Course::Failed(io::ErrorKind::StorageFull.into()),
            Fault::Stop => {
                self.stopped = true;
                Course::Stopped(stopped())
            }
        })
    }

    fn check_running(&self) -> io::Result<()> {
        if self.stopped { Err(stopped()) } else { Ok(()) }
    }

    fn file(&self, path: &Path) -> io::Result<u64> {
        match self.disk.names.live.get(path) {
            Some(Node::File(inode)) => Ok(*inode),
            Some(Node::Dir) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn check_parent(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
        match self.disk.names.live.get(parent) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Changes names, as far as the outcome of the operation allows.
    fn change_names(&mut self, change: NameChange) -> io::Result<()> {
        match self.begin()? {
            Course::Done => {
                self.disk.names.change(change);
                Ok(())
            }
            Course::Failed(error) => Err(error),
            Course::Stopped(error) => {
                if self.rng.one_in(2) {
                    self.disk.names.change(change);
                }
                Err(error)
            }
        }
    }

    fn change_file(&mut self, inode: u64, change: Change) -> io::Result<()> {
        let mut course = self.begin()?;
        let (from, to) = match &change {
            Change::Write { offset, data } => (*offset as u64, (offset + data.len()) as u64),
            Change::Extend(len) => (0, *len as u64),
            Change::SetLen(_) => (0, 0),
        };
        let missing = self.disk.inodes.get(&inode).map_or(0, |i| i.missing_pages(from, to));
        if matches!(course, Course::Done) && missing > 0 && !self.disk.fits(missing) {
            course = Course::Failed(io::ErrorKind::StorageFull.into());
        }
        let (change, result) = match course {
            Course::Done => (Some(change), Ok(())),
            Course::Failed(error) => (self.part_of(change), Err(error)),
            Course::Stopped(error) if self.rng.one_in(2) => (Some(change), Err(error)),
            Course::Stopped(error) => (self.part_of(change), Err(error)),
        };
        if let (Some(change), Some(inode)) = (change, self.disk.inodes.get_mut(&inode)) {
            match &change {
                Change::SetLen(len) => inode.drop_pages_from(*len as u64),
                Change::Write { .. } | Change::Extend(_) if result.is_ok() => {
                    inode.take_pages(from, to);
                }
                Change::Write { .. } | Change::Extend(_) => {}
            }
            inode.change(change);
        }
        result
    }

    /// Returns the part of a failed change that took effect: the beginning of a write, nothing of
    /// anything else.
    fn part_of(&mut self, change: Change) -> Option<Change> {
        match change {
            Change::Write { offset, mut data } => {
                data.truncate(self.rng.below(data.len() + 1));
                Some(Change::Write { offset, data }).filter(|_| self.rng.one_in(2))
            }
            Change::SetLen(_) | Change::Extend(_) => None,
        }
    }

    fn sync_file(&mut self, inode: u64) -> io::Result<()> {
        let course = self.begin()?;
        let Self { disk, rng, .. } = self;
        let Some(inode) = disk.inodes.get_mut(&inode) else { return Ok(()) };
        match course {
            Course::Done => {
                inode.sync();
                Ok(())
            }
            Course::Failed(error) => {
                inode.sync_failed(rng);
                Err(error)
            }
            Course::Stopped(error) => Err(error),
        }
    }
}

fn stopped() -> io::Error {
    io::Error::other("the simulated machine has stopped")
}

fn index(offset: u64) -> io::Result<usize> {
    usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

impl FileSystem for SimFs {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut state = self.state.lock();
        state.check_running()?;
        state.check_parent(path)?;
        if state.disk.names.live.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = state.disk.new_inode();
        state.change_names(NameChange::Set { path: path.into(), node: Node::File(inode) })?;
        Ok(self.handle(inode, Access::ReadWrite))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let state = self.state.lock();
        state.check_running()?;
        Ok(self.handle(state.file(path)?, access))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let node = Node::File(state.file(from)?);
        state.check_parent(to)?;
        if state.disk.names.live.get(to) == Some(&Node::Dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        state.change_names(NameChange::Rename { from: from.into(), to: to.into(), node })
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.file(path)?;
        state.change_names(NameChange::Remove { path: path.into() })
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_running()?;
        let mut missing: Vec<&Path> = Vec::new();
        for at in path.ancestors() {
            match state.disk.names.live.get(at) {
                Some(Node::Dir) => break,
                Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                None => missing.push(at),
            }
        }
        for made in missing.into_iter().rev() {
            state.change_names(NameChange::Set { path: made.into(), node: Node::Dir })?;
            if let Some(parent) = made.parent() {
                state.disk.names.sync(parent);
            }
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        match state.disk.names.live.get(path) {
            Some(Node::Dir) => {}
            Some(Node::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
            None => return Err(io::ErrorKind::NotFound.into()),
        }
        if state.disk.names.live.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.change_names(NameChange::Remove { path: path.into() })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        let course = state.begin()?;
        let State { disk, rng, .. } = &mut *state;
        match course {
            Course::Done => {
                disk.names.sync(path);
                Ok(())
            }
            Course::Failed(error) => {
                disk.names.sync_failed(path, rng);
                Err(error)
            }
            Course::Stopped(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let state = self.state.lock();
        state.check_running()?;
        if state.disk.names.live.get(path) != Some(&Node::Dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut entries = Vec::new();
        for (name, node) in &state.disk.names.live {
            if name.parent() != Some(path) {
                continue;
            }
            let Some(last) = name.file_name() else { continue };
            let len = match node {
                Node::Dir => 0,
                Node::File(inode) => {
                    state.disk.inodes.get(inode).map_or(0, |i| i.live.len() as u64)
                }
            };
            entries.push(DirEntry { name: last.into(), is_dir: *node == Node::Dir, len });
        }
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state.lock();
        state.check_running()?;
        Ok(state.disk.names.live.contains_key(path))
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        state.check_running()?;
        let inode = state.file(path)?;
        Ok(state.disk.inodes.get(&inode).map_or(0, |inode| inode.live.len() as u64))
    }

    /// The lock's file is not simulated: a lock leaves no file.
    fn lock_exclusive(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let mut state = self.state.lock();
        state.check_running()?;
        state.check_parent(path)?;
        if !state.locked.insert(path.into()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimLock { state: Arc::clone(&self.state), path: path.into() }))
    }
}

impl SimFs {
    fn handle(&self, inode: u64, access: Access) -> Arc<dyn File> {
        Arc::new(SimFile { state: Arc::clone(&self.state), inode, access })
    }
}

#[derive(Debug)]
struct SimLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.state.lock().locked.remove(&self.path);
    }
}

#[derive(Debug)]
struct SimFile {
    state: Arc<Mutex<State>>,
    inode: u64,
    access: Access,
}

impl SimFile {
    fn change(&self, change: Change) -> io::Result<()> {
        if self.access == Access::Read {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.state.lock().change_file(self.inode, change)
    }

    fn look<T>(&self, at: impl FnOnce(&disk::Inode) -> T) -> io::Result<T> {
        let state = self.state.lock();
        state.check_running()?;
        state.disk.inodes.get(&self.inode).map(at).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let offset = index(offset)?;
        self.look(|inode| {
            let rest = inode.live.get(offset..).unwrap_or_default();
            let count = rest.len().min(buf.len());
            buf[..count].copy_from_slice(&rest[..count]);
            count
        })
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(Change::Write { offset: index(offset)?, data: data.to_vec() })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.state.lock().sync_file(self.inode)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.state.lock().sync_file(self.inode)
    }

    fn len(&self) -> io::Result<u64> {
        self.look(|inode| inode.live.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Change::SetLen(index(len)?))
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.change(Change::Extend(index(len)?))
    }

    fn disk_size(&self) -> io::Result<u64> {
        self.look(disk::Inode::disk_size)
    }
}

#[cfg(test)]
mod tests;
