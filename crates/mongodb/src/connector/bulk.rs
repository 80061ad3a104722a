//! Bulk writes: many documents per command, unordered, so that a refused one does not hold up
//! others.
//!
//! Invariants:
//! * A command has at most [`COMMAND_SIZE_MAX`] bytes of documents and [`COMMAND_ROWS_MAX`]
//!   documents, far below the server's limits of 48 MB and 100,000; a document has at most the
//!   permitted 16 MiB.
//! * Commands are not retried here: the caller, who knows what was written, decides that.

#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc};

use super::connect::{Answer, DUPLICATE_KEY, Server, code, message, passes, refused};
use super::encode::{append_document, begin, end};

/// Maximum size of the documents of a command, in bytes.
pub(super) const COMMAND_SIZE_MAX: usize = 4 << 20;
/// Maximum number of documents of a command.
pub(super) const COMMAND_ROWS_MAX: usize = 10_000;
/// Maximum size of a document, in bytes.
pub(super) const DOCUMENT_SIZE_MAX: usize = 16 << 20;

/// Documents in sequence.
#[derive(Debug, Default)]
pub(super) struct Documents {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Documents {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Size of all documents, in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn get(&self, index: usize) -> &[u8] {
        let from = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let to = self.ends.get(index).copied().unwrap_or_default();
        self.bytes.get(from.unwrap_or(0)..to).unwrap_or_default()
    }

    /// Adds the document that `write` encodes. If that fails, nothing is added.
    pub(super) fn add(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), String>,
    ) -> Result<(), String> {
        let before = self.bytes.len();
        let begun = begin(&mut self.bytes);
        let written = write(&mut self.bytes).and_then(|()| end(begun, &mut self.bytes));
        let size = self.bytes.len() - before;
        let fits = written.and_then(|()| match size <= DOCUMENT_SIZE_MAX {
            true => Ok(()),
            false => {
                Err(format!("its document has {size} bytes; the limit is {DOCUMENT_SIZE_MAX}"))
            }
        });
        match fits {
            Ok(()) => self.ends.push(self.bytes.len()),
            Err(_) => self.bytes.truncate(before),
        }
        fits
    }

    pub(super) fn add_whole(&mut self, document: &[u8]) {
        self.bytes.extend_from_slice(document);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Takes the documents, and leaves none.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Ranges of documents that each fit in a command.
    pub(super) fn commands(&self) -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let (mut from, mut size) = (0, 0);
        for index in 0..self.len() {
            let next = self.get(index).len();
            let is_full = size + next > COMMAND_SIZE_MAX || index - from == COMMAND_ROWS_MAX;
            if is_full && index > from {
                ranges.push(from..index);
                (from, size) = (index, 0);
            }
            size += next;
        }
        if from < self.len() {
            ranges.push(from..self.len());
        }
        ranges
    }
}

/// When a server may acknowledge a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// When it survives the loss of the server.
    Durable,
    /// At once. It may be lost, and is then written again.
    Passing,
}

/// A document that a server refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriteError {
    pub(super) index: usize,
    pub(super) code: i32,
    pub(super) message: String,
}

/// The kind of a write command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Insert,
    Update,
    Delete,
}

impl Verb {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Insert => ("insert", "documents"),
            Self::Update => ("update", "updates"),
            Self::Delete => ("delete", "deletes"),
        }
    }
}

/// Writes a range of documents or statements as one command. Returns the refused ones.
///
/// # Errors
/// If the command as a whole failed: what was written is unknown.
pub(super) async fn write(
    server: &Server,
    verb: Verb,
    collection: &str,
    documents: &Documents,
    range: Range<usize>,
    concern: Concern,
) -> Result<Vec<WriteError>> {
    Command { verb, collection, concern, comment: None }.write(server, documents, range).await
}

/// A write command, but for its documents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command<'a> {
    pub(super) verb: Verb,
    pub(super) collection: &'a str,
    pub(super) concern: Concern,
    /// What the server lists it with.
    pub(super) comment: Option<&'a str>,
}

