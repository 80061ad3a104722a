//! The traits of a source that reports changes and of a destination that applies them.
//!
//! A *feed* is everything one pipeline follows of one source: several tables, in the order of commits. The
//! destination records how far it is, in the transaction that has the rows ([`Feed`]); the source only follows
//! ([`ChangeStream::confirm`]). So whatever is killed at whatever moment, every change is applied once.
//!
//! ```text
//! no feed        name -> record it -> create (snapshot, position) -> copy the tables -> record the position
//! a feed         attach at its position -> next, apply and record, confirm, next ...
//! ```

use async_trait::async_trait;
use forebay_pgcopy::Wire;
use serde::{Deserialize, Serialize};

use super::bag::BagChanges;
use super::log::ChangeLog;
use super::net::NetChanges;
use crate::connector::Result;
use crate::error::ConnectorError;
use crate::settings::{FeedForm, StreamSettings, TargetSettings};

/// What a feed is read from: enough to notice that it is another one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = PipelineFeedOrigin)]
pub struct FeedOrigin {
    /// The server's own identity, which a copy of it has as well.
    pub server: String,
    /// The database on it.
    pub database: String,
    /// What the server keeps changes under until they are confirmed.
    pub slot: String,
    /// What the server publishes.
    pub publication: String,
}

/// A column of a stream, as a feed records it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedColumn {
    /// Its name.
    pub name: String,
    /// Its type, in the words of the source.
    #[serde(rename = "type")]
    pub sql_type: String,
    /// Whether it is a part of the key that changes refer to.
    pub is_key: bool,
    /// Its number in its table, which it keeps when it is renamed.
    pub number: i16,
    /// The form of its values; `None`: only a database of the same kind can read them, or it is not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "wire_name")]
    pub wire: Option<Wire>,
}

/// A form of values as its name.
mod wire_name {
    use forebay_pgcopy::Wire;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "serde passes the field as it is")]
    pub(super) fn serialize<S: Serializer>(wire: &Option<Wire>, to: S) -> Result<S::Ok, S::Error> {
        match wire {
            Some(wire) => to.serialize_some(&wire.name()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Wire>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.as_deref().and_then(Wire::from_name))
    }
}

/// A change of the columns of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnStep {
    /// A column has another name.
    Rename {
        /// Its name before.
        from: String,
        /// Its name now.
        to: String,
    },
    /// A column was added.
    Add {
        /// Its name.
        name: String,
        /// Its type, in the words of the source.
        sql_type: String,
        /// The value of the rows that were there, as text; `None`: NULL.
        existing: Option<String>,
    },
    /// A column has another type.
    Retype {
        /// Its name.
        name: String,
        /// Its type now.
        sql_type: String,
    },
    /// A column is not there any more.
    Drop {
        /// Its name.
        name: String,
    },
}

/// A stream that has other columns from a change on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redefinition {
    /// Its columns then.
    pub columns: Vec<FeedColumn>,
    /// What became of those before, in an order in which it can be repeated.
    pub steps: Vec<ColumnStep>,
}

/// A stream of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedStream {
    /// Its name in the source.
    pub stream: String,
    /// Its columns, in the order of the values of a change. If none is a part of a key, all of them name a row.
    pub columns: Vec<FeedColumn>,
    /// Changes of commits before this position are in its copy; `None`: it was copied when the feed began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What the source recognizes it by, in its own words, since another one may get its name. None in feeds of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_by: Vec<String>,
}

impl FeedStream {
    /// Whether it has a key, by which a change names its row.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.columns.iter().any(|column| column.is_key)
    }

    /// Checks that it has a key, for a destination that finds rows by it.
    ///
    /// # Errors
    /// It has none.
    pub fn check_key(&self) -> Result<()> {
        if self.has_key() {
            return Ok(());
        }
        Err(ConnectorError::unsupported(
            format!("{} has no key, by which this destination could find its rows", self.stream),
            "give it a primary key, use a PostgreSQL as the destination, or `write_mode: append` where there is a log",
        ))
    }

    /// The columns by which a change names its row: those of the key, or all of them.
    pub fn naming(&self) -> impl Iterator<Item = &FeedColumn> + Clone {
        let has_key = self.has_key();
        self.columns.iter().filter(move |column| column.is_key || !has_key)
    }
}

/// What a destination records of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feed {
    /// What it is read from.
    pub origin: FeedOrigin,
    /// The end of the last commit that was applied, as the source writes it; `None` while the tables are copied.
    pub position: Option<String>,
    /// Its streams.
    pub streams: Vec<FeedStream>,
    /// What its changes become. Feeds of earlier versions are applied.
    #[serde(default)]
    pub form: FeedForm,
}

