//! Signed checkpoints: the state of the log at a size, in a form that anyone can verify and keep.
//!
//! A checkpoint (C2SP tlog-checkpoint) is a signed note (C2SP signed-note) that names the log, the
//! number of its leaves and the root over them. Its holder can detect later whether the log still
//! begins with the same events: a store that was rewritten, truncated, or rebuilt with another key
//! does not match it. `docs/formats/event-checkpoint.md` describes every form.

mod add_checkpoint;
mod body;
mod cosignature;
mod history;
mod key;
mod note;

pub use add_checkpoint::{ADD_CHECKPOINT_SIZE_MAX, AddCheckpoint, PROOF_LINES_MAX};
pub(crate) use body::parse_size;
pub use body::{Checkpoint, CheckpointError};
pub use cosignature::{CosignerKey, CosigningKey};
pub use history::{History, HistoryError, Notes};
pub use key::{KeyError, KeyFileError, SigningKey, VerifierKey, create_key, load_key};
pub use note::{NOTE_SIZE_MAX, NoteError, NoteSignature, SIGNATURES_MAX, SignedNote};

#[cfg(test)]
mod tests;
