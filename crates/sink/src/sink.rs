//! The traits that every sink implements, and their promises.
//!
//! The life of a transaction: the first write opens it, further writes (any number, any
//! namespaces) join it, [`Sink::commit`] makes all of it visible together with a position, or
//! [`Sink::roll_back`] makes none of it ever have happened.
//!
//! ```text
//! write(at 7) write(at 7) write(at 9) commit(9)     position() == 9
//! write(at 9) -> nothing, it is there already
//! write(at 12) -> error   commit(12) -> refused     roll_back()   position() == 9
//! ```
//!
//! Invariants, checked by the suite `conformance` (a feature of this crate):
//! * **All or nothing.** The writes between two commits are there as a whole or not at all, after
//!   an error, a crash or a reopening alike, for every reader that reads the sink as its kind
//!   requires.
//! * **Once.** A write whose position is at or below the committed one does nothing and reports
//!   that.
//! * **Visible.** What was committed is seen by the next read.
//! * **In order.** Within a namespace ids strictly increase.

use crate::column::Value;
use crate::error::SinkError;
use crate::schema::{Field, RefusedField, TableSchema};

/// A position in the source's log: which entry something came from.
///
/// Positions only ever increase. The source defines what they count; at most `i64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u64);

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The identity of a sink: chosen at random when it is created.
///
/// A sink that was deleted or emptied gets another identity, which shows a writer that recorded the
/// old one that the rows are gone and have to be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity(pub [u8; 16]);

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// A JSON document to be written to a sink.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The row's id, larger than every id written to its namespace before; at most `i64::MAX`.
    pub id: u64,
    /// When it was received, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// Its bytes, kept exactly as they are. They should be JSON; nothing breaks if they are not.
    pub raw: &'a [u8],
}

/// A document as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredDocument {
    /// Its id.
    pub id: u64,
    /// When it was received, in milliseconds since the Unix epoch.
    pub received_ms: u64,
    /// Its bytes, as they came in.
    pub raw: Vec<u8>,
}

/// The result of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Rows added to the open transaction; of a replacement or a removal, the rows that it found.
    pub rows: u64,
    /// Values that did not fit their column, which holds NULL instead. The documents have them.
    pub conflicts: u64,
    /// Fields that have no column, and why. Their values are in the documents only.
    pub refused: Vec<RefusedField>,
    /// Whether the write's position was committed before: nothing was done.
    pub replayed: bool,
}

impl Written {
    /// The result of a write whose position is committed already.
    #[must_use]
    pub fn replay() -> Written {
        Written { replayed: true, ..Written::default() }
    }
}

/// What all sinks have in common: transactions and positions.
///
/// Calls block, so a sink belongs to a thread that may.
pub trait Sink: Send {
    /// The position of the last commit, `None` before the first.
    fn position(&self) -> Option<Position>;

    /// The identity of the sink: random, created and moved with it. `None` if its kind has none.
    ///
    /// The writer compares it with the one it recorded: another identity is another sink, whose
    /// position says nothing about this log.
    fn identity(&self) -> Option<Identity> {
        None
    }

    /// Makes everything written since the last commit visible, together with `position`.
    ///
    /// With nothing written, only the position moves; a position at or below the committed one and
    /// nothing written is a no-op. A crash of the process loses nothing committed. A crash of the
    /// machine may lose whole commits made after the last [`checkpoint`](Sink::checkpoint), never
    /// part of one: the position then shows where to continue.
    ///
    /// * `position`: at or above that of every write since the last commit.
    ///
    /// # Errors
    /// [`SinkError::RolledBack`] after a failed write that was not answered by
    /// [`roll_back`](Sink::roll_back); [`SinkError::PositionBehind`] when a write lies beyond
    /// `position`; otherwise the device's. In every case the transaction is gone, but for
    /// [`SinkError::CommitInDoubt`]: then it is gone or done, which the position shows once a
    /// [`roll_back`](Sink::roll_back) has succeeded.
    fn commit(&mut self, position: Position) -> Result<(), SinkError>;

    /// Drops everything written since the last commit, and reads the committed state again. Does
    /// nothing if nothing was written.
    ///
    /// # Errors
    /// The device's, when the committed state cannot be read again; to be tried again where
    /// [`SinkError::is_transient`] says so.
    fn roll_back(&mut self) -> Result<(), SinkError>;

    /// Puts every commit so far onto stable storage and returns the position that is now safe.
    ///
    /// # Errors
    /// The device's; how much is safe is then unknown until a later checkpoint succeeds.
    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError>;
}

