//! The rows of one COPY, in batches.

use std::pin::pin;

use bytes::Bytes;
use forebay_base::error_chain::chain;
use forebay_pgcopy::{Column, ContentHash, DecodeError, Decoder, Splitter, Wire};
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
    Tuples { splitter: Splitter, tuples: Vec<u8> },
    Records(Box<Decoder>),
}

impl Maker {
    fn new(reading: &Reading<'_>, needs_hash: bool) -> Self {
        match reading.form {
            Form::Tuples => {
                let tuples = Vec::with_capacity(reading.capacity());
                let splitter = if needs_hash { Splitter::new() } else { Splitter::counting() };
                Self::Tuples { splitter, tuples }
            }
            Form::Records | Form::PlainRecords => {
                Self::Records(Box::new(Decoder::new(reading.columns)))
            }
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        match self {
            Self::Tuples { splitter, tuples } => splitter.push(bytes, tuples),
            Self::Records(decoder) => decoder.push(bytes),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Tuples { tuples, .. } => tuples.len(),
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
            Self::Records(decoder) => {
                if decoder.rows() == 0 {
                    return Ok(None);
                }
                let (records, hash) = decoder.take()?;
                Ok(Some((Rows::Records(records), hash)))
            }
        }
    }

    /// Whether the end was received.
    fn finish(self) -> Result<(), DecodeError> {
        match self {
            Self::Tuples { splitter, .. } => splitter.finish(),
            Self::Records(decoder) => decoder.finish().map(drop),
        }
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
    fn unreadable(&self, row: u64, error: &tokio_postgres::Error) -> ConnectorError {
        let has_text = |column: &&Column| {
            matches!(column.wire, Wire::Text | Wire::Jsonb | Wire::Opaque | Wire::Array { .. })
        };
        let names: Vec<&str> =
            self.columns.iter().filter(has_text).map(|column| column.name.as_str()).collect();
        ConnectorError::data(
            format!("{}, row {row}", self.place),
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
        let mut maker = Maker::new(self, out.needs_hash());
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
                    let left = maker.take(0).map_err(broken)?.map_or(0, |(_, hash)| hash.rows);
                    return Err(self.unreadable(sent + left + 1, &error));
                }
                Err(error) => return Err(refused(format!("read {}", self.place), error)),
            };
            maker.push(&bytes).map_err(broken)?;
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
        }
        phases.add(Phase::Fetch, fetching);
        if let Some(batch) = maker.take(0).map_err(broken)? {
            self.send(batch, out).await?;
        }
        maker.finish().map_err(broken)
    }
}
