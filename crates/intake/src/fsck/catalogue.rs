//! The catalogue in `fsck`: verified by its checksums, and compared with one that is built from the
//! log alone.
//!
//! A damaged catalogue is left as it is. The rest of the check then uses the one that was built from
//! the log, so that every blob is still read and every finding names its files.
//!
//! Invariant: the catalogue that was built is removed in the end.

use std::path::{Path, PathBuf};

use forebay_base::error_chain::chain;
use forebay_log::Log;

use super::Finding;
use crate::apply::replay;
use crate::catalogue::{Catalogue, compare};
use crate::error::{CatalogueError, OpenError};
use crate::intake::layout;

/// Maximum number of findings of one kind.
const FINDINGS_MAX: usize = 20;

/// The catalogue as it was found.
pub(super) struct Stored {
    /// `None` if it cannot be opened.
    pub(super) catalogue: Option<Catalogue>,
    /// Every row, count and digest is as it was stored.
    pub(super) is_sound: bool,
}

impl Stored {
    /// Opens the catalogue in `dir` and verifies it.
    pub(super) fn open(dir: &Path, findings: &mut Vec<Finding>) -> Result<Self, OpenError> {
        let path = dir.join(layout::CATALOGUE);
        let mut damaged = |message: String| findings.push(finding(&path, message));
        let catalogue = match Catalogue::open(&path) {
            Ok(catalogue) => catalogue,
            Err(error) => {
                damaged(damage(error)?);
                return Ok(Self { catalogue: None, is_sound: false });
            }
        };
        if !catalogue.is_current() {
            return Ok(Self { catalogue: Some(catalogue), is_sound: true });
        }
        let mut found = match catalogue.verify(FINDINGS_MAX) {
            Ok(found) => found,
            Err(error) => vec![damage(error)?],
        };
        match catalogue.reader().and_then(|reader| reader.integrity()) {
            Ok(messages) => found.extend(messages),
            Err(error) => found.push(damage(error)?),
        }
        let is_sound = found.is_empty();
        found.into_iter().for_each(damaged);
        Ok(Self { catalogue: Some(catalogue), is_sound })
    }

    /// Position up to which it has seen the log on stable storage.
    pub(super) fn seen(&self) -> u64 {
        let current = self.catalogue.as_ref().filter(|catalogue| catalogue.is_current());
        current.map_or(0, Catalogue::position)
    }
}

/// A catalogue built from the log alone.
pub(super) struct Reference {
    pub(super) catalogue: Option<Catalogue>,
    path: PathBuf,
}

impl Reference {
    /// Builds one beside the stored catalogue.
    pub(super) fn build(dir: &Path, log: &Log) -> Result<Self, OpenError> {
        let mut reference = Self { catalogue: None, path: dir.join(layout::CATALOGUE_FSCK) };
        // One may have been left by a check that was interrupted.
        reference.remove();
        let mut catalogue = Catalogue::open(&reference.path).map_err(OpenError::Catalogue)?;
        let built = replay(log, &mut catalogue, log.start());
        reference.catalogue = Some(catalogue);
        built.map_err(OpenError::Replay)?;
        Ok(reference)
    }

    /// Reports how the stored catalogue differs from this one.
    pub(super) fn compare(
        &self,
        stored: &Catalogue,
        dir: &Path,
        findings: &mut Vec<Finding>,
    ) -> Result<(), OpenError> {
        let Some(reference) = &self.catalogue else { return Ok(()) };
        let path = dir.join(layout::CATALOGUE);
        let found = compare(stored, reference, FINDINGS_MAX).map_err(OpenError::Catalogue)?;
        for message in found {
            let message = format!(
                "{message}; nothing is lost: move the file away while the server is stopped, and the \
                 next start builds the catalogue again from the log"
            );
            let (kind, path) = ("catalogue", Some(path.clone()));
            findings.push(Finding { kind, message, sha256: None, path, names: Vec::new() });
        }
        Ok(())
    }

    fn remove(&mut self) {
        self.catalogue = None;
        for suffix in ["", "-wal", "-shm"] {
            let mut path = self.path.as_os_str().to_owned();
            path.push(suffix);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let path = PathBuf::from(path);
                    tracing::warn!(path = %path.display(), %error, "could not remove a file");
                }
                _ => {}
            }
        }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What a reader of the catalogue reports as damaged; every other failure stops the check.
pub(super) fn damage(error: CatalogueError) -> Result<String, OpenError> {
    if error.source.is_damage() {
        Ok(chain(&error).to_string())
    } else {
        Err(OpenError::Catalogue(error))
    }
}

fn finding(path: &Path, message: String) -> Finding {
    let message = format!(
        "{message}; nothing is lost: the next start sets the file aside and builds the catalogue \
         again from the log"
    );
    let (sha256, path) = (None, Some(path.to_owned()));
    Finding { kind: "catalogue", message, sha256, path, names: Vec::new() }
}
