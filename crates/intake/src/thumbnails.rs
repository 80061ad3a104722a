//! Thumbnails of pictures, made when they are asked for and kept in memory for a while.
//!
//! A picture is bytes from outside: the size of the file, the pixels, the memory of decoding and the
//! number of pictures decoded at a time are limited. One that cannot be decoded is the client's error,
//! also if the decoder panics.
//!
//! Invariant: a thumbnail depends only on the stored bytes and the requested size, so it is kept by
//! their digest and never out of date.

#[cfg(not(feature = "thumbnails"))]
#[path = "thumbnails/absent.rs"]
mod made;
#[cfg(feature = "thumbnails")]
mod made;

use bytes::Bytes;

use crate::error::IntakeError;
use crate::intake::Intake;
use crate::operations::StoredFile;

/// Smallest and largest length of a thumbnail's longer side, in pixels.
pub const SIZES: std::ops::RangeInclusive<u32> = 16..=1_024;

/// A thumbnail.
#[derive(Debug, Clone)]
pub struct Thumbnail {
    /// An encoded picture.
    pub bytes: Bytes,
    /// Its media type.
    pub mime: &'static str,
}

impl Intake {
    /// A thumbnail of a file that is a picture: PNG if the picture has transparency, else JPEG. It is
    /// upright if the picture says how it was held, and never larger than the picture.
    ///
    /// * `size`: maximum width and height in pixels, within [`SIZES`].
    ///
    /// # Errors
    /// [`IntakeError::Rejected`]: `no_thumbnail`, there is none of this file; `not_built`, this build makes
    /// none. [`IntakeError::Busy`]: too many are being made. Others: the file cannot be read.
    pub async fn thumbnail(&self, file: &StoredFile, size: u32) -> Result<Thumbnail, IntakeError> {
        made::thumbnail(self, file, size.clamp(*SIZES.start(), *SIZES.end())).await
    }
}

#[cfg(feature = "thumbnails")]
pub(crate) use made::Thumbnails;
#[cfg(all(feature = "thumbnails", feature = "fuzzing"))]
pub use made::decode;
