//! Shared by sinks of servers: a job for each write to a namespace, which is abandoned with its
//! transaction if anything fails.
//!
//! Invariant: after an error, and after a writer that was dropped before its end, nothing of the
//! transaction can be committed.

use crate::column::Value;
use crate::error::SinkError;
use crate::schema::{Field, TableSchema};
use crate::server::book::{Book, Namespace};
use crate::sink::{Derive, Document, DocumentSink, Position, RowSink, RowWriter, Sink, Written};

/// A sink that does its writes as jobs: it is a [`RowSink`].
pub trait Jobs: Sink {
    /// A write to a namespace.
    type Job;

    /// What it knows about itself.
    fn book(&self) -> &Book;

    /// The same, to be changed.
    fn book_mut(&mut self) -> &mut Book;

    /// Opens the transaction and ensures that the namespace and its columns exist. `None` if the
    /// position is committed already.
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`]; the transaction is
    /// not abandoned yet.
    fn prepare(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Self::Job>, SinkError>;

    /// Changes the columns of a namespace; see [`RowSink::reshape`].
    ///
    /// # Errors
    /// As [`prepare`](Jobs::prepare).
    fn reshape_rows(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError>;

    /// Starts a job; abandons the transaction on failure.
    ///
    /// # Errors
    /// As [`prepare`](Jobs::prepare).
    fn start(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Self::Job>, SinkError> {
        let prepared = self.prepare(at, namespace, fields);
        self.settle(prepared)
    }

    /// Adds a document and the values of its fields.
    ///
    /// # Errors
    /// As [`RowWriter::write`]; the transaction is not abandoned yet.
    fn document(
        &mut self,
        job: &mut Self::Job,
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<(), SinkError>;

    /// Removes the row with an id; returns the number of rows removed.
    ///
    /// # Errors
    /// As [`RowSink::remove`]; the transaction is not abandoned yet.
    fn take_out(&mut self, job: &mut Self::Job, id: u64) -> Result<u64, SinkError>;

    /// Removes the rows up to an id, and all columns if no others remain; returns the number of rows
    /// removed.
    ///
    /// # Errors
    /// As [`RowSink::clear`]; the transaction is not abandoned yet.
    fn take_up_to(&mut self, job: &mut Self::Job, last_id: u64) -> Result<u64, SinkError>;

    /// The namespace that a job writes to.
    fn namespace_mut(&mut self, job: &Self::Job) -> Option<&mut Namespace>;

    /// Ends a job; its rows wait for the commit.
    ///
    /// # Errors
    /// As [`RowWriter::finish`]; the transaction is not abandoned yet.
    fn finish_job(&mut self, job: Self::Job) -> Result<Written, SinkError>;

    /// Abandons the transaction.
    fn abandon(&mut self);

    /// Returns `result`; an error ends the transaction.
    ///
    /// # Errors
    /// That of `result`.
    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError>;
}

/// What the open transaction has is in the book; documents without values are rows without fields.
impl<S: Jobs> DocumentSink for S {
    fn write_documents(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        let Some(mut job) = self.start(at, namespace, &[])? else { return Ok(Written::replay()) };
        let added = documents.iter().try_for_each(|one| self.document(&mut job, one, &[]));
        let written = added.and_then(|()| self.finish_job(job));
        self.settle(written)
    }

    fn last_id(&mut self, namespace: &str) -> Result<Option<u64>, SinkError> {
        self.book().last_id(namespace)
    }
}

impl<S: Jobs> RowSink for S {
    fn row_writer<'s>(
        &'s mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError> {
        let job = self.start(at, namespace, fields)?;
        Ok(Box::new(JobWriter { sink: self, job, is_failed: false }))
    }

    fn reshape(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError> {
        let reshaped = self.reshape_rows(at, namespace, fields, derive);
        self.settle(reshaped)
    }

    fn replace(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<Written, SinkError> {
        let Some(mut job) = self.start(at, namespace, fields)? else {
            return Ok(Written::replay());
        };
        let replaced = (|| {
            self.namespace_mut(&job).map_or(Ok(()), |found| found.vacate(document.id))?;
            let rows = self.take_out(&mut job, document.id)?;
            self.document(&mut job, document, values)?;
            Ok(Written { rows, ..self.finish_job(job)? })
        })();
        self.settle(replaced)
    }

    fn remove(&mut self, at: Position, namespace: &str, id: u64) -> Result<Written, SinkError> {
        let Some(mut job) = self.start(at, namespace, &[])? else { return Ok(Written::replay()) };
        let removed = (|| {
            let rows = self.take_out(&mut job, id)?;
            self.namespace_mut(&job).map_or(Ok(()), |found| found.pass(id))?;
            Ok(Written { rows, ..self.finish_job(job)? })
        })();
        self.settle(removed)
    }

    fn clear(&mut self, at: Position, namespace: &str, last_id: u64) -> Result<Written, SinkError> {
        let Some(mut job) = self.start(at, namespace, &[])? else { return Ok(Written::replay()) };
        let cleared = (|| {
            let rows = self.take_up_to(&mut job, last_id)?;
            self.namespace_mut(&job).map_or(Ok(()), |found| found.pass(last_id))?;
            Ok(Written { rows, ..self.finish_job(job)? })
        })();
        self.settle(cleared)
    }

    fn amend(&mut self) {
        self.book_mut().amends = true;
    }

    fn columns(&mut self, namespace: &str) -> Result<Option<&TableSchema>, SinkError> {
        self.book().columns(namespace)
    }
}

/// The row writer of such a sink; without a job it swallows a replay.
struct JobWriter<'s, S: Jobs> {
    sink: &'s mut S,
    job: Option<S::Job>,
    is_failed: bool,
}

impl<S: Jobs> RowWriter for JobWriter<'_, S> {
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
        let written = self.sink.finish_job(job);
        self.sink.settle(written)
    }
}

impl<S: Jobs> Drop for JobWriter<'_, S> {
    fn drop(&mut self) {
        if self.job.is_some() {
            self.sink.abandon();
        }
    }
}
