//! The kinds of entries: what each holds, encoded and decoded.

use super::decoder::{DecodeError, Decoder};
use crate::classify::Category;
use crate::digest::Digest;
use crate::names::{FileName, Namespace};

const VERSION: u8 = 1;
/// Version of a commit that has flags.
const VERSION_FLAGS: u8 = 2;
const KIND_FILE_PUT: u8 = 1;
const KIND_DELETE: u8 = 2;
const KIND_CHUNK: u8 = 3;
const KIND_COMMIT: u8 = 4;
const KIND_OUTCOME: u8 = 5;
const KIND_EXTENTS: u8 = 6;

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
    /// Whether the bytes were already known when this name was given to them.
    pub duplicate: bool,
    /// Whether the name referred to other bytes before.
    pub replaced: bool,
    /// Whether the name did not exist before.
    pub created: bool,
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
    /// The request, if it had a key.
    pub idempotency: Option<IdempotencyRecord>,
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

impl CommitFlags {
    fn bits(self) -> u8 {
        u8::from(self.reshapes) * FLAG_RESHAPES + u8::from(self.undecided) * FLAG_UNDECIDED
    }

    fn of(bits: u8) -> Option<Self> {
        let (reshapes, undecided) = (bits & FLAG_RESHAPES != 0, bits & FLAG_UNDECIDED != 0);
        (bits <= FLAG_RESHAPES + FLAG_UNDECIDED).then_some(Self { reshapes, undecided })
    }
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

    fn decode(count: u32, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        for _ in 0..count {
            decoder.bytes("document")?;
        }
        decoder.finish()?;
        Ok(Self { count, bytes })
    }
}

/// One entry of the intake's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A name is given to a blob.
    FilePut(FilePut<'a>),
    /// A name is deleted.
    Delete(Delete),
    /// Part of a request that is still being received.
    DocumentChunk(DocumentChunk<'a>),
    /// A request's documents become valid.
    DocumentCommit(DocumentCommit<'a>),
    /// A batch request is answered.
    Outcome(Outcome<'a>),
    /// Documents are about to be erased from the log.
    DocumentExtents(DocumentExtents),
}

impl FilePut<'_> {
    /// Encodes everything but the inline bytes, which follow unchanged.
    #[must_use]
    pub fn encode_header(&self) -> Vec<u8> {
        let texts = self.namespace.as_str().len() + self.name.as_str().len();
        let mut out = Vec::with_capacity(160 + texts + self.mime.len() + self.comment.len());
        let place = match self.place {
            BlobPlace::Existing => PLACE_EXISTING,
            BlobPlace::Inline(_) => PLACE_INLINE,
            BlobPlace::File => PLACE_FILE,
        };
        out.extend_from_slice(&[KIND_FILE_PUT, VERSION, place, self.category as u8]);
        out.push(
            u8::from(self.duplicate) | u8::from(self.replaced) << 1 | u8::from(self.created) << 2,
        );
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.digest.0);
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        put_text(&mut out, self.mime);
        put_text(&mut out, self.comment);
        put_idempotency(&mut out, self.idempotency.as_ref());
        out
    }
}

impl Delete {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_DELETE, VERSION];
        out.extend_from_slice(&self.deleted_ms.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        put_idempotency(&mut out, self.idempotency.as_ref());
        out
    }
}

/// Encodes a chunk's header; an [`encode_documents`] run follows it.
#[must_use]
pub fn encode_chunk_header(request: [u8; 16], count: u32) -> Vec<u8> {
    let mut out = vec![KIND_CHUNK, VERSION];
    out.extend_from_slice(&request);
    out.extend_from_slice(&count.to_le_bytes());
    out
}

/// Appends one document to a run.
pub fn encode_documents(run: &mut Vec<u8>, document: &[u8]) {
    put_bytes(run, document);
}

impl DocumentCommit<'_> {
    /// Encodes everything but the documents, `count_inline` of which follow as an
    /// [`encode_documents`] run.
    #[must_use]
    pub fn encode_header(&self, count_inline: u32) -> Vec<u8> {
        // Earlier programs read every commit that has no flags.
        let mut out = match self.flags.bits() {
            0 => vec![KIND_COMMIT, VERSION, self.target as u8],
            bits => vec![KIND_COMMIT, VERSION_FLAGS, self.target as u8, bits],
        };
        out.extend_from_slice(&self.request);
        out.extend_from_slice(&self.received_ms.to_le_bytes());
        out.extend_from_slice(&self.first_id.to_le_bytes());
        out.extend_from_slice(&self.count.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_count(&mut out, self.columns.len());
        for column in &self.columns {
            out.push(column.type_code);
            put_text(&mut out, &column.path);
        }
        put_count(&mut out, self.chunks.len());
        for chunk in &self.chunks {
            out.extend_from_slice(&chunk.to_le_bytes());
        }
        put_idempotency(&mut out, self.idempotency.as_ref());
        out.extend_from_slice(&self.status.to_le_bytes());
        put_bytes(&mut out, self.answer);
        out.extend_from_slice(&count_inline.to_le_bytes());
        out
    }
}

