//! Backups of a data directory: chunks that are stored once, and a list of files for each backup.
//!
//! ```text
//! source   what is copied: an image that the running server made, or the stopped data directory
//! make     copies it: cuts files into chunks, stores the new ones, reads them back, writes the list
//! store    the directory with the backups (docs/formats/backup.md)
//! list     the list of one backup
//! verify   rereads chunks
//! restore  makes a data directory of a list, checks it, and renames it into place
//! ```
//!
//! Invariants: a backup exists once its list has its name, and then every chunk of it is on stable storage and was
//! read back; nothing but a directory of backups is ever written to; a path in a list never leads out of the
//! directory that is restored.

pub(crate) mod list;
pub(crate) mod make;
pub(crate) mod restore;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod verify;

use crate::exit::{Coded, Exit};
use crate::interrupt::Interrupt;

/// Maximum size of a chunk, in bytes.
pub(crate) const CHUNK_SIZE: usize = 4 << 20;

/// The SHA-256 that names a chunk.
pub(crate) type ChunkId = [u8; 32];

/// Fails once the user interrupted the command.
///
/// # Errors
/// Interrupted (exit code 130).
fn check(interrupt: &Interrupt) -> anyhow::Result<()> {
    if interrupt.asked() {
        let text = "interrupted; what was begun was removed or is not used";
        return Err(Coded::error(Exit::Interrupted, text));
    }
    Ok(())
}
