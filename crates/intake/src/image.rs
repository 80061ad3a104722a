//! The intake as part of an image of the data directory.
//!
//! Order: unfinished uploads, since a finished one counts on its file; the document database; the log, which so
//! reaches at least as far as the database; blobs, which are stored before the entry that names them. No space
//! is reclaimed meanwhile, so the log still has what the database lacks, and every name its blob.
//!
//! The catalogue and the search index are left out, since they are made from the log again. So is the state of
//! forwarding: a restored copy compares itself with the database instead of relying on it. Blobs in object storage
//! stay there: the index of them is made from the packs again, and a pack is kept for a time after its last blob
//! was deleted.

use std::path::Path;

use forebay_base::image::{Image, ImageError};
use forebay_log::LogImageError;

use crate::intake::{Intake, layout};

/// Why the intake cannot be part of an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IntakeImageError {
    /// A directory cannot be listed.
    #[error("cannot list the intake's files")]
    List(#[source] std::io::Error),
    /// A file cannot be linked or copied.
    #[error("cannot take a file of the intake into an image")]
    File(#[from] ImageError),
    /// The document database cannot be copied.
    #[error("cannot copy the document database")]
    Documents(#[source] rusqlite::Error),
    /// The log cannot be part of it.
    #[error("cannot take the log of the intake into an image")]
    Log(#[from] LogImageError),
}

impl Intake {
    /// Adds the intake to an image. Blocks for as long as a copy of the document database takes; requests are
    /// answered, and space is reclaimed later.
    ///
    /// # Errors
    /// [`IntakeImageError`]: what was added stays in the image, which is not complete.
    pub fn image(&self, image: &mut Image) -> Result<(), IntakeImageError> {
        let shared = &self.inner.shared;
        let _nothing_reclaimed = shared.imaging.lock();
        let listed = shared.uploads.paths().map_err(IntakeImageError::List)?;
        for path in listed {
            match image.link_unsettled(&path) {
                // It expired, or was removed by its client.
                Err(error) if error.is_missing() => {}
                linked => linked?,
            }
        }
        let documents = shared.options.dir.join(layout::DOCUMENTS);
        let place = image.place(&documents)?;
        copy_database(&documents, &place).map_err(IntakeImageError::Documents)?;
        image.made(&documents)?;
        shared.log.image(image)?;
        for (blob, _) in shared.blobs.local().list().map_err(IntakeImageError::List)? {
            // Files with other names are not the intake's.
            let Ok(digest) = blob else { continue };
            match image.link(&shared.blobs.local().path_of(digest)) {
                // A blob whose entry is after the image, and that was deleted again.
                Err(error) if error.is_missing() => {}
                linked => linked?,
            }
        }
        Ok(())
    }
}

/// Writes a copy of a database that others have open, as of one moment.
fn copy_database(from: &Path, to: &Path) -> Result<(), rusqlite::Error> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(from, flags)?;
    let to = to.as_os_str().to_string_lossy();
    connection.execute("VACUUM INTO ?1", [&*to]).map(drop)
}
