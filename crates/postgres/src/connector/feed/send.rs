//! Rows that are encoded for a COPY, and sent in pieces.

use bytes::{BufMut as _, BytesMut};
use forebay_sdk::changes::Field;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use tokio_postgres::{Client, Statement};

use super::super::connect::refused;
use super::super::sql::TableName;
use crate::bulk::Copy;

/// Size at which encoded rows are sent.
const PIECE_SIZE: usize = 256 << 10;

/// The number of fields of a row, as a COPY has it.
pub(super) fn field_count(count: usize) -> Result<i16> {
    i16::try_from(count).map_err(|_| ConnectorError::data("a table", "too many columns".to_owned()))
}

/// Appends a field. A value that was not sent becomes NULL.
pub(super) fn put_field(buffer: &mut BytesMut, field: Field<'_>) {
    match field {
        Field::Value(value) => {
            // A row has none of 2 GiB.
            buffer.put_i32(i32::try_from(value.len()).unwrap_or(i32::MAX));
            buffer.extend_from_slice(value);
        }
        Field::Null | Field::Unchanged => buffer.put_i32(-1),
    }
}

/// Sends rows to a COPY.
pub(super) struct Sender<'a> {
    copy: Copy,
    /// Rows that were not sent yet.
    pub(super) buffer: BytesMut,
    rows: u64,
    table: &'a TableName,
}

impl<'a> Sender<'a> {
    pub(super) async fn begin(
        client: &Client,
        statement: &Statement,
        table: &'a TableName,
    ) -> Result<Self> {
        let copy = Copy::begin(client, statement).await;
        let copy = copy.map_err(|error| refused(format!("apply changes to {table}"), error))?;
        Ok(Self { copy, buffer: BytesMut::new(), rows: 0, table })
    }

    /// Ends a row in the buffer.
    pub(super) async fn end_row(&mut self) -> Result<()> {
        self.rows += 1;
        if self.buffer.len() >= PIECE_SIZE { self.send().await } else { Ok(()) }
    }

    async fn send(&mut self) -> Result<()> {
        let (bytes, rows) = (self.buffer.split().freeze(), std::mem::take(&mut self.rows));
        let sent = self.copy.send(bytes, rows).await;
        sent.map_err(|error| refused(format!("apply changes to {}", self.table), error))
    }

    /// Ends the COPY; returns the number of rows that the server stored.
    pub(super) async fn finish(mut self) -> Result<u64> {
        self.send().await?;
        let done = self.copy.finish().await;
        let done =
            done.map_err(|error| refused(format!("apply changes to {}", self.table), error))?;
        Ok(done.stored)
    }
}
