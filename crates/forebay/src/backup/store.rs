//! What the items of a target mean (`docs/formats/backup.md`).
//!
//! ```text
//! forebay-backups                   says that the target holds backups, and in which version
//! chunks/<2 digits>/<64 digits>     named by the SHA-256 of its bytes
//! lists/<id>.list                   a backup
//! marks/<id>                        says that this backup was made, so that a list that is missing is found
//! ```
//!
//! Invariants: a target that holds something else is refused and left alone; it is written to only while it is held.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

use super::list::{self, List};
use super::target::{Hold, Purpose, Target};
use super::{CHUNK_SIZE, ChunkId};

const MARKER: &str = "forebay-backups";
const MARKER_TEXT: &[u8] = b"forebay-backups 1\n";
const CHUNKS: &str = "chunks";
const LISTS: &str = "lists";
const MARKS: &str = "marks";

/// The SHA-256 of bytes.
pub(crate) fn chunk_id(bytes: &[u8]) -> ChunkId {
    Sha256::digest(bytes).into()
}

/// An open target with backups.
#[derive(Debug)]
pub(crate) struct Store {
    target: Box<dyn Target>,
    /// There if it may be written to.
    hold: Option<Box<dyn Hold>>,
}

impl Store {
    /// Opens backups for reading.
    ///
    /// # Errors
    /// There are none.
    pub(crate) fn open(target: Box<dyn Target>) -> anyhow::Result<Self> {
        let store = Self { target, hold: None };
        ensure!(
            store.has_marker()?,
            "{} has no backups: {MARKER} is missing there",
            store.target.shown("")
        );
        Ok(store)
    }

    /// Opens a target for one more backup, and begins it if it is empty.
    ///
    /// # Errors
    /// It holds something else, is in use, or cannot be written.
    pub(crate) fn open_to_add(target: Box<dyn Target>) -> anyhow::Result<Self> {
        let mut store = Self { target, hold: None };
        ensure!(
            store.has_marker()? || store.target.is_empty()?,
            "{} holds something else than backups; choose an empty one or a new one",
            store.target.shown("")
        );
        store.hold = Some(store.target.hold(Purpose::Backup)?);
        // First of all, so that an interruption leaves nothing that looks like something else.
        if !store.has_marker()? {
            store.target.write(MARKER, MARKER_TEXT)?;
            store.target.sync()?;
        }
        Ok(store)
    }

    /// Opens backups to remove some.
    ///
    /// # Errors
    /// There are none, they are in use, or cannot be written.
    pub(crate) fn open_to_prune(target: Box<dyn Target>) -> anyhow::Result<Self> {
        let mut store = Self::open(target)?;
        store.hold = Some(store.target.hold(Purpose::Prune)?);
        Ok(store)
    }

    fn has_marker(&self) -> anyhow::Result<bool> {
        match self.target.read(MARKER, MARKER_TEXT.len(), false)? {
            None => Ok(false),
            Some(text) if text == MARKER_TEXT => Ok(true),
            Some(_) => {
                bail!("{} is not of a version that this program knows", self.target.shown(MARKER))
            }
        }
    }

    /// Fails if the target is not held, or others may hold it by now.
    ///
    /// # Errors
    /// What was begun must be given up.
    pub(crate) fn check_held(&self) -> anyhow::Result<()> {
        self.hold.as_ref().context("the backups are open for reading only")?.check()
    }

