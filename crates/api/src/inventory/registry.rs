//! The indexes of the server, by name: opened on request, kept open, reopened when replaced.
//!
//! The number of open indexes is limited. A query that reads an index that was closed or deleted
//! keeps it until the query ends.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use forebay_base::error_chain::chain;
use forebay_base::fs::{FileSystem as _, RealFs};
use forebay_base::image::{Image, ImageError};
use forebay_inventory::builder::{self, BuildError};
use forebay_inventory::index::{Index, IndexError};
use parking_lot::Mutex;

use super::problem::{internal, no_index};
use crate::problem::Problem;

/// Maximum length of a name.
const NAME_SIZE_MAX: usize = 64;
/// Reserved, because it is the name of a route.
const RESERVED: &str = "page";
/// Directory for downloaded files while they are read; no index name begins like it.
const TEMPORARY: &str = ".temporary";

/// A name of an index: never a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Name(String);

impl Name {
    /// Parses a name.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        if Self::is_one(text) {
            return Ok(Self(text.to_owned()));
        }
        let text = "the name of an inventory must be 1 to 64 of a-z 0-9 . _ -, begin with a letter or \
                    digit, and not be \"page\"";
        Err(Problem::bad("name", text))
    }

    fn is_one(text: &str) -> bool {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        text.len() <= NAME_SIZE_MAX
            && text != RESERVED
            && text.bytes().next().is_some_and(plain)
            && text.bytes().all(|byte| plain(byte) || matches!(byte, b'.' | b'_' | b'-'))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// An open index.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) index: Index,
    stamp: Stamp,
}

impl Opened {
    /// Distinguishes its results from those of the previous index.
    pub(super) fn tag(&self) -> String {
        let meta = self.index.meta();
        format!("{}-{:x}-{:08x}", meta.generation, meta.built_at_ms, meta.files.nodes.crc32c)
    }
}

/// Identity of a version of `index.json`: inode, size and time of change.
type Stamp = (u64, u64, i64, i64);

/// The result of opening the server.
#[derive(Debug, Default)]
pub(super) struct Recovered {
    pub(super) indexes: usize,
    pub(super) unreadable: usize,
    pub(super) leftovers: usize,
}

/// Sums over the open indexes.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) open: u64,
    pub(super) prefixes: u64,
    pub(super) objects: u64,
    pub(super) index_bytes: u64,
    pub(super) unreadable: u64,
}

pub(super) struct Registry {
    dir: PathBuf,
    open_max: usize,
    open: Mutex<Open>,
    /// Indexes that cannot be opened, and why.
    unreadable: Mutex<BTreeMap<Name, String>>,
}

#[derive(Default)]
struct Open {
    by_name: HashMap<Name, (Arc<Opened>, u64)>,
    /// Increments the clock; the most recently used index has the highest number.
    uses: u64,
}

impl Registry {
    pub(super) fn new(dir: &Path, open_max: usize) -> Self {
        let unreadable = Mutex::default();
        Self { dir: dir.to_owned(), open_max, open: Mutex::default(), unreadable }
    }

    /// Returns the directory of an index.
    pub(super) fn path(&self, name: &Name) -> PathBuf {
        self.dir.join(&name.0)
    }

