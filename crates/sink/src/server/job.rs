//! Shared by sinks of servers: a job for each write to a namespace, which is abandoned with its
//! transaction if anything fails.
//!
//! Invariant: after an error, and after a writer that was dropped before its end, nothing of the
//! transaction can be committed.

use crate::column::Value;
use crate::error::SinkError;
use crate::schema::Field;
use crate::sink::{Document, Position, RowWriter, Written};

/// A sink that does its writes as jobs.
pub trait Jobs {
    /// A write to a namespace.
    type Job;

    /// Opens the transaction and ensures that the namespace and its columns exist. `None` if the
    /// position is committed already.
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`](crate::DocumentSink::write_documents); the transaction is
    /// not abandoned yet.
    fn prepare(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Option<Self::Job>, SinkError>;

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

/// Writes documents without values.
///
/// # Errors
/// As [`DocumentSink::write_documents`](crate::DocumentSink::write_documents).
pub fn write_documents<S: Jobs>(
    sink: &mut S,
    at: Position,
    namespace: &str,
    documents: &[Document<'_>],
) -> Result<Written, SinkError> {
    let Some(mut job) = sink.start(at, namespace, &[])? else { return Ok(Written::replay()) };
    let added = documents.iter().try_for_each(|document| sink.document(&mut job, document, &[]));
    let written = added.and_then(|()| sink.finish_job(job));
    sink.settle(written)
}

/// The row writer of such a sink; without a job it swallows a replay.
pub struct JobWriter<'s, S: Jobs> {
    sink: &'s mut S,
    job: Option<S::Job>,
    is_failed: bool,
}

impl<'s, S: Jobs> JobWriter<'s, S> {
    /// A writer of a new job.
    ///
    /// # Errors
    /// As [`Jobs::start`].
    pub fn begin(
        sink: &'s mut S,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Self, SinkError> {
        let job = sink.start(at, namespace, fields)?;
        Ok(Self { sink, job, is_failed: false })
    }
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
