//! The kinds of entries: what each holds. How they are encoded and decoded is below.

mod change;
mod decode;
mod encode;

use super::decoder::Decoder;
use crate::attributes::Attributes;
use crate::classify::Category;
use crate::digest::Digest;
use crate::names::{FileName, Namespace};

pub use change::{ChangeAction, DocumentChange, DocumentsDropped};
pub use encode::{encode_chunk_header, encode_documents};

const VERSION: u8 = 1;
/// Version of a commit that has flags.
const VERSION_FLAGS: u8 = 2;
/// Version of a put that has attributes.
const VERSION_ATTRIBUTES: u8 = 2;
/// Version of a delete or a move that keeps what the name referred to.
const VERSION_KEEPS: u8 = 2;
const KIND_FILE_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_CHUNK: u8 = 3;
const KIND_COMMIT: u8 = 4;
const KIND_OUTCOME: u8 = 5;
const KIND_EXTENTS: u8 = 6;
const KIND_MOVE: u8 = 7;
const KIND_NAMESPACE: u8 = 8;
const KIND_VERSIONS_ERASED: u8 = 9;
const KIND_CHANGE: u8 = 10;
const KIND_DROP: u8 = 11;
const KIND_NEWEST_ERASED: u8 = 12;
const KIND_AMENDED: u8 = 13;

const FLAG_RESHAPES: u8 = 1;
const FLAG_UNDECIDED: u8 = 2;

const PLACE_EXISTING: u8 = 0;
const PLACE_INLINE: u8 = 1;
const PLACE_FILE: u8 = 2;

/// Where a put file's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobPlace<'a> {
    /// In a blob that was already stored.
    Existing,
    /// In this entry.
    Inline(&'a [u8]),
    /// In a separate blob file, synced before this entry was written.
    File,
}

/// The request that a change answers, remembered so that a repetition gets the same answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Digest of the key (and, within a batch, of the part's index).
    pub key: Digest,
    /// Digest of the whole request.
    pub fingerprint: Digest,
}

/// A name is given to a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePut<'a> {
    /// When, in milliseconds since 1970.
    pub created_ms: i64,
    /// SHA-256 of the bytes.
    pub digest: Digest,
    /// Number of bytes.
    pub size: u64,
    /// Broad kind.
    pub category: Category,
    /// Namespace of the name.
    pub namespace: Namespace,
    /// The name.
    pub name: FileName,
    /// Media type.
    pub mime: &'a str,
    /// Comment given with the file; empty when there was none.
    pub comment: &'a str,
    /// What else is stored with the name.
    pub attributes: Attributes,
    /// Whether the bytes were already known when this name was given to them.
    pub duplicate: bool,
    /// Whether the name referred to other bytes before.
    pub replaced: bool,
    /// Whether the name did not exist before.
    pub created: bool,
    /// Whether what the name referred to before is kept as a version.
    pub keeps: bool,
    /// Whether the name was given to the bytes of another name, or its attributes were changed: no bytes
    /// were received.
    pub derived: bool,
    /// The request, if it had a key.
    pub idempotency: Option<IdempotencyRecord>,
    /// Where the bytes are.
    pub place: BlobPlace<'a>,
}

/// A name is deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// When, in milliseconds since 1970.
    pub deleted_ms: i64,
    /// Namespace of the name.
    pub namespace: Namespace,
    /// The name.
    pub name: FileName,
    /// Whether what the name referred to is kept as a version.
    pub keeps: bool,
    /// The request, if it had a key.
    pub idempotency: Option<IdempotencyRecord>,
}

/// Versions of a name are erased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionsErased {
    /// When, in milliseconds since 1970.
    pub erased_ms: i64,
    /// Namespace of the name.
    pub namespace: Namespace,
    /// The name.
    pub name: FileName,
    /// Their ids: positions of the entries that made them.
    pub ids: Vec<u64>,
}

/// The newest state of a name is erased, and the one before it holds again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestErased {
    /// When, in milliseconds since 1970.
    pub erased_ms: i64,
    /// Namespace of the name.
    pub namespace: Namespace,
    /// The name.
    pub name: FileName,
    /// Id of the file or the deletion that is erased.
    pub id: u64,
    /// Id of the file that the name refers to from here on; `None` if it does not exist.
    pub current: Option<u64>,
}

/// The attributes of one version of a name are replaced, whether it is the newest or an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amended {
    /// When, in milliseconds since 1970.
    pub amended_ms: i64,
    /// Namespace of the name.
    pub namespace: Namespace,
    /// The name.
    pub name: FileName,
    /// Id of the version.
    pub id: u64,
    /// Its attributes from here on.
    pub attributes: Attributes,
}

/// A name is given to the bytes of another name, which is deleted: both or neither.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMove<'a> {
    /// The new name. Its bytes are [`BlobPlace::Existing`].
    pub put: FilePut<'a>,
    /// Namespace of the name that is deleted.
    pub from_namespace: Namespace,
    /// The name that is deleted.
    pub from_name: FileName,
    /// Whether what that name referred to is kept as a version of it.
    pub keeps: bool,
}

