//! Encoding of entries.
//!
//! Invariant: what is encoded decodes to the same; the bytes of a version never change.

use super::{
    AddedColumn, Amended, BlobPlace, CommitFlags, Delete, DocumentCommit, DocumentExtents,
    FLAG_RESHAPES, FLAG_UNDECIDED, FileMove, FilePut, IdempotencyRecord, KIND_AMENDED, KIND_CHUNK,
    KIND_COMMIT, KIND_DELETE, KIND_EXTENTS, KIND_FILE_PUT, KIND_MOVE, KIND_NAMESPACE,
    KIND_NEWEST_ERASED, KIND_OUTCOME, KIND_VERSIONS_ERASED, NamespaceChange, NewestErased, Outcome,
    PLACE_EXISTING, PLACE_FILE, PLACE_INLINE, VERSION, VERSION_ATTRIBUTES, VERSION_FLAGS,
    VERSION_KEEPS, VersionsErased,
};

impl CommitFlags {
    pub(super) fn bits(self) -> u8 {
        u8::from(self.reshapes) * FLAG_RESHAPES + u8::from(self.undecided) * FLAG_UNDECIDED
    }
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
        // Earlier programs read every put that has no attributes.
        let version = if self.attributes.is_empty() { VERSION } else { VERSION_ATTRIBUTES };
        out.extend_from_slice(&[KIND_FILE_PUT, version, place, self.category as u8]);
        out.push(
            u8::from(self.duplicate)
                | u8::from(self.replaced) << 1
                | u8::from(self.created) << 2
                | u8::from(self.keeps) << 3
                | u8::from(self.derived) << 4,
        );
        out.extend_from_slice(&self.created_ms.to_le_bytes());
        out.extend_from_slice(&self.size.to_le_bytes());
        out.extend_from_slice(&self.digest.0);
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        put_text(&mut out, self.mime);
        put_text(&mut out, self.comment);
        if !self.attributes.is_empty() {
            put_bytes(&mut out, &self.attributes.to_bytes());
        }
        put_idempotency(&mut out, self.idempotency.as_ref());
        out
    }
}

impl Delete {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = keeping(KIND_DELETE, self.keeps);
        out.extend_from_slice(&self.deleted_ms.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        put_idempotency(&mut out, self.idempotency.as_ref());
        out
    }
}

impl FileMove<'_> {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = keeping(KIND_MOVE, self.keeps);
        put_text(&mut out, self.from_namespace.as_str());
        put_text(&mut out, self.from_name.as_str());
        out.extend_from_slice(&self.put.encode_header());
        out
    }
}

impl NamespaceChange {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_NAMESPACE, VERSION];
        out.extend_from_slice(&self.changed_ms.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        out.push(u8::from(self.attributes.is_some()));
        if let Some(attributes) = &self.attributes {
            put_bytes(&mut out, &attributes.to_bytes());
        }
        out
    }
}

impl VersionsErased {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_VERSIONS_ERASED, VERSION];
        out.extend_from_slice(&self.erased_ms.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        put_count(&mut out, self.ids.len());
        for id in &self.ids {
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }
}

impl NewestErased {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_NEWEST_ERASED, VERSION];
        out.extend_from_slice(&self.erased_ms.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        out.extend_from_slice(&self.id.to_le_bytes());
        out.push(u8::from(self.current.is_some()));
        if let Some(current) = self.current {
            out.extend_from_slice(&current.to_le_bytes());
        }
        out
    }
}

impl Amended {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_AMENDED, VERSION];
        out.extend_from_slice(&self.amended_ms.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_text(&mut out, self.name.as_str());
        out.extend_from_slice(&self.id.to_le_bytes());
        put_bytes(&mut out, &self.attributes.to_bytes());
        out
    }
}

/// Kind and version of an entry that may keep what a name referred to. Earlier programs read those that
/// do not.
fn keeping(kind: u8, keeps: bool) -> Vec<u8> {
    vec![kind, if keeps { VERSION_KEEPS } else { VERSION }]
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
        put_columns(&mut out, &self.columns);
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

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let size = u16::try_from(text.len()).expect("texts are limited before they are encoded");
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let size = u32::try_from(bytes.len()).expect("entries are limited before they are encoded");
    out.extend_from_slice(&size.to_le_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn put_columns(out: &mut Vec<u8>, columns: &[AddedColumn]) {
    put_count(out, columns.len());
    for column in columns {
        out.push(column.type_code);
        put_text(out, &column.path);
    }
}

pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("entries are limited before they are encoded");
    out.extend_from_slice(&count.to_le_bytes());
}

pub(super) fn put_idempotency(out: &mut Vec<u8>, record: Option<&IdempotencyRecord>) {
    match record {
        None => out.push(0),
        Some(record) => {
            out.push(1);
            out.extend_from_slice(&record.key.0);
            out.extend_from_slice(&record.fingerprint.0);
        }
    }
}
