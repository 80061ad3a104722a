//! Writing rows to the schema: documents, and documents with values.
//!
//! Both end in the same tuples, which are written from borrowed values; nothing is allocated for a
//! row.

use forebay_sink::schema::Plan;
use forebay_sink::server::book::{Book, Namespace};
use forebay_sink::server::job::Jobs;
use forebay_sink::{
    ColumnType, Derive, Document, Field, Position, SinkError, TableSchema, Value, Written,
};

use tokio_postgres::SimpleQueryMessage;

use super::PostgresSink;
use super::layout::{SYSTEM_COLUMNS, rows, table_name};
use super::load::Buffer;
use super::tuple::{self, ROW_SIZE_MAX};

/// A write to a namespace.
#[derive(Debug)]
pub struct Job {
    /// The index of the namespace in the book.
    index: usize,
    /// For each column its type and the field it gets its values from.
    columns: Vec<(ColumnType, Option<usize>)>,
    fields: usize,
    buffer: Buffer,
    written: Written,
}

impl PostgresSink {
    /// Creates a namespace and its table.
    fn make(&mut self, name: &str, fields: &[Field<'_>]) -> Result<(usize, Plan), SinkError> {
        let plan = TableSchema::default().plan_beside(fields, SYSTEM_COLUMNS);
        self.load.end_copy(&mut self.session)?;
        let number = self.book.next_number();
        let asked = self.session.layout.is_taken(name);
        let answer = self.session.ask("look up a table", &asked)?;
        let is_taken =
            rows(&answer).next().and_then(|row| row.try_get(0).ok().flatten()) == Some("t");
        let table = table_name(name, number, is_taken);
        let mut namespace = Namespace::new(name.to_owned(), number, table);
        let sql = self.session.layout.create_table(&namespace, &plan.added);
        self.session.ask(&format!("create the table of {name}"), &sql)?;
        namespace.schema = plan.added.iter().cloned().collect();
        Ok((self.book.push(namespace), plan))
    }

    /// Adds to a namespace's table what `fields` need.
    fn grow(&mut self, index: usize, fields: &[Field<'_>]) -> Result<Plan, SinkError> {
        let Some(namespace) = self.book.namespaces.get(index) else { return Ok(Plan::default()) };
        let plan = namespace.schema.plan_beside(fields, SYSTEM_COLUMNS);
        if plan.added.is_empty() {
            return Ok(plan);
        }
        // Waiting rows have the previous columns.
        self.load.flush(&mut self.session, &self.book, index)?;
        self.load.end_copy(&mut self.session)?;
        let sql = self.session.layout.add_columns(namespace, &plan.added);
        self.session.ask(&format!("add columns to {}", namespace.name), &sql)?;
        self.load.columns_changed(index);
        if let Some(namespace) = self.book.namespaces.get_mut(index) {
            plan.added.iter().for_each(|column| namespace.schema.push(column.clone()));
        }
        Ok(plan)
    }

    /// Adds a row: the document, and for each column the value of its field.
    fn row(
        &mut self,
        job: &mut Job,
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<(), SinkError> {
        let Document { id, received_ms, raw } = *document;
        let Some(namespace) = self.book.namespaces.get_mut(job.index) else { return Ok(()) };
        namespace.admit(id, received_ms)?;
        let out = &mut job.buffer.tuples;
        let start = out.len();
        // Both were admitted, and are below 2^63.
        tuple::begin(job.columns.len(), id.cast_signed(), received_ms.cast_signed(), out);
        for (ty, field) in &job.columns {
            // A column without a field in this write is NULL.
            let value = field.and_then(|field| values.get(field).copied()).unwrap_or(Value::Null);
            job.written.conflicts += u64::from(!tuple::put_value(*ty, value, out));
        }
        tuple::put(raw, out);
        let size = out.len() - start;
        if size > ROW_SIZE_MAX {
            out.truncate(start);
            let namespace = namespace.name.clone();
            return Err(SinkError::RowSize { namespace, id, size, size_max: ROW_SIZE_MAX });
        }
        job.buffer.rows += 1;
        job.written.rows += 1;
        self.load.pass(&mut self.session, (job.index, namespace), &mut job.buffer)
    }

    /// Sends what waits of a job's namespace, so that a statement sees it.
    fn send_waiting(&mut self, job: &mut Job) -> Result<(), SinkError> {
        let buffer = std::mem::take(&mut job.buffer);
        self.load.put_back(&mut self.session, &self.book, job.index, buffer)?;
        self.load.flush(&mut self.session, &self.book, job.index)?;
        self.load.end_copy(&mut self.session)
    }

    fn value_count(&self, job: &Job, found: usize) -> SinkError {
        let namespace = self.book.namespaces.get(job.index).map(|it| it.name.clone());
        let namespace = namespace.unwrap_or_default();
        SinkError::ValueCount { namespace, found, expected: job.fields }
    }
}

/// The number of rows that a statement changed.
fn count(answer: &[SimpleQueryMessage]) -> u64 {
    let counts = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::CommandComplete(rows) => Some(*rows),
        _ => None,
    });
    counts.sum()
}

impl Jobs for PostgresSink {
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
        let (index, plan) = match self.book.find(name) {
            Some(index) => (index, self.grow(index, fields)?),
            None => self.make(name, fields)?,
        };
        self.book.touch(index);
        let schema = self.book.namespaces.get(index).map(|namespace| &namespace.schema);
        let mut columns: Vec<(ColumnType, Option<usize>)> = schema
            .map(|schema| schema.columns().iter().map(|column| (column.ty, None)).collect())
            .unwrap_or_default();
        for (field, slot) in plan.slots.iter().enumerate() {
            if let Some((_, from)) = slot.and_then(|slot| columns.get_mut(slot)) {
                *from = Some(field);
            }
        }
        let written = Written { refused: plan.refused, ..Written::default() };
        let buffer = self.load.take(index);
        Ok(Some(Job { index, columns, fields: fields.len(), buffer, written }))
    }

