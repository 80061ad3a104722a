//! What a connector is: the traits that sources and destinations implement, and nothing of any of them.
//!
//! A *stream* is a table, a collection or a set of files. A source opens it for one run and says which
//! *units* it falls into; every unit is read on its own and committed on its own, with its ledger entry
//! in the same transaction. So a run can be killed at any point: what the ledger has is there, once, and
//! what it has not is not there at all.
//!
//! Invariants every connector keeps ([`acceptance`](crate::acceptance) checks them):
//! * Reading a unit twice gives the same rows, as long as the stream is open.
//! * Nothing a writer was given is visible before `commit`, and everything is after it.
//! * Where `commit` fails, nothing of the unit is there; where that is unknown, `last_load` tells.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_pgcopy::{Column, ContentHash};
use serde::{Deserialize, Serialize};

use crate::batch::{Batch, Rows};
use crate::config::{StreamSettings, TargetSettings};
use crate::error::ConnectorError;
use crate::run::{Context, Outlet};

/// The result of what a connector does.
pub type Result<T, E = ConnectorError> = std::result::Result<T, E>;

/// A stream a source has.
#[derive(Debug, Clone, Serialize)]
pub struct Discovered {
    /// Its name, as `streams[].name` takes it.
    pub name: String,
    /// What its columns are: name, type, and whether NULL may be in them.
    pub columns: Vec<DiscoveredColumn>,
    /// Names of the columns of its key, if it has one.
    pub primary_key: Vec<String>,
    /// About how many rows it has, where the source knows.
    pub rows: Option<u64>,
    /// About how many bytes it takes, where the source knows.
    pub bytes: Option<u64>,
}

/// A column of a stream a source has.
#[derive(Debug, Clone, Serialize)]
pub struct DiscoveredColumn {
    /// Its name.
    pub name: String,
    /// Its type, in the source's own words.
    #[serde(rename = "type")]
    pub sql_type: String,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// What is lost or made otherwise on the way, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// In which form rows are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// [`Rows::Tuples`] where the source can, else as `Records`; types as they are in the source.
    Tuples,
    /// [`Rows::Records`], for a PostgreSQL: types without an Arrow form as their own bytes.
    Records,
    /// [`Rows::Records`], for anything else: types without an Arrow form as text.
    PlainRecords,
}

/// Into which units a stream may fall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Division {
    /// One: what is written of it is there at once, and nothing keeps what was written before apart.
    Whole,
    /// Those whose rows are the same in a later run, or one.
    Stable,
    /// Any.
    Any,
    /// These, of a load that was not finished. A source that cannot have the same refuses.
    As(Vec<Unit>),
}

/// How a stream is to be opened.
#[derive(Debug, Clone)]
pub struct Opening {
    /// The form of rows.
    pub form: Form,
    /// Rows after this are wanted; all of them where it is `None`.
    pub since: Option<Cursor>,
    /// Into which units it may fall.
    pub division: Division,
    /// About how many bytes a unit should have.
    pub unit_size: u64,
    /// Bytes a batch may have.
    pub batch_size: usize,
    /// Units that are read at once.
    pub parallelism: usize,
}

/// How far an incremental stream was read: the values of cursor and tie-breaker of the last row, as the
/// source writes them. Only the source that made it can read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Value of the cursor field.
    pub value: String,
    /// Value of the tie-breaker field, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tie_breaker: Option<String>,
}

/// A part of a stream that is committed as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// What it is, and the key of its ledger entry: `all`, `id 1..5000`, `file a.csv`.
    pub name: String,
    /// Where it begins, in the source's own words, if it does not begin with the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where it ends, if it does not end with the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// About how many rows it has, if that is known.
    pub rows: Option<u64>,
    /// About how many bytes, if that is known.
    pub bytes: Option<u64>,
}

/// Where rows come from.
#[async_trait]
pub trait Source: Send + Sync {
    /// Connects and says what answered.
    async fn check(&self) -> Result<String>;

    /// All streams there are.
    async fn discover(&self) -> Result<Vec<Discovered>>;

    /// Gets ready to open streams, where that takes time, while the destination is asked what it has. What
    /// fails here is told where it is needed.
    async fn warm(&self, _context: &Context) {}

    /// Opens a stream for a run: from here on it does not change.
    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>>;
}

/// A stream that is open.
#[async_trait]
pub trait SourceStream: Send + Sync {
    /// Its columns, in order. Batches have exactly these.
    fn columns(&self) -> &[Column];

    /// The parts it falls into; at least one.
    fn units(&self) -> &[Unit];

    /// Whether a unit of the same name has the same rows in a later run, so that a run which was killed
    /// can go on instead of starting again.
    fn units_are_stable(&self) -> bool;

    /// What the cursor is once all units are committed, for an incremental stream.
    fn cursor(&self) -> Option<Cursor>;

    /// What a reader of the plan should know: how rows are read, what is left out or made otherwise.
    fn notes(&self) -> Vec<String>;

