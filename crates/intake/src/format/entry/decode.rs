//! Decoding of entries.
//!
//! Invariants: no bytes make it panic, or allocate more than they are themselves; an entry that has
//! bytes left over is an error.

use super::change::{decode_change, decode_drop};
use super::{
    AddedColumn, Amended, BlobPlace, CommitFlags, Delete, DocumentChunk, DocumentCommit,
    DocumentExtents, Documents, Entry, FLAG_RESHAPES, FLAG_UNDECIDED, FileMove, FilePut,
    IdempotencyRecord, KIND_AMENDED, KIND_CHANGE, KIND_CHUNK, KIND_COMMIT, KIND_DELETE, KIND_DROP,
    KIND_EXTENTS, KIND_FILE_PUT, KIND_MOVE, KIND_NAMESPACE, KIND_NEWEST_ERASED, KIND_OUTCOME,
    KIND_VERSIONS_ERASED, NamespaceChange, NamespaceExtent, NewestErased, Outcome, PLACE_EXISTING,
    PLACE_FILE, PLACE_INLINE, TargetCode, VERSION, VERSION_ATTRIBUTES, VERSION_FLAGS,
    VERSION_KEEPS, VersionsErased,
};
use crate::attributes::Attributes;
use crate::classify::Category;
use crate::digest::Digest;
use crate::format::decoder::{DecodeError, Decoder};
use crate::names::{FileName, Namespace};

impl CommitFlags {
    fn of(bits: u8) -> Option<Self> {
        let (reshapes, undecided) = (bits & FLAG_RESHAPES != 0, bits & FLAG_UNDECIDED != 0);
        (bits <= FLAG_RESHAPES + FLAG_UNDECIDED).then_some(Self { reshapes, undecided })
    }
}

impl<'a> Documents<'a> {
    fn decode(count: u32, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        for _ in 0..count {
            decoder.bytes("document")?;
        }
        decoder.finish()?;
        Ok(Self { count, bytes })
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
        let second = matches!(
            (kind, version),
            (KIND_COMMIT, VERSION_FLAGS)
                | (KIND_FILE_PUT, VERSION_ATTRIBUTES)
                | (KIND_DELETE | KIND_MOVE, VERSION_KEEPS)
        );
        if version != VERSION && !second {
            return Err(DecodeError::Value { field: "version", offset: 1, found: version.into() });
        }
        match kind {
            KIND_FILE_PUT => decode_file_put(&mut decoder, version).map(Entry::FilePut),
            KIND_DELETE => decode_delete(&mut decoder, version).map(Entry::Delete),
            KIND_CHUNK => {
                let request = decoder.array("request")?;
                let count = decoder.u32("document count")?;
                let documents = Documents::decode(count, decoder.rest())?;
                Ok(Entry::DocumentChunk(DocumentChunk { request, documents }))
            }
            KIND_COMMIT => decode_commit(&mut decoder, version).map(Entry::DocumentCommit),
            KIND_MOVE => decode_move(&mut decoder, version).map(Entry::FileMove),
            KIND_NAMESPACE => decode_namespace_change(&mut decoder).map(Entry::Namespace),
            KIND_VERSIONS_ERASED => decode_versions_erased(&mut decoder).map(Entry::VersionsErased),
            KIND_AMENDED => decode_amended(&mut decoder).map(Entry::Amended),
            KIND_NEWEST_ERASED => decode_newest_erased(&mut decoder).map(Entry::NewestErased),
            KIND_OUTCOME => decode_outcome(&mut decoder).map(Entry::Outcome),
            KIND_CHANGE => decode_change(&mut decoder).map(Entry::DocumentChange),
            KIND_DROP => decode_drop(&mut decoder).map(Entry::DocumentsDropped),
            KIND_EXTENTS => decode_extents(&mut decoder).map(Entry::DocumentExtents),
            other => Err(DecodeError::Value { field: "kind", offset: 0, found: other.into() }),
        }
    }
}

fn decode_file_put<'a>(decoder: &mut Decoder<'a>, version: u8) -> Result<FilePut<'a>, DecodeError> {
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
    if flags > 31 {
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
    let attributes = match version {
        VERSION_ATTRIBUTES => {
            let offset = decoder.offset();
            // A put without attributes has the first version: the same put has one encoding.
            let empty = DecodeError::Value { field: "attributes", offset, found: 0 };
            Some(attributes(decoder)?).filter(|given| !given.is_empty()).ok_or(empty)?
        }
        _ => Attributes::default(),
    };
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
        attributes,
        duplicate: flags & 1 != 0,
        replaced: flags & 2 != 0,
        created: flags & 4 != 0,
        keeps: flags & 8 != 0,
        derived: flags & 16 != 0,
        idempotency,
        place,
    })
}

fn decode_delete(decoder: &mut Decoder<'_>, version: u8) -> Result<Delete, DecodeError> {
    let deleted_ms = decoder.i64("deleted")?;
    let namespace = namespace(decoder)?;
    let name = file_name(decoder)?;
    let idempotency = idempotency(decoder)?;
    decoder.finish()?;
    Ok(Delete { deleted_ms, namespace, name, keeps: version == VERSION_KEEPS, idempotency })
}

