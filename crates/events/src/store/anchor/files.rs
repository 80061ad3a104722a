//! Published checkpoints as files: `verifier.key`, and each note under the number of its events.
//!
//! Invariants:
//! - A published checkpoint is never replaced or removed: another one of the same size is an error.
//! - A file has its name only once it is complete and on stable storage.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_base::fs::{Access, FileSystem};

use super::{AnchorError, AnchorTarget, Publication};
use crate::checkpoint::{Checkpoint, NOTE_SIZE_MAX, SignedNote, VerifierKey};
use crate::store::error::Disk;
use crate::store::manifest::remove;

/// The file with the verifier key.
const KEY_NAME: &str = "verifier.key";
const EXTENSION: &str = ".checkpoint";
/// Maximum number of checkpoints that are read from a place.
const NOTES_MAX: usize = 1 << 20;

/// A place that keeps files by name.
pub trait AnchorFiles: fmt::Debug + Send + Sync {
    /// Its address, without secrets.
    fn address(&self) -> String;

    /// The address of a file, for messages.
    fn address_of(&self, name: &str) -> String {
        format!("{}/{name}", self.address().trim_end_matches('/'))
    }

    /// Creates the place if that is necessary.
    ///
    /// # Errors
    /// [`AnchorError`].
    fn prepare(&self) -> Result<(), AnchorError> {
        Ok(())
    }

    /// The names of the files; with `after`, only those that follow it in alphabetical order.
    ///
    /// # Errors
    /// [`AnchorError`].
    fn names(&self, after: Option<&str>) -> Result<Vec<String>, AnchorError>;

    /// Reads a file; `None` if it does not exist. A file of more than `size_max` bytes is an error.
    ///
    /// # Errors
    /// [`AnchorError`].
    fn read(&self, name: &str, size_max: usize) -> Result<Option<Vec<u8>>, AnchorError>;

    /// Reads several files, each like [`read`](Self::read), in the given order.
    ///
    /// # Errors
    /// [`AnchorError`].
    fn read_all(
        &self,
        names: &[String],
        size_max: usize,
    ) -> Result<Vec<Option<Vec<u8>>>, AnchorError> {
        names.iter().map(|name| self.read(name, size_max)).collect()
    }

    /// Writes a file that does not exist, as a whole and durably. Replaces nothing.
    ///
    /// # Errors
    /// [`AnchorError`].
    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), AnchorError>;
}

/// What a place with published checkpoints has.
#[derive(Debug, Clone, Default)]
pub struct Anchored {
    /// The verifier key of the store that published there.
    pub key: Option<VerifierKey>,
    /// Its checkpoints, by size.
    pub notes: Vec<String>,
}

/// Reads a place with published checkpoints. Verifies no signature, but that each checkpoint has the
/// size in its name: an older one in the place of a newer one would hide that the store was rolled
/// back.
///
/// # Errors
/// [`AnchorError::Overwritten`], [`AnchorError::Empty`]; the others if it cannot be read.
pub fn read_anchor(files: &dyn AnchorFiles) -> Result<Anchored, AnchorError> {
    let mut anchored = Anchored::default();
    if let Some(text) = text(files, KEY_NAME, files.read(KEY_NAME, NOTE_SIZE_MAX)?)? {
        let key = text.trim().parse();
        let reason = "it is not a verifier key";
        anchored.key = Some(key.map_err(|_| unreadable(files, KEY_NAME, reason))?);
    }
    let mut sizes = sizes(&files.names(None)?);
    sizes.sort_unstable();
    if sizes.len() > NOTES_MAX {
        let (place, reason) = (files.address(), "it has more than a million checkpoints");
        return Err(AnchorError::Unreadable { place, reason });
    }
    if sizes.is_empty() {
        return Err(AnchorError::Empty { place: files.address() });
    }
    let names: Vec<String> = sizes.iter().copied().map(name_of).collect();
    let read = files.read_all(&names, NOTE_SIZE_MAX)?;
    for ((name, published), bytes) in names.iter().zip(sizes).zip(read) {
        let reason = "it vanished while the others were read";
        let note = text(files, name, bytes)?;
        let note = note.ok_or_else(|| unreadable(files, name, reason))?;
        let reason = "it is not a checkpoint";
        let found = size_of(&note).ok_or_else(|| unreadable(files, name, reason))?;
        if found != published {
            let place = files.address_of(name);
            return Err(AnchorError::Overwritten { place, published, found });
        }
        anchored.notes.push(note);
    }
    Ok(anchored)
}

/// Number of events of the checkpoint in a note.
fn size_of(note: &str) -> Option<u64> {
    let note = SignedNote::parse(note.as_bytes()).ok()?;
    Some(Checkpoint::parse(note.text()).ok()?.size)
}

