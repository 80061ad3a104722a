//! Tables and documents in one SQLite database.
//!
//! Every namespace is a table: the documents in `_document`, byte for byte, beside columns of the
//! values extracted from them. A namespace without such columns is a collection, and becomes a
//! table with its first column. The layout is described in `docs/formats/sqlite-sink.md`.
//!
//! Invariants:
//! * One [`SqliteSink`] writes a database; any number of [`SqliteReader`]s read it meanwhile.
//! * Rows, columns, counts and the position change in one transaction (write-ahead log,
//!   `synchronous = NORMAL`: a commit survives the process at once, the machine from the next
//!   checkpoint on).
//! * Every row has a checksum, every namespace the count and digest of its rows, the database those of
//!   its namespaces, all stored in the transaction that changes them: what does not match is an
//!   error, never a row, and never a missing one.
//! * The sink's state in memory equals the database's: it is read again after a roll-back and when
//!   another connection has written.

mod changes;
mod check;
mod fault;
mod history;
mod layout;
mod reader;
mod reshape;
mod rows;
mod state;
mod upgrade;
mod writer;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_sink::schema::Plan;
use forebay_sink::transaction::{Transaction, check_number};
use forebay_sink::{Field, Identity, OpenError, Position, Sink, SinkError, TableSchema};
use rusqlite::{Connection, OpenFlags};

use fault::{Checked, open_error, sink_error};
use history::Moment;
use layout::Namespace;
use state::State;

pub use changes::{Change, ChangeKind, ChangePage};
pub use check::{Damage, Extent};
pub use history::{CHANGES_MAX as COLUMN_CHANGES_MAX, ColumnChange, SchemaHistory};
pub use layout::{APPLICATION_ID, LAYOUT_VERSION};
pub use reader::{
    DocumentPage, NamespaceInfo, OwnedValue, PageLimits, RowPage, SqliteReader, StoredRow,
};

/// Writes tables and documents into an SQLite database; see the [module](self).
#[derive(Debug)]
pub struct SqliteSink {
    connection: Connection,
    path: PathBuf,
    /// As it is committed.
    state: State,
    namespaces: HashMap<String, Namespace>,
    transaction: Transaction,
    /// The namespaces written to since the last commit.
    dirty: Vec<String>,
    /// Whether writes at the position itself are admitted.
    amends: bool,
    /// When what is written was received, in milliseconds since 1970.
    received_ms: u64,
    /// SQLite's count of other connections' commits when `namespaces` was read.
    data_version: i64,
}