    /// Whether no other command can be adding a backup.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.is_exclusive())
    }

    /// How many threads may use it at a time with an advantage.
    pub(crate) fn workers(&self) -> usize {
        self.target.workers()
    }

    /// Whether what was written must be read back.
    pub(crate) fn is_read_back(&self) -> bool {
        !self.target.is_checked()
    }

    /// Returns the ids of all backups, the oldest first: also of one whose list is missing.
    pub(crate) fn ids(&self) -> anyhow::Result<Vec<String>> {
        let mut ids = self.listed()?;
        ids.append(&mut self.marked()?);
        Ok(ids.into_iter().collect())
    }

    fn listed(&self) -> anyhow::Result<BTreeSet<String>> {
        self.named(LISTS, list_id)
    }

    fn marked(&self) -> anyhow::Result<BTreeSet<String>> {
        self.named(MARKS, mark_id)
    }

    fn named(
        &self,
        below: &str,
        id_of: fn(&str) -> Option<&str>,
    ) -> anyhow::Result<BTreeSet<String>> {
        let mut ids = BTreeSet::new();
        self.target.list(below, &mut |name, _| {
            ids.extend(id_of(name).map(str::to_owned));
            Ok(())
        })?;
        Ok(ids)
    }

    /// Marks every backup that has a list, on stable storage.
    ///
    /// # Errors
    /// The backups exist nevertheless.
    pub(crate) fn mark(&self) -> anyhow::Result<()> {
        let marked = self.marked()?;
        for id in self.listed()?.difference(&marked) {
            self.target.write(&mark_name(id), format!("{id}\n").as_bytes())?;
        }
        self.target.sync()
    }

    /// Reads the list of a backup.
    ///
    /// * `id`: the newest without.
    ///
    /// # Errors
    /// There is no such backup, or its list is damaged.
    pub(crate) fn list(&self, id: Option<&str>) -> anyhow::Result<List> {
        let shown = self.target.shown("");
        let id = match id {
            None => self.ids()?.pop().with_context(|| format!("{shown} has no backup"))?,
            Some(id) => id.to_owned(),
        };
        let missing = || format!("{shown} has no backup {id:?}; `forebay backup list` shows them");
        ensure!(is_id(&id), missing());
        let name = list_name(&id);
        let Some(file) = self.target.open(&name)? else {
            ensure!(self.target.size(&mark_name(&id))?.is_some(), missing());
            bail!(
                "{} is missing: the backup {id} was made, and was not removed by `forebay backup prune`",
                self.target.shown(&name)
            );
        };
        let list = list::read(BufReader::new(file))
            .with_context(|| format!("{} is damaged", self.target.shown(&name)))?;
        ensure!(list.header.id == id, "the list of {id} is that of {:?}", list.header.id);
        Ok(list)
    }

    /// Begins the list of a backup.
    pub(crate) fn begin_list(&self) -> anyhow::Result<File> {
        self.target.scratch()
    }

    /// Makes the list that was begun, and is synced, that of a backup.
    ///
    /// # Errors
    /// The backup may exist nevertheless.
    pub(crate) fn publish_list(&self, id: &str, file: File) -> anyhow::Result<()> {
        self.check_held()?;
        self.target.publish(&list_name(id), file)
    }

    /// Removes backups, on stable storage. Their chunks remain. An interruption may leave them without marks.
    pub(crate) fn remove_lists<'a>(
        &self,
        ids: impl Iterator<Item = &'a str>,
    ) -> anyhow::Result<()> {
        let (marks, lists): (Vec<_>, Vec<_>) = ids.map(|id| (mark_name(id), list_name(id))).unzip();
        self.target.remove(&marks)?;
        self.target.remove(&lists)
    }

    /// Calls `each` with every chunk that exists, and its size.
    pub(crate) fn chunks(
        &self,
        each: &mut dyn FnMut(ChunkId, u64) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.target.list(CHUNKS, &mut |name, size| match chunk_of(name) {
            Some(chunk) => each(chunk, size),
            // What someone else put there stays there.
            None => Ok(()),
        })
    }

    /// Reads a chunk, and compares it with its name.
    ///
    /// * `size`: its size.
    /// * `from_device`: what is in memory is not used, as far as that can be asked for.
    ///
    /// # Errors
    /// It is missing or damaged.
    pub(crate) fn read_chunk(
        &self,
        chunk: &ChunkId,
        size: usize,
        from_device: bool,
    ) -> anyhow::Result<Vec<u8>> {
        let name = chunk_name(chunk);
        let shown = self.target.shown(&name);
        let bytes = self.target.read(&name, CHUNK_SIZE, from_device)?;
        let bytes = bytes.with_context(|| format!("{shown} is missing"))?;
        let found = bytes.len();
        ensure!(found == size, "{shown} is damaged: it has {found} bytes, not {size}");
        ensure!(chunk_id(&bytes) == *chunk, "{shown} is damaged: its SHA-256 is not its name");
        Ok(bytes)
    }

    /// Whether a chunk exists and is whole. A target that compares what it receives is asked for its size.
    ///
    /// # Errors
    /// The target cannot be asked.
    pub(crate) fn is_stored(&self, chunk: &ChunkId, size: usize) -> anyhow::Result<bool> {
        match self.target.is_checked() {
            true => Ok(self.target.size(&chunk_name(chunk))? == Some(size as u64)),
            // One that cannot be read is written again.
            false => Ok(self.read_chunk(chunk, size, false).is_ok()),
        }
    }

    /// Whether something has the name of a chunk.
    ///
    /// # Errors
    /// The target cannot be asked.
    pub(crate) fn has_chunk(&self, chunk: &ChunkId) -> anyhow::Result<bool> {
        Ok(self.target.size(&chunk_name(chunk))?.is_some())
    }

    /// Stores a chunk, replacing what has its name. Not on stable storage before [`sync`](Self::sync).
    ///
    /// # Errors
    /// The target failed, or has no room.
    pub(crate) fn write_chunk(&self, chunk: &ChunkId, bytes: &[u8]) -> anyhow::Result<()> {
        self.target.write(&chunk_name(chunk), bytes)
    }

    /// Removes chunks, on stable storage.
    ///
    /// # Errors
    /// Some may have been removed.
    pub(crate) fn remove_chunks(&self, chunks: &[ChunkId]) -> anyhow::Result<()> {
        self.target.remove(&chunks.iter().map(chunk_name).collect::<Vec<_>>())
    }

    /// Puts everything that was written on stable storage.
    ///
    /// # Errors
    /// The device failed.
    pub(crate) fn sync(&self) -> anyhow::Result<()> {
        self.target.sync()
    }
}

