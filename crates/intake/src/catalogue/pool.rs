//! Connections for reading that keep their snapshot from one query to the next.
//!
//! Taking a snapshot and giving it up costs two system calls, half of the time of a look-up. So a
//! connection keeps its own until the writer commits the next transaction.
//!
//! Invariants: a query that begins after a commit has returned sees it; while a transaction is being
//! written no idle connection holds a snapshot, which would keep SQLite from using its log from the
//! beginning again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::rows::Checked;
use super::schema;
use crate::error::CatalogueError;

/// Idle connections kept open.
const IDLE_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Reader>>,
    /// Number of transactions that the writer has begun and ended: odd while one is being written.
    steps: AtomicU64,
}

/// A connection, and the value of [`Pool::steps`] when its transaction began, if it has one.
#[derive(Debug)]
struct Reader {
    connection: Connection,
    snapshot: Option<u64>,
}

/// A transaction that is being written. Queries that begin once this is dropped see it.
#[derive(Debug)]
pub(super) struct Writing<'a>(&'a Pool);

impl Pool {
    pub(super) fn new(path: &Path) -> Self {
        let (idle, steps) = (Mutex::default(), AtomicU64::new(0));
        Self { path: path.to_owned(), idle, steps }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a first connection.
    pub(super) fn prepare(&self) -> Result<(), CatalogueError> {
        let reader = Reader { connection: schema::open_reader(&self.path)?, snapshot: None };
        self.idle.lock().push(reader);
        Ok(())
    }

    /// Answers from one state of the catalogue, which has every transaction that was committed before.
    pub(super) fn ask<T>(
        &self,
        question: impl FnOnce(&Connection) -> Checked<T>,
    ) -> Result<Checked<T>, CatalogueError> {
        let now = self.steps.load(Ordering::Acquire);
        let idle = self.idle.lock().pop();
        let mut reader = match idle {
            Some(reader) => reader,
            None => Reader { connection: schema::open_reader(&self.path)?, snapshot: None },
        };
        let answer =
            reader.see(now).map_err(Into::into).and_then(|()| question(&reader.connection));
        // A failure may have ended the transaction.
        if answer.is_ok() || reader.end().is_ok() {
            self.put_back(reader);
        }
        Ok(answer)
    }

    fn put_back(&self, mut reader: Reader) {
        let mut idle = self.idle.lock();
        if idle.len() == IDLE_MAX {
            return;
        }
        // Under the lock, which the writer takes after it has announced a transaction.
        let now = self.steps.load(Ordering::Acquire);
        let is_current = now.is_multiple_of(2) && reader.snapshot == Some(now);
        if is_current || reader.end().is_ok() {
            idle.push(reader);
        }
    }

    /// Announces a transaction.
    pub(super) fn write(&self) -> Writing<'_> {
        self.steps.fetch_add(1, Ordering::AcqRel);
        self.idle.lock().retain_mut(|reader| reader.end().is_ok());
        Writing(self)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.steps.fetch_add(1, Ordering::AcqRel);
    }
}

impl Reader {
    /// Begins a transaction that sees everything committed up to `now`, or keeps one that does.
    fn see(&mut self, now: u64) -> rusqlite::Result<()> {
        if self.snapshot == Some(now) && now.is_multiple_of(2) {
            return Ok(());
        }
        self.end()?;
        self.connection.prepare_cached("BEGIN")?.execute([])?;
        self.snapshot = Some(now);
        Ok(())
    }

    /// Ends the transaction, if there is one.
    fn end(&mut self) -> rusqlite::Result<()> {
        if self.snapshot.take().is_some() && !self.connection.is_autocommit() {
            self.connection.prepare_cached("ROLLBACK")?.execute([])?;
        }
        Ok(())
    }
}