impl Command<'_> {
    /// Writes a range of documents or statements as one command, as [`write()`] does; updates as
    /// several, if the server takes only a few at once.
    pub(super) async fn write(
        &self,
        server: &Server,
        documents: &Documents,
        range: Range<usize>,
    ) -> Result<Vec<WriteError>> {
        let at_most = match self.verb {
            Verb::Update => server.updates_max().await?.max(1),
            Verb::Insert | Verb::Delete => range.len().max(1),
        };
        let mut failed = Vec::new();
        for from in range.clone().step_by(at_most) {
            let part = from..range.end.min(from.saturating_add(at_most));
            failed.extend(self.write_at_once(server, documents, part).await?);
        }
        Ok(failed)
    }

    async fn write_at_once(
        &self,
        server: &Server,
        documents: &Documents,
        range: Range<usize>,
    ) -> Result<Vec<WriteError>> {
        let Self { verb, collection, .. } = *self;
        match server.run_raw(self.encoded(documents, range.clone())?).await? {
            Ok(answer) => errors(collection, &answer, range.start),
            // Some servers report nothing about single updates, which may safely be repeated. An insert
            // may not.
            Err(error)
                if verb == Verb::Update
                    && code(&error).is_some_and(|code| !passes(code))
                    && range.len() > 1 =>
            {
                let mut failed = Vec::new();
                for index in range {
                    let one = Box::pin(self.write_at_once(server, documents, index..index + 1));
                    failed.extend(one.await?);
                }
                Ok(failed)
            }
            Err(error) if code(&error) == Some(DUPLICATE_KEY) => Ok(vec![WriteError {
                index: range.start,
                code: DUPLICATE_KEY,
                message: message(&error),
            }]),
            Err(error) => Err(refused(format!("write {collection}"), error)),
        }
    }

    fn encoded(&self, documents: &Documents, range: Range<usize>) -> Result<RawDocumentBuf> {
        let Self { verb, collection, concern, comment } = *self;
        let (name, field) = verb.names();
        let concern = match concern {
            Concern::Durable => doc! { "w": "majority", "j": true },
            Concern::Passing => doc! { "w": 1 },
        };
        let mut head = doc! { name: collection, "ordered": false, "writeConcern": concern };
        if let Some(comment) = comment {
            head.insert("comment", comment);
        }
        let broken = |error: String| {
            ConnectorError::data(collection, format!("a command could not be encoded: {error}"))
        };
        let mut bytes = head.to_vec().map_err(|error| broken(error.to_string()))?;
        // The list precedes the zero byte that ends the head.
        bytes.pop();
        let mut list = Vec::new();
        let begun = begin(&mut list);
        for (at, index) in range.enumerate() {
            append_document(&at.to_string(), documents.get(index), &mut list);
        }
        end(begun, &mut list).map_err(broken)?;
        bytes.push(0x04);
        bytes.extend_from_slice(field.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&list);
        bytes.push(0);
        let size = i32::try_from(bytes.len()).map_err(|error| broken(error.to_string()))?;
        if let Some(place) = bytes.get_mut(..4) {
            place.copy_from_slice(&size.to_le_bytes());
        }
        RawDocumentBuf::from_bytes(bytes).map_err(|error| broken(error.to_string()))
    }
}

/// The number of documents that a command found. What the server did not acknowledge is an error.
pub(super) fn acknowledged(act: &str, answer: &Document) -> Result<i64> {
    let failed = answer.get_array("writeErrors").is_ok_and(|errors| !errors.is_empty());
    if failed || answer.contains_key("writeConcernError") {
        return Err(ConnectorError::Busy { act: act.into(), source: answer.to_string().into() });
    }
    let found = answer.get_i32("n").map(i64::from).or_else(|_| answer.get_i64("n"));
    found.map_err(|error| ConnectorError::Refused { act: act.into(), source: error.into() })
}

/// The errors of single documents in an answer.
fn errors(collection: &str, answer: &Document, offset: usize) -> Result<Vec<WriteError>> {
    if let Ok(failed) = answer.get_document("writeConcernError") {
        let reason = failed.get_str("errmsg").unwrap_or("no reason given").to_owned();
        return Err(ConnectorError::Busy {
            act: format!("confirm that {collection} is written"),
            source: Answer { message: reason, code: None }.into(),
        });
    }
    let Ok(list) = answer.get_array("writeErrors") else { return Ok(Vec::new()) };
    let error = |error: &Bson| {
        let error = error.as_document()?;
        let index = usize::try_from(error.get_i32("index").ok()?).ok()?;
        Some(WriteError {
            index: offset + index,
            code: error.get_i32("code").ok()?,
            message: error.get_str("errmsg").unwrap_or("no reason given").to_owned(),
        })
    };
    let errors: Option<Vec<WriteError>> = list.iter().map(error).collect();
    errors.ok_or_else(|| ConnectorError::Refused {
        act: format!("write {collection}"),
        source: Answer { message: format!("the server's answer is invalid: {answer}"), code: None }
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_cannot_be_written_leaves_nothing() {
        let mut documents = Documents::default();
        documents.add(|_| Ok(())).unwrap();
        let failed = documents.add(|out| {
            out.extend_from_slice(b"half");
            Err("no".into())
        });
        assert_eq!(failed, Err("no".into()));
        let too_large = documents.add(|out| {
            out.resize(out.len() + DOCUMENT_SIZE_MAX, 0);
            Ok(())
        });
        assert!(too_large.is_err());
        assert_eq!((documents.len(), documents.get(0)), (1, &b"\x05\0\0\0\0"[..]));
        assert_eq!(documents.get(7), b"");
    }

    #[test]
    fn commands_are_bounded_and_lose_nothing() {
        let mut documents = Documents::default();
        for _ in 0..COMMAND_ROWS_MAX + 1 {
            documents.add_whole(b"\x05\0\0\0\0");
        }
        for _ in 0..3 {
            documents.add_whole(&vec![0; COMMAND_SIZE_MAX / 2]);
        }
        let (first, all) = (COMMAND_ROWS_MAX, COMMAND_ROWS_MAX + 4);
        assert_eq!(documents.commands(), [0..first, first..first + 2, first + 2..all]);
        let (verb, concern) = (Verb::Insert, Concern::Passing);
        let command = Command { verb, collection: "c", concern, comment: Some("why") };
        let command = command.encoded(&documents, 0..2).unwrap();
        let list = command.get_array("documents").unwrap();
        assert_eq!(list.into_iter().count(), 2);
        assert_eq!(command.get_str("insert").unwrap(), "c");
        assert_eq!(command.get_str("comment").unwrap(), "why");
    }
}
