//! The traits that sources and destinations implement, independent of any connector.
//!
//! A *stream* is a table, a collection or a set of files. A source opens it for one run and divides
//! it into *units*. Every unit is read and committed separately, with its ledger entry in the same
//! transaction. So a run can be killed at any point: what the ledger lists is stored, once, and
//! what it does not list is not stored at all.
//!
//! Invariants every connector keeps (the suite `acceptance` checks them):
//! * Reading a unit twice gives the same rows, as long as the stream is open.
//! * Nothing given to a writer is visible before `commit`, and everything is after it.
//! * If `commit` fails, nothing of the unit is stored; if the outcome is unknown, `last_load` shows
//!   it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use forebay_pgcopy::{Column, ContentHash};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Rows};
use crate::changes::feed::{ChangeSource, FeedTarget};
use crate::error::ConnectorError;
use crate::run::{Context, Outlet};
use crate::settings::{StreamSettings, TargetSettings};

/// The result of a connector's operation.
pub type Result<T, E = ConnectorError> = std::result::Result<T, E>;

/// A stream of a source.
#[derive(Debug, Clone, Serialize)]
pub struct Discovered {
    /// Its name, as in `streams[].name`.
    pub name: String,
    /// Its columns: name, type, and whether they are nullable.
    pub columns: Vec<DiscoveredColumn>,
    /// Names of the columns of its key, if it has one.
    pub primary_key: Vec<String>,
    /// Estimated number of rows, if the source knows it.
    pub rows: Option<u64>,
    /// Estimated size in bytes, if the source knows it.
    pub bytes: Option<u64>,
}

/// A column of a stream of a source.
#[derive(Debug, Clone, Serialize)]
pub struct DiscoveredColumn {
    /// Its name.
    pub name: String,
    /// Its type, as the source names it.
    #[serde(rename = "type")]
    pub sql_type: String,
    /// Whether it is nullable.
    pub nullable: bool,
    /// What is lost or changed in transit, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The requested form of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// [`Rows::Tuples`] if the source supports them, otherwise as `Records`; types as in the
    /// source.
    Tuples,
    /// [`Rows::Records`], for a PostgreSQL: values of types without an Arrow form as their binary
    /// representation.
    Records,
    /// [`Rows::Records`], for any other destination: values of types without an Arrow form as text.
    PlainRecords,
}

/// How a stream may be divided into units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// Into one: its rows become visible at once, and nothing else separates them from earlier
    /// ones.
    Whole,
    /// Into units whose rows are the same in a later run, or into one.
    Stable,
    /// In any way. Rows that are read again replace those that were read before.
    Any,
    /// Into the units of an unfinished load. A source that cannot reproduce them refuses.
    As(Vec<Unit>),
}

/// How to open a stream.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The form of rows.
    pub form: Form,
    /// Only rows after this cursor; all if it is `None`.
    pub since: Option<Cursor>,
    /// How it may be divided into units.
    pub division: Division,
    /// Approximate size of a unit in bytes.
    pub unit_size: u64,
    /// Maximum size of a batch in bytes.
    pub batch_size: usize,
    /// Maximum memory in bytes that a reader may use for decoding.
    pub memory: usize,
    /// Number of units read in parallel.
    pub parallelism: usize,
    /// A snapshot that is held elsewhere, in which everything is read. If it is lost, reading fails.
    pub snapshot: Option<String>,
}

/// How far an incremental stream was read: the values of cursor and tie-breaker of the last row, as
/// the source writes them. Only the source that created it can interpret it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = PipelineCursor)]
pub struct Cursor {
    /// Value of the cursor field.
    pub value: String,
    /// Value of the tie-breaker field, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tie_breaker: Option<String>,
    /// Number of rows with this value that were read, if the source counts them: with more of them
    /// in the next run, some of them are new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rows_at: Option<u64>,
    /// Timeline of the server that was read, if it has one: another one in the next run shows that it
    /// was promoted or restored, and may have lost rows that were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub timeline: Option<u32>,
    /// Name of the cursor field. The engine records it with a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// Name of the tie-breaker field, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tie_breaker_field: Option<String>,
}

impl Cursor {
    /// A cursor with these values of the last row.
    #[must_use]
    pub fn new(value: String, tie_breaker: Option<String>) -> Self {
        Self { value, tie_breaker, ..Self::default() }
    }

    /// Whether nothing was added between two cursors of the same fields.
    #[must_use]
    pub fn is_at(&self, other: &Self) -> bool {
        self.value == other.value
            && self.tie_breaker == other.tie_breaker
            && self.rows_at == other.rows_at
    }

