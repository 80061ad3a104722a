//! Archives of a namespace: its files and documents as a tar file or a directory (docs/formats/export.md).
//!
//! ```text
//! files/<sha256> ...   files.ndjson   documents.ndjson   manifest.json
//! ```
//!
//! From the bottom: `error`, `format` (manifest and lines), `members` (names of members, bytes of one),
//! `tar_file` and `directory` (finding and hashing members), `reader` (verification), `writer`.
//!
//! Invariants: no text from an archive or a server becomes a path; an archive that is opened was verified
//! completely; one that has its name was written completely and synced.

mod directory;
mod error;
mod format;
mod members;
mod reader;
mod tar_file;
mod writer;

#[cfg(test)]
mod tests;

pub(crate) use error::ArchiveError;
pub(crate) use format::{DocumentLine, FileLine, Settings, Target};
pub(crate) use reader::Archive;
pub(crate) use writer::Writer;
