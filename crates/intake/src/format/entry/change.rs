//! Entries that change documents that are there: one is replaced or deleted, or all of a namespace are
//! dropped.
//!
//! Invariants: as of all entries: decoding never panics, and what is encoded decodes to the same; the
//! entry says everything that applying it needs, so that a replay gives the same rows.

use super::decode::{column_list, commit_flags, idempotency, namespace, target};
use super::encode::{put_columns, put_count, put_idempotency, put_text};
use super::{
    AddedColumn, CommitFlags, IdempotencyRecord, KIND_CHANGE, KIND_DROP, TargetCode, VERSION,
};
use crate::format::decoder::{DecodeError, Decoder};
use crate::names::Namespace;

const ACTION_REPLACE: u8 = 1;
const ACTION_DELETE: u8 = 2;

/// What happens to a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeAction<'a> {
    /// It gets these bytes in place of those that it had.
    Replace {
        /// Table or collection.
        target: TargetCode,
        /// What the entry says of its namespace beside that.
        flags: CommitFlags,
        /// Columns that the table gains; all that it has from here on if the entry reshapes it.
        columns: Vec<AddedColumn>,
        /// The bytes.
        document: &'a [u8],
    },
    /// It is deleted.
    Delete,
}

/// One document is replaced or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentChange<'a> {
    /// When, in milliseconds since 1970.
    pub changed_ms: i64,
    /// The namespace.
    pub namespace: Namespace,
    /// Id of the document.
    pub id: u64,
    /// What happens to it.
    pub action: ChangeAction<'a>,
    /// The request's key, if it had one.
    pub idempotency: Option<IdempotencyRecord>,
    /// HTTP status of the answer.
    pub status: u16,
    /// The answer, kept for the key; empty without one.
    pub answer: &'a [u8],
}

/// All documents of a namespace are dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentsDropped {
    /// When, in milliseconds since 1970.
    pub dropped_ms: i64,
    /// The namespace.
    pub namespace: Namespace,
    /// The newest id that was given to one of its documents.
    pub last_id: u64,
    /// The request's key, if it had one.
    pub idempotency: Option<IdempotencyRecord>,
}

impl DocumentChange<'_> {
    /// Encodes everything but the document, which follows.
    #[must_use]
    pub fn encode_header(&self) -> Vec<u8> {
        let action = match self.action {
            ChangeAction::Replace { .. } => ACTION_REPLACE,
            ChangeAction::Delete => ACTION_DELETE,
        };
        let mut out = vec![KIND_CHANGE, VERSION, action];
        out.extend_from_slice(&self.changed_ms.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_idempotency(&mut out, self.idempotency.as_ref());
        out.extend_from_slice(&self.status.to_le_bytes());
        put_count(&mut out, self.answer.len());
        out.extend_from_slice(self.answer);
        if let ChangeAction::Replace { target, flags, columns, .. } = &self.action {
            out.extend_from_slice(&[*target as u8, flags.bits()]);
            put_columns(&mut out, columns);
        }
        out
    }

    /// The bytes that follow the header.
    #[must_use]
    pub fn document(&self) -> &[u8] {
        match self.action {
            ChangeAction::Replace { document, .. } => document,
            ChangeAction::Delete => &[],
        }
    }
}

impl DocumentsDropped {
    /// Encodes the entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![KIND_DROP, VERSION];
        out.extend_from_slice(&self.dropped_ms.to_le_bytes());
        out.extend_from_slice(&self.last_id.to_le_bytes());
        put_text(&mut out, self.namespace.as_str());
        put_idempotency(&mut out, self.idempotency.as_ref());
        out
    }
}

pub(super) fn decode_change<'a>(
    decoder: &mut Decoder<'a>,
) -> Result<DocumentChange<'a>, DecodeError> {
    let action_offset = decoder.offset();
    let code = decoder.u8("action")?;
    let changed_ms = decoder.i64("changed")?;
    let id = decoder.u64("id")?;
    let namespace = namespace(decoder)?;
    let idempotency = idempotency(decoder)?;
    let status = decoder.u16("status")?;
    let answer = decoder.bytes("answer")?;
    let action = match code {
        ACTION_REPLACE => {
            let target = target(decoder)?;
            let flags = commit_flags(decoder)?;
            let columns = column_list(decoder)?;
            ChangeAction::Replace { target, flags, columns, document: decoder.rest() }
        }
        ACTION_DELETE => ChangeAction::Delete,
        other => {
            let (offset, found) = (action_offset, other.into());
            return Err(DecodeError::Value { field: "action", offset, found });
        }
    };
    decoder.finish()?;
    Ok(DocumentChange { changed_ms, namespace, id, action, idempotency, status, answer })
}

pub(super) fn decode_drop(decoder: &mut Decoder<'_>) -> Result<DocumentsDropped, DecodeError> {
    let dropped_ms = decoder.i64("dropped")?;
    let last_id = decoder.u64("last id")?;
    let namespace = namespace(decoder)?;
    let idempotency = idempotency(decoder)?;
    decoder.finish()?;
    Ok(DocumentsDropped { dropped_ms, namespace, last_id, idempotency })
}
