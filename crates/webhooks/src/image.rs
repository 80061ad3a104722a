//! The state as part of an image of the data directory.

use std::path::Path;

use forebay_base::image::{Image, ImageError};

use crate::hooks::Hooks;
use crate::store::FILE;

/// Why the state cannot be part of an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookImageError {
    /// It cannot be placed there.
    #[error("cannot take the state of webhooks into an image")]
    Image(#[from] ImageError),
    /// It cannot be copied.
    #[error("cannot copy the state of webhooks")]
    Copy(#[source] rusqlite::Error),
}

impl Hooks {
    /// Adds the state to an image, as of one moment. Blocks.
    ///
    /// Called before the logs are added: the positions in the copy are then in the copies of the logs.
    ///
    /// # Errors
    /// [`WebhookImageError`]: the image is not complete.
    pub fn image(&self, image: &mut Image) -> Result<(), WebhookImageError> {
        let path = self.inner.options.dir.join(FILE);
        let place = image.place(&path)?;
        copy(&path, &place).map_err(WebhookImageError::Copy)?;
        Ok(image.made(&path)?)
    }
}

/// Writes a copy of a database that others have open.
fn copy(from: &Path, to: &Path) -> rusqlite::Result<()> {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let connection = rusqlite::Connection::open_with_flags(from, flags)?;
    connection.execute("VACUUM INTO ?1", [&*to.as_os_str().to_string_lossy()]).map(drop)
}
