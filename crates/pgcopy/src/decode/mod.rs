//! The decoder: a stream of binary COPY to Arrow.
//!
//! [`builder`] has one builder a column, matched once a cell; nothing is allocated for a cell.
//!
//! Invariants:
//! * Bytes never panic, and memory grows with what came, not with what a length says.
//! * After an error nothing more is given: half a batch never passes for a whole one.

#![deny(clippy::indexing_slicing)]

mod builder;

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;

use self::builder::Builder;
use crate::column::{Column, Wire, schema};
use crate::error::{CellError, DecodeError};
use crate::frame::{Framer, Sink};
use crate::hash::ContentHash;

/// Bytes of tuples after which the builders are measured again.
const MEASURED_EVERY: usize = 4096;

/// Decodes a stream of binary COPY, cut anywhere, into batches of Arrow.
///
/// ```
/// # use forebay_pgcopy::{Column, Decoder, HEADER, TRAILER, Wire};
/// let columns = [Column {
///     name: "greeting".into(),
///     sql_type: "text".into(),
///     wire: Wire::Text,
///     nullable: true,
/// }];
/// let mut decoder = Decoder::new(&columns);
/// decoder.push(HEADER)?;
/// decoder.push(&[0, 1, 0, 0, 0, 2, b'h', b'i'])?;
/// decoder.push(TRAILER)?;
/// let (batch, hash) = decoder.finish()?.expect("there is a row");
/// assert_eq!((batch.num_rows(), hash.rows), (1, 1));
/// # Ok::<(), forebay_pgcopy::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Decoder {
    framer: Framer,
    rows: Rows,
}

/// The rows of the batch that is being made.
#[derive(Debug)]
struct Rows {
    schema: SchemaRef,
    builders: Vec<Builder>,
    /// Rows in the builders.
    count: usize,
    hash: ContentHash,
    /// Rows of the batches that were taken before.
    taken: u64,
    /// Bytes in the builders when they were last measured.
    measured: usize,
    /// Bytes of the tuples since.
    since: usize,
    /// Whether a few bytes of a tuple can become many.
    swells: bool,
}

impl Sink for Rows {
    #[inline]
    fn tuple(&mut self, row: u64, tuple: &[u8]) -> Result<(), DecodeError> {
        let mut rest = tuple.get(2..).unwrap_or_default();
        for (index, builder) in self.builders.iter_mut().enumerate() {
            let result = field(&mut rest).and_then(|field| match field {
                Some(field) => builder.value(field),
                None => builder.null(self.count),
            });
            if let Err(reason) = result {
                return Err(self.wrong(row, index, reason));
            }
        }
        self.count += 1;
        self.hash.add(tuple);
        self.since += tuple.len();
        if self.since >= MEASURED_EVERY {
            self.measured = self.size();
            self.since = 0;
        }
        Ok(())
    }

    fn run(&mut self, _: &[u8]) {}
}

/// Whether a value can have many more bytes in Arrow than on the wire: 10 of a `numeric` can say 131,072
/// digits.
fn swells(wire: &Wire) -> bool {
    match wire {
        Wire::Numeric | Wire::Bits => true,
        Wire::Array { element, .. } => swells(element),
        _ => false,
    }
}

/// The field `rest` begins with; none for NULL. That it is whole was seen by the framer.
#[inline]
fn field<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, CellError> {
    let (length, after) = rest.split_first_chunk::<4>().ok_or(builder::CUT_SHORT)?;
    let Ok(size) = usize::try_from(i32::from_be_bytes(*length)) else {
        *rest = after;
        return Ok(None);
    };
    let (field, after) = after.split_at_checked(size).ok_or(builder::CUT_SHORT)?;
    *rest = after;
    Ok(Some(field))
}

impl Rows {
    /// Bytes in the builders.
    fn size(&self) -> usize {
        self.builders.iter().map(|builder| builder.size(self.count)).sum()
    }

    #[cold]
    fn wrong(&self, row: u64, index: usize, reason: CellError) -> DecodeError {
        let column = self.schema.fields().get(index).map(|field| field.name().clone());
        DecodeError::Cell { row, column: column.unwrap_or_default(), reason }
    }

    fn take(&mut self) -> Result<(RecordBatch, ContentHash), DecodeError> {
        let rows = self.count;
        let mut arrays = Vec::with_capacity(self.builders.len());
        for index in 0..self.builders.len() {
            let Some(builder) = self.builders.get_mut(index) else { continue };
            match builder.take(rows) {
                Ok(array) => arrays.push(array),
                Err((at, reason)) => {
                    return Err(self.wrong(self.taken + 1 + at as u64, index, reason));
                }
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays, &options)
            .map_err(|source| DecodeError::Batch { rows, source })?;
        self.count = 0;
        (self.measured, self.since) = (0, 0);
        self.taken += rows as u64;
        Ok((batch, std::mem::take(&mut self.hash)))
    }
}

impl Decoder {
    /// A decoder of a stream with header and trailer.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self::of(columns, true)
    }

    /// A decoder of tuples alone, without header and trailer.
    #[must_use]
    pub fn without_header(columns: &[Column]) -> Self {
        Self::of(columns, false)
    }

    fn of(columns: &[Column], enclosed: bool) -> Self {
        // More columns than a tuple can count never come: the first tuple is then an error.
        let count = u16::try_from(columns.len()).unwrap_or(u16::MAX);
        let rows = Rows {
            schema: Arc::new(schema(columns)),
            builders: columns.iter().map(Builder::new).collect(),
            count: 0,
            hash: ContentHash::default(),
            taken: 0,
            measured: 0,
            since: 0,
            swells: columns.iter().any(|column| swells(&column.wire)),
        };
        Self { framer: Framer::new(enclosed, Some(count)), rows }
    }

    /// The schema of the batches.
    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema.clone()
    }

    /// Takes the next bytes of the stream, cut anywhere, and hashes the rows in them.
    ///
    /// # Errors
    /// What came is no such stream, or a value does not fit its column: the error names the row, from 1
    /// over the whole stream, and the column. Every later call fails then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        self.framer.push(bytes, &mut self.rows)
    }

    /// Rows decoded and not yet taken.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows.count
    }

    /// About how many bytes the rows decoded and not yet taken have, as Arrow: those of the last few are
    /// taken for what they had on the wire. It can be asked after every row.
    #[must_use]
    pub fn size(&self) -> usize {
        if self.rows.swells { self.rows.size() } else { self.rows.measured + self.rows.since }
    }

    /// Whether the trailer came.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.framer.is_finished()
    }

    /// Takes the rows decoded so far, of which there may be none, and their hash.
    ///
    /// # Errors
    /// A text is not UTF-8 (it is looked at here, all texts of a column at once), or `push` failed before.
    pub fn take(&mut self) -> Result<(RecordBatch, ContentHash), DecodeError> {
        if self.framer.has_given_up() {
            return Err(DecodeError::GivenUp);
        }
        let result = self.rows.take();
        if result.is_err() {
            self.framer.give_up();
        }
        result
    }

    /// Ends the stream, and takes what rows are left.
    ///
    /// # Errors
    /// [`DecodeError::Unfinished`] where the stream ended within a row or without its trailer; as
    /// [`take`](Self::take).
    pub fn finish(mut self) -> Result<Option<(RecordBatch, ContentHash)>, DecodeError> {
        self.framer.end()?;
        if self.rows.count == 0 { Ok(None) } else { self.take().map(Some) }
    }
}