impl SqliteSink {
    /// Opens the database at `path`; creates it if it does not exist or is empty, and upgrades one of
    /// an older layout.
    ///
    /// # Errors
    /// [`OpenError::Foreign`] and [`OpenError::Version`] when the file is something else,
    /// [`OpenError::Corrupt`] when it is damaged, otherwise what SQLite or the system said.
    pub fn open(path: &Path) -> Result<SqliteSink, OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |act| move |source| open_error(act, path, source);
        let connection =
            Connection::open_with_flags(path, flags).map_err(failed("open the database"))?;
        let fresh = layout::prepare_writer(&connection, path)?;
        let (state, namespaces) = read_state(&connection)
            .map_err(|fault| open_error("read the namespaces", path, fault))?;
        let data_version = data_version(&connection).map_err(failed("read the data version"))?;
        let sink = SqliteSink {
            connection,
            path: path.to_owned(),
            state,
            namespaces,
            transaction: Transaction::Idle,
            dirty: Vec::new(),
            amends: false,
            received_ms: 0,
            data_version,
        };
        if fresh {
            // The identity must not change when the machine stops before the first checkpoint.
            sink.sync_wal().map_err(|source| OpenError::Io {
                act: "sync the new database",
                path: path.to_owned(),
                source,
            })?;
        }
        Ok(sink)
    }

    /// The identity of the database.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.state.identity
    }

    /// Gives a database without any commit another identity, on stable storage.
    ///
    /// # Errors
    /// SQLite or the system failed; the identity is the earlier one.
    pub fn set_identity(&mut self, identity: Identity) -> Result<(), OpenError> {
        let state = State { identity, ..self.state };
        state::save_state(&self.connection, &state)
            .map_err(|source| open_error("record the identity", &self.path, source))?;
        self.state = state;
        self.sync_wal().map_err(|source| OpenError::Io {
            act: "sync the identity",
            path: self.path.clone(),
            source,
        })
    }

    /// Path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A reader of the same database.
    ///
    /// # Errors
    /// As [`SqliteReader::open`].
    pub fn reader(&self) -> Result<SqliteReader, OpenError> {
        SqliteReader::open(&self.path)
    }

    /// The columns of `namespace`, those of the open transaction included; `None` when it does not
    /// exist.
    #[must_use]
    pub fn schema(&self, namespace: &str) -> Option<&TableSchema> {
        self.namespaces.get(namespace).map(|found| &found.schema)
    }

    /// What each namespace holds as of the last commit. Not to be called in a transaction, whose
    /// rows would be counted.
    #[must_use]
    pub fn extents(&self) -> Vec<Extent> {
        let extent = |namespace: &Namespace| {
            let row = &namespace.row;
            Some(Extent { namespace: row.name.clone(), rows: row.rows, last_id: row.last_id? })
        };
        let mut extents: Vec<Extent> = self.namespaces.values().filter_map(extent).collect();
        extents.sort_by(|a, b| a.namespace.cmp(&b.namespace));
        extents
    }

    /// Marks a namespace that exists as one whose decision between table and collection is still to
    /// be made, or as decided. Part of the open transaction.
    ///
    /// # Errors
    /// [`SinkError::RolledBack`] without an open transaction.
    pub fn set_undecided(&mut self, namespace: &str, undecided: bool) -> Result<(), SinkError> {
        let Transaction::Open { .. } = self.transaction else { return Err(SinkError::RolledBack) };
        if self.namespaces.get(namespace).is_some_and(|found| found.row.undecided != undecided) {
            self.touch(namespace);
            if let Some(found) = self.namespaces.get_mut(namespace) {
                found.row.undecided = undecided;
            }
        }
        Ok(())
    }

    /// Sets when what is written from here on was received, which is recorded with changes of columns.
    ///
    /// * `received_ms`: in milliseconds since 1970; a time before is recorded as 1970.
    pub fn set_received(&mut self, received_ms: i64) {
        self.received_ms = u64::try_from(received_ms).unwrap_or(0);
    }

    /// When and where columns change that a write at `at` changes.
    fn moment(&self, at: Position) -> Moment {
        Moment { at: at.0, received_ms: self.received_ms }
    }

    /// Whether writes of `at` were committed before.
    fn is_committed(&self, at: Position) -> bool {
        self.state.position.is_some_and(|stored| at < stored || (at == stored && !self.amends))
    }

    /// Adds a namespace to those that the next commit saves.
    fn touch(&mut self, name: &str) {
        if let Some(namespace) = self.namespaces.get_mut(name).filter(|found| !found.dirty) {
            namespace.dirty = true;
            self.dirty.push(name.to_owned());
        }
    }

    /// Opens a transaction unless one is open.
    fn begin(&mut self) -> Result<(), SinkError> {
        match self.transaction {
            Transaction::Open { .. } => return Ok(()),
            Transaction::Failed => return Err(SinkError::RolledBack),
            Transaction::Idle => {}
        }
        let began = self.connection.prepare_cached(layout::BEGIN).and_then(|mut begin| {
            begin.execute([])?;
            data_version(&self.connection)
        });
        let version = began.map_err(|source| {
            self.transaction = Transaction::Failed;
            sink_error("begin a transaction", &self.path, source)
        })?;
        self.transaction = Transaction::Open { written: None };
        if version != self.data_version {
            self.reload()?;
            self.data_version = version;
        }
        Ok(())
    }

    /// Reads the state of the database again.
    fn reload(&mut self) -> Result<(), SinkError> {
        match read_state(&self.connection) {
            Ok((state, namespaces)) => {
                self.state = state;
                self.namespaces = namespaces;
                self.dirty.clear();
                Ok(())
            }
            Err(source) => {
                abandon(&self.connection, &mut self.transaction);
                Err(sink_error("read the namespaces", &self.path, source))
            }
        }
    }

    /// Stores counts, digests and position, and commits.
    fn store(&mut self, position: Position) -> Checked<()> {
        let mut state = State { position: Some(position), ..self.state };
        for name in self.dirty.drain(..) {
            let Some(Namespace { row, schema, stored, reshaped, dirty, .. }) =
                self.namespaces.get_mut(&name)
            else {
                continue;
            };
            if *reshaped {
                row.schema_checksum = state::current_schema_checksum(
                    &self.connection,
                    &row.name,
                    &row.table,
                    schema,
                    &history::read(&self.connection, &row.name)?,
                )?;
                *reshaped = false;
            }
            if let Some(before) = *stored {
                state.namespaces.remove(before);
            }
            let checksum = state::save_namespace(&self.connection, row)?;
            state.namespaces.insert(checksum);
            *stored = Some(checksum);
            *dirty = false;
        }
        state::save_state(&self.connection, &state)?;
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.state = state;
        self.amends = false;
        Ok(())
    }

    /// Flushes the write-ahead log and the directory that names it.
    ///
    /// Flushing through another descriptor of the same file is enough, and closing one drops no
    /// lock: SQLite's locks are on the database and the shared memory, never on the log.
    fn sync_wal(&self) -> io::Result<()> {
        match File::open(layout::wal_path(&self.path)) {
            Ok(wal) => wal.sync_all()?,
            // Everything has been moved to the database, which was flushed then.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match self.path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
            _ => File::open(".")?.sync_all(),
        }
    }
}