fn name_of(size: u64) -> String {
    format!("{size:020}{EXTENSION}")
}

/// The sizes of the published checkpoints among files.
fn sizes(names: &[String]) -> Vec<u64> {
    names.iter().filter_map(|name| name.strip_suffix(EXTENSION)?.parse().ok()).collect()
}

fn unreadable(files: &dyn AnchorFiles, name: &str, reason: &'static str) -> AnchorError {
    AnchorError::Unreadable { place: files.address_of(name), reason }
}

fn text(
    files: &dyn AnchorFiles,
    name: &str,
    bytes: Option<Vec<u8>>,
) -> Result<Option<String>, AnchorError> {
    let text = bytes.map(String::from_utf8).transpose();
    text.map_err(|_| unreadable(files, name, "it is not text"))
}

/// Publishes into a place that keeps files.
#[derive(Debug)]
pub struct KeptFiles<F>(pub F);

impl<F: AnchorFiles> KeptFiles<F> {
    /// Writes a file that does not exist, or has the same text.
    fn write(&self, name: &str, text: &str) -> Result<(), AnchorError> {
        match self.0.read(name, NOTE_SIZE_MAX)? {
            None => self.0.create(name, text.as_bytes()),
            Some(found) if found == text.as_bytes() => Ok(()),
            Some(_) => Err(AnchorError::Foreign { place: self.0.address_of(name) }),
        }
    }
}

impl<F: AnchorFiles> AnchorTarget for KeptFiles<F> {
    fn address(&self) -> String {
        self.0.address()
    }

    fn publish(&self, publication: &Publication) -> Result<(), AnchorError> {
        let size = publication.checkpoint.size;
        if publication.first {
            self.0.prepare()?;
            self.write(KEY_NAME, &format!("{}\n", publication.key))?;
            let larger = sizes(&self.0.names(Some(&name_of(size)))?);
            if let Some(published) = larger.into_iter().max().filter(|&largest| largest > size) {
                let (place, found) = (self.0.address(), size);
                return Err(AnchorError::RolledBack { place, published, found });
            }
        }
        self.write(&name_of(size), &publication.note)
    }
}

/// A directory of published checkpoints.
#[derive(Debug)]
pub struct Directory {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
}

impl Directory {
    /// The directory `path`.
    #[must_use]
    pub fn new(fs: Arc<dyn FileSystem>, path: PathBuf) -> Self {
        Self { fs, path }
    }
}

fn io_error(act: &'static str, path: &Path, source: io::Error) -> AnchorError {
    AnchorError::Io(Disk::new(act, path, source))
}

impl AnchorFiles for Directory {
    fn address(&self) -> String {
        self.path.display().to_string()
    }

    fn prepare(&self) -> Result<(), AnchorError> {
        let created = self.fs.create_dir_all(&self.path);
        created.map_err(|source| io_error("create", &self.path, source))
    }

    fn names(&self, after: Option<&str>) -> Result<Vec<String>, AnchorError> {
        let entries = self.fs.list(&self.path);
        let entries = entries.map_err(|source| io_error("list", &self.path, source))?;
        let names = entries.iter().filter_map(|entry| entry.name.to_str());
        Ok(names
            .filter(|&name| after.is_none_or(|after| name > after))
            .map(str::to_owned)
            .collect())
    }

    fn read(&self, name: &str, size_max: usize) -> Result<Option<Vec<u8>>, AnchorError> {
        let path = self.path.join(name);
        let file = match self.fs.open(&path, Access::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(io_error("open", &path, source)),
        };
        let size = file.len().map_err(|source| io_error("get the size of", &path, source))?;
        let size = usize::try_from(size).ok().filter(|&size| size <= size_max);
        let size = size.ok_or_else(|| unreadable(self, name, "it is too large"))?;
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, 0).map_err(|source| io_error("read", &path, source))?;
        Ok(Some(bytes))
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<(), AnchorError> {
        let path = self.path.join(name);
        let (fs, new) = (&*self.fs, path.with_extension("new"));
        remove(fs, &new).map_err(AnchorError::Io)?;
        let file = fs.create_new(&new).map_err(|source| io_error("create", &new, source))?;
        file.write_all_at(bytes, 0).map_err(|source| io_error("write", &new, source))?;
        file.sync_all().map_err(|source| io_error("sync", &new, source))?;
        fs.rename(&new, &path).map_err(|source| io_error("rename", &new, source))?;
        fs.sync_dir(&self.path).map_err(|source| io_error("sync", &self.path, source))
    }
}
