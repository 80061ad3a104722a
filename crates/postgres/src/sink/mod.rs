//! Tables and documents in a schema of PostgreSQL.
//!
//! Every namespace is a table: the documents in `_document`, byte for byte, beside columns of the
//! values extracted from them. The layout is described in `docs/formats/postgres-sink.md`.
//!
//! From the bottom: `settings`, `layout` (SQL), `tuple` (rows as bytes), `session` (the
//! connection that writes), `load` (COPY and INSERT), `reshape` (changed columns), `writer` (the
//! traits of writers).
//!
//! Invariants:
//! * One [`PostgresSink`] writes a schema: it holds the schema's advisory lock as long as its
//!   session lives, and also locks the row of the position in each transaction. (A pooler that
//!   assigns sessions by transaction would break the first of these, not the second.)
//! * Rows, columns, counts and the position change in one transaction, which the server has on its
//!   disk when [`commit`](forebay_sink::Sink::commit) returns (`synchronous_commit` is never `off`), so
//!   that a checkpoint has nothing to do.
//! * [`position`](forebay_sink::Sink::position) changes only by a commit and by a roll-back. A lost
//!   connection is replaced by the next of them or by the next write. If the position or the sink
//!   differs then from what was left, that is an error (of the commit at the latest), not a silent
//!   gap.

mod layout;
mod load;
mod reshape;
mod session;
mod settings;
mod tuple;
mod writer;

use forebay_sink::server::book::{Book, Commit};
use forebay_sink::transaction::Transaction;
use forebay_sink::{Identity, OpenError, Position, Sink, SinkError};

use load::Load;
use session::Session;

pub use layout::LAYOUT_VERSION;
pub use load::COPY_ABOVE_ROWS;
pub use settings::Settings;

/// What is attempted when a transaction begins.
const BEGIN: &str = "begin a transaction";

/// Writes tables and documents into a PostgreSQL; see the [module](self).
///
/// Its calls block, waiting for a separate thread: they must not be made in tasks of a runtime.
#[derive(Debug)]
pub struct PostgresSink {
    load: Load,
    session: Session,
    book: Book,
}

impl PostgresSink {
    /// Connects and opens the sink; creates its schema and tables if they do not exist.
    ///
    /// # Errors
    /// [`OpenError::Server`]: the settings, the connection, the server, another writer, or its
    /// contents under these names; [`OpenError::is_transient`] shows whether to try again.
    pub fn open(settings: &Settings) -> Result<PostgresSink, OpenError> {
        let mut session = Session::new(settings)?;
        session.connect()?;
        let book = session.read()?;
        Ok(PostgresSink { load: Load::default(), session, book })
    }

    /// Opens a transaction unless one is open.
    fn begin(&mut self) -> Result<(), SinkError> {
        match self.book.transaction {
            Transaction::Open { .. } => return Ok(()),
            Transaction::Failed => return Err(SinkError::RolledBack),
            Transaction::Idle => {}
        }
        if self.session.connect()? {
            self.load.forget();
            let book = self.session.read()?;
            self.compare(book.identity, book.position)?;
            let amends = self.book.amends;
            self.book = book;
            self.book.amends = amends;
        }
        self.session.begin(BEGIN, self.session.layout.begin())?;
        self.book.transaction = Transaction::Open { written: None };
        Ok(())
    }

    /// Waits until the transaction has begun, unless that is done, and checks that the sink is as
    /// it was left: no one else changes it from then on.
    fn confirm(&mut self) -> Result<(), SinkError> {
        let Some(answer) = self.session.begun(BEGIN)? else { return Ok(()) };
        let (identity, position) =
            layout::parse_state(&answer).map_err(|found| self.session.contents(BEGIN, found))?;
        self.compare(identity, position)
    }

    /// Checks that the sink is as it was left.
    fn compare(&self, identity: Identity, found: Option<Position>) -> Result<(), SinkError> {
        let expected = self.book.position;
        if (identity, found) == (self.book.identity, expected) {
            return Ok(());
        }
        Err(SinkError::Moved { server: self.session.place.clone(), found, expected })
    }

    /// Ends a failed transaction, also on the server, where it would block others.
    fn abandon(&mut self) {
        self.load.forget();
        self.session.forget();
        self.book.transaction = Transaction::Failed;
        if self.session.client().is_some() && self.session.ask("roll back", "ROLLBACK").is_err() {
            // The server rolls back what a connection leaves behind.
            self.session.disconnect();
        }
    }

    /// Returns `result`; an error ends the transaction.
    fn settle<T>(&mut self, result: Result<T, SinkError>) -> Result<T, SinkError> {
        let result = match result {
            // If the transaction did not even begin, that is why the rest was refused.
            Err(SinkError::Server(error)) => {
                Err(self.confirm().err().unwrap_or(SinkError::Server(error)))
            }
            result => result,
        };
        if result.is_err() {
            self.abandon();
        }
        result
    }

    fn store(&mut self, position: Position) -> Result<(), SinkError> {
        match self.book.commit(position)? {
            Commit::Nothing => {
                self.book.amends = false;
                return Ok(());
            }
            Commit::Begin => self.begin()?,
            Commit::Store => {}
        }
        self.load.flush_all(&mut self.session, &self.book)?;
        self.confirm()?;
        let sql = self.session.layout.commit(self.book.dirty(), position);
        match self.session.ask("commit", &sql) {
            Ok(_) => {}
            Err(source) if source.is_unreachable() => {
                return Err(SinkError::CommitInDoubt { position, source });
            }
            Err(source) => return Err(source.into()),
        }
        self.book.committed(position);
        Ok(())
    }
}

impl Sink for PostgresSink {
    fn position(&self) -> Option<Position> {
        self.book.position
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.book.identity)
    }

    fn commit(&mut self, position: Position) -> Result<(), SinkError> {
        let stored = self.store(position);
        self.settle(stored)
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        self.book.amends = false;
        if self.book.transaction == Transaction::Idle {
            return Ok(());
        }
        self.abandon();
        let read = self.session.connect().and_then(|_| self.session.read());
        self.book = read.map_err(|error| SinkError::Reread(error.into()))?;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        Ok(self.book.position)
    }
}
