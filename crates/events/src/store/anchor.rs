//! Publishing of checkpoints into a directory outside the store (`docs/formats/event-checkpoint.md`).
//!
//! One who controls the store's directory has its key, so only what is kept elsewhere shows that the
//! store was rolled back or made again.
//!
//! Invariants:
//! - A published checkpoint is never replaced or removed: another one of the same size is an error.
//! - A file has its name only once its bytes are on stable storage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_base::error_chain::chain;
use forebay_base::fs::{Access, FileSystem};

use super::error::Disk;
use super::manifest::remove;
use super::{Inner, Store};
use crate::checkpoint::{NOTE_SIZE_MAX, VerifierKey};

/// The file with the verifier key.
const KEY_NAME: &str = "verifier.key";
const EXTENSION: &str = ".checkpoint";
/// Maximum number of checkpoints that are read from a directory.
const NOTES_MAX: usize = 1 << 20;

/// Why a checkpoint was not published, or published ones cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnchorError {
    /// The device failed.
    #[error("cannot use the directory of published checkpoints")]
    Io(#[source] Disk),
    /// A file has other contents than this store would write.
    #[error(
        "{} is not of this store: the store was replaced, or another one publishes there",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A larger checkpoint was published.
    #[error(
        "a checkpoint of {published} events was published in {}, but the store has {found}: its \
         newest events were removed, or another store publishes there",
        path.display()
    )]
    RolledBack {
        /// The directory.
        path: PathBuf,
        /// Events in the largest published one.
        published: u64,
        /// Events in the store.
        found: u64,
    },
    /// A file is not a checkpoint or a key, or there are too many.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// There is no checkpoint to publish.
    #[error("there is no signed checkpoint")]
    NoCheckpoint(#[source] super::ReadError),
}

/// What a directory of published checkpoints has.
#[derive(Debug, Clone, Default)]
pub struct Anchored {
    /// The verifier key of the store that published there.
    pub key: Option<VerifierKey>,
    /// Its checkpoints, by size.
    pub notes: Vec<String>,
}

/// Reads a directory of published checkpoints; verifies nothing.
///
/// # Errors
/// [`AnchorError::Io`], [`AnchorError::Unreadable`].
pub fn read_anchor(fs: &dyn FileSystem, dir: &Path) -> Result<Anchored, AnchorError> {
    let mut anchored = Anchored::default();
    let path = dir.join(KEY_NAME);
    if let Some(text) = read(fs, &path)? {
        let key = text.trim().parse();
        let reason = "it is not a verifier key";
        anchored.key = Some(key.map_err(|_| AnchorError::Unreadable { path, reason })?);
    }
    let sizes = published(fs, dir)?;
    if sizes.len() > NOTES_MAX {
        let (path, reason) = (dir.to_path_buf(), "it has more than a million checkpoints");
        return Err(AnchorError::Unreadable { path, reason });
    }
    for size in sizes {
        let path = dir.join(name_of(size));
        let note = read(fs, &path)?;
        let reason = "it vanished while the directory was read";
        anchored.notes.push(note.ok_or(AnchorError::Unreadable { path, reason })?);
    }
    Ok(anchored)
}

fn name_of(size: u64) -> String {
    format!("{size:020}{EXTENSION}")
}

/// The sizes of the published checkpoints, ascending.
fn published(fs: &dyn FileSystem, dir: &Path) -> Result<Vec<u64>, AnchorError> {
    let names = fs.list(dir).map_err(|source| io_error("list", dir, source))?;
    let size = |name: &str| name.strip_suffix(EXTENSION)?.parse().ok();
    let mut sizes: Vec<u64> = names.iter().filter_map(|entry| size(entry.name.to_str()?)).collect();
    sizes.sort_unstable();
    Ok(sizes)
}

fn io_error(act: &'static str, path: &Path, source: io::Error) -> AnchorError {
    AnchorError::Io(Disk::new(act, path, source))
}

/// Reads a small file; `None` if it does not exist.
fn read(fs: &dyn FileSystem, path: &Path) -> Result<Option<String>, AnchorError> {
    let file = match fs.open(path, Access::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io_error("open", path, source)),
    };
    let unreadable = |reason| AnchorError::Unreadable { path: path.to_path_buf(), reason };
    let size = file.len().map_err(|source| io_error("get the size of", path, source))?;
    let size = usize::try_from(size).ok().filter(|&size| size <= NOTE_SIZE_MAX);
    let mut bytes = vec![0; size.ok_or_else(|| unreadable("it is too large"))?];
    file.read_exact_at(&mut bytes, 0).map_err(|source| io_error("read", path, source))?;
    String::from_utf8(bytes).map(Some).map_err(|_| unreadable("it is not text"))
}

