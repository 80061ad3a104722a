//! Writing rows to the database: documents, and documents with values.

use forebay_sink::schema::Plan;
use forebay_sink::server::book::{Book, Namespace};
use forebay_sink::server::job::Jobs;
use forebay_sink::{ColumnType, Derive, Document, Field, Position, SinkError, Value, Written};
use mongodb::bson::raw::CString;
use mongodb::bson::{Bson, Document as BsonDocument, doc};

use super::MongoSink;
use super::changes::Replacement;
use super::layout::{NAMESPACES, collection_name};
use super::load::{Buffer, Load};
use super::row;

/// A write to a namespace.
#[derive(Debug)]
pub struct Job {
    at: u64,
    /// The index of the namespace in the book.
    index: usize,
    /// For each field its column's name and type.
    slots: Vec<Option<(CString, ColumnType)>>,
    buffer: Buffer,
    written: Written,
}

impl MongoSink {
    /// Creates a namespace. It is recorded before its first row, so that rows of a transaction that
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
        self.link.wait(&format!("create the namespace {name}"), made.into_future())?;
        Ok(self.book.push(namespace))
    }

    /// Inserts what waits of a job's namespace, so that it can be counted.
    fn send_waiting(&mut self, job: &mut Job) -> Result<(), SinkError> {
        let buffer = std::mem::take(&mut job.buffer);
        self.load.put_back(&self.link, &self.book, job.index, buffer)
    }
}

impl Jobs for MongoSink {
    type Job = Job;

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
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

    fn reshape_rows(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        if !self.book.admits(at, name)? {
            return Ok(Written::replay());
        }
        self.begin()?;
        self.book.note(at);
        let index = match self.book.find(name) {
            Some(index) => index,
            None => self.make(name)?,
        };
        self.book.touch(index);
        let Some(namespace) = self.book.namespaces.get_mut(index) else {
            return Ok(Written::default());
        };
        let (schema, plan) = namespace.schema.reshaped(fields, &[]);
        let before = std::mem::replace(&mut namespace.schema, schema);
        let has_rows = namespace.row_count > 0;
        self.reshape_changes(index, &plan.slots, derive);
        if has_rows {
            // Those of this transaction, too.
            self.load.flush_all(&self.link, &self.book)?;
            self.stage(index, &before, &plan.slots, derive)?;
        }
        Ok(Written { refused: plan.refused, ..Written::default() })
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
        let is_replacement = namespace.last_id.is_some_and(|last| document.id <= last);
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
        if is_replacement {
            let head = (document.received_ms, job.at);
            let replacement = Replacement { raw: document.raw.to_vec(), head, made };
            self.changes.entry(job.index).or_default().put(document.id, replacement);
            return Ok(());
        }
        job.buffer.push(made);
        Load::pass(&self.link, namespace, &mut job.buffer)
    }

    fn take_out(&mut self, job: &mut Job, id: u64) -> Result<u64, SinkError> {
        let namespace = self.book.namespaces.get(job.index);
        if namespace.is_none_or(|namespace| namespace.last_id.is_none_or(|last| id > last)) {
            // There never was such a row.
            return Ok(0);
        }
        self.send_waiting(job)?;
        self.take_row(job.index, id)
    }

    fn take_up_to(&mut self, job: &mut Job, last_id: u64) -> Result<u64, SinkError> {
        self.send_waiting(job)?;
        self.take_rows(job.index, last_id)
    }

    fn namespace_mut(&mut self, job: &Job) -> Option<&mut Namespace> {
        self.book.namespaces.get_mut(job.index)
    }

    fn finish_job(&mut self, mut job: Job) -> Result<Written, SinkError> {
        self.send_waiting(&mut job)?;
        Ok(job.written)
    }

    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        MongoSink::settle(self, result)
    }

    fn abandon(&mut self) {
        MongoSink::abandon(self);
    }
}
