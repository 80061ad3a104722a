//! Rows of the catalogue with their checksums: computed where they are written, verified where they
//! are read.
//!
//! A checksum covers the name of the table and every column but itself, in the order of the table.
//!
//! Invariant: no row is used for an answer or a decision before it was verified.

use std::borrow::Cow;

use forebay_base::rows::RowHasher;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use super::{
    Answered, BlobLocation, BlobRecord, FileRecord, NamespaceRecord, StoredRequest, VersionRecord,
};
use crate::attributes::Attributes;
use crate::classify::Category;
use crate::digest::Digest;
use crate::error::CatalogueFault;
use crate::names::{FileName, Namespace};

/// What a query of the catalogue returns.
pub(super) type Checked<T> = Result<T, CatalogueFault>;

pub(super) const FILE_COLUMNS: &str =
    "namespace, name, id, digest, size, mime, category, comment, created_ms, attributes, first,
     checksum";
pub(super) const BLOB_COLUMNS: &str = "digest, size, place, refs, checksum";
pub(super) const NAMESPACE_COLUMNS: &str = "namespace, created_ms, attributes, checksum";
pub(super) const VERSION_COLUMNS: &str =
    "namespace, name, id, digest, size, mime, category, comment, created_ms, attributes, checksum";
pub(super) const REQUEST_COLUMNS: &str = "key, fingerprint, status, answer, created_ms, checksum";

/// A table whose rows have checksums.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// Number of columns before the checksum.
    columns: usize,
}

pub(super) const FILES: Table = Table { name: "files", columns: 11 };
/// Number of [`FILE_COLUMNS`].
pub(super) const FILE_COLUMN_COUNT: usize = FILES.columns + 1;
pub(super) const BLOBS: Table = Table { name: "blobs", columns: 4 };
pub(super) const NAMESPACES: Table = Table { name: "namespaces", columns: 3 };
pub(super) const VERSIONS: Table = Table { name: "versions", columns: 10 };
pub(super) const REQUESTS: Table = Table { name: "requests", columns: 5 };

/// A row of `blobs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobRow {
    pub(super) blob: BlobRecord,
    pub(super) refs: i64,
}