impl Outcome<'_> {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_OUTCOME, VERSION];
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&self.status.to_le_bytes());
        put_idempotency(&mut out, Some(&self.idempotency));
        put_bytes(&mut out, self.answer);
        out
    }
}

impl DocumentExtents {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_EXTENTS, VERSION];
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.erased.to_le_bytes());
        put_count(&mut out, self.namespaces.len());
        for extent in &self.namespaces {
            put_text(&mut out, extent.namespace.as_str());
            for number in [extent.count, extent.digest, extent.last_id] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out
    }
}

impl<'a> Entry<'a> {
    /// Decodes one entry's payload.
    ///
    /// # Errors
    /// [`DecodeError`] names the field and offset that cannot be decoded.
    pub fn decode(payload: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(payload);
        let kind = decoder.u8("kind")?;
        let version = decoder.u8("version")?;
        if version != VERSION && (kind, version) != (KIND_COMMIT, VERSION_FLAGS) {
            return Err(DecodeError::Value { field: "version", offset: 1, found: version.into() });
        }
        match kind {
            KIND_FILE_PUT => decode_file_put(&mut decoder).map(Entry::FilePut),
            KIND_DELETE => decode_delete(&mut decoder).map(Entry::Delete),
            KIND_CHUNK => {
                let request = decoder.array("request")?;
                let count = decoder.u32("document count")?;
                let documents = Documents::decode(count, decoder.rest())?;
                Ok(Entry::DocumentChunk(DocumentChunk { request, documents }))
            }
            KIND_COMMIT => decode_commit(&mut decoder, version).map(Entry::DocumentCommit),
            KIND_OUTCOME => decode_outcome(&mut decoder).map(Entry::Outcome),
            KIND_EXTENTS => decode_extents(&mut decoder).map(Entry::DocumentExtents),
            other => Err(DecodeError::Value { field: "kind", offset: 0, found: other.into() }),
        }
    }
}

fn decode_file_put<'a>(decoder: &mut Decoder<'a>) -> Result<FilePut<'a>, DecodeError> {
    let place_code = decoder.u8("place")?;
    let category_offset = decoder.offset();
    let category_code = decoder.u8("category")?;
    let category = Category::from_code(category_code).ok_or(DecodeError::Value {
        field: "category",
        offset: category_offset,
        found: category_code.into(),
    })?;
    let flags_offset = decoder.offset();
    let flags = decoder.u8("flags")?;
    if flags > 7 {
        let (offset, found) = (flags_offset, flags.into());
        return Err(DecodeError::Value { field: "flags", offset, found });
    }
    let created_ms = decoder.i64("created")?;
    let size = decoder.u64("size")?;
    let digest = Digest(decoder.array("digest")?);
    let namespace = namespace(decoder)?;
    let name = file_name(decoder)?;
    let mime = decoder.text("media type")?;
    let comment = decoder.text("comment")?;
    let idempotency = idempotency(decoder)?;
    let offset = decoder.offset();
    let place = match place_code {
        PLACE_EXISTING => BlobPlace::Existing,
        PLACE_INLINE => BlobPlace::Inline(decoder.rest()),
        PLACE_FILE => BlobPlace::File,
        other => {
            return Err(DecodeError::Value { field: "place", offset: 2, found: other.into() });
        }
    };
    if let BlobPlace::Inline(bytes) = place
        && bytes.len() as u64 != size
    {
        return Err(DecodeError::Value { field: "size", offset, found: size });
    }
    decoder.finish()?;
    Ok(FilePut {
        created_ms,
        digest,
        size,
        category,
        namespace,
        name,
        mime,
        comment,
        duplicate: flags & 1 != 0,
        replaced: flags & 2 != 0,
        created: flags & 4 != 0,
        idempotency,
        place,
    })
}

fn decode_delete(decoder: &mut Decoder<'_>) -> Result<Delete, DecodeError> {
    let deleted_ms = decoder.i64("deleted")?;
    let namespace = namespace(decoder)?;
    let name = file_name(decoder)?;
    let idempotency = idempotency(decoder)?;
    decoder.finish()?;
    Ok(Delete { deleted_ms, namespace, name, idempotency })
}

