//! A directory with backups.
//!
//! ```text
//! <dir>/forebay-backups             says that it is one, and in which version
//! <dir>/lock                        held by the one command that writes
//! <dir>/chunks/<2 digits>/<64 digits>   named by the SHA-256 of its bytes
//! <dir>/lists/<id>.list             a backup
//! <dir>/new-...                     being written
//! ```
//!
//! Invariants: a chunk is renamed to its name when it is complete; a directory that holds something else is refused
//! and left alone.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use forebay_base::fs::{FileSystem as _, Lock, RealFs};
use rustix::fs::Advice;
use sha2::{Digest as _, Sha256};

use super::list::{self, List};
use super::{CHUNK_SIZE, ChunkId};

const MARKER: &str = "forebay-backups";
const MARKER_TEXT: &[u8] = b"forebay-backups 1\n";
const LIST: &str = "list";
const CHUNK: &str = "chunk";
const NEW_MARKER: &str = "marker";
/// Names of files that are being written begin so.
const NEW: &str = "new-";

/// The SHA-256 of bytes.
pub(crate) fn chunk_id(bytes: &[u8]) -> ChunkId {
    Sha256::digest(bytes).into()
}

/// An open directory of backups.
#[derive(Debug)]
pub(crate) struct Store {
    dir: PathBuf,
    /// Held if it may be written to.
    _lock: Option<Box<dyn Lock>>,
}

impl Store {
    /// Opens the backups in `dir` for reading.
    ///
    /// # Errors
    /// It has none.
    pub(crate) fn open(dir: &Path) -> anyhow::Result<Self> {
        let marker = dir.join(MARKER);
        match std::fs::read(&marker) {
            Ok(text) if text == MARKER_TEXT => {}
            Ok(_) => bail!("{} is not of a version that this program knows", marker.display()),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                bail!("{} has no backups: {MARKER} is missing there", dir.display())
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", marker.display()));
            }
        }
        Ok(Self { dir: dir.to_path_buf(), _lock: None })
    }

    /// Opens the backups in `dir` for one more, and creates the directory if it does not exist.
    ///
    /// # Errors
    /// It holds something else, is in use, or cannot be written.
    pub(crate) fn open_to_write(dir: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot use {} for backups", dir.display());
        DirBuilder::new().recursive(true).mode(0o700).create(dir).with_context(failed)?;
        let mut is_ours = false;
        let mut is_empty = true;
        for entry in std::fs::read_dir(dir).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            is_ours |= name == MARKER;
            // A first backup that was interrupted may have come no further.
            is_empty &= name == "lock" || is_leftover(&name);
        }
        ensure!(
            is_ours || is_empty,
            "{} holds something else than backups; choose an empty directory or a new one",
            dir.display()
        );
        let lock = match RealFs.lock_exclusive(&dir.join("lock")) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!(
                    "another backup is being written to {}; wait until it has ended",
                    dir.display()
                )
            }
            lock => lock.with_context(failed)?,
        };
        let store = Self { dir: dir.to_path_buf(), _lock: Some(lock) };
        for leftover in std::fs::read_dir(dir).with_context(failed)? {
            let leftover = leftover.with_context(failed)?;
            if is_leftover(&leftover.file_name()) {
                std::fs::remove_file(leftover.path()).with_context(failed)?;
            }
        }
        // First of all, so that an interruption leaves nothing that looks like something else.
        if !is_ours {
            let mut file = store.new_file(NEW_MARKER)?;
            file.write_all(MARKER_TEXT).and_then(|()| file.sync_all()).with_context(failed)?;
            store.rename(NEW_MARKER, &dir.join(MARKER))?;
        }
        for below in ["chunks", "lists"] {
            let path = dir.join(below);
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.with_context(|| format!("cannot create {}", path.display()))?;
        }
        RealFs.sync_dir(dir).with_context(failed)?;
        Self::open(dir)?;
        Ok(store)
    }

    /// Returns the ids of all backups, the oldest first.
    pub(crate) fn ids(&self) -> anyhow::Result<Vec<String>> {
        let dir = self.dir.join("lists");
        let failed = || format!("cannot list {}", dir.display());
        let mut ids = Vec::new();
        let entries = match std::fs::read_dir(&dir) {
            // The first backup was interrupted before it made the directory.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(ids),
            entries => entries.with_context(failed)?,
        };
        for entry in entries {
            let name = entry.with_context(failed)?.file_name();
            let id = name.to_str().and_then(|name| name.strip_suffix(".list"));
            ids.extend(id.filter(|id| is_id(id)).map(str::to_owned));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Reads the list of a backup.
    ///
    /// * `id`: the newest without.
    ///
    /// # Errors
    /// There is no such backup, or its list is damaged.
    pub(crate) fn list(&self, id: Option<&str>) -> anyhow::Result<List> {
        let ids = self.ids()?;
        let id = match id {
            None => ids.last().with_context(|| format!("{} has no backup", self.dir.display()))?,
            Some(id) => ids.iter().find(|known| *known == id).with_context(|| {
                format!("{} has no backup {id:?}; --list shows them", self.dir.display())
            })?,
        };
        let list = list::read(&self.dir.join("lists").join(format!("{id}.list")))?;
        ensure!(list.header.id == *id, "the list of {id} is that of {:?}", list.header.id);
        Ok(list)
    }

    /// Begins the list of a backup.
    pub(crate) fn begin_list(&self) -> anyhow::Result<File> {
        self.new_file(LIST)
    }

    /// Makes the list that was begun, and is synced, that of a backup.
    pub(crate) fn publish_list(&self, id: &str) -> anyhow::Result<()> {
        self.rename(LIST, &self.dir.join("lists").join(format!("{id}.list")))
    }

    /// Path of a chunk.
    pub(crate) fn chunk_path(&self, chunk: &ChunkId) -> PathBuf {
        let name = hex::encode(chunk);
        self.dir.join("chunks").join(name.get(..2).unwrap_or_default()).join(name)
    }

    /// Reads a chunk, and compares it with its name.
    ///
    /// * `size`: its size.
    /// * `from_disk`: what the kernel has in memory is dropped first, as far as it does that.
    ///
    /// # Errors
    /// It is missing or damaged.
    pub(crate) fn read_chunk(
        &self,
        chunk: &ChunkId,
        size: usize,
        from_disk: bool,
    ) -> anyhow::Result<Vec<u8>> {
        let path = self.chunk_path(chunk);
        let failed = || format!("cannot read {}", path.display());
        let mut file = File::open(&path).with_context(failed)?;
        if from_disk {
            // Advice: where the kernel does not take it, what it has in memory is compared.
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).ok();
        }
        let mut bytes = Vec::with_capacity(size.min(CHUNK_SIZE) + 1);
        let limit = CHUNK_SIZE as u64 + 1;
        (&mut file).take(limit).read_to_end(&mut bytes).with_context(failed)?;
        let found = bytes.len();
        ensure!(found == size, "{} is damaged: it has {found} bytes, not {size}", path.display());
        let sound = chunk_id(&bytes) == *chunk;
        ensure!(sound, "{} is damaged: its SHA-256 is not its name", path.display());
        Ok(bytes)
    }

    /// Stores a chunk, replacing what has its name. Not synced.
    ///
    /// # Errors
    /// The device failed, or has no room.
    pub(crate) fn write_chunk(&self, chunk: &ChunkId, bytes: &[u8]) -> anyhow::Result<()> {
        let path = self.chunk_path(chunk);
        if let Some(parent) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.with_context(|| format!("cannot create {}", parent.display()))?;
        }
        let mut file = self.new_file(CHUNK)?;
        file.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))?;
        self.rename_unsynced(CHUNK, &path)
    }

    /// Puts everything that was written on stable storage.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn sync(&self) -> anyhow::Result<()> {
        let failed = || format!("cannot sync {}", self.dir.display());
        let dir = File::open(&self.dir).with_context(failed)?;
        rustix::fs::syncfs(&dir).map_err(std::io::Error::from).with_context(failed)
    }

    fn new_file(&self, name: &str) -> anyhow::Result<File> {
        let path = self.dir.join(format!("{NEW}{name}"));
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.with_context(|| format!("cannot create {}", path.display()))
    }

    fn rename_unsynced(&self, name: &str, to: &Path) -> anyhow::Result<()> {
        let from = self.dir.join(format!("{NEW}{name}"));
        let renamed = std::fs::rename(&from, to);
        renamed.with_context(|| format!("cannot rename {} to {}", from.display(), to.display()))
    }

    fn rename(&self, name: &str, to: &Path) -> anyhow::Result<()> {
        self.rename_unsynced(name, to)?;
        let parent = to.parent().unwrap_or(&self.dir);
        RealFs.sync_dir(parent).with_context(|| format!("cannot sync {}", parent.display()))
    }
}

