//! The cache's files as part of an image.
//!
//! Invariant: the log in the image begins at or below the lowest position of the newest snapshot there, and ends
//! at or beyond its highest.

use std::path::Path;

use forebay_base::fs::FileSystem;
use forebay_base::image::{Image, ImageError};
use forebay_log::{Log, LogImageError};

use super::directory;
use super::error::Disk;

/// Why a cache cannot be part of an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheImageError {
    /// The snapshots cannot be listed.
    #[error("cannot list the snapshots of the cache")]
    List(#[source] Disk),
    /// A snapshot cannot be linked.
    #[error("cannot take a snapshot of the cache into an image")]
    File(#[from] ImageError),
    /// The log cannot be part of it.
    #[error("cannot take the log of the cache into an image")]
    Log(#[from] LogImageError),
    /// Snapshots were finished all the time.
    #[error("the snapshots of the cache were replaced while they were taken into an image")]
    Replaced,
}

impl CacheImageError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Replaced => true,
            Self::File(error) => error.is_missing(),
            Self::List(_) | Self::Log(_) => false,
        }
    }
}

/// Adds the snapshots and the log of a running cache to an image. Blocks.
///
/// # Errors
/// [`CacheImageError`]: nothing of the cache is in the image.
pub(crate) fn image(
    fs: &dyn FileSystem,
    dir: &Path,
    log: &Log,
    image: &mut Image,
) -> Result<(), CacheImageError> {
    let snapshots = || directory::list(fs, dir).map_err(CacheImageError::List);
    image.attempt(CacheImageError::is_passing, |image| {
        let (before, _) = snapshots()?;
        for (_, path) in &before {
            image.link(path)?;
        }
        log.image(image)?;
        // A snapshot that was finished meanwhile may have let the log go that those before it need.
        let (after, _) = snapshots()?;
        if after == before { Ok(()) } else { Err(CacheImageError::Replaced) }
    })
}