impl Table {
    /// Computes the checksum of values that are about to be stored.
    fn checksum(self, hasher: &mut RowHasher, values: &[ValueRef<'_>]) -> u64 {
        hasher.start().text(self.name.as_bytes());
        for value in values {
            add(hasher, *value);
        }
        hasher.finish()
    }

    /// Verifies a row whose columns begin at `from` and end with the checksum; returns that.
    pub(super) fn verify(self, hasher: &mut RowHasher, row: &Row<'_>, from: usize) -> Checked<u64> {
        hasher.start().text(self.name.as_bytes());
        for at in from..from + self.columns {
            add(hasher, row.get_ref(at)?);
        }
        let computed = hasher.finish();
        if row.get_ref(from + self.columns)? == ValueRef::Integer(computed.cast_signed()) {
            return Ok(computed);
        }
        Err(CatalogueFault::Damaged { found: self.damaged(row, from) })
    }

    fn damaged(self, row: &Row<'_>, from: usize) -> String {
        let key = |at: usize| match row.get_ref(from + at) {
            Ok(ValueRef::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            Ok(ValueRef::Blob(bytes)) => hex::encode(bytes),
            _ => "?".to_owned(),
        };
        let key = if matches!(self.name, "files" | "versions") {
            format!("{:?}", format!("{}/{}", key(0), key(1)))
        } else {
            key(0)
        };
        format!("the row {key} of the table {} does not match its checksum", self.name)
    }
}

/// The checksum of a name's row.
pub(super) fn file_checksum(hasher: &mut RowHasher, file: &FileRecord, first: bool) -> u64 {
    let attributes = stored_attributes(&file.attributes);
    FILES.checksum(
        hasher,
        &[
            ValueRef::Text(file.namespace.as_str().as_bytes()),
            ValueRef::Text(file.name.as_str().as_bytes()),
            ValueRef::Integer(file.id.cast_signed()),
            ValueRef::Blob(&file.digest.0),
            ValueRef::Integer(file.size.cast_signed()),
            ValueRef::Text(file.mime.as_bytes()),
            ValueRef::Integer((file.category as u8).into()),
            ValueRef::Text(file.comment.as_bytes()),
            ValueRef::Integer(file.created_ms),
            attributes.as_deref().map_or(ValueRef::Null, ValueRef::Blob),
            ValueRef::Integer(first.into()),
        ],
    )
}

/// The checksum of a version's row.
pub(super) fn version_checksum(hasher: &mut RowHasher, version: &VersionRecord) -> u64 {
    let VersionRecord { file, is_deletion } = version;
    let attributes = stored_attributes(&file.attributes);
    VERSIONS.checksum(
        hasher,
        &[
            ValueRef::Text(file.namespace.as_str().as_bytes()),
            ValueRef::Text(file.name.as_str().as_bytes()),
            ValueRef::Integer(file.id.cast_signed()),
            if *is_deletion { ValueRef::Null } else { ValueRef::Blob(&file.digest.0) },
            ValueRef::Integer(file.size.cast_signed()),
            ValueRef::Text(file.mime.as_bytes()),
            ValueRef::Integer((file.category as u8).into()),
            ValueRef::Text(file.comment.as_bytes()),
            ValueRef::Integer(file.created_ms),
            attributes.as_deref().map_or(ValueRef::Null, ValueRef::Blob),
        ],
    )
}

/// What the column `attributes` has: NULL if there are none.
pub(super) fn stored_attributes(attributes: &Attributes) -> Option<Vec<u8>> {
    (!attributes.is_empty()).then(|| attributes.to_bytes())
}

/// The checksum of a namespace's row.
pub(super) fn namespace_checksum(hasher: &mut RowHasher, record: &NamespaceRecord) -> u64 {
    let attributes = stored_attributes(&record.attributes);
    NAMESPACES.checksum(
        hasher,
        &[
            ValueRef::Text(record.namespace.as_str().as_bytes()),
            ValueRef::Integer(record.created_ms),
            attributes.as_deref().map_or(ValueRef::Null, ValueRef::Blob),
        ],
    )
}

/// The checksum of a blob's row.
pub(super) fn blob_checksum(hasher: &mut RowHasher, row: &BlobRow) -> u64 {
    let BlobRow { blob, refs } = row;
    let numbers = [blob.size.cast_signed(), blob.place.to_sql(), *refs].map(ValueRef::Integer);
    let [size, place, refs] = numbers;
    BLOBS.checksum(hasher, &[ValueRef::Blob(&blob.digest.0), size, place, refs])
}

/// The checksum of a remembered request's row.
pub(super) fn request_checksum(hasher: &mut RowHasher, answered: &Answered) -> u64 {
    REQUESTS.checksum(
        hasher,
        &[
            ValueRef::Blob(&answered.record.key.0),
            ValueRef::Blob(&answered.record.fingerprint.0),
            ValueRef::Integer(answered.status.into()),
            ValueRef::Blob(&answered.answer),
            ValueRef::Integer(answered.created_ms),
        ],
    )
}

/// Reads and verifies a name selected with [`FILE_COLUMNS`]; also returns `first` and the checksum.
pub(super) fn read_file(hasher: &mut RowHasher, row: &Row<'_>) -> Checked<(FileRecord, bool, u64)> {
    let checksum = FILES.verify(hasher, row, 0)?;
    let file = FileRecord { digest: Digest(row.get(3)?), ..file_of(row)? };
    Ok((file, row.get(10)?, checksum))
}

/// The columns that names and versions share, without the digest.
fn file_of(row: &Row<'_>) -> Checked<FileRecord> {
    let (namespace, name): (String, String) = (row.get(0)?, row.get(1)?);
    let category: u8 = row.get(6)?;
    Ok(FileRecord {
        namespace: Namespace::parse(&namespace).map_err(|error| invalid(&error))?,
        name: FileName::parse_stored(&name).map_err(|error| invalid(&error))?,
        id: row.get::<_, i64>(2)?.cast_unsigned(),
        digest: Digest([0; 32]),
        size: row.get::<_, i64>(4)?.cast_unsigned(),
        mime: Cow::Owned(row.get(5)?),
        category: Category::from_code(category)
            .ok_or_else(|| invalid(&format!("there is no category {category}")))?,
        comment: row.get(7)?,
        created_ms: row.get(8)?,
        attributes: read_attributes(row, 9)?,
    })
}

/// Reads and verifies a version selected with [`VERSION_COLUMNS`]; also returns the checksum.
pub(super) fn read_version(hasher: &mut RowHasher, row: &Row<'_>) -> Checked<(VersionRecord, u64)> {
    let checksum = VERSIONS.verify(hasher, row, 0)?;
    let digest: Option<[u8; 32]> = row.get(3)?;
    let file = FileRecord { digest: Digest(digest.unwrap_or_default()), ..file_of(row)? };
    Ok((VersionRecord { file, is_deletion: digest.is_none() }, checksum))
}

/// Reads and verifies a namespace selected with [`NAMESPACE_COLUMNS`]; also returns the checksum.
pub(super) fn read_namespace(
    hasher: &mut RowHasher,
    row: &Row<'_>,
) -> Checked<(NamespaceRecord, u64)> {
    let checksum = NAMESPACES.verify(hasher, row, 0)?;
    let namespace: String = row.get(0)?;
    let record = NamespaceRecord {
        namespace: Namespace::parse(&namespace).map_err(|error| invalid(&error))?,
        created_ms: row.get(1)?,
        attributes: read_attributes(row, 2)?,
    };
    Ok((record, checksum))
}

pub(super) fn read_attributes(row: &Row<'_>, at: usize) -> Checked<Attributes> {
    match row.get_ref(at)? {
        ValueRef::Blob(bytes) => Attributes::decode(bytes).map_err(|error| invalid(&error)),
        _ => Ok(Attributes::default()),
    }
}

fn invalid(what: &impl std::fmt::Display) -> CatalogueFault {
    CatalogueFault::Damaged { found: what.to_string() }
}

/// Reads and verifies a blob selected with [`BLOB_COLUMNS`]; also returns the checksum.
pub(super) fn read_blob(
    hasher: &mut RowHasher,
    row: &Row<'_>,
    from: usize,
) -> Checked<(BlobRow, u64)> {
    let checksum = BLOBS.verify(hasher, row, from)?;
    let blob = BlobRecord {
        digest: Digest(row.get(from)?),
        size: row.get::<_, i64>(from + 1)?.cast_unsigned(),
        place: BlobLocation::from_sql(row.get(from + 2)?),
    };
    Ok((BlobRow { blob, refs: row.get(from + 3)? }, checksum))
}

/// Reads and verifies a remembered request selected with [`REQUEST_COLUMNS`].
pub(super) fn read_request(hasher: &mut RowHasher, row: &Row<'_>) -> Checked<StoredRequest> {
    REQUESTS.verify(hasher, row, 0)?;
    Ok(StoredRequest {
        fingerprint: Digest(row.get(1)?),
        status: row.get(2)?,
        answer: row.get(3)?,
        created_ms: row.get(4)?,
    })
}

fn add(hasher: &mut RowHasher, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => hasher.null(),
        ValueRef::Integer(value) => hasher.integer(value),
        ValueRef::Real(value) => hasher.real(value),
        ValueRef::Text(text) => hasher.text(text),
        ValueRef::Blob(bytes) => hasher.blob(bytes),
    };
}
