//! The operating system's file system.

use std::{
    fs,
    io::{self, IoSlice},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{FallocateFlags, OFlags},
    io::Errno,
};

use super::{Access, DirEntry, File, FileSystem, Lock};

/// The operating system's file system, with paths as the process sees them.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

#[derive(Debug)]
struct RealFile(fs::File);

/// Holds the file's advisory lock.
#[derive(Debug)]
struct RealLock(fs::File);

impl Lock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        // A child process holds a copy of the file descriptor, and so of the lock, until it calls
        // exec. If unlocking fails, the lock is released with the last copy.
        drop(self.0.unlock());
    }
}

impl FileSystem for RealFs {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let file = fs::File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn create_private(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let mut options = fs::File::options();
        options.read(true).write(true).create_new(true).mode(0o600);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn create_direct(&self, path: &Path) -> io::Result<Arc<dyn File>> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).map_err(io::Error::other)?;
        let mut options = fs::File::options();
        options.read(true).write(true).create_new(true).custom_flags(flags);
        match options.open(path) {
            // Some file systems do not support direct writes. They may have created the file
            // anyway.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    _ => self.create_new(path),
                }
            }
            opened => Ok(Arc::new(RealFile(opened?))),
        }
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let write = access == Access::ReadWrite;
        let file = fs::File::options().read(true).write(write).open(path)?;
        Ok(Arc::new(RealFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        let mut at = path;
        while !at.as_os_str().is_empty() && !at.exists() {
            missing.push(at);
            match at.parent() {
                Some(parent) => at = parent,
                None => break,
            }
        }
        fs::create_dir_all(path)?;
        for made in missing.into_iter().rev() {
            self.sync_dir(parent_of(made))?;
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        fs::File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // Removed between the listing and this call: it no longer exists.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let is_dir = meta.is_dir();
            let len = if is_dir { 0 } else { meta.len() };
            entries.push(DirEntry { name: entry.file_name(), is_dir, len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        fs::exists(path)
    }

    fn len(&self, path: &Path) -> io::Result<u64> {
        fs::metadata(path).map(|meta| meta.len())
    }

    fn lock_exclusive(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file =
            fs::File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock().map_err(|error| match error {
            fs::TryLockError::Error(error) => error,
            fs::TryLockError::WouldBlock => io::Error::new(
                io::ErrorKind::WouldBlock,
                "the lock is held by another process or handle",
            ),
        })?;
        Ok(Box::new(RealLock(file)))
    }
}

/// Returns the parent directory of a path; the current directory for a bare name.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

impl File for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        loop {
            match self.0.read_at(buf, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn write_vectored_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        /// Maximum number of slices in one call. POSIX guarantees 16, Linux accepts 1024.
        const SLICES_MAX: usize = 1024;
        let mut owned = parts.to_vec();
        let mut rest = &mut owned[..];
        let mut at = offset;
        // Empty slices first, so that an empty write is never mistaken for a stalled device.
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let now = rest.len().min(SLICES_MAX);
            match rustix::io::pwritev(&self.0, &rest[..now], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    at += written as u64;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        self.0.metadata().map(|meta| meta.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            // Network file systems and old ones cannot reserve space; only the size can be set
            // then.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                if self.len()? < len {
                    self.0.set_len(len)
                } else {
                    Ok(())
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    fn disk_size(&self) -> io::Result<u64> {
        /// `st_blocks` counts units of 512 bytes, whatever the device's block size is (POSIX stat).
        const STAT_BLOCK_SIZE: u64 = 512;
        self.0.metadata().map(|meta| meta.blocks() * STAT_BLOCK_SIZE)
    }
}

#[cfg(test)]
mod tests;
