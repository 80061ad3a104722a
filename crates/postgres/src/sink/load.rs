//! Sending tuples to the server: many by COPY, few by INSERT.
//!
//! Tuples wait in memory, by namespace, until there are enough of them or the transaction is
//! committed. More than [`COPY_ABOVE_ROWS`] rows of a namespace in one transaction are sent by
//! COPY, which is a stream; fewer by one INSERT of arrays, which is prepared once for any number of
//! rows and takes one round trip.
//!
//! Invariants: waiting tuples have at most [`WAITING_SIZE_MAX`] bytes, except for the last row; at
//! most one COPY is open, and it is ended before any other request; it is an error if fewer rows
//! arrive than were sent.
//!
//! A COPY stays open across writes to the same namespace, so that the server is busy while rows are
//! encoded. If the writer pauses for longer than the statement timeout, the server ends the COPY: a
//! transient error.

use std::collections::HashMap;

use forebay_sink::server::book::{Book, Namespace};
use forebay_sink::{ServerError, SinkError};
use tokio_postgres::Statement;

use super::session::Session;
use super::tuple;
use crate::bulk::{Copy, Encoded, Stored};

/// Maximum number of rows of a namespace in a transaction that are inserted.
pub const COPY_ABOVE_ROWS: u64 = 100;
/// Bytes that wait before a COPY is begun for them, and handed to it at once after that.
const COPY_SIZE_MIN: usize = 512 << 10;
const CHUNK_SIZE: usize = 256 << 10;
/// Bytes after which a COPY is ended and another one begun: a server ends what takes too long.
const COPY_SIZE_MAX: usize = 64 << 20;
/// Bytes that wait together.
const WAITING_SIZE_MAX: usize = 8 << 20;
/// Statements kept prepared, each of which has its memory at the server too.
const PREPARED_MAX: usize = 512;

/// Rows of a namespace that wait.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) tuples: Vec<u8>,
    pub(super) rows: u64,
}

/// A COPY that has begun.
struct Open {
    /// Its namespace's place in the book, and what is done with it.
    index: usize,
    act: String,
    copy: Copy,
}

/// What waits, and what is under way.
#[derive(Default)]
pub(super) struct Load {
    /// By the namespaces' places in the book.
    waiting: HashMap<usize, Buffer>,
    waiting_size: usize,
    copy: Option<Open>,
    /// Statements by namespace: COPY and INSERT.
    prepared: HashMap<(usize, Method), Statement>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Method {
    Copy,
    Insert,
}

impl std::fmt::Debug for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Load").field("waiting_size", &self.waiting_size).finish_non_exhaustive()
    }
}

impl Load {
    /// Drops everything: waiting tuples, running statements, and those prepared for tables that may
    /// never have existed.
    pub(super) fn forget(&mut self) {
        self.waiting.clear();
        self.waiting_size = 0;
        self.copy = None;
        self.prepared.clear();
    }

    /// The rows that wait for this namespace, to add to them.
    pub(super) fn take(&mut self, index: usize) -> Buffer {
        let buffer = self.waiting.remove(&index).unwrap_or_default();
        self.waiting_size -= buffer.tuples.len();
        buffer
    }

    /// Sends rows on the way, as soon as there are enough of them.
    pub(super) fn pass(
        &mut self,
        session: &mut Session,
        (index, namespace): (usize, &Namespace),
        buffer: &mut Buffer,
    ) -> Result<(), SinkError> {
        let size = buffer.tuples.len();
        if size < CHUNK_SIZE {
            return Ok(());
        }
        if namespace.rows_pending > COPY_ABOVE_ROWS {
            let is_open = self.copy.as_ref().is_some_and(|copy| copy.index == index);
            if is_open || size >= COPY_SIZE_MIN {
                self.stream(session, (index, namespace), buffer)?;
            }
        } else if size >= WAITING_SIZE_MAX {
            self.insert(session, (index, namespace), buffer)?;
        }
        Ok(())
    }

    /// Takes back the rows of a namespace when a write to it ends.
    pub(super) fn put_back(
        &mut self,
        session: &mut Session,
        book: &Book,
        index: usize,
        buffer: Buffer,
    ) -> Result<(), SinkError> {
        if buffer.rows > 0 {
            self.waiting_size += buffer.tuples.len();
            self.waiting.insert(index, buffer);
        }
        if self.waiting_size >= WAITING_SIZE_MAX {
            self.flush_all(session, book)?;
        }
        Ok(())
    }

    /// Sends everything that waits.
    pub(super) fn flush_all(
        &mut self,
        session: &mut Session,
        book: &Book,
    ) -> Result<(), SinkError> {
        // The namespace whose COPY is open first: it continues.
        let open = self.copy.as_ref().map(|copy| copy.index);
        let mut waiting: Vec<usize> = self.waiting.keys().copied().collect();
        waiting.sort_unstable_by_key(|index| (Some(*index) != open, *index));
        waiting.into_iter().try_for_each(|index| self.flush(session, book, index))?;
        self.end_copy(session)
    }