    /// The error for a value than which none is greater: everything that is added later would be missed.
    ///
    /// * `of`: the table or collection.
    #[must_use]
    pub fn endless(&self, of: &str, field: &str) -> ConnectorError {
        ConnectorError::unsupported(
            format!(
                "the last value of the cursor {field:?} of {of} is {}: no later value is greater, so \
                 rows that are added later would be missed",
                self.value
            ),
            "give these rows another value or none, or set `sync_mode: full_refresh`",
        )
    }

    /// The warning about rows that only the first run of a stream reads, since they have no place in the
    /// order of its cursor.
    ///
    /// * `of`: the table or collection.
    /// * `rows`: their number now, with those that the first run has read.
    #[must_use]
    pub fn unordered(of: &str, field: &str, rows: u64) -> String {
        format!(
            "{rows} rows of {of} have no value in {field:?} that can be compared with the last one: those \
             that were added after the first run are not read. Give them a value, or set `sync_mode: \
             full_refresh`"
        )
    }

    /// The error for rows that were added at or before this cursor since it was read.
    ///
    /// * `of`: the table or collection.
    /// * `late`: their number.
    #[must_use]
    pub fn late(&self, of: &str, field: &str, late: u64) -> ConnectorError {
        ConnectorError::unsupported(
            format!(
                "{late} rows with {field} = {:?}, the last value of the previous run, were added to \
                 {of} since then, and nothing distinguishes them from those that were read",
                self.value
            ),
            "set `tie_breaker_field` to a column that increases, or use `write_mode: upsert`, which \
             reads rows with the last value again; then remove the rows at the destination and run \
             `forebay pipeline reset`",
        )
    }
}

/// A part of a stream that is committed as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its name, and the key of its ledger entry: `all`, `id 1..5000`, `file a.csv`.
    pub name: String,
    /// Its start, as the source writes it, unless it starts with the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Its end, unless it ends with the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Estimated number of rows, if known.
    pub rows: Option<u64>,
    /// Estimated size in bytes, if known.
    pub bytes: Option<u64>,
}

/// A source of rows.
#[async_trait]
pub trait Source: Send + Sync {
    /// Connects and reports what answered.
    async fn check(&self) -> Result<String>;

    /// Lists all streams.
    async fn discover(&self) -> Result<Vec<Discovered>>;

    /// Prepares to open streams, if that takes time, while the destination is inspected. A failure
    /// here is reported where the result is needed.
    async fn warm(&self, _context: &Context) {}

    /// Returns what identifies the table that a stream is read from. A destination of the same connector
    /// returns the same for this table, and a run from a table to itself is refused. `None` if it is not
    /// known.
    async fn place(&self, _stream: &StreamSettings) -> Result<Option<String>> {
        Ok(None)
    }

    /// The changes of its streams; `None` if it reports none.
    fn changes(&self) -> Option<&dyn ChangeSource> {
        None
    }

    /// Opens a stream as it is open elsewhere: the same units, with the same rows.
    ///
    /// * `opening`: that of the stream; its division does not count.
    /// * `handle`: [`SourceStream::handle`] of the open stream.
    async fn attach(
        &self,
        stream: &StreamSettings,
        _opening: &Opening,
        _handle: &[u8],
        _context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        Err(ConnectorError::unsupported(
            format!("{:?} cannot be read by several instances", stream.name),
            "let the one that opened it read all units",
        ))
    }

    /// Opens a stream for a run. From here on it does not change.
    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>>;
}

/// An open stream.
#[async_trait]
pub trait SourceStream: Send + Sync {
    /// Its columns, in order. Batches have exactly these.
    fn columns(&self) -> &[Column];

    /// Its units; at least one.
    fn units(&self) -> &[Unit];

    /// Whether a unit of the same name has the same rows in a later run, so that an interrupted run
    /// can continue instead of starting again.
    fn units_are_stable(&self) -> bool;

    /// The cursor once all units are committed, for an incremental stream.
    fn cursor(&self) -> Option<Cursor>;

    /// Notes for a reader of the plan: how rows are read, what is left out or changed.
    fn notes(&self) -> Vec<String>;

    /// What another process attaches to it with ([`Source::attach`]), as long as it is open; `None` if none can.
    fn handle(&self) -> Option<Vec<u8>> {
        None
    }

    /// Reads a complete unit into `out`.
    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()>;
}

/// A destination's record of a unit, in the transaction that has its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the stream.
    pub stream: String,
    /// The load it belongs to. A load continues through as many runs as it takes.
    pub load: String,
    /// The run that committed it.
    pub run: String,
    /// The unit.
    pub unit: String,
    /// Number of rows written.
    pub rows: u64,
    /// Number of rows stored as dead letters.
    pub dead: u64,
    /// The content hash of the rows written ([`ContentHash`]).
    pub hash: String,
}

