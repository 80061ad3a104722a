//! Signed checkpoints: what the log was at a size, said in a form anybody can check and keep.
//!
//! A checkpoint (C2SP tlog-checkpoint) is a signed note (C2SP signed-note) that names the log, the
//! number of its leaves and the root over them. Whoever holds one can tell later whether the log
//! still begins with what it was then: a store rewritten, cut, or built again with another key does
//! not lead to it. Every form here is described in `docs/formats/event-checkpoint.md`.

mod body;
mod history;
mod key;
mod note;

pub use body::{Checkpoint, CheckpointError};
pub use history::{History, HistoryError, Notes};
pub use key::{KeyError, KeyFileError, SigningKey, VerifierKey, create_key, load_key};
pub use note::{NOTE_SIZE_MAX, NoteError, NoteSignature, SIGNATURES_MAX, SignedNote};

#[cfg(test)]
mod tests;