    /// Sends what waits for a namespace.
    pub(super) fn flush(
        &mut self,
        session: &mut Session,
        book: &Book,
        index: usize,
    ) -> Result<(), SinkError> {
        let mut buffer = self.take(index);
        let Some(namespace) = book.namespaces.get(index).filter(|_| buffer.rows > 0) else {
            return Ok(());
        };
        if namespace.rows_pending > COPY_ABOVE_ROWS {
            self.stream(session, (index, namespace), &mut buffer)
        } else {
            self.insert(session, (index, namespace), &mut buffer)
        }
    }

    /// The columns of a namespace have changed: its statements have to be prepared again.
    pub(super) fn columns_changed(&mut self, index: usize) {
        self.prepared.remove(&(index, Method::Copy));
        self.prepared.remove(&(index, Method::Insert));
    }

    /// Hands the rows to the COPY that is open, or to a new one.
    fn stream(
        &mut self,
        session: &mut Session,
        (index, namespace): (usize, &Namespace),
        buffer: &mut Buffer,
    ) -> Result<(), SinkError> {
        let is_full = |open: &Open| open.index != index || open.copy.size() >= COPY_SIZE_MAX;
        if self.copy.as_ref().is_some_and(is_full) {
            self.end_copy(session)?;
        }
        let open = match &mut self.copy {
            Some(open) => open,
            None => {
                let statement = self.prepare(session, (index, namespace), Method::Copy)?;
                let act = act(namespace);
                let client = session.connected(&act)?;
                let copy = session.wait(&act, Copy::begin(&client, &statement))?;
                self.copy.insert(Open { index, act, copy })
            }
        };
        let capacity = buffer.tuples.len().min(2 * CHUNK_SIZE);
        let chunk = std::mem::replace(&mut buffer.tuples, Vec::with_capacity(capacity));
        let rows = std::mem::take(&mut buffer.rows);
        Ok(session.wait(&open.act, open.copy.send(chunk.into(), rows))?)
    }

    /// Ends the open COPY, if there is one; no other request can be made before.
    pub(super) fn end_copy(&mut self, session: &mut Session) -> Result<(), SinkError> {
        let Some(Open { act, copy, .. }) = self.copy.take() else { return Ok(()) };
        let rows = session.wait(&act, copy.finish())?;
        Ok(check(session, &act, rows)?)
    }

    fn insert(
        &mut self,
        session: &mut Session,
        (index, namespace): (usize, &Namespace),
        buffer: &mut Buffer,
    ) -> Result<(), SinkError> {
        let act = act(namespace);
        self.end_copy(session)?;
        let statement = self.prepare(session, (index, namespace), Method::Insert)?;
        let types = namespace.schema.columns().iter().map(|column| tuple::type_oid(column.ty));
        let types = [20, 20].into_iter().chain(types).chain([17]);
        let width = namespace.schema.columns().len() + tuple::FIXED_FIELDS;
        let rows = std::mem::take(&mut buffer.rows);
        let count = u32::try_from(rows).ok();
        let fields = tuple::columns(&buffer.tuples, width).zip(count);
        buffer.tuples.clear();
        // They were encoded here, so invalid tuples would be a bug.
        let (fields, count) =
            fields.ok_or_else(|| session.contents(&act, "encoded rows are invalid".to_owned()))?;
        let arrays: Vec<Encoded<Vec<u8>>> = types
            .zip(fields)
            .map(|(oid, fields)| {
                let mut array = Vec::with_capacity(20 + fields.len());
                tuple::begin_array(oid, count, &mut array);
                array.extend_from_slice(&fields);
                Encoded(Some(array))
            })
            .collect();
        let client = session.connected(&act)?;
        let stored = session.wait(&act, client.execute_raw(&statement, arrays))?;
        Ok(check(session, &act, Stored { stored, sent: rows })?)
    }

    fn prepare(
        &mut self,
        session: &mut Session,
        (index, namespace): (usize, &Namespace),
        method: Method,
    ) -> Result<Statement, SinkError> {
        if let Some(statement) = self.prepared.get(&(index, method)) {
            return Ok(statement.clone());
        }
        let sql = match method {
            Method::Copy => session.layout.copy(namespace),
            Method::Insert => session.layout.insert(namespace),
        };
        let act = act(namespace);
        let client = session.connected(&act)?;
        let statement = session.wait(&act, client.prepare(&sql))?;
        if self.prepared.len() >= PREPARED_MAX {
            self.prepared.clear();
        }
        self.prepared.insert((index, method), statement.clone());
        Ok(statement)
    }
}

fn act(namespace: &Namespace) -> String {
    format!("write to {}", namespace.name)
}

/// Fails if rows are missing.
fn check(session: &Session, act: &str, rows: Stored) -> Result<(), ServerError> {
    rows.check().map_err(|found| session.contents(act, found))
}