    /// Reads a unit into `out`, whole.
    async fn read(&self, unit: usize, out: &mut Outlet) -> Result<()>;
}

/// What a destination keeps about a unit, in the transaction that has its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the stream.
    pub stream: String,
    /// The load it belongs to: a load goes on through as many runs as it takes.
    pub load: String,
    /// The run that committed it.
    pub run: String,
    /// The unit.
    pub unit: String,
    /// Rows that were written.
    pub rows: u64,
    /// Rows that were put aside as dead letters.
    pub dead: u64,
    /// The content hash of the rows written ([`ContentHash`]).
    pub hash: String,
}

/// The loads of one run, taken together: a run that failed with some of them goes on with the others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Its id; greater than that of every round before. Empty for a load that belongs to none.
    pub id: String,
    /// What whoever began it calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The streams it copies whole.
    pub streams: Vec<String>,
}

/// A load, as a destination knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Its id.
    pub id: String,
    /// What it copies: columns and settings in one hash. A load only goes on with the same.
    pub fingerprint: String,
    /// The units it has.
    pub units: Vec<Unit>,
    /// What the cursor was when it began.
    #[serde(default)]
    pub since: Option<Cursor>,
    /// Whether a later run can go on with it: its units are stable.
    pub is_stable: bool,
    /// What it was begun with.
    #[serde(default)]
    pub round: Round,
    /// Whether it is over.
    pub is_finished: bool,
    /// What the cursor is once it is over.
    pub cursor: Option<Cursor>,
}

/// Where rows go.
#[async_trait]
pub trait Destination: Send + Sync {
    /// Connects and says what answered.
    async fn check(&self) -> Result<String>;

    /// The form of rows it likes best.
    fn form(&self) -> Form;

    /// The last load of a stream, if it had any, and its entries. Changes nothing.
    async fn last_load(&self, target: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>>;

    /// Forgets all loads of a stream, so that the next run begins as if there had been none; its rows
    /// stay. Returns how many loads that were. Only whoever has a claim may do this.
    async fn forget(&self, target: &TargetSettings) -> Result<u64> {
        Err(ConnectorError::unsupported(
            "this destination cannot forget loads and keep their rows",
            format!("remove {:?} at the destination, ledger and all", target.into),
        ))
    }

    /// Makes sure that no other run writes this stream, nor anything is left of one that was killed. It
    /// stays so until the result is dropped.
    async fn claim(&self, target: &TargetSettings) -> Result<Box<dyn Claim>>;

    /// Gets ready to look at where a stream goes, while its source is opened. What fails here is told where
    /// it is needed.
    async fn warm(&self, _target: &TargetSettings) {}

    /// Looks at where a stream goes, and changes nothing.
    async fn open(
        &self,
        target: &TargetSettings,
        columns: &[Column],
        context: &Context,
    ) -> Result<Arc<dyn Target>>;
}

/// That a stream is written by one run alone.
pub trait Claim: Send + Sync {}

/// Where a stream goes.
#[async_trait]
pub trait Target: Send + Sync {
    /// What [`prepare`](Self::prepare) will do, in the destination's words (SQL, paths).
    fn plan(&self) -> Vec<String>;

    /// Whether it takes [`Rows::Tuples`]: the columns that are there are as they come.
    fn takes_tuples(&self) -> bool;

    /// Makes ready for a load: creates or alters tables, puts the load into the ledger. Where the load is
    /// there already it goes on with what its entries name; what is left of any other is removed.
    async fn prepare(&self, load: &Load) -> Result<()>;

    /// Gets ready for so many writers at once, while [`prepare`](Self::prepare) is at work. What fails here
    /// is told where it is needed.
    async fn warm(&self, _writers: usize) {}

    /// A writer for one unit. Several are open at once, and none waits for another before it commits: what
    /// is read for all of them shares one bound on memory.
    async fn writer(&self, load: &Load, unit: &Unit) -> Result<Box<dyn UnitWriter>>;

    /// Ends the load: makes visible what was loaded aside, and keeps the cursor, as one.
    async fn finish(&self, load: &Load) -> Result<()>;

    /// The content hash of everything that is there, in these columns.
    async fn content(&self) -> Result<ContentHash>;
}

/// Writes one unit.
#[async_trait]
pub trait UnitWriter: Send {
    /// Adds rows.
    async fn write(&mut self, batch: Batch) -> Result<()>;

    /// Makes the rows there, and the entry that names them. The writer fills in rows, dead letters and
    /// hash, and gives it back as it was written.
    async fn commit(self: Box<Self>, entry: LedgerEntry) -> Result<LedgerEntry>;
}

/// Rows in another form, where a connector has to look inside.
impl Rows {
    /// Whether they are Arrow.
    #[must_use]
    pub fn is_records(&self) -> bool {
        matches!(self, Self::Records(_))
    }
}