fn decode_commit<'a>(
    decoder: &mut Decoder<'a>,
    version: u8,
) -> Result<DocumentCommit<'a>, DecodeError> {
    let target = match decoder.u8("target")? {
        1 => TargetCode::Table,
        2 => TargetCode::Collection,
        other => {
            return Err(DecodeError::Value { field: "target", offset: 2, found: other.into() });
        }
    };
    let flags = match version {
        VERSION_FLAGS => {
            let bits = decoder.u8("flags")?;
            let odd = DecodeError::Value { field: "flags", offset: 3, found: bits.into() };
            CommitFlags::of(bits).filter(|flags| *flags != CommitFlags::default()).ok_or(odd)?
        }
        _ => CommitFlags::default(),
    };
    let request = decoder.array("request")?;
    let received_ms = decoder.i64("received")?;
    let first_id = decoder.u64("first id")?;
    let count = decoder.u64("count")?;
    let namespace = namespace(decoder)?;
    let mut columns = Vec::new();
    for _ in 0..decoder.u32("column count")? {
        let type_code = decoder.u8("column type")?;
        columns.push(AddedColumn { type_code, path: decoder.text("column path")?.to_owned() });
    }
    let mut chunks = Vec::new();
    for _ in 0..decoder.u32("chunk count")? {
        chunks.push(decoder.u64("chunk")?);
    }
    let idempotency = idempotency(decoder)?;
    let status = decoder.u16("status")?;
    let answer = decoder.bytes("answer")?;
    let count_inline = decoder.u32("document count")?;
    let documents = Documents::decode(count_inline, decoder.rest())?;
    Ok(DocumentCommit {
        request,
        received_ms,
        namespace,
        target,
        first_id,
        count,
        columns,
        flags,
        chunks,
        idempotency,
        status,
        answer,
        documents,
    })
}

fn decode_outcome<'a>(decoder: &mut Decoder<'a>) -> Result<Outcome<'a>, DecodeError> {
    let created_ms = decoder.i64("created")?;
    let status = decoder.u16("status")?;
    let offset = decoder.offset();
    let idempotency = idempotency(decoder)?.ok_or(DecodeError::Value {
        field: "idempotency",
        offset,
        found: 0,
    })?;
    let answer = decoder.bytes("answer")?;
    decoder.finish()?;
    Ok(Outcome { created_ms, status, idempotency, answer })
}

fn decode_extents(decoder: &mut Decoder<'_>) -> Result<DocumentExtents, DecodeError> {
    let position = decoder.u64("position")?;
    let offset = decoder.offset();
    let erased = decoder.u64("erased")?;
    if erased > position {
        return Err(DecodeError::Value { field: "erased", offset, found: erased });
    }
    let mut namespaces = Vec::new();
    for _ in 0..decoder.u32("namespace count")? {
        namespaces.push(NamespaceExtent {
            namespace: namespace(decoder)?,
            count: decoder.u64("count")?,
            digest: decoder.u64("digest")?,
            last_id: decoder.u64("last id")?,
        });
    }
    decoder.finish()?;
    Ok(DocumentExtents { position, erased, namespaces })
}

fn namespace(decoder: &mut Decoder<'_>) -> Result<Namespace, DecodeError> {
    let offset = decoder.offset();
    Namespace::parse(decoder.text("namespace")?).map_err(|source| DecodeError::Name {
        field: "namespace",
        offset,
        source,
    })
}

fn file_name(decoder: &mut Decoder<'_>) -> Result<FileName, DecodeError> {
    let offset = decoder.offset();
    FileName::parse(decoder.text("name")?).map_err(|source| DecodeError::Name {
        field: "name",
        offset,
        source,
    })
}

fn idempotency(decoder: &mut Decoder<'_>) -> Result<Option<IdempotencyRecord>, DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("idempotency")? {
        0 => Ok(None),
        1 => {
            let key = Digest(decoder.array("key")?);
            let fingerprint = Digest(decoder.array("fingerprint")?);
            Ok(Some(IdempotencyRecord { key, fingerprint }))
        }
        other => Err(DecodeError::Value { field: "idempotency", offset, found: other.into() }),
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let size = u16::try_from(text.len()).expect("texts are limited before they are encoded");
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let size = u32::try_from(bytes.len()).expect("entries are limited before they are encoded");
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(bytes);
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("entries are limited before they are encoded");
    out.extend_from_slice(&count.to_le_bytes());
}

fn put_idempotency(out: &mut Vec<u8>, record: Option<&IdempotencyRecord>) {
    match record {
        None => out.push(0),
        Some(record) => {
            out.push(1);
            out.extend_from_slice(&record.key.0);
            out.extend_from_slice(&record.fingerprint.0);
        }
    }
}

#[cfg(test)]
mod tests;