/// The loads of one run, together: a run that failed with some of them continues with the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Its id; greater than that of every earlier round. Empty for a load that belongs to none.
    pub id: String,
    /// The caller's name for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The streams that it copies completely.
    pub streams: Vec<String>,
    /// The names of earlier rounds that are complete, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<String>,
}

/// A load, as recorded at a destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Its id.
    pub id: String,
    /// A hash of what it copies: columns and settings. A load only continues with the same.
    pub fingerprint: String,
    /// The units it has.
    pub units: Vec<Unit>,
    /// The cursor when it started.
    #[serde(default)]
    pub since: Option<Cursor>,
    /// Whether a later run can continue it: its units are stable.
    pub is_stable: bool,
    /// What it was started with.
    #[serde(default)]
    pub round: Round,
    /// Whether it is finished.
    pub is_finished: bool,
    /// The cursor once it is finished.
    pub cursor: Option<Cursor>,
}

/// A destination of rows.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Connects and reports what answered.
    async fn check(&self) -> Result<String>;

    /// The form of rows it prefers.
    fn form(&self) -> Form;

    /// The last load of a stream, if any, and its entries. Changes nothing.
    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>>;

    /// Deletes the records of all loads of a stream, so that the next run starts as if there had
    /// been none. The rows stay. Returns the number of loads. The caller has to hold a claim.
    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        Err(ConnectorError::unsupported(
            "this destination cannot delete the records of loads and keep their rows",
            format!("remove {:?} at the destination, including its ledger", target.into),
        ))
    }

    /// Returns what identifies the table that a stream is written to; see [`Source::place`].
    async fn place(&self, _target: &TargetSettings) -> Result<Option<String>> {
        Ok(None)
    }

    /// Ensures that no other run writes this stream and that nothing is left of a killed one, until
    /// the result is dropped.
    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>>;

    /// What applies changes; `None` if it cannot.
    fn feeds(&self) -> Option<&dyn FeedTarget> {
        None
    }

    /// Prepares to inspect the target of a stream while its source is opened. A failure here is
    /// reported where the result is needed.
    async fn warm(&self, _target: &TargetSettings) {}

    /// Inspects the target of a stream, and changes nothing.
    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>>;
}

/// A guarantee that only one run writes a stream.
pub trait Claim: Send + Sync {}

/// The target of a stream.
#[async_trait]
pub trait Target: Send + Sync {
    /// What [`prepare`](Self::prepare) will do, in the destination's terms (SQL, paths).
    fn plan(&self) -> Vec<String>;

    /// Whether it accepts [`Rows::Tuples`]: its columns are the same as the source's.
    fn takes_tuples(&self) -> bool;

    /// Prepares for a load: creates or alters tables, and records the load in the ledger. If the
    /// load exists already, it continues with the units that its entries name. The remains of any
    /// other are removed.
    async fn prepare(&self, load: &Load) -> Result<()>;

    /// Prepares for this many concurrent writers, while [`prepare`](Self::prepare) is running. A
    /// failure here is reported where the result is needed.
    async fn warm(&self, _writers: usize) {}

    /// A writer for one unit. Several are open at once, and none waits for another before it
    /// commits: all of them share one limit on memory.
    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>>;

    /// Ends the load: makes the rows of a `replace` visible and stores the cursor, atomically.
    async fn finish(&self, load: &Load) -> Result<()>;

    /// The columns that it stores, if they are not those of the stream: some are left out, as
    /// `schema_evolution.new_column: ignore` requests, or have another type here.
    fn stored(&self) -> Option<Vec<Column>> {
        None
    }

    /// Rows of the stream as they are read back: without columns that are left out, and with the
    /// values that the destination stores in place of others that are equal to them.
    ///
    /// # Errors
    /// They have not the columns of the stream.
    fn as_stored(&self, rows: &RecordBatch) -> Result<RecordBatch> {
        Ok(rows.clone())
    }

    /// The content hash of all stored rows, in the columns that it stores.
    async fn content(&self) -> Result<ContentHash>;
}

/// Writes one unit.
#[async_trait]
pub trait UnitWriter: Send {
    /// Writes rows.
    async fn write(&mut self, batch: Batch) -> Result<()>;

    /// Commits the rows and the entry that names them. The writer fills in rows, dead letters and
    /// hash, and returns the entry as written.
    async fn commit(self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry>;
}

/// Rows in another form, for a connector that has to look inside.
impl Rows {
    /// Whether they are Arrow.
    #[must_use]
    pub fn is_records(&self) -> bool {
        matches!(self, Self::Records(_))
    }
}
