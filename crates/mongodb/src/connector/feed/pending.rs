//! Completing what is decided.
//!
//! ```text
//! steps    other fields of the documents that are there: each is recorded before the next, since a column may get
//!          the name that another one had
//! empties  the documents that are there are removed; or, with `marks`, marked as deleted
//! gone     the ids that are staged as gone are removed
//! set, put the documents that are staged are changed, or written
//! ```
//!
//! Invariant: each of these can be repeated, alone and with all that follow it.

use std::sync::Arc;
use std::time::Duration;

use forebay_sdk::changes::feed::Feed;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use mongodb::bson::raw::{RawDocument, cstr};
use mongodb::bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};

use super::super::bulk::{
    COMMAND_ROWS_MAX, COMMAND_SIZE_MAX, Command, Concern, Documents, Verb, acknowledged,
};
use super::super::claim::Held;
use super::super::connect::{Server, refused};
use super::super::encode::append_document;
use super::super::ledger::text;
use super::super::statement::{append_elements, append_set, broken, without_id};
use super::super::target::drop_collection;
use super::DELETED_AT;
use super::alter::Step;
use super::record::{Found, Records};

/// How often the commands of an interrupted writer are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// Number of consecutive looks that must find none, and maximum number of looks.
const QUIET: u32 = 2;
const LOOKS_MAX: u32 = 400;

/// What is to be done for a decided unit in one collection.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Pending {
    /// The collection.
    pub(super) into: String,
    /// The collection with what is staged; `None`: nothing is.
    pub(super) staged: Option<String>,
    /// Whether the documents that are there are removed.
    pub(super) empties: bool,
    /// The time with which the documents that are there are marked as deleted.
    pub(super) marks: Option<Bson>,
    /// Changes of fields.
    pub(super) steps: Vec<Step>,
}

impl Pending {
    pub(super) fn encoded(&self) -> Document {
        let steps: Vec<Document> = self.steps.iter().map(Step::encoded).collect();
        doc! {
            "into": &self.into, "staged": &self.staged, "empties": self.empties,
            "marks": self.marks.clone().unwrap_or(Bson::Null), "steps": steps,
        }
    }

    pub(super) fn decoded(from: &Bson) -> Result<Self> {
        let of = from.as_document().ok_or_else(|| {
            ConnectorError::data("the recorded feed", "what is pending is no document".to_owned())
        })?;
        let steps = of.get_array("steps").map(Vec::as_slice).unwrap_or_default();
        Ok(Self {
            into: text(of, "into")?.to_owned(),
            staged: of.get_str("staged").ok().map(str::to_owned),
            empties: of.get_bool("empties").unwrap_or(false),
            marks: of.get("marks").filter(|marks| **marks != Bson::Null).cloned(),
            steps: steps.iter().map(Step::decoded).collect::<Result<_>>()?,
        })
    }
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Appends to a statement that it is of the document with a staged id.
fn append_query(staged: &RawDocument, out: &mut Vec<u8>) -> Result<(), String> {
    let mut query = RawDocumentBuf::new();
    query.append(cstr!("_id"), staged.get("i").map_err(shown)?.ok_or("it has no id")?);
    append_document("q", query.as_bytes(), out);
    Ok(())
}

/// A writer of a feed, as the server knows it.
#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) server: Server,
    pub(super) records: Records,
    /// Its name.
    pub(super) writer: String,
    /// What its commands have as their comment, and those of all writers of the feed.
    pub(super) comment: String,
    /// The claims of the run.
    held: Vec<Arc<Held>>,
}

impl Work {
    pub(super) fn new(server: &Server, records: &Records, held: Vec<Arc<Held>>) -> Self {
        Self {
            server: server.clone(),
            records: records.clone(),
            writer: uuid::Uuid::new_v4().simple().to_string(),
            comment: format!("forebay feed {}", records.id()),
            held,
        }
    }

    /// Checks that the claims of the run are still held.
    pub(super) fn check(&self) -> Result<()> {
        self.held.iter().try_for_each(|held| held.check())
    }

    /// Takes over a feed, and completes what is pending of it.
    pub(super) async fn take_over(&self, feed: &Feed) -> Result<()> {
        let Found { pending, done, .. } = self.records.take_over(feed, &self.writer).await?;
        if !pending.is_empty() {
            self.settle().await?;
            tracing::info!("completing a unit of changes that was decided and interrupted");
            self.complete(&pending, done).await?;
        }
        Ok(())
    }

