//! A build without thumbnails.

use super::Thumbnail;
use crate::error::IntakeError;
use crate::intake::Intake;
use crate::operations::StoredFile;

#[expect(clippy::unused_async, reason = "making one waits")]
pub(super) async fn thumbnail(
    _: &Intake,
    _: &StoredFile,
    _: u32,
) -> Result<Thumbnail, IntakeError> {
    let text = "this build makes no thumbnails; build everything with \
                `cargo build --release --features full`";
    Err(IntakeError::rejected("not_built", text.to_owned()))
}