/// A namespace gets a record of its own, loses it, or has it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceChange {
    /// When, in milliseconds since 1970.
    pub changed_ms: i64,
    /// The namespace.
    pub namespace: Namespace,
    /// Its attributes from here on; `None` if it has no record from here on.
    pub attributes: Option<Attributes>,
}

/// Documents of a request that is still being received. Without effect until its commit names this
/// entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentChunk<'a> {
    /// The request.
    pub request: [u8; 16],
    /// The documents.
    pub documents: Documents<'a>,
}

/// Whether a namespace's documents are rows of a table or members of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum TargetCode {
    /// Typed columns plus the unchanged document.
    Table = 1,
    /// The unchanged document alone.
    Collection = 2,
}

/// A column of a commit: one that it adds to its namespace's table, or one of all that it gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedColumn {
    /// Path of keys in the document, joined by `.` with `.` and `\` in keys escaped.
    pub path: String,
    /// Code of the column's type ([`crate::documents::column_code`]).
    pub type_code: u8,
}

/// Position of a [`DocumentChunk`] that belongs to a commit.
pub type ChunkRef = u64;

/// What a commit says of its namespace beside its documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommitFlags {
    /// The namespace has exactly `columns` from here on, and the values of the documents before are
    /// derived again.
    pub reshapes: bool,
    /// It is still to be decided whether the namespace is a table or a collection.
    pub undecided: bool,
}

/// The documents of one request become part of a namespace, all together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentCommit<'a> {
    /// The request.
    pub request: [u8; 16],
    /// When, in milliseconds since 1970.
    pub received_ms: i64,
    /// The namespace.
    pub namespace: Namespace,
    /// Table or collection.
    pub target: TargetCode,
    /// Id of the first document; the others follow in order.
    pub first_id: u64,
    /// Number of documents.
    pub count: u64,
    /// Columns that the table gains; all that it has from here on if the commit reshapes it.
    pub columns: Vec<AddedColumn>,
    /// What the commit says of its namespace beside that.
    pub flags: CommitFlags,
    /// Positions of the chunks that precede `documents`, in order.
    pub chunks: Vec<ChunkRef>,
    /// The request's key, if it had one.
    pub idempotency: Option<IdempotencyRecord>,
    /// HTTP status of the answer.
    pub status: u16,
    /// The answer, kept for the key; empty without one.
    pub answer: &'a [u8],
    /// The last (often only) documents.
    pub documents: Documents<'a>,
}

/// The whole answer of a batch request that had a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<'a> {
    /// When, in milliseconds since 1970.
    pub created_ms: i64,
    /// HTTP status of the answer.
    pub status: u16,
    /// The request.
    pub idempotency: IdempotencyRecord,
    /// Its JSON body.
    pub answer: &'a [u8],
}

/// What the document database held on stable storage when documents were about to be erased from
/// the log. With it a database that was lost, replaced by an older copy, or altered is recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentExtents {
    /// Position of the log up to which the database reflected it.
    pub position: u64,
    /// Documents below this position may have been erased from the log since; at most `position`.
    pub erased: u64,
    /// What each namespace held, by name.
    pub namespaces: Vec<NamespaceExtent>,
}

/// What one namespace held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceExtent {
    /// The namespace.
    pub namespace: Namespace,
    /// Number of its documents.
    pub count: u64,
    /// Sum of the checksums of their rows, modulo 2^64.
    pub digest: u64,
    /// Id of the last one.
    pub last_id: u64,
}

/// A run of documents: a count, then each document with its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Documents<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> Documents<'a> {
    /// No documents.
    pub const EMPTY: Self = Self { count: 0, bytes: &[] };

    /// Number of documents.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::try_from(self.count).unwrap_or(usize::MAX)
    }

    /// Whether the run is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The documents in order. The lengths were checked when the entry was decoded.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut decoder = Decoder::new(self.bytes);
        (0..self.count).map_while(move |_| decoder.bytes("document").ok())
    }
}

/// One entry of the intake's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A name is given to a blob.
    FilePut(FilePut<'a>),
    /// A name is deleted.
    Delete(Delete),
    /// A name is given to the bytes of another, which is deleted.
    FileMove(FileMove<'a>),
    /// A namespace's record is changed.
    Namespace(NamespaceChange),
    /// Versions of a name are erased.
    VersionsErased(VersionsErased),
    /// The newest state of a name is erased.
    NewestErased(NewestErased),
    /// The attributes of a version are replaced.
    Amended(Amended),
    /// Part of a request that is still being received.
    DocumentChunk(DocumentChunk<'a>),
    /// A request's documents become valid.
    DocumentCommit(DocumentCommit<'a>),
    /// A document is replaced or deleted.
    DocumentChange(DocumentChange<'a>),
    /// All documents of a namespace are dropped.
    DocumentsDropped(DocumentsDropped),
    /// A batch request is answered.
    Outcome(Outcome<'a>),
    /// Documents are about to be erased from the log.
    DocumentExtents(DocumentExtents),
}

#[cfg(test)]
mod tests;
