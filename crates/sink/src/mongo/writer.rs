//! How rows get into the database: documents, and documents with values.

use mongodb::bson::raw::CString;
use mongodb::bson::{Bson, Document as BsonDocument, doc};

use super::MongoSink;
use super::layout::{NAMESPACES, collection_name};
use super::load::{Buffer, Load};
use super::row;
use crate::book::Namespace;
use crate::column::{ColumnType, Value};
use crate::error::SinkError;
use crate::schema::{Field, Plan, TableSchema};
use crate::sink::{Document, DocumentSink, Position, RowSink, RowWriter, Written};

/// A write to a namespace.
#[derive(Debug)]
struct Job {
    at: u64,
    /// The namespace's place in the book.
    index: usize,
    /// For each field its column's name and type.
    slots: Vec<Option<(CString, ColumnType)>>,
    buffer: Buffer,
    written: Written,
}

impl MongoSink {
    /// Opens the transaction and makes sure of the namespace and its columns. `None`: the position is
    /// committed already.
    fn start(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Job>, SinkError> {
        let started = self.prepare(at, namespace, fields);
        self.settle(started)
    }

    fn prepare(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Job>, SinkError> {
        if !self.book.admits(at, name)? {
            return Ok(None);
        }
        self.begin()?;
        self.book.note(at);
        let index = match self.book.find(name) {
            Some(index) => index,
            None => self.make(name)?,
        };
        self.book.touch(index);
        let mut plan = Plan::default();
        let mut slots = Vec::with_capacity(fields.len());
        if let Some(namespace) = self.book.namespaces.get_mut(index) {
            plan = namespace.schema.plan(fields);
            plan.added.iter().for_each(|column| namespace.schema.push(column.clone()));
            for slot in &plan.slots {
                let column = slot.and_then(|slot| namespace.schema.columns().get(slot));
                // Names are made of letters, digits and `_`.
                slots.push(column.and_then(|it| Some((it.name.as_str().try_into().ok()?, it.ty))));
            }
        }
        let written = Written { refused: plan.refused, ..Written::default() };
        let buffer = self.load.take(index);
        Ok(Some(Job { at: at.0, index, slots, buffer, written }))
    }

    /// Makes a namespace. It is written down before there is a row of it, so that rows of a transaction that
    /// is never committed are found.
    fn make(&mut self, name: &str) -> Result<usize, SinkError> {
        let namespace =
            Namespace::new(name.to_owned(), self.book.next_number(), collection_name(name));
        let namespaces = self.link.database.collection::<BsonDocument>(NAMESPACES);
        let update = doc! {
            "$set": { "collection": &namespace.table, "epoch": self.epoch },
            "$setOnInsert": { "before": Bson::Null, "now": Bson::Null },
        };
        let made = namespaces.update_one(doc! { "_id": name }, update).upsert(true);
        self.link.wait(&format!("make the namespace {name}"), made.into_future())?;
        Ok(self.book.push(namespace))
    }

    fn document(
        &mut self,
        job: &mut Job,
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<(), SinkError> {
        let Some(namespace) = self.book.namespaces.get_mut(job.index) else { return Ok(()) };
        if values.len() != job.slots.len() {
            let (found, expected) = (values.len(), job.slots.len());
            let namespace = namespace.name.clone();
            return Err(SinkError::ValueCount { namespace, found, expected });
        }
        namespace.admit(document.id, document.received_ms)?;
        let head = (document.id, document.received_ms, job.at);
        let made = row::make(head, document.raw, |maker| {
            for (slot, value) in job.slots.iter().zip(values) {
                if let Some((name, ty)) = slot {
                    maker.put(name, *ty, *value);
                }
            }
        });
        job.written.conflicts += made.conflicts;
        job.written.rows += 1;
        job.buffer.push(made);
        Load::pass(&self.link, namespace, &mut job.buffer)
    }

    fn finish(&mut self, mut job: Job) -> Result<Written, SinkError> {
        let buffer = std::mem::take(&mut job.buffer);
        self.load.put_back(&self.link, &self.book, job.index, buffer)?;
        Ok(job.written)
    }
}

impl DocumentSink for MongoSink {
    fn write_documents(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        let Some(mut job) = self.start(at, namespace, &[])? else { return Ok(Written::replay()) };
        let added = documents.iter().try_for_each(|it| self.document(&mut job, it, &[]));
        let written = added.and_then(|()| self.finish(job));
        self.settle(written)
    }

    fn last_id(&mut self, namespace: &str) -> Result<Option<u64>, SinkError> {
        self.book.last_id(namespace)
    }
}

impl RowSink for MongoSink {
    fn row_writer<'s>(
        &'s mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError> {
        let job = self.start(at, namespace, fields)?;
        Ok(Box::new(MongoRowWriter { sink: self, job, is_failed: false }))
    }

    fn columns(&mut self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        self.book.columns(namespace)
    }
}

/// The row writer of [`MongoSink`]; without a job it swallows a replay.
struct MongoRowWriter<'s> {
    sink: &'s mut MongoSink,
    job: Option<Job>,
    is_failed: bool,
}

impl RowWriter for MongoRowWriter<'_> {
    fn write(&mut self, document: &Document<'_>, values: &[Value<'_>]) -> Result<(), SinkError> {
        if self.is_failed {
            return Err(SinkError::RolledBack);
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        let added = self.sink.document(job, document, values);
        if added.is_err() {
            self.job = None;
            self.is_failed = true;
        }
        self.sink.settle(added)
    }

    fn finish(mut self: Box<Self>) -> Result<Written, SinkError> {
        if self.is_failed {
            return Err(SinkError::RolledBack);
        }
        let Some(job) = self.job.take() else { return Ok(Written::replay()) };
        let written = self.sink.finish(job);
        self.sink.settle(written)
    }
}

impl Drop for MongoRowWriter<'_> {
    fn drop(&mut self) {
        if self.job.is_some() {
            self.sink.abandon();
        }
    }
}
