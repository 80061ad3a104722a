//! Log entries of the intake: the only thing that makes a change true.
//!
//! Layout in `docs/formats/intake-log.md`. Every entry opens with its kind and version; integers
//! are little-endian; texts and byte strings carry their length. An entry may carry the idempotency
//! key of the request that made it, so that a change and the memory of its request are one write.
//!
//! Invariants: decoding never panics and never allocates more than the payload's own size;
//! `decode(encode(x)) == x`; an entry of an unknown kind or version is an error, not skipped.

mod decoder;
mod entry;

pub use decoder::DecodeError;
pub use entry::{
    AddedColumn, BlobPlace, ChunkRef, Delete, DocumentChunk, DocumentCommit, Documents, Entry,
    FilePut, IdempotencyRecord, Outcome, TargetCode, encode_chunk_header, encode_documents,
};