/// Stores JSON documents byte for byte.
pub trait DocumentSink: Sink {
    /// Adds `documents` to `namespace`, which is created by its first write.
    ///
    /// * `at`: the log position they came from. All writes of one position belong into one commit.
    ///
    /// # Errors
    /// Nothing written since the last commit remains, and [`commit`](Sink::commit) is refused
    /// until [`roll_back`](Sink::roll_back) was called.
    fn write_documents(
        &mut self,
        at: Position,
        namespace: &str,
        documents: &[Document<'_>],
    ) -> Result<Written, SinkError>;

    /// The largest id in `namespace`, including those of the open transaction; `None` if it has no
    /// documents.
    ///
    /// # Errors
    /// The device's; as [`write_documents`](DocumentSink::write_documents).
    fn last_id(&mut self, namespace: &str) -> Result<Option<u64>, SinkError>;
}

/// Finds the values in a document: called with its bytes, it passes each value on with the index of
/// its field. A field without a value is not passed.
pub type Derive<'d> = dyn FnMut(&[u8], &mut dyn FnMut(usize, Value<'_>)) + 'd;

/// Stores documents together with values extracted from them, one row at a time without copies.
pub trait RowSink: DocumentSink {
    /// Ensures that `namespace` has a column for each of `fields` and returns a writer of rows.
    ///
    /// A field already known keeps its column and that column's type. Fields beyond the sink's
    /// limits get no column; [`RowWriter::finish`] names them.
    ///
    /// * `at`: as in [`DocumentSink::write_documents`].
    /// * `fields`: the fields of each row's values, in order.
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`].
    fn row_writer<'s>(
        &'s mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError>;

    /// Gives `namespace` a column for each of `fields` with exactly this type, and no others. Rows
    /// that it has get the values that `derive` finds in their documents; a value that was NULL
    /// because it did not fit the former type is there afterwards. A column keeps its name.
    ///
    /// All of it is part of the open transaction. It reads every row, and rewrites most.
    ///
    /// * `at`: as in [`DocumentSink::write_documents`].
    /// * Returns no rows; the fields that have no column, and whether it was a replay.
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`].
    fn reshape(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        derive: &mut Derive<'_>,
    ) -> Result<Written, SinkError>;

    /// Puts a document, and the values of its fields, in the place of the row with its id. If there is
    /// no such row, it is added.
    ///
    /// Other fields of the row become NULL. The id is at most the last one of `namespace`.
    ///
    /// * `at`, `fields`: as in [`row_writer`](Self::row_writer).
    /// * `values`: one for each field.
    /// * Returns the rows that were replaced: one, or none.
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`].
    fn replace(
        &mut self,
        at: Position,
        namespace: &str,
        fields: &[Field<'_>],
        document: &Document<'_>,
        values: &[Value<'_>],
    ) -> Result<Written, SinkError>;

    /// Removes the row with an id. Without such a row nothing is removed, but no row gets the id later.
    ///
    /// * `at`: as in [`DocumentSink::write_documents`].
    /// * Returns the rows that were removed: one, or none.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    fn remove(&mut self, at: Position, namespace: &str, id: u64) -> Result<Written, SinkError>;

    /// Removes the rows of a namespace up to an id, and all columns if no others remain. No row gets
    /// one of these ids later.
    ///
    /// * `at`: as in [`DocumentSink::write_documents`].
    /// * Returns the number of rows that were removed.
    ///
    /// # Errors
    /// As [`replace`](Self::replace).
    fn clear(&mut self, at: Position, namespace: &str, last_id: u64) -> Result<Written, SinkError>;

    /// Begins to add to what is committed: the next transaction writes at the position that the sink
    /// is at, and is committed at it. For rows that were left out when the position passed them.
    /// Ends with the next commit or roll-back. No transaction may be open.
    fn amend(&mut self);

    /// The columns of `namespace`, those of the open transaction included; `None` when it does not
    /// exist.
    ///
    /// # Errors
    /// As [`DocumentSink::last_id`].
    fn columns(&mut self, namespace: &str) -> Result<Option<&TableSchema>, SinkError>;
}

/// Writes rows into one namespace; see [`RowSink::row_writer`].
///
/// Dropping a writer without [`finish`](RowWriter::finish) fails the transaction: half an entry
/// must not be committed because its other half could not be read.
pub trait RowWriter {
    /// Adds one row.
    ///
    /// * `values`: one for each field; borrowed from the document where possible.
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`], and [`SinkError::ValueCount`] when there are more or
    /// fewer values than fields.
    fn write(&mut self, document: &Document<'_>, values: &[Value<'_>]) -> Result<(), SinkError>;

    /// Ends the write; the rows wait for [`Sink::commit`].
    ///
    /// # Errors
    /// As [`DocumentSink::write_documents`].
    fn finish(self: Box<Self>) -> Result<Written, SinkError>;
}
