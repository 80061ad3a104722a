//! The rows of one COPY, in batches.

use std::pin::pin;

use bytes::Bytes;
use forebay_base::error_chain::chain;
use forebay_pgcopy::{Column, ContentHash, DecodeError, Decoder, Splitter, Unchecked, Wire};
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::{Form, Result};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::{Outlet, Phase};
use futures_util::TryStreamExt as _;
use tokio_postgres::Client;

use super::connect::{is_of_encoding, refused};

/// How rows are read.
pub(super) struct Reading<'a> {
    pub(super) columns: &'a [Column],
    pub(super) form: Form,
    pub(super) batch_size: usize,
    /// What is being read, for messages.
    pub(super) place: String,
}

/// Collects incoming rows into batches.
enum Maker {
    Tuples {
        splitter: Splitter,
        tuples: Vec<u8>,
    },
    /// Tuples that the receiver checks.
    Unchecked(Unchecked),
    Records(Box<Decoder>),
}

impl Maker {
    fn new(reading: &Reading<'_>, is_checked_later: bool) -> Self {
        let tuples = || Vec::with_capacity(reading.capacity());
        match reading.form {
            Form::Tuples if is_checked_later => Self::Unchecked(Unchecked::new(tuples())),
            Form::Tuples => Self::Tuples { splitter: Splitter::new(), tuples: tuples() },
            Form::Records | Form::PlainRecords => {
                Self::Records(Box::new(Decoder::new(reading.columns)))
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        match self {
            Self::Tuples { splitter, tuples } => splitter.push(bytes, tuples),
            Self::Unchecked(unchecked) => unchecked.push(bytes),
            Self::Records(decoder) => decoder.push(bytes),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Tuples { tuples, .. } => tuples.len(),
            Self::Unchecked(unchecked) => unchecked.size(),
            Self::Records(decoder) => decoder.size(),
        }
    }

    /// The collected rows, to be sent.
    fn take(&mut self, capacity: usize) -> Result<Option<(Rows, ContentHash)>, DecodeError> {
        match self {
            Self::Tuples { splitter, tuples } => {
                let hash: ContentHash = splitter.take_hash();
                if hash.rows == 0 {
                    return Ok(None);
                }
                let full = std::mem::replace(tuples, Vec::with_capacity(capacity));
                Ok(Some((Rows::Tuples(Bytes::from(full), hash), hash)))
            }
            Self::Unchecked(unchecked) => {
                let full = unchecked.take(capacity);
                let none = ContentHash::default();
                Ok((!full.is_empty()).then(|| (Rows::Tuples(Bytes::from(full), none), none)))
            }
            Self::Records(decoder) => {
                if decoder.rows() == 0 {
                    return Ok(None);
                }
                let (records, hash) = decoder.take()?;
                Ok(Some((Rows::Records(records), hash)))
            }
        }
    }

    /// The last rows, if the end was received.
    fn finish(mut self) -> Result<Option<(Rows, ContentHash)>, DecodeError> {
        if let Self::Unchecked(unchecked) = &mut self {
            unchecked.finish()?;
        }
        let last = self.take(0)?;
        match self {
            Self::Tuples { splitter, .. } => splitter.finish()?,
            Self::Unchecked(_) => {}
            Self::Records(decoder) => drop(decoder.finish()?),
        }
        Ok(last)
    }

    /// Number of rows that were not sent yet; unknown if the receiver finds them.
    fn rows(&mut self) -> Result<Option<u64>, DecodeError> {
        if matches!(self, Self::Unchecked(_)) {
            return Ok(None);
        }
        Ok(Some(self.take(0)?.map_or(0, |(_, hash)| hash.rows)))
    }
}

impl Reading<'_> {
    /// Capacity of a batch: the last chunk may exceed its size.
    fn capacity(&self) -> usize {
        self.batch_size + self.batch_size / 8
    }

    /// Sends a batch, with its hash if encoding it again gives the same bytes: an array may claim
    /// NULLs that it no longer has.
    async fn send(&self, batch: (Rows, ContentHash), out: &mut Outlet) -> Result<()> {
        let (rows, hash) = batch;
        let has_arrays =
            self.columns.iter().any(|column| matches!(column.wire, Wire::Array { .. }));
        if has_arrays { out.send(rows).await } else { out.send_hashed(rows, hash).await }
    }

    /// The error of a row with a text that is not valid in the database's encoding, or unknown to UTF-8.
    fn unreadable(&self, row: Option<u64>, error: &tokio_postgres::Error) -> ConnectorError {
        let has_text = |column: &&Column| {
            matches!(column.wire, Wire::Text | Wire::Jsonb | Wire::Opaque | Wire::Array { .. })
        };
        let names: Vec<&str> =
            self.columns.iter().filter(has_text).map(|column| column.name.as_str()).collect();
        ConnectorError::data(
            row.map_or_else(|| self.place.clone(), |row| format!("{}, row {row}", self.place)),
            format!("a text in one of the columns {}: {}", names.join(", "), chain(error)),
        )
    }

    /// Reads the output of `copy` into `out`.
    pub(super) async fn read(&self, client: &Client, copy: &str, out: &mut Outlet) -> Result<()> {
        let asked = Instant::now();
        let rows = client.copy_out(copy).await;
        let rows = rows.map_err(|error| refused(format!("read {}", self.place), error))?;
        let phases = std::sync::Arc::clone(&out.context().phases);
        phases.add(Phase::Query, asked);
        let mut rows = pin!(rows);
        let mut maker = Maker::new(self, out.is_checked_by_receiver());
        let broken =
            |error: DecodeError| ConnectorError::data(&*self.place, chain(&error).to_string());
        let mut fetching = Instant::now();
        let mut sent = 0;
        loop {
            let bytes = match rows.try_next().await {
                Ok(Some(bytes)) => bytes,
                Ok(None) => break,
                Err(error) if is_of_encoding(&error) => {
                    // The server sends rows until one that it cannot convert.
                    let left = maker.rows().map_err(broken)?;
                    return Err(self.unreadable(left.map(|left| sent + left + 1), &error));
                }
                Err(error) => return Err(refused(format!("read {}", self.place), error)),
            };
            // Before the next message is added: only then it is known not to be the last one.
            if maker.size() >= self.batch_size {
                phases.add(Phase::Fetch, fetching);
                let decoding = Instant::now();
                let batch = maker.take(self.capacity()).map_err(broken)?;
                phases.add(Phase::Decode, decoding);
                if let Some(batch) = batch {
                    sent += batch.1.rows;
                    self.send(batch, out).await?;
                }
                if out.context().is_cancelled() {
                    return Err(ConnectorError::Stopped);
                }
                fetching = Instant::now();
            }
            maker.push(&bytes).map_err(broken)?;
        }
        phases.add(Phase::Fetch, fetching);
        match maker.finish().map_err(broken)? {
            Some(batch) => self.send(batch, out).await,
            None => Ok(()),
        }
    }
}
