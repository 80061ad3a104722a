//! A directory with backups.
//!
//! An item is written as `new-…` and renamed to its name. One command writes at a time: it holds `lock`, which the
//! kernel releases when the command ends in any way.
//!
//! Invariant: a directory that holds something else is left alone.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use forebay_base::fs::{FileSystem as _, Lock, RealFs};
use rustix::fs::Advice;
use walkdir::WalkDir;

use super::{Hold, Purpose, Target};

const LOCK: &str = "lock";
/// Names of files that are being written begin so.
const NEW: &str = "new-";
const NEW_ITEM: &str = "new-chunk";
const NEW_LIST: &str = "new-list";
/// What an earlier version was writing.
const NEW_MARKER: &str = "new-marker";

/// A directory.
#[derive(Debug)]
pub(crate) struct Directory {
    dir: PathBuf,
}

/// The lock of a directory.
#[derive(Debug)]
struct Locked {
    _lock: Box<dyn Lock>,
}

impl Hold for Locked {
    fn check(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn is_exclusive(&self) -> bool {
        true
    }
}

impl Directory {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn create(&self, name: &str) -> anyhow::Result<File> {
        let path = self.path(name);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.with_context(|| format!("cannot create {}", path.display()))
    }

    /// Renames a file that is complete to an item.
    fn rename(&self, from: &str, to: &str) -> anyhow::Result<PathBuf> {
        let (from, to) = (self.path(from), self.path(to));
        let parent = to.parent().unwrap_or(&self.dir).to_path_buf();
        make_dir(&parent)?;
        std::fs::rename(&from, &to)
            .with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))?;
        Ok(parent)
    }

    /// Opens a file; `None` if there is none.
    fn opened(&self, name: &str) -> anyhow::Result<Option<File>> {
        let path = self.path(name);
        match File::open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot open {}", path.display())),
        }
    }
}

impl Target for Directory {
    fn shown(&self, name: &str) -> String {
        match name {
            "" => self.dir.display().to_string(),
            name => self.path(name).display().to_string(),
        }
    }

    fn workers(&self) -> usize {
        1
    }

    fn is_checked(&self) -> bool {
        false
    }

    fn is_empty(&self) -> anyhow::Result<bool> {
        let failed = || format!("cannot list {}", self.dir.display());
        let entries = match std::fs::read_dir(&self.dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            entries => entries.with_context(failed)?,
        };
        for entry in entries {
            let name = entry.with_context(failed)?.file_name();
            if name != LOCK && !is_leftover(&name) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn hold(&self, _: Purpose) -> anyhow::Result<Box<dyn Hold>> {
        let failed = || format!("cannot use {} for backups", self.dir.display());
        make_dir(&self.dir)?;
        let lock = match RealFs.lock_exclusive(&self.path(LOCK)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => bail!(
                "another command writes to the backups in {}; wait until it has ended",
                self.dir.display()
            ),
            lock => lock.with_context(failed)?,
        };
        for leftover in std::fs::read_dir(&self.dir).with_context(failed)? {
            let leftover = leftover.with_context(failed)?;
            if is_leftover(&leftover.file_name()) {
                std::fs::remove_file(leftover.path()).with_context(failed)?;
            }
        }
        Ok(Box::new(Locked { _lock: lock }))
    }

    fn read(
        &self,
        name: &str,
        size_max: usize,
        from_device: bool,
    ) -> anyhow::Result<Option<Vec<u8>>> {
        let Some(mut file) = self.opened(name)? else { return Ok(None) };
        if from_device {
            // Advice: where the kernel does not take it, what it has in memory is compared.
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).ok();
        }
        let mut bytes = Vec::new();
        let limit = u64::try_from(size_max).unwrap_or(u64::MAX).saturating_add(1);
        let read = (&mut file).take(limit).read_to_end(&mut bytes);
        read.with_context(|| format!("cannot read {}", self.shown(name)))?;
        Ok(Some(bytes))
    }

    fn open(&self, name: &str) -> anyhow::Result<Option<Box<dyn Read + '_>>> {
        Ok(self.opened(name)?.map(|file| Box::new(file) as Box<dyn Read>))
    }

    fn size(&self, name: &str) -> anyhow::Result<Option<u64>> {
        match std::fs::metadata(self.path(name)) {
            Ok(found) => Ok(Some(found.len())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => {
                Err(error).with_context(|| format!("cannot inspect {}", self.shown(name)))
            }
        }
    }

    fn list(
        &self,
        below: &str,
        each: &mut dyn FnMut(&str, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let dir = self.path(below);
        let failed = || format!("cannot list {}", dir.display());
        // An interrupted first backup has not made it.
        if !dir.try_exists().with_context(failed)? {
            return Ok(());
        }
        for entry in WalkDir::new(&dir).sort_by_file_name() {
            let entry = entry.with_context(failed)?;
            let name = entry.path().strip_prefix(&self.dir).ok().and_then(Path::to_str);
            if let Some(name) = name.filter(|_| entry.file_type().is_file()) {
                each(name, entry.metadata().with_context(failed)?.len())?;
            }
        }
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut file = self.create(NEW_ITEM)?;
        file.write_all(bytes).with_context(|| format!("cannot write {}", self.shown(name)))?;
        self.rename(NEW_ITEM, name).map(drop)
    }

    fn sync(&self) -> anyhow::Result<()> {
        let failed = || format!("cannot sync {}", self.dir.display());
        let dir = File::open(&self.dir).with_context(failed)?;
        rustix::fs::syncfs(&dir).map_err(std::io::Error::from).with_context(failed)
    }

    fn scratch(&self) -> anyhow::Result<File> {
        self.create(NEW_LIST)
    }

    fn publish(&self, name: &str, file: File) -> anyhow::Result<()> {
        drop(file);
        let parent = self.rename(NEW_LIST, name)?;
        RealFs.sync_dir(&parent).with_context(|| format!("cannot sync {}", parent.display()))
    }

    fn remove(&self, names: &[String]) -> anyhow::Result<()> {
        for name in names {
            match std::fs::remove_file(self.path(name)) {
                Err(error) if !is_missing(&error) => {
                    return Err(error)
                        .with_context(|| format!("cannot remove {}", self.shown(name)));
                }
                _ => {}
            }
        }
        self.sync()
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn make_dir(path: &Path) -> anyhow::Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("cannot create {}", path.display()))
}

/// Whether a file is one that an interrupted command was writing.
fn is_leftover(name: &OsStr) -> bool {
    let name = name.to_str().filter(|name| name.starts_with(NEW));
    name.is_some_and(|name| [NEW_ITEM, NEW_LIST, NEW_MARKER].contains(&name))
}