/// Writes a file that does not exist, or has the same text.
fn write(fs: &dyn FileSystem, path: &Path, text: &str) -> Result<(), AnchorError> {
    if let Some(found) = read(fs, path)? {
        return match found == text {
            true => Ok(()),
            false => Err(AnchorError::Foreign { path: path.to_path_buf() }),
        };
    }
    let new = path.with_extension("new");
    remove(fs, &new).map_err(AnchorError::Io)?;
    let file = fs.create_new(&new).map_err(|source| io_error("create", &new, source))?;
    let written = file.write_all_at(text.as_bytes(), 0);
    written.map_err(|source| io_error("write", &new, source))?;
    file.sync_all().map_err(|source| io_error("sync", &new, source))?;
    fs.rename(&new, path).map_err(|source| io_error("rename", &new, source))?;
    let dir = path.parent().unwrap_or(Path::new(""));
    fs.sync_dir(dir).map_err(|source| io_error("sync", dir, source))
}

/// What was published since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Anchor {
    /// Events in the newest published checkpoint, once the directory was looked at.
    newest: Option<u64>,
    /// When it was last tried, by the monotonic clock.
    tried: Option<Duration>,
    /// Whether that failed.
    failed: bool,
}

impl Inner {
    /// Publishes the newest checkpoint if it is time to, or if the last attempt failed.
    pub(crate) fn anchor_now_and_then(&self) {
        if self.options.anchor.is_none() {
            return;
        }
        let now = self.clock.monotonic();
        let due = {
            let anchor = self.anchor.lock();
            let since = anchor.tried.map(|tried| now.saturating_sub(tried));
            anchor.failed || since.is_none_or(|since| since >= self.options.anchor_interval)
        };
        if due && let Err(error) = self.publish() {
            tracing::error!("cannot publish a checkpoint: {}", chain(&error));
        }
    }

    /// Publishes the newest checkpoint, unless it was.
    pub(crate) fn publish(&self) -> Result<(), AnchorError> {
        let (Some(dir), Some(checkpoints)) = (&self.options.anchor, &self.checkpoints) else {
            return Ok(());
        };
        let (latest, key) = {
            let checkpoints = checkpoints.lock();
            (checkpoints.latest.clone(), checkpoints.key.verifier().clone())
        };
        let Some((latest, note)) = latest else { return Ok(()) };
        let mut anchor = self.anchor.lock();
        if anchor.newest == Some(latest.size) {
            return Ok(());
        }
        anchor.tried = Some(self.clock.monotonic());
        let published = publish(&*self.fs, dir, anchor.newest, latest.size, &note, &key);
        anchor.failed = published.is_err();
        let counter = match published {
            Ok(()) => &self.counters.anchored,
            Err(_) => &self.counters.anchor_failures,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        published?;
        anchor.newest = Some(latest.size);
        Ok(())
    }
}

/// Publishes a checkpoint of `size` events; `newest` is the size of the last one of this process.
fn publish(
    fs: &dyn FileSystem,
    dir: &Path,
    newest: Option<u64>,
    size: u64,
    note: &str,
    key: &VerifierKey,
) -> Result<(), AnchorError> {
    if newest.is_none() {
        fs.create_dir_all(dir).map_err(|source| io_error("create", dir, source))?;
        write(fs, &dir.join(KEY_NAME), &format!("{key}\n"))?;
        let largest = published(fs, dir)?.last().copied().unwrap_or(0);
        if largest > size {
            let (path, found) = (dir.to_path_buf(), size);
            return Err(AnchorError::RolledBack { path, published: largest, found });
        }
    }
    write(fs, &dir.join(name_of(size)), note)
}

impl Store {
    /// Signs a checkpoint of everything appended, and publishes it into the directory of the options,
    /// if they name one.
    ///
    /// # Errors
    /// [`AnchorError`]; it is tried again with the next checkpoint.
    pub fn publish_checkpoint(&self) -> Result<(), AnchorError> {
        self.checkpoint().map_err(AnchorError::NoCheckpoint)?;
        self.inner().publish()
    }
}