/// Whether a file is one that an interrupted command was writing.
fn is_leftover(name: &OsStr) -> bool {
    let written = name.to_str().and_then(|name| name.strip_prefix(NEW));
    written.is_some_and(|what| [LIST, CHUNK, NEW_MARKER].contains(&what))
}

/// Whether a text can be the id of a backup, which is part of a file name.
fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_holds_something_else_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("letter"), "dear").unwrap();
        let error = Store::open_to_write(dir.path()).unwrap_err();
        assert!(format!("{error:#}").contains("something else"), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(Store::open(dir.path()).is_err());
    }

    #[test]
    fn a_chunk_is_read_whole_or_named_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_to_write(&dir.path().join("new/backups")).unwrap();
        let chunk = chunk_id(b"bytes");
        store.write_chunk(&chunk, b"bytes").unwrap();
        assert_eq!(store.read_chunk(&chunk, 5, true).unwrap(), b"bytes");
        for damaged in [&b"bytez"[..], b"byte", b"bytes!", b""] {
            std::fs::write(store.chunk_path(&chunk), damaged).unwrap();
            let error = store.read_chunk(&chunk, 5, false).unwrap_err();
            assert!(format!("{error:#}").contains(&hex::encode(chunk)), "{error:#}");
        }
    }

    #[test]
    fn an_interruption_at_any_step_of_the_first_opening_is_continued() {
        for leftovers in [&["lock"][..], &["lock", "new-marker"], &["lock", MARKER]] {
            let dir = tempfile::tempdir().unwrap();
            for name in leftovers {
                let text = if *name == MARKER { MARKER_TEXT } else { b"forebay" };
                std::fs::write(dir.path().join(name), text).unwrap();
            }
            if leftovers.contains(&MARKER) {
                assert!(Store::open(dir.path()).unwrap().ids().unwrap().is_empty());
            }
            let store = Store::open_to_write(dir.path()).unwrap();
            assert!(store.ids().unwrap().is_empty());
        }
    }

    #[test]
    fn one_command_writes_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open_to_write(dir.path()).unwrap();
        assert!(Store::open_to_write(dir.path()).is_err());
        drop(first);
        Store::open_to_write(dir.path()).unwrap();
    }
}
