//! Small files that are read and replaced as a whole: the manifest, the arrivals, the requests.
//!
//! Invariant: a file is written completely under another name, synced, and renamed over the old one,
//! so there is always one, either the old or the new.

use std::io;
use std::path::Path;

use forebay_base::fs::{Access, FileSystem};

use super::error::{Disk, OpenError};
use super::manifest::remove;

/// Reads a file of at most `size_max` bytes; `None` if there is none.
pub(crate) fn read(
    fs: &dyn FileSystem,
    path: &Path,
    size_max: usize,
) -> Result<Option<Vec<u8>>, OpenError> {
    read_within(fs, path, size_max)?.map_err(|reason| damaged(path, reason))
}

/// Like [`read`]; the inner error is that of a file that is too large.
pub(crate) fn read_within(
    fs: &dyn FileSystem,
    path: &Path,
    size_max: usize,
) -> Result<Result<Option<Vec<u8>>, &'static str>, OpenError> {
    let disk = |act| move |source| OpenError::Io(Disk::new(act, path, source));
    let file = match fs.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Ok(None)),
        Err(source) => return Err(disk("open")(source)),
    };
    let size = file.len().map_err(disk("get the size of"))?;
    let Some(size) = usize::try_from(size).ok().filter(|&size| size <= size_max) else {
        return Ok(Err("it is too large"));
    };
    let mut bytes = vec![0; size];
    file.read_exact_at(&mut bytes, 0).map_err(disk("read"))?;
    Ok(Ok(Some(bytes)))
}

/// The error of a file whose contents are damaged.
pub(crate) fn damaged(path: &Path, reason: &'static str) -> OpenError {
    OpenError::Manifest { path: path.to_path_buf(), reason }
}

/// Replaces the file `name` in `dir`; `new_name` is its name until it is complete.
pub(crate) fn replace(
    fs: &dyn FileSystem,
    dir: &Path,
    (name, new_name): (&str, &str),
    bytes: &[u8],
) -> Result<(), Disk> {
    let (path, new) = (dir.join(name), dir.join(new_name));
    remove(fs, &new)?;
    let file = fs.create_new(&new).map_err(|source| Disk::new("create", &new, source))?;
    file.write_all_at(bytes, 0).map_err(|source| Disk::new("write", &new, source))?;
    file.sync_all().map_err(|source| Disk::new("sync", &new, source))?;
    fs.rename(&new, &path).map_err(|source| Disk::new("rename", &new, source))?;
    fs.sync_dir(dir).map_err(|source| Disk::new("sync", dir, source))
}
