//! The store as part of an image of the data directory.
//!
//! Order: segments and the small files while neither can change, checkpoints while none is signed, then the log,
//! which so has every event that a checkpoint covers. The log keeps what no segment has, since it is truncated
//! by a flush only.
//!
//! Invariant: the copy opens as after a crash, and verifies.

use std::path::Path;

use forebay_base::fs::DirEntry;
use forebay_base::image::{Image, ImageError};
use forebay_log::LogImageError;

use super::manifest::segments_dir;
use super::{Disk, Store};

/// Why a store cannot be part of an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreImageError {
    /// A directory cannot be listed.
    #[error("cannot list the event store")]
    List(#[source] Disk),
    /// A file cannot be linked or copied.
    #[error("cannot take a file of the event store into an image")]
    File(#[from] ImageError),
    /// The log has failed, and was not opened again yet.
    #[error("the log of the event store does not accept events")]
    Log(#[source] forebay_log::CommitError),
    /// The log cannot.
    #[error("cannot take the log of the event store into an image")]
    LogImage(#[from] LogImageError),
}

impl Store {
    /// Adds the store to an image. Blocks; flushes and compaction wait meanwhile, appending does not unless
    /// memory is full.
    ///
    /// # Errors
    /// [`StoreImageError`]: what was added stays in the image, which is not complete.
    pub fn image(&self, image: &mut Image) -> Result<(), StoreImageError> {
        let inner = self.inner();
        let _maintaining = inner.maintaining.lock();
        let segments = segments_dir(&inner.dir);
        for found in self.files(&segments)? {
            // Those that no manifest names are removed by an opening.
            if is_kept(&found) {
                image.link(&segments.join(&found.name))?;
            }
        }
        let checkpoints = inner.checkpoints.as_ref().map(|checkpoints| checkpoints.lock());
        for found in self.files(&inner.dir)? {
            let path = inner.dir.join(&found.name);
            match found.name.to_str() {
                Some("tree" | "checkpoints") => image.link_growing(&path)?,
                Some("lock") => {}
                // The others are replaced as a whole, by renaming.
                _ if is_kept(&found) => image.copy_if_exists(&path)?,
                _ => {}
            }
        }
        drop(checkpoints);
        let witness = inner.dir.join("witness");
        if inner.fs.exists(&witness).map_err(|source| listed(&witness, source))? {
            for found in self.files(&witness)? {
                if is_kept(&found) {
                    image.copy_if_exists(&witness.join(&found.name))?;
                }
            }
        }
        let (log, _) = inner.journal.get().map_err(StoreImageError::Log)?;
        log.image(image)?;
        Ok(())
    }

    fn files(&self, dir: &Path) -> Result<Vec<DirEntry>, StoreImageError> {
        self.inner().fs.list(dir).map_err(|source| listed(dir, source))
    }
}

fn listed(dir: &Path, source: std::io::Error) -> StoreImageError {
    StoreImageError::List(Disk::new("list", dir, source))
}

/// Whether a file is complete: not one that is being written, nor a lock.
fn is_kept(found: &DirEntry) -> bool {
    let name = found.name.to_string_lossy();
    !found.is_dir && name != "lock" && !name.ends_with(".new")
}