    /// Waits until the server executes no command of an earlier writer.
    async fn settle(&self) -> Result<()> {
        let admin = self.server.database().await?.client().database("admin");
        let mut quiet = 0;
        for _ in 0..LOOKS_MAX {
            let look = doc! { "currentOp": 1, "$ownOps": true, "command.comment": &self.comment };
            let found = admin.run_command(look).await;
            let is_quiet = match found {
                Ok(found) => found.get_array("inprog").is_ok_and(Vec::is_empty),
                Err(error) => {
                    tracing::debug!(%error, "the server does not list its operations");
                    true
                }
            };
            quiet = if is_quiet { quiet + 1 } else { 0 };
            if quiet == QUIET {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Err(ConnectorError::Busy {
            act: "complete a unit of changes".into(),
            source: "the server still executes commands of an interrupted run".into(),
        })
    }

    /// Completes what is pending. Its steps up to `done` are.
    pub(super) async fn complete(&self, pending: &[Pending], done: usize) -> Result<()> {
        let mut at = 0;
        for of in pending {
            for step in &of.steps {
                at += 1;
                if at > done {
                    self.check()?;
                    step.take(self, &of.into).await?;
                    self.records.step(&self.writer, at).await?;
                }
            }
        }
        for of in pending {
            self.empty(of).await?;
            if let Some(staged) = &of.staged {
                self.remove(of, staged).await?;
                self.put(of, staged).await?;
            }
        }
        self.check()?;
        self.records.complete(&self.writer).await
    }

    async fn empty(&self, of: &Pending) -> Result<()> {
        if of.empties {
            self.delete_all(&of.into).await?;
        }
        if let Some(at) = &of.marks {
            let is_live = doc! { DELETED_AT: Bson::Null };
            let mark = doc! { "$set": { DELETED_AT: at.clone() } };
            self.update_all(&of.into, is_live, mark).await?;
        }
        Ok(())
    }

    /// Removes all documents of a collection.
    pub(super) async fn delete_all(&self, collection: &str) -> Result<()> {
        self.check()?;
        let command = doc! {
            "delete": collection, "deletes": [{ "q": {}, "limit": 0 }],
            "writeConcern": { "w": "majority", "j": true }, "comment": &self.comment,
        };
        let act = format!("empty {collection}");
        acknowledged(&act, &self.server.run(&act, command).await?).map(drop)
    }

    /// Changes all documents of a collection that fulfil a condition.
    pub(super) async fn update_all(
        &self,
        collection: &str,
        condition: Document,
        update: Document,
    ) -> Result<()> {
        self.check()?;
        let command = doc! {
            "update": collection, "updates": [{ "q": condition, "u": update, "multi": true }],
            "writeConcern": { "w": "majority", "j": true }, "comment": &self.comment,
        };
        let act = format!("change the documents of {collection}");
        acknowledged(&act, &self.server.run(&act, command).await?).map(drop)
    }

    /// Writes documents or statements. What the server refuses is an error.
    pub(super) async fn write(
        &self,
        verb: Verb,
        collection: &str,
        documents: &Documents,
        concern: Concern,
    ) -> Result<()> {
        let comment = Some(&*self.comment);
        let command = Command { verb, collection, concern, comment };
        for range in documents.commands() {
            self.check()?;
            let failed = command.write(&self.server, documents, range).await?;
            if let Some(failed) = failed.into_iter().next() {
                let found = format!("refuses a change: {}", failed.message);
                return Err(ConnectorError::data(collection, found));
            }
        }
        Ok(())
    }

    /// Removes the documents that are staged as gone.
    async fn remove(&self, of: &Pending, staged: &str) -> Result<()> {
        let filter = doc! { "op": "gone" };
        self.pass(of, staged, Verb::Delete, filter, |document, out| {
            append_query(document, out)?;
            append_elements(rawdoc! { "limit": 1 }.as_bytes(), out);
            Ok(())
        })
        .await
    }

    /// Changes and writes the documents that are staged.
    async fn put(&self, of: &Pending, staged: &str) -> Result<()> {
        let filter = doc! { "op": { "$ne": "gone" } };
        self.pass(of, staged, Verb::Update, filter, |document, out| {
            let part = document.get_i64("part").map_err(shown)?;
            let is_put = document.get_str("op").map_err(shown)? == "put";
            let image = document.get_document("doc").map_err(shown)?;
            let image = Step::through(&of.steps, image, part, is_put).map_err(shown)?;
            append_query(document, out)?;
            if is_put {
                append_document("u", image.as_bytes(), out);
                append_elements(rawdoc! { "upsert": true }.as_bytes(), out);
                return Ok(());
            }
            append_set(&without_id(image.as_bytes()).map_err(shown)?, out)
        })
        .await
    }

    /// Makes a statement of each staged document, and sends them.
    async fn pass(
        &self,
        of: &Pending,
        staged: &str,
        verb: Verb,
        filter: Document,
        encode: impl Fn(&RawDocument, &mut Vec<u8>) -> Result<(), String>,
    ) -> Result<()> {
        let act = |error| refused(format!("read {staged}"), error);
        let found = self.server.database().await?.collection::<RawDocumentBuf>(staged);
        let mut found = found.find(filter).sort(doc! { "_id": 1 }).await.map_err(act)?;
        let mut some = Documents::default();
        while found.advance().await.map_err(act)? {
            let document = found.current();
            some.add(|out| encode(document, out)).map_err(broken)?;
            if some.size() >= COMMAND_SIZE_MAX / 2 || some.len() == COMMAND_ROWS_MAX {
                self.write(verb, &of.into, &some, Concern::Durable).await?;
                some.clear();
            }
        }
        self.write(verb, &of.into, &some, Concern::Durable).await
    }

    /// Drops the collections of this pipeline in which changes waited.
    pub(super) async fn sweep(&self) -> Result<()> {
        let prefix = super::staged_prefix(&self.records);
        let names = self.server.database().await?.list_collection_names().await;
        for name in names.map_err(|error| refused("list the collections", error))? {
            if name.starts_with(&prefix) {
                drop_collection(&self.server, &name).await?;
            }
        }
        Ok(())
    }
}