impl Sink for SqliteSink {
    fn position(&self) -> Option<Position> {
        self.state.position
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.state.identity)
    }

    fn commit(&mut self, position: Position) -> Result<(), SinkError> {
        check_number("position", position.0)?;
        match self.transaction {
            Transaction::Failed => return Err(SinkError::RolledBack),
            Transaction::Idle if self.state.position.is_some_and(|stored| position <= stored) => {
                self.amends = false;
                return Ok(());
            }
            Transaction::Idle => self.begin()?,
            Transaction::Open { written } => {
                let ahead = written.or(self.state.position).filter(|&written| written > position);
                if let Some(written) = ahead {
                    abandon(&self.connection, &mut self.transaction);
                    return Err(SinkError::PositionBehind { position, written });
                }
            }
        }
        if let Err(source) = self.store(position) {
            abandon(&self.connection, &mut self.transaction);
            return Err(sink_error("commit", &self.path, source));
        }
        self.transaction = Transaction::Idle;
        Ok(())
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        self.amends = false;
        if self.transaction == Transaction::Idle {
            return Ok(());
        }
        if !self.connection.is_autocommit() {
            self.connection
                .execute_batch("ROLLBACK")
                .map_err(|source| sink_error("roll back", &self.path, source))?;
        }
        self.transaction = Transaction::Failed;
        self.reload()?;
        self.transaction = Transaction::Idle;
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        self.sync_wal().map_err(|source| SinkError::Io {
            act: "sync the write-ahead log of",
            path: self.path.clone(),
            source,
        })?;
        // Everything is safe from here on. Moving it to the database keeps the log short; a
        // concurrent reader only delays that, so it is not waited for.
        if self.connection.is_autocommit() {
            let moved = self.connection.busy_timeout(Duration::ZERO).and_then(|()| {
                let move_all = "PRAGMA wal_checkpoint(TRUNCATE)";
                self.connection.query_row(move_all, [], |_| Ok(()))
            });
            self.connection
                .busy_timeout(layout::BUSY_TIMEOUT)
                .and(moved)
                .map_err(|source| sink_error("checkpoint", &self.path, source))?;
        }
        Ok(self.state.position)
    }
}

/// The SQL that would add columns for `fields` to a namespace with the given schema (`None` if it
/// does not exist yet), and the resulting schema. Runs nothing.
#[must_use]
pub fn plan(
    namespace: &str,
    schema: Option<&TableSchema>,
    fields: &[Field<'_>],
) -> (Vec<String>, Plan) {
    let table = layout::table_name(namespace);
    let Some(schema) = schema else {
        let plan = TableSchema::default().plan_beside(fields, layout::ROWID_NAMES);
        return (vec![layout::create_table(&table, &plan.added)], plan);
    };
    let plan = schema.plan_beside(fields, layout::ROWID_NAMES);
    let statements = plan.added.iter().map(|column| layout::add_column(&table, column));
    (statements.collect(), plan)
}

/// The schema of a table that is made again with a column for each of `fields`, and their columns.
/// Runs nothing.
#[must_use]
pub fn reshaped(schema: &TableSchema, fields: &[Field<'_>]) -> (TableSchema, Plan) {
    schema.reshaped(fields, layout::ROWID_NAMES)
}

/// Reads the state and the namespaces, and verifies both.
fn read_state(connection: &Connection) -> Checked<(State, HashMap<String, Namespace>)> {
    let state = state::state(connection)?;
    Ok((state, state::namespaces(connection, &state)?))
}

/// Ends a failed transaction. The caller does not know yet, hence `Failed`; if even the roll-back
/// fails, [`Sink::roll_back`] tries again and reports it.
fn abandon(connection: &Connection, transaction: &mut Transaction) {
    if !connection.is_autocommit() {
        drop(connection.execute_batch("ROLLBACK"));
    }
    *transaction = Transaction::Failed;
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}