impl Feed {
    /// Its record, as JSON.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn encoded(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| ConnectorError::Refused {
            act: "encode the feed".into(),
            source: error.into(),
        })
    }

    /// A feed from its record.
    ///
    /// * `position`: that which is recorded beside it, since it alone changes with every unit.
    ///
    /// # Errors
    /// The record is damaged.
    pub fn decoded(record: &str, position: Option<String>) -> Result<Self> {
        let feed: Self = serde_json::from_str(record)
            .map_err(|error| ConnectorError::data("the recorded feed", error.to_string()))?;
        Ok(Self { position, ..feed })
    }

    /// The error of a run whose record was replaced by another one.
    #[must_use]
    pub fn replaced() -> ConnectorError {
        ConnectorError::Busy {
            act: "record the feed".into(),
            source: "another run has recorded it meanwhile".into(),
        }
    }
}

/// A snapshot that others read as long as it is held.
pub struct HeldSnapshot {
    /// Its name, for [`Opening::snapshot`](crate::connector::Opening::snapshot).
    pub id: String,
    /// Ends the snapshot when it is dropped.
    pub keeper: Box<dyn Send + Sync>,
}

impl std::fmt::Debug for HeldSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldSnapshot").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A feed that was created at the source.
#[derive(Debug)]
pub struct CreatedFeed {
    /// Changes after this position are reported, and the snapshot has all before it.
    pub position: String,
    /// The snapshot of this position.
    pub snapshot: HeldSnapshot,
    /// The streams with their columns.
    pub streams: Vec<FeedStream>,
}

/// Changes, in the form that a feed has.
#[derive(Debug)]
pub enum Changes {
    /// What they amount to for each row.
    Net(NetChanges),
    /// The same of a table without a key.
    Bag(BagChanges),
    /// One by one.
    Log(ChangeLog),
}

impl Changes {
    /// Number of changes of the source.
    #[must_use]
    pub fn count(&self) -> u64 {
        match self {
            Self::Net(net) => net.changes(),
            Self::Bag(bag) => bag.changes(),
            Self::Log(log) => log.changes().len() as u64,
        }
    }

    /// Size in memory in bytes, roughly.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Net(net) => net.size(),
            Self::Bag(bag) => bag.size(),
            Self::Log(log) => log.size(),
        }
    }
}

/// The changes of one stream in a unit.
#[derive(Debug)]
pub struct StreamChanges {
    /// The index of the stream in [`Feed::streams`].
    pub stream: usize,
    /// The changes.
    pub changes: Changes,
}

/// Changes that are applied together: those of one or more whole commits, or, of a transaction that is too large for
/// one unit, a part.
#[derive(Debug)]
pub struct ChangeUnit {
    /// The end of its last commit; `None` if the rest of a transaction follows, which is applied in the same
    /// transaction of the destination.
    pub position: Option<String>,
    /// Number of commits that end in it.
    pub commits: u64,
    /// When the source committed the last one, in microseconds since 1970.
    pub committed_us: Option<i64>,
    /// Streams that have other columns from here on, as they are then. They come before the changes.
    pub redefined: Vec<(usize, Redefinition)>,
    /// Streams with changes, each once.
    pub streams: Vec<StreamChanges>,
}

/// What follows in a feed.
#[derive(Debug)]
pub enum Next {
    /// Changes.
    Unit(ChangeUnit),
    /// No change of the streams up to this position, which is beyond what was reported before.
    Idle {
        /// What may be recorded and confirmed.
        position: String,
        /// The source's time then, in microseconds since 1970.
        at_us: i64,
    },
}

/// How a feed is at its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = PipelineFeedHealth)]
pub struct FeedHealth {
    /// Whether the source has it.
    pub exists: bool,
    /// Whether a client reads it now.
    pub is_active: bool,
    /// Whether all changes since the confirmed position are there.
    pub is_complete: bool,
    /// The confirmed position.
    #[schema(required)]
    pub confirmed: Option<String>,
    /// Bytes of the server's log that are written and not confirmed.
    #[schema(required)]
    pub lag_bytes: Option<u64>,
    /// Bytes of the server's log that are kept for it.
    #[schema(required)]
    pub kept_bytes: Option<u64>,
    /// The server's word for its state.
    #[schema(required)]
    pub status: Option<String>,
}

/// What a source answers that is to follow a feed.
pub enum Attached {
    /// The changes after the recorded position.
    Stream(Box<dyn ChangeStream>),
    /// It does not have all of them: why.
    Lost(String),
}

/// A source that reports changes.
#[async_trait]
pub trait ChangeSource: Send + Sync {
    /// What a feed of a pipeline would be read from. Changes nothing.
    ///
    /// * `known`: what an earlier feed of this pipeline was read from, which this one takes the place of.
    ///
    /// # Errors
    /// The source cannot report changes of these streams, or has something else under the names that it would
    /// create.
    async fn name(
        &self,
        pipeline: &str,
        streams: &[StreamSettings],
        known: Option<&FeedOrigin>,
    ) -> Result<FeedOrigin>;

