//! The files below a local directory, each as an object.
//!
//! The key is the path relative to the directory, byte by byte, with `/` as the separator. Only
//! regular files are objects. Symbolic links are not followed, so no file is found twice or outside
//! of the directory, even if a directory is replaced by a link while the tree is read. A file with
//! several names is an object under each of them.

use std::ffi::OsString;
use std::fs::{DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::location::io_error;
use super::within::list;
use super::{BadRow, Part, Provenance, RowSink, Source, SourceError, Within};
use crate::object::{Batch, ClassId, Kind, Month, Object};

/// Minimum number of directories that are separate parts, if there are enough.
const PARTS_MIN: usize = 64;
/// Maximum number of directories read to find them.
const EXPANDED_MAX: usize = 256;
/// Objects passed on at once.
const BATCH_ROWS: usize = 8192;

/// A directory tree.
pub(crate) struct Tree {
    /// The path as it was specified.
    dir: PathBuf,
    /// The same path without links.
    real: PathBuf,
    provenance: Provenance,
}

impl Tree {
    pub(crate) fn open(given: &str, dir: &Path, within: &Within) -> Result<Self, SourceError> {
        let real = within.check_directory(dir).map_err(|source| io_error("list", dir, source))?;
        list(&real).map_err(|source| io_error("list", dir, source))?;
        let provenance = Provenance {
            source: given.to_owned(),
            format: "fs".to_owned(),
            bucket: Some(dir.display().to_string()),
            listed_at_ms: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .ok()
                .and_then(|since| u64::try_from(since.as_millis()).ok()),
            fields: ["key", "size", "last_modified"].map(str::to_owned).to_vec(),
            notes: vec![
                "regular files only; symbolic links are not followed; a file with several names is \
                 counted once per name"
                    .to_owned(),
            ],
            ..Provenance::default()
        };
        Ok(Self { dir: dir.to_owned(), real, provenance })
    }
}

impl Source for Tree {
    fn provenance(&self) -> Provenance {
        self.provenance.clone()
    }

    fn parts(&self) -> Result<Vec<Box<dyn Part>>, SourceError> {
        let mut shallow: Vec<PathBuf> = Vec::new();
        let mut deep = std::collections::VecDeque::from([PathBuf::new()]);
        while deep.len() < PARTS_MIN && shallow.len() < EXPANDED_MAX {
            let Some(dir) = deep.pop_front() else { break };
            let path = below(&self.dir, &dir);
            let below = match directories(&below(&self.real, &dir)) {
                Ok(below) => below,
                Err(source) if dir.as_os_str().is_empty() => {
                    return Err(io_error("list", &path, source));
                }
                // The reader of this part reports it.
                Err(_) => Vec::new(),
            };
            deep.extend(below.into_iter().map(|name| dir.join(name)));
            shallow.push(dir);
        }
        let part = |dirs: Vec<PathBuf>, deep| {
            let name = match dirs.as_slice() {
                [dir] if deep => self.dir.join(dir).display().to_string(),
                _ => format!("{}, the directories at the top", self.dir.display()),
            };
            let (root, real) = (self.dir.clone(), self.real.clone());
            Box::new(Directories { root, real, dirs, deep, name }) as Box<dyn Part>
        };
        let mut parts = vec![part(shallow, false)];
        parts.extend(deep.into_iter().map(|dir| part(vec![dir], true)));
        Ok(parts)
    }
}

/// A directory below the root, or the root itself: joining an empty path would append a slash.
fn below(root: &Path, dir: &Path) -> PathBuf {
    if dir.as_os_str().is_empty() { root.to_owned() } else { root.join(dir) }
}

/// Names of the directories in a directory.
fn directories(dir: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in list(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name());
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Directories, with or without their subdirectories.
struct Directories {
    root: PathBuf,
    real: PathBuf,
    /// Paths relative to the root.
    dirs: Vec<PathBuf>,
    deep: bool,
    name: String,
}

impl Part for Directories {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Option<u64> {
        None
    }

    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let mut pending = self.dirs;
        let mut objects = Batch::default();
        while let Some(dir) = pending.pop() {
            let path = below(&self.root, &dir);
            let entries = match list(&below(&self.real, &dir)) {
                Ok(entries) => entries,
                Err(e) => {
                    bad(&path, 0, &e, sink)?;
                    continue;
                }
            };
            let mut walk = Walk { path: &path, key: key(&dir), objects: &mut objects, sink };
            let below = walk.entries(entries)?;
            if self.deep {
                pending.extend(below.into_iter().map(|name| dir.join(name)));
            }
        }
        if !objects.is_empty() {
            sink.rows(&mut objects)?;
        }
        Ok(())
    }
}

/// A directory that is being read.
struct Walk<'a> {
    path: &'a Path,
    /// Prefix of the keys of its files.
    key: Vec<u8>,
    objects: &'a mut Batch,
    sink: &'a mut dyn RowSink,
}

impl Walk<'_> {
    /// Adds the files; returns the names of the directories.
    fn entries(&mut self, entries: ReadDir) -> Result<Vec<OsString>, SourceError> {
        let mut below = Vec::new();
        let prefix = self.key.len();
        for (row, entry) in (1_u64..).zip(entries) {
            let met = entry.and_then(|entry| Ok((Self::entry(&entry)?, entry)));
            match met {
                Ok((Met::Directory, entry)) => below.push(entry.file_name()),
                Ok((Met::File(object), entry)) => self.push(object, row, &entry, prefix)?,
                Ok((Met::Else, _)) => {}
                Err(e) => bad(self.path, row, &e, self.sink)?,
            }
        }
        Ok(below)
    }

    fn entry(entry: &DirEntry) -> io::Result<Met> {
        let kind = entry.file_type()?;
        if kind.is_dir() {
            return Ok(Met::Directory);
        }
        if !kind.is_file() {
            return Ok(Met::Else);
        }
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // Removed since the directory was read: it does not exist.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Met::Else),
            Err(e) => return Err(e),
        };
        let since = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let ms = since.and_then(|since| i64::try_from(since.as_millis()).ok());
        Ok(Met::File(Object {
            size: metadata.len(),
            version: 0,
            modified: ms.map_or(Month::UNKNOWN, Month::from_unix_ms),
            class: ClassId::STANDARD,
            kind: Kind::Current,
        }))
    }

    fn push(
        &mut self,
        object: Object,
        row: u64,
        entry: &DirEntry,
        prefix: usize,
    ) -> Result<(), SourceError> {
        self.key.truncate(prefix);
        self.key.extend_from_slice(entry.file_name().as_encoded_bytes());
        if let Err(full) = self.objects.push(&self.key, object) {
            bad(self.path, row, &io::Error::other(full), self.sink)?;
        }
        if self.objects.len() >= BATCH_ROWS {
            self.sink.rows(self.objects)?;
        }
        Ok(())
    }
}

/// The kind of a directory entry.
enum Met {
    File(Object),
    Directory,
    Else,
}

/// Prefix of the keys of the files in a directory.
fn key(dir: &Path) -> Vec<u8> {
    let mut key = Vec::new();
    for part in dir.iter() {
        key.extend_from_slice(part.as_encoded_bytes());
        key.push(b'/');
    }
    key
}

fn bad(
    path: &Path,
    row: u64,
    error: &io::Error,
    sink: &mut dyn RowSink,
) -> Result<(), SourceError> {
    let (part, reason) = (path.display().to_string(), format!("it cannot be read: {error}"));
    sink.bad_row(BadRow { part, row, field: String::new(), reason })?;
    Ok(())
}

#[cfg(test)]
mod tests;