    /// Returns the directory for files while they are read.
    pub(super) fn temporary(&self) -> io::Result<PathBuf> {
        let dir = self.dir.join(TEMPORARY);
        std::fs::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Removes the remains of killed builds, and opens every index once.
    pub(super) fn recover(&self) -> io::Result<Recovered> {
        std::fs::create_dir_all(&self.dir)?;
        let temporary = self.dir.join(TEMPORARY);
        if temporary.is_dir() {
            std::fs::remove_dir_all(&temporary)?;
        }
        let mut recovered = Recovered::default();
        for name in self.names()? {
            match self.sweep(&name) {
                Ok(removed) => recovered.leftovers += usize::from(removed),
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "cannot clean up after a build")
                }
            }
            match self.peek(&name) {
                Ok(_) => recovered.indexes += 1,
                Err(IndexError::Missing(_)) => {}
                Err(error) => {
                    let error = chain(&error).to_string();
                    tracing::error!(inventory = name.0, error, "cannot open an index");
                    recovered.unreadable += 1;
                }
            }
        }
        Ok(recovered)
    }

    /// Returns the names of all indexes, including those being built, in order.
    pub(super) fn names(&self) -> io::Result<Vec<Name>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str()
                && Name::is_one(name)
                && entry.file_type()?.is_dir()
            {
                names.push(Name(name.to_owned()));
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Adds the indexes to an image of the data directory: those that are complete.
    pub(super) fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        let listed = || format!("cannot list {}", self.dir.display());
        for name in self.names().with_context(listed)? {
            let dir = self.path(&name);
            // A build that ends meanwhile replaces all of them.
            image.attempt(is_replaced, |image| {
                let files = match Index::files(&dir) {
                    // Being built for the first time, or deleted.
                    Err(IndexError::Missing(_)) => return Ok(()),
                    files => files?,
                };
                files.iter().try_for_each(|path| image.link(path))?;
                // Whether `index.json` still is what names them.
                let linked = image.place(&dir.join("index.json"))?;
                let same = std::fs::read(&linked)? == std::fs::read(dir.join("index.json"))?;
                anyhow::ensure!(same, io::Error::from(io::ErrorKind::NotFound));
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Returns the index of this name, or the problem that it does not exist.
    pub(super) fn find(&self, name: &Name) -> Result<Arc<Opened>, Problem> {
        self.get(name).map_err(|error| match error {
            IndexError::Missing(_) => no_index(&name.0),
            error => internal(&error.into()),
        })
    }

    /// Returns the index of this name.
    pub(super) fn get(&self, name: &Name) -> Result<Arc<Opened>, IndexError> {
        self.open(name, true)
    }

    /// Like `find`, for a listing of all indexes, which must not close those in use.
    pub(super) fn peek(&self, name: &Name) -> Result<Arc<Opened>, IndexError> {
        self.open(name, false)
    }

    fn open(&self, name: &Name, keep: bool) -> Result<Arc<Opened>, IndexError> {
        let dir = self.path(name);
        let stamp = match stamp(&dir) {
            Ok(stamp) => stamp,
            Err(_) => {
                self.forget(name);
                return Err(IndexError::Missing(dir));
            }
        };
        {
            let mut open = self.open.lock();
            open.uses += 1;
            let uses = open.uses;
            if let Some((opened, used)) = open.by_name.get_mut(name)
                && opened.stamp == stamp
            {
                *used = uses;
                return Ok(Arc::clone(opened));
            }
        }
        match Index::open(&dir) {
            Ok(index) => {
                self.unreadable.lock().remove(name);
                let opened = Arc::new(Opened { index, stamp });
                if keep {
                    self.keep(name, &opened);
                }
                Ok(opened)
            }
            Err(error) => {
                self.forget(name);
                if !matches!(error, IndexError::Missing(_)) {
                    self.unreadable.lock().insert(name.clone(), chain(&error).to_string());
                }
                Err(error)
            }
        }
    }

    fn keep(&self, name: &Name, opened: &Arc<Opened>) {
        let mut open = self.open.lock();
        open.uses += 1;
        let uses = open.uses;
        open.by_name.insert(name.clone(), (Arc::clone(opened), uses));
        while open.by_name.len() > self.open_max {
            let oldest = open.by_name.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { return };
            open.by_name.remove(&oldest);
        }
    }

    /// Closes an index that was deleted.
    fn forget(&self, name: &Name) {
        self.open.lock().by_name.remove(name);
        self.unreadable.lock().remove(name);
    }

    /// Deletes an index: at once and for good, then its files. Queries that read it continue.
    pub(super) fn delete(&self, name: &Name) -> Result<(), Problem> {
        let dir = self.path(name);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => no_index(&name.0),
            io::ErrorKind::WouldBlock => super::job::building(&name.0),
            _ => internal(&anyhow::Error::new(error).context(format!("delete {}", dir.display()))),
        };
        let index = dir.join("index.json");
        index.symlink_metadata().map_err(failed)?;
        let lock = RealFs.lock_exclusive(&dir.join("lock")).map_err(failed)?;
        std::fs::remove_file(&index).map_err(failed)?;
        RealFs.sync_dir(&dir).map_err(failed)?;
        self.forget(name);
        remove_empty(&dir).map_err(failed)?;
        drop(lock);
        Ok(())
    }

    /// Removes the remains of a build, and the directory too if it left no index. Removes nothing
    /// while another process builds.
    pub(super) fn sweep(&self, name: &Name) -> Result<bool, BuildError> {
        let dir = self.path(name);
        if !dir.is_dir() {
            return Ok(false);
        }
        match builder::clear(&RealFs, &dir) {
            Err(BuildError::Io { source, .. }) if source.kind() == io::ErrorKind::WouldBlock => {
                tracing::info!(inventory = name.0, "another process is building an index");
                return Ok(false);
            }
            cleared => cleared?,
        }
        if dir.join("index.json").exists() {
            return Ok(false);
        }
        let failed = |source| BuildError::Io { act: "remove", path: dir.clone(), source };
        remove_empty(&dir).map_err(failed)?;
        Ok(true)
    }

    /// Returns why an index cannot be opened, if there is one.
    pub(super) fn readiness(&self) -> Result<(), String> {
        let unreadable: Vec<Name> = self.unreadable.lock().keys().cloned().collect();
        for name in unreadable {
            // It may have been repaired or deleted.
            match self.peek(&name) {
                Err(error) if !matches!(error, IndexError::Missing(_)) => {
                    return Err(format!("{}: {}", name.0, chain(&error)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for (opened, _) in self.open.lock().by_name.values() {
            let meta = opened.index.meta();
            totals.open += 1;
            totals.prefixes += meta.prefixes;
            totals.objects += meta.objects;
            let files = [meta.files.nodes, meta.files.table, meta.files.order];
            totals.index_bytes += files.iter().map(|file| file.size).sum::<u64>();
        }
        totals.unreadable = self.unreadable.lock().len() as u64;
        totals
    }
}

/// Removes a directory with the files in it, but no subdirectory.
fn remove_empty(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let text = format!("{} does not belong to an index", entry.path().display());
            return Err(io::Error::other(text));
        }
        std::fs::remove_file(entry.path())?;
    }
    std::fs::remove_dir(dir)
}

fn stamp(dir: &Path) -> io::Result<Stamp> {
    let found = std::fs::metadata(dir.join("index.json"))?;
    Ok((found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

/// Whether a file of an index was replaced while the index was taken into an image.
fn is_replaced(error: &anyhow::Error) -> bool {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    error.downcast_ref().is_some_and(ImageError::is_missing)
        || error.downcast_ref().is_some_and(is_missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_never_paths() {
        for good in ["a", "0", "daily-2026.11_x", &"x".repeat(64)] {
            assert!(Name::parse(good).is_ok(), "{good}");
        }
        let long = "x".repeat(65);
        for bad in
            ["", ".", "..", ".temporary", "a/b", "a\\b", "A", "é", "-a", "a\0", "page", &long]
        {
            assert!(Name::parse(bad).is_err(), "{bad}");
        }
    }
}