fn decode_commit<'a>(
    decoder: &mut Decoder<'a>,
    version: u8,
) -> Result<DocumentCommit<'a>, DecodeError> {
    let target = target(decoder)?;
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
    let columns = column_list(decoder)?;
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

pub(super) fn target(decoder: &mut Decoder<'_>) -> Result<TargetCode, DecodeError> {
    let offset = decoder.offset();
    match decoder.u8("target")? {
        1 => Ok(TargetCode::Table),
        2 => Ok(TargetCode::Collection),
        other => Err(DecodeError::Value { field: "target", offset, found: other.into() }),
    }
}

/// Flags, of which none may be set.
pub(super) fn commit_flags(decoder: &mut Decoder<'_>) -> Result<CommitFlags, DecodeError> {
    let offset = decoder.offset();
    let bits = decoder.u8("flags")?;
    CommitFlags::of(bits).ok_or(DecodeError::Value { field: "flags", offset, found: bits.into() })
}

pub(super) fn column_list(decoder: &mut Decoder<'_>) -> Result<Vec<AddedColumn>, DecodeError> {
    let mut columns = Vec::new();
    for _ in 0..decoder.u32("column count")? {
        let type_code = decoder.u8("column type")?;
        columns.push(AddedColumn { type_code, path: decoder.text("column path")?.to_owned() });
    }
    Ok(columns)
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

fn decode_move<'a>(decoder: &mut Decoder<'a>, version: u8) -> Result<FileMove<'a>, DecodeError> {
    let (from_namespace, from_name) = (namespace(decoder)?, file_name(decoder)?);
    let offset = decoder.offset();
    let refused =
        |found: u8| DecodeError::Value { field: "moved file", offset, found: found.into() };
    let (kind, of_put) = (decoder.u8("kind")?, decoder.u8("version")?);
    if kind != KIND_FILE_PUT || !matches!(of_put, VERSION | VERSION_ATTRIBUTES) {
        return Err(refused(kind));
    }
    let put = decode_file_put(decoder, of_put)?;
    let keeps = version == VERSION_KEEPS;
    match put.place {
        BlobPlace::Existing => Ok(FileMove { put, from_namespace, from_name, keeps }),
        BlobPlace::Inline(_) | BlobPlace::File => Err(refused(kind)),
    }
}

fn decode_versions_erased(decoder: &mut Decoder<'_>) -> Result<VersionsErased, DecodeError> {
    let erased_ms = decoder.i64("erased")?;
    let (namespace, name) = (namespace(decoder)?, file_name(decoder)?);
    let mut ids = Vec::new();
    for _ in 0..decoder.u32("id count")? {
        ids.push(decoder.u64("id")?);
    }
    decoder.finish()?;
    Ok(VersionsErased { erased_ms, namespace, name, ids })
}

fn decode_newest_erased(decoder: &mut Decoder<'_>) -> Result<NewestErased, DecodeError> {
    let erased_ms = decoder.i64("erased")?;
    let (namespace, name) = (namespace(decoder)?, file_name(decoder)?);
    let id = decoder.u64("id")?;
    let offset = decoder.offset();
    let current = match decoder.u8("current")? {
        0 => None,
        1 => Some(decoder.u64("current id")?),
        other => {
            let (field, found) = ("current", other.into());
            return Err(DecodeError::Value { field, offset, found });
        }
    };
    decoder.finish()?;
    Ok(NewestErased { erased_ms, namespace, name, id, current })
}

fn decode_amended(decoder: &mut Decoder<'_>) -> Result<Amended, DecodeError> {
    let amended_ms = decoder.i64("amended")?;
    let (namespace, name) = (namespace(decoder)?, file_name(decoder)?);
    let (id, attributes) = (decoder.u64("id")?, attributes(decoder)?);
    decoder.finish()?;
    Ok(Amended { amended_ms, namespace, name, id, attributes })
}

fn decode_namespace_change(decoder: &mut Decoder<'_>) -> Result<NamespaceChange, DecodeError> {
    let changed_ms = decoder.i64("changed")?;
    let namespace = namespace(decoder)?;
    let offset = decoder.offset();
    let attributes = match decoder.u8("record")? {
        0 => None,
        1 => Some(attributes(decoder)?),
        other => {
            return Err(DecodeError::Value { field: "record", offset, found: other.into() });
        }
    };
    decoder.finish()?;
    Ok(NamespaceChange { changed_ms, namespace, attributes })
}

fn attributes(decoder: &mut Decoder<'_>) -> Result<Attributes, DecodeError> {
    Attributes::decode(decoder.bytes("attributes")?)
}

pub(super) fn namespace(decoder: &mut Decoder<'_>) -> Result<Namespace, DecodeError> {
    let offset = decoder.offset();
    Namespace::parse(decoder.text("namespace")?).map_err(|source| DecodeError::Name {
        field: "namespace",
        offset,
        source,
    })
}

fn file_name(decoder: &mut Decoder<'_>) -> Result<FileName, DecodeError> {
    let offset = decoder.offset();
    FileName::parse_stored(decoder.text("name")?).map_err(|source| DecodeError::Name {
        field: "name",
        offset,
        source,
    })
}

pub(super) fn idempotency(
    decoder: &mut Decoder<'_>,
) -> Result<Option<IdempotencyRecord>, DecodeError> {
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