    /// Makes the source keep the changes of these streams from now on.
    ///
    /// # Errors
    /// It exists already, or the source refuses.
    async fn create(&self, origin: &FeedOrigin, streams: &[StreamSettings]) -> Result<CreatedFeed>;

    /// Makes the source keep the changes of further streams, too.
    ///
    /// * `streams`: all of them.
    /// * `further`: the streams that the feed does not have yet, of which a snapshot is returned.
    ///
    /// # Errors
    /// The source cannot report changes of these streams, or refuses.
    async fn extend(
        &self,
        origin: &FeedOrigin,
        streams: &[StreamSettings],
        further: &[StreamSettings],
    ) -> Result<CreatedFeed>;

    /// Reads the changes after the recorded position.
    ///
    /// * `unit_size`: a unit ends with the first change after which it has this many bytes.
    ///
    /// # Errors
    /// The source did not answer, or another client reads them.
    async fn attach(
        &self,
        feed: &Feed,
        streams: &[StreamSettings],
        unit_size: usize,
    ) -> Result<Attached>;

    /// How the feed is.
    ///
    /// # Errors
    /// The source did not answer.
    async fn health(&self, origin: &FeedOrigin) -> Result<FeedHealth>;

    /// Lets the source forget the feed, and what it keeps for it. Returns whether it was there.
    ///
    /// # Errors
    /// It is being read, or the source refuses.
    async fn remove(&self, origin: &FeedOrigin) -> Result<bool>;
}

/// A feed that is being read.
#[async_trait]
pub trait ChangeStream: Send {
    /// The position up to which the source had written when this was attached.
    fn present(&self) -> &str;

    /// Bytes of the source's log that may have changes which are not confirmed, as of a few seconds ago; `None`: not
    /// known yet.
    fn lag_bytes(&self) -> Option<u64>;

    /// The latest time of the source's clock, in microseconds since 1970, before which there is no commit that is not
    /// confirmed; `None`: not known. It moves on while the source has no changes.
    fn current_us(&self) -> Option<i64> {
        None
    }

    /// Whether a position is at or after another.
    fn is_reached(&self, position: &str, wanted: &str) -> bool;

    /// Waits for what follows. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The connection was lost, or a change cannot be passed on. What was returned before counts.
    async fn next(&mut self) -> Result<Next>;

    /// Confirms what is recorded at the destination: the source may forget it.
    ///
    /// # Errors
    /// The connection was lost.
    async fn confirm(&mut self, position: &str) -> Result<()>;
}

/// What a unit did: for a log, the number of changes by their operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Applied {
    /// Rows inserted.
    pub inserted: u64,
    /// Rows updated.
    pub updated: u64,
    /// Rows deleted; not those of a truncation.
    pub deleted: u64,
}

/// A destination that applies changes.
#[async_trait]
pub trait FeedTarget: Send + Sync {
    /// What it can make of changes.
    fn forms(&self) -> &'static [FeedForm];

    /// Checks that it can store changes of these streams in this form.
    ///
    /// # Errors
    /// It cannot store values of a column, or find the rows of a stream without a key.
    fn check(&self, streams: &[FeedStream], form: FeedForm) -> Result<()>;

    /// The feed of a pipeline; `None` if there is none.
    ///
    /// # Errors
    /// The destination did not answer.
    async fn feed(&self, pipeline: &str) -> Result<Option<Feed>>;

    /// Records a feed in the place of another.
    ///
    /// # Errors
    /// What is recorded is not `before`.
    async fn record(
        &self,
        pipeline: &str,
        before: Option<&Feed>,
        feed: Option<&Feed>,
    ) -> Result<()>;

    /// Prepares to apply changes.
    ///
    /// * `targets`: where each stream of the feed is written, in its order.
    ///
    /// # Errors
    /// A table cannot take them.
    async fn open(
        &self,
        pipeline: &str,
        feed: &Feed,
        targets: &[TargetSettings],
    ) -> Result<Box<dyn FeedWriter>>;
}

/// Applies changes.
#[async_trait]
pub trait FeedWriter: Send {
    /// Applies a unit and records its position, in one transaction, which begins with the first part of a large one.
    /// Returns what it did, by the streams of the feed.
    ///
    /// # Errors
    /// A row that is to be changed is not there, the destination refuses a row, or the connection was lost. Whether
    /// the unit was applied then is shown by [`FeedTarget::feed`].
    async fn apply(&mut self, unit: ChangeUnit) -> Result<Vec<Applied>>;

    /// Records a position up to which there was no change.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    async fn advance(&mut self, position: &str) -> Result<()>;
}

/// The error of a change that does not concern exactly the rows that it should.
#[must_use]
pub fn changed_by_others(table: &str, found: u64, wanted: u64, what: &str) -> ConnectorError {
    ConnectorError::data(
        table,
        format!(
            "{found} rows would be {what}, and the source has {wanted}: the table was changed by others. \
             Run with `--from-scratch`, which copies it again"
        ),
    )
}
