//! Log entries of the intake: only they make a change valid.
//!
//! Layout in `docs/formats/intake-log.md`. Every entry starts with its kind and version; integers
//! are little-endian; texts and byte strings carry their length. An entry may carry the idempotency
//! key of its request, so that a change and the record of its request are one write.
//!
//! Invariants: decoding never panics and never allocates more than the payload's own size;
//! `decode(encode(x)) == x`; an entry of an unknown kind or version is an error, not skipped.

mod decoder;
mod entry;

pub use decoder::DecodeError;
pub(crate) use decoder::Decoder;
pub use entry::{
    AddedColumn, Amended, BlobPlace, ChangeAction, ChunkRef, CommitFlags, Delete, DocumentChange,
    DocumentChunk, DocumentCommit, DocumentExtents, Documents, DocumentsDropped, Entry, FileMove,
    FilePut, IdempotencyRecord, NamespaceChange, NamespaceExtent, NewestErased, Outcome,
    TargetCode, VersionsErased, encode_chunk_header, encode_documents,
};
