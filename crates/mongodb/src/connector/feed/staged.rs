//! Documents that wait until their unit is decided: one collection for each collection of a feed and writer.
//!
//! ```text
//! { _id: number, part, op: "gone", i: id }         the document with this id is removed
//! { _id: number, part, op: "set", i: id, doc }     it gets these fields
//! { _id: number, part, op: "put", i: id, doc }     it is this one
//! ```
//!
//! `part` is that of the unit: a transaction that is too large for one has several. What a later part changes again
//! takes the place of what an earlier one staged, so that there is at most one `set` or `put` of an id.
//!
//! Invariant: nothing here is seen by readers, and nothing of it counts before the unit is decided.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mongodb::Cursor;
use mongodb::bson::raw::{RawBsonRef, RawDocument, cstr};
use mongodb::bson::{Document, RawDocumentBuf, doc, rawdoc};

use super::super::bulk::{COMMAND_ROWS_MAX, COMMAND_SIZE_MAX, Concern, Documents, Verb};
use super::super::connect::refused;
use super::super::statement::{append_elements, broken};
use super::pending::Work;
use super::staged_prefix;

/// What is staged for a collection.
pub(super) struct Staged {
    pub(super) collection: String,
    /// The part that is being staged, from 1.
    pub(super) part: i64,
    /// The number of what is staged next.
    number: i64,
    new: Documents,
    /// Statements that remove what is superseded.
    old: Documents,
    /// Whether anything was staged since it was cleared.
    pub(super) is_used: bool,
    is_indexed: bool,
}

impl Staged {
    /// Nothing staged.
    ///
    /// * `stream`: the number of the stream in its feed.
    pub(super) fn new(work: &Work, stream: usize) -> Self {
        Self {
            collection: format!("{}{}_{stream}", staged_prefix(&work.records), work.writer),
            part: 1,
            number: 0,
            new: Documents::default(),
            old: Documents::default(),
            is_used: false,
            is_indexed: false,
        }
    }

    /// Whether earlier parts of the unit may have staged documents.
    pub(super) fn has_earlier(&self) -> bool {
        self.part > 1 && self.is_used
    }

    /// Begins a part of a unit; `key`: the fields by which documents are found.
    pub(super) async fn begin(&mut self, work: &Work, part: i64, key: &[String]) -> Result<()> {
        self.part = part;
        if self.has_earlier() && !self.is_indexed {
            let of_key: Document =
                key.iter().map(|name| (format!("doc.{name}"), 1.into())).collect();
            let command = doc! {
                "createIndexes": &self.collection,
                "indexes": [{ "key": { "i": 1 }, "name": "i" }, { "key": of_key, "name": "key" }],
            };
            work.server.run("index staged changes", command).await?;
            self.is_indexed = true;
        }
        Ok(())
    }

    pub(super) fn gone(&mut self, id: RawBsonRef<'_>) -> Result<()> {
        self.add("gone", id, None)
    }

    pub(super) fn set(&mut self, id: RawBsonRef<'_>, fields: &RawDocument) -> Result<()> {
        self.add("set", id, Some(fields))
    }

    pub(super) fn put(&mut self, id: RawBsonRef<'_>, document: &RawDocument) -> Result<()> {
        self.add("put", id, Some(document))
    }

    fn add(&mut self, op: &str, id: RawBsonRef<'_>, of: Option<&RawDocument>) -> Result<()> {
        let mut staged = rawdoc! { "_id": self.number, "part": self.part, "op": op };
        staged.append(cstr!("i"), id);
        if let Some(of) = of {
            staged.append(cstr!("doc"), RawBsonRef::Document(of));
        }
        let added = self.new.add(|out| {
            append_elements(staged.as_bytes(), out);
            Ok(())
        });
        added.map_err(|found| ConnectorError::data("a changed document", found))?;
        self.number = self.number.checked_add(1).ok_or_else(|| broken("too many".to_owned()))?;
        self.is_used = true;
        Ok(())
    }

    /// Removes what was staged under a number.
    pub(super) fn supersede(&mut self, number: i64) -> Result<()> {
        let statement = rawdoc! { "q": { "_id": number }, "limit": 1 };
        let added = self.old.add(|out| {
            append_elements(statement.as_bytes(), out);
            Ok(())
        });
        added.map_err(broken)
    }

    /// Sends what waits in memory, if that is much.
    pub(super) async fn flush_if_full(&mut self, work: &Work) -> Result<()> {
        let is_full =
            |of: &Documents| of.size() >= COMMAND_SIZE_MAX || of.len() >= COMMAND_ROWS_MAX;
        if is_full(&self.new) || is_full(&self.old) { self.flush(work).await } else { Ok(()) }
    }

    /// Sends what waits in memory; it is on disk on return.
    pub(super) async fn flush(&mut self, work: &Work) -> Result<()> {
        for (verb, waiting) in [(Verb::Insert, &mut self.new), (Verb::Delete, &mut self.old)] {
            work.write(verb, &self.collection, waiting, Concern::Durable).await?;
            waiting.clear();
        }
        Ok(())
    }

    /// Forgets everything.
    pub(super) async fn clear(&mut self, work: &Work) -> Result<()> {
        self.new.clear();
        self.old.clear();
        if std::mem::take(&mut self.is_used) {
            work.delete_all(&self.collection).await?;
        }
        Ok(())
    }

    /// What earlier parts have staged.
    pub(super) async fn earlier(
        &self,
        work: &Work,
        filter: Document,
    ) -> Result<Cursor<RawDocumentBuf>> {
        let mut earlier = doc! { "part": { "$lt": self.part } };
        earlier.extend(filter);
        let act = |error| refused(format!("read {}", self.collection), error);
        let staged = work.server.database().await?.collection::<RawDocumentBuf>(&self.collection);
        staged.find(earlier).await.map_err(act)
    }
}