    fn reshape_rows(
        &mut self,
        at: Position,
        name: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        self.reshape_table(at, name, fields, derive)
    }

    fn document(
        &mut self,
        job: &mut Job,
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<(), SinkError> {
        if values.len() != job.fields {
            return Err(self.value_count(job, values.len()));
        }
        self.row(job, document, values)
    }

    fn take_out(&mut self, job: &mut Job, id: u64) -> Result<u64, SinkError> {
        self.send_waiting(job)?;
        let Some(namespace) = self.book.namespaces.get_mut(job.index) else { return Ok(0) };
        let act = format!("remove a row of {}", namespace.name);
        let sql = self.session.layout.delete_row(namespace, id);
        let rows = count(&self.session.ask(&act, &sql)?);
        namespace.removed(rows);
        Ok(rows)
    }

    fn take_up_to(&mut self, job: &mut Job, last_id: u64) -> Result<u64, SinkError> {
        self.send_waiting(job)?;
        let Some(namespace) = self.book.namespaces.get_mut(job.index) else { return Ok(0) };
        let act = format!("remove the rows of {}", namespace.name);
        let sql = self.session.layout.delete_up_to(namespace, last_id);
        let rows = count(&self.session.ask(&act, &sql)?);
        namespace.removed(rows);
        if namespace.row_count > 0 {
            return Ok(rows);
        }
        let sql = self.session.layout.reshape(namespace, &TableSchema::default());
        namespace.schema = TableSchema::default();
        let act = format!("remove the columns of {}", namespace.name);
        self.session.ask(&act, &sql)?;
        self.load.columns_changed(job.index);
        job.columns.clear();
        job.fields = 0;
        Ok(rows)
    }

    fn namespace_mut(&mut self, job: &Job) -> Option<&mut Namespace> {
        self.book.namespaces.get_mut(job.index)
    }

    fn finish_job(&mut self, mut job: Job) -> Result<Written, SinkError> {
        let buffer = std::mem::take(&mut job.buffer);
        self.load.put_back(&mut self.session, &self.book, job.index, buffer)?;
        Ok(job.written)
    }

    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        PostgresSink::settle(self, result)
    }

    fn abandon(&mut self) {
        PostgresSink::abandon(self);
    }
}
