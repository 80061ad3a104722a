//! The cache's directory: its files, its lock, and cleanup after a crash.
//!
//! ```text
//! <dir>/lock                              held by the one process that uses it
//! <dir>/log/                              the command log
//! <dir>/snapshots/<number>.snapshot       16 hexadecimal digits
//! <dir>/snapshots/<number>.snapshot.new   one being written; removed on opening
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{FileSystem, Lock};

use super::error::{Disk, OpenError};

const SUFFIX: &str = ".snapshot";
const NEW_SUFFIX: &str = ".snapshot.new";

/// The locked directory.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) fs: Arc<dyn FileSystem>,
    path: PathBuf,
    _lock: Box<dyn Lock>,
}

/// Returns the directory of the log.
pub(crate) fn log_dir(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// Returns the directory of the snapshots.
pub(crate) fn snapshots_dir(dir: &Path) -> PathBuf {
    dir.join("snapshots")
}

/// Locks the directory for this process.
pub(crate) fn lock(fs: &dyn FileSystem, dir: &Path) -> Result<Box<dyn Lock>, OpenError> {
    let path = dir.join("lock");
    fs.lock_exclusive(&path).map_err(|source| {
        if source.kind() == io::ErrorKind::WouldBlock {
            OpenError::Locked { path: dir.to_path_buf(), source }
        } else {
            OpenError::Io(Disk::new("lock", &path, source))
        }
    })
}

/// The snapshots' numbers and files.
type Numbered = Vec<(u64, PathBuf)>;

/// Returns the snapshots, newest first, and unfinished files.
pub(crate) fn list(fs: &dyn FileSystem, dir: &Path) -> Result<(Numbered, Vec<PathBuf>), Disk> {
    let dir = snapshots_dir(dir);
    let mut found = Vec::new();
    let mut leftovers = Vec::new();
    let listed = match fs.list(&dir) {
        Ok(listed) => listed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(Disk::new("list", &dir, source)),
    };
    for entry in listed {
        let Some(name) = entry.name.to_str() else { continue };
        if name.ends_with(NEW_SUFFIX) {
            leftovers.push(dir.join(name));
        } else if let Some(number) = name.strip_suffix(SUFFIX).filter(|digits| digits.len() == 16)
            && let Ok(number) = u64::from_str_radix(number, 16)
        {
            found.push((number, dir.join(name)));
        }
    }
    found.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(*number));
    Ok((found, leftovers))
}

/// Whether there is a log; without one, opening would create an empty one.
pub(crate) fn has_log(fs: &dyn FileSystem, dir: &Path) -> Result<bool, Disk> {
    let dir = log_dir(dir);
    match fs.list(&dir) {
        Ok(entries) => Ok(entries
            .iter()
            .any(|entry| entry.name.to_str().is_some_and(|name| name.ends_with(".log")))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(Disk::new("list", &dir, source)),
    }
}

impl Directory {
    /// Creates the directory if it does not exist, locks it, and removes unfinished snapshots.
    pub(crate) fn open(fs: Arc<dyn FileSystem>, dir: &Path) -> Result<Self, OpenError> {
        let snapshots = snapshots_dir(dir);
        fs.create_dir_all(&snapshots)
            .map_err(|source| OpenError::Io(Disk::new("create", &snapshots, source)))?;
        let lock = lock(&*fs, dir)?;
        let directory = Self { fs, path: dir.to_path_buf(), _lock: lock };
        let (_, leftovers) = list(&*directory.fs, dir).map_err(OpenError::Io)?;
        for path in leftovers {
            directory.remove(&path).map_err(OpenError::Io)?;
        }
        Ok(directory)
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of a snapshot, and its temporary name until it is finished.
    pub(crate) fn snapshot(&self, number: u64) -> (PathBuf, PathBuf) {
        let dir = snapshots_dir(&self.path);
        let named = |suffix| dir.join(format!("{number:016x}{suffix}"));
        (named(SUFFIX), named(NEW_SUFFIX))
    }

    /// Removes a file if it exists.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), Disk> {
        match self.fs.remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(|source| Disk::new("remove", path, source)),
        }
    }
}
