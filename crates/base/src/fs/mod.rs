//! Storage behind two small traits, so that a test can make the disk fail at any moment.
//!
//! Invariants every implementation keeps:
//! - Bytes written are visible to every later read at once, durable only after [`File::sync_data`]
//!   or [`File::sync_all`] on that file.
//! - A name created, renamed or removed is durable only after [`FileSystem::sync_dir`] on its
//!   directory. [`FileSystem::create_dir_all`] is the exception: it syncs what it makes.
//! - Reads and writes are positional: there is no shared cursor, so a file may be used by several
//!   threads at once.
//!
//! Errors are plain [`io::Error`]s; callers add the operation and the path.

use std::{
    ffi::OsString,
    fmt::Debug,
    io::{self, IoSlice},
    path::Path,
    sync::Arc,
};

mod aside;
mod real;
pub mod sim;

pub use aside::set_database_aside;
pub use real::RealFs;

/// Alignment in bytes of writes to a file made by [`FileSystem::create_direct`]: the largest
/// logical block size in use.
pub const DIRECT_ALIGN: usize = 4096;

/// What an opened file may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name without its directory.
    pub name: OsString,
    /// Whether it is itself a directory.
    pub is_dir: bool,
    /// Bytes in the file; 0 for a directory.
    pub len: u64,
}

/// A lock held until it is dropped.
pub trait Lock: Debug + Send + Sync {}

/// A tree of directories and files.
pub trait FileSystem: Debug + Send + Sync {
    /// Creates an empty file for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when the name is taken.
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>>;

    /// Creates an empty file that only its owner can read and write, for secrets.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when the name is taken.
    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.create_new(path)
    }

    /// Creates an empty file for large sequential writes, which bypass the kernel's page cache
    /// where the device supports it: half the copying, and the cache keeps the data that is read.
    ///
    /// Every write must begin at a multiple of [`DIRECT_ALIGN`], be a multiple of it long, and come
    /// from memory aligned to it. An end of another length is written through [`FileSystem::open`];
    /// a sync of either handle then covers both.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] when the name is taken.
    fn create_direct(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        self.create_new(path)
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>>;

    /// Gives the file `from` the name `to`, replacing a file that had it, in one step.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when `from` does not exist.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Its bytes are freed when the last open handle is closed.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory and its missing parents, and makes them durable.
    ///
    /// # Errors
    /// When one of them is a file, or the device fails.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`io::ErrorKind::DirectoryNotEmpty`] when it is not empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes the names in `path` durable: every create, rename and remove in it until now.
    ///
    /// # Errors
    /// When the device fails; nothing may then be assumed about the names.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Returns the names in a directory, sorted.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is no such directory.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;

    /// Returns whether a file or directory has this name.
    ///
    /// # Errors
    /// When this cannot be determined.
    fn exists(&self, path: &Path) -> io::Result<bool>;

    /// Returns the size of a file in bytes.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] when there is none.
    fn len(&self, path: &Path) -> io::Result<u64>;

    /// Acquires the exclusive lock kept in the file `path`, creating the file.
    ///
    /// The lock is released when the returned value is dropped or the process ends.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] immediately if another process or handle holds it.
    fn lock_exclusive(&self, path: &Path) -> io::Result<Box<dyn Lock>>;
}

/// An open file.
pub trait File: Debug + Send + Sync {
    /// Reads at most `buf.len()` bytes from `offset`; 0 means the end of the file.
    ///
    /// # Errors
    /// When the device fails.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `data` at `offset`, growing the file as needed.
    ///
    /// # Errors
    /// When the device fails or is full; any part of `data` may then have been written.
    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `parts`, one after another, from `offset`.
    ///
    /// # Errors
    /// As for [`File::write_all_at`].
    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes the bytes written so far durable, and the size where it is needed to read them.
    ///
    /// # Errors
    /// When the device fails. Which bytes are durable is then unknown, and **a later success does
    /// not mean they are**: the kernel may have dropped them.
    fn sync_data(&self) -> io::Result<()>;

    /// Like [`File::sync_data`], with all metadata.
    ///
    /// # Errors
    /// As for [`File::sync_data`].
    fn sync_all(&self) -> io::Result<()>;

    /// Returns the size in bytes.
    ///
    /// # Errors
    /// When the device fails.
    fn len(&self) -> io::Result<u64>;

    /// Returns whether the file has no bytes.
    ///
    /// # Errors
    /// As for [`File::len`].
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Truncates the file or extends it with zeros.
    ///
    /// # Errors
    /// When the device fails.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space for `len` bytes. Unwritten bytes read as zeros, and the size is at least
    /// `len` afterwards.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] when there is no room.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Returns how many bytes the file takes on the device, not counting holes.
    ///
    /// # Errors
    /// When the device fails.
    fn disk_size(&self) -> io::Result<u64>;

    /// Reads exactly `buf.len()` bytes from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] when the file ends before.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_at(rest, offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => done += n,
            }
        }
        Ok(())
    }
}
