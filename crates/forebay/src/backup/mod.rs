//! Backups of a data directory: chunks that are stored once, and a list of files for each backup.
//!
//! ```text
//! source   what is copied: an image that the running server made, or the stopped data directory
//! make     copies it: cuts files into chunks, stores the new ones, reads them back, writes the list
//! store    what is in a target (docs/formats/backup.md)
//! target   what holds backups: a directory, or a prefix in a bucket of S3
//! list     the list of one backup
//! verify   rereads chunks
//! restore  makes a data directory of a list, checks it, and renames it into place
//! keep     which backups are kept
//! prune    removes the others, and then the chunks that no list names
//! parallel work on several threads
//! ```
//!
//! Invariants: a backup exists once its list has its name, and then every chunk of it is on stable storage and was
//! read back, or was compared with its checksum by the target; a marked backup whose list is missing is damaged, not
//! forgotten; no chunk is removed that a list names; nothing but a target of backups is ever written to; a path in a
//! list never leads out of the directory that is restored.

pub(crate) mod keep;
pub(crate) mod list;
pub(crate) mod make;
mod parallel;
pub(crate) mod prune;
pub(crate) mod restore;
pub(crate) mod source;
pub(crate) mod store;
pub(crate) mod target;
#[cfg(test)]
mod tests;
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