fn chunk_name(chunk: &ChunkId) -> String {
    let name = hex::encode(chunk);
    format!("{CHUNKS}/{}/{name}", name.get(..2).unwrap_or_default())
}

/// The chunk that an item is, if it is one.
fn chunk_of(name: &str) -> Option<ChunkId> {
    let mut chunk = [0; 32];
    hex::decode_to_slice(name.rsplit('/').next()?, &mut chunk).ok()?;
    (chunk_name(&chunk) == name).then_some(chunk)
}

fn list_name(id: &str) -> String {
    format!("{LISTS}/{id}.list")
}

fn mark_name(id: &str) -> String {
    format!("{MARKS}/{id}")
}

/// The id of the backup that an item is the mark of.
fn mark_id(name: &str) -> Option<&str> {
    let id = name.strip_prefix(MARKS)?.strip_prefix('/')?;
    is_id(id).then_some(id)
}

/// The id of the backup that an item is the list of.
fn list_id(name: &str) -> Option<&str> {
    let id = name.strip_prefix(LISTS)?.strip_prefix('/')?.strip_suffix(".list")?;
    is_id(id).then_some(id)
}

/// Whether a text can be the id of a backup, which is part of a name.
fn is_id(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::super::target::Directory;
    use super::*;

    fn target(dir: &Path) -> Box<dyn Target> {
        Box::new(Directory::new(dir))
    }

    fn path(dir: &Path, chunk: &ChunkId) -> PathBuf {
        dir.join(chunk_name(chunk))
    }

    #[test]
    fn a_directory_that_holds_something_else_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("letter"), "dear").unwrap();
        let error = Store::open_to_add(target(dir.path())).unwrap_err();
        assert!(format!("{error:#}").contains("something else"), "{error:#}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(Store::open(target(dir.path())).is_err());
        assert!(Store::open_to_prune(target(dir.path())).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_chunk_is_read_whole_or_named_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("new/backups");
        let store = Store::open_to_add(target(&dir)).unwrap();
        let chunk = chunk_id(b"bytes");
        assert!(!store.is_stored(&chunk, 5).unwrap());
        store.write_chunk(&chunk, b"bytes").unwrap();
        assert_eq!(store.read_chunk(&chunk, 5, true).unwrap(), b"bytes");
        assert!(store.is_stored(&chunk, 5).unwrap());
        for damaged in [&b"bytez"[..], b"byte", b"bytes!", b""] {
            std::fs::write(path(&dir, &chunk), damaged).unwrap();
            let error = store.read_chunk(&chunk, 5, false).unwrap_err();
            assert!(format!("{error:#}").contains(&hex::encode(chunk)), "{error:#}");
            assert!(!store.is_stored(&chunk, 5).unwrap());
        }
    }

    #[test]
    fn an_interruption_at_any_step_of_the_first_opening_is_continued() {
        for leftovers in [&["lock"][..], &["lock", "new-marker", "new-chunk"], &["lock", MARKER]] {
            let dir = tempfile::tempdir().unwrap();
            for name in leftovers {
                let text = if *name == MARKER { MARKER_TEXT } else { b"forebay" };
                std::fs::write(dir.path().join(name), text).unwrap();
            }
            if leftovers.contains(&MARKER) {
                let store = Store::open(target(dir.path())).unwrap();
                assert!(store.ids().unwrap().is_empty());
            }
            let store = Store::open_to_add(target(dir.path())).unwrap();
            assert!(store.ids().unwrap().is_empty());
            let names = std::fs::read_dir(dir.path()).unwrap().count();
            assert_eq!(names, 2, "{leftovers:?}");
        }
    }

    #[test]
    fn one_command_writes_to_a_directory_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Store::open_to_add(target(dir.path())).unwrap();
        assert!(Store::open_to_add(target(dir.path())).is_err());
        assert!(Store::open_to_prune(target(dir.path())).is_err());
        drop(first);
        let second = Store::open_to_prune(target(dir.path())).unwrap();
        assert!(Store::open_to_add(target(dir.path())).is_err());
        drop(second);
        Store::open_to_add(target(dir.path())).unwrap();
    }

    #[test]
    fn only_names_that_are_written_so_are_chunks_and_lists() {
        let chunk = chunk_id(b"x");
        let name = chunk_name(&chunk);
        assert_eq!(chunk_of(&name), Some(chunk));
        for other in [name.to_uppercase(), format!("{name}0"), name.replace("chunks/", "chunks/0")]
        {
            assert_eq!(chunk_of(&other), None, "{other}");
        }
        assert_eq!(list_id("lists/20260101T000000000Z-0a.list"), Some("20260101T000000000Z-0a"));
        for other in
            ["lists/.list", "lists/a/b.list", "lists/a.list.new", "chunks/a.list", "listsa.list"]
        {
            assert_eq!(list_id(other), None, "{other}");
        }
    }
}
