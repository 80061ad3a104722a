//! Reading a unit: rows as they arrive, in batches.
//!
//! Invariants:
//! * At most the row that is decoded and the batch that is being built are in memory.
//! * A batch is sent before a row would make it larger than the limit, so only a single row can be.
//! * The driver reads no further while a batch waits to be sent; the server then waits, too.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use forebay_pgcopy::column::schema;
use forebay_sdk::batch::Rows;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform::Instant;
use forebay_sdk::run::{Outlet, Phase};
use futures_util::{FutureExt as _, StreamExt as _};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Params, Row, Value};

use crate::columns::Columns;
use crate::connect::{Session, invalid, too_large};
use crate::error::{failure, is_too_large};
use crate::settings::ZeroDates;
use crate::types::Kind;
use crate::values::{Cells, Refused, shown, size};

/// Maximum number of rows of a batch.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Maximum size of a batch in bytes, whatever is requested: positions in a column have 32 bits.
const BATCH_SIZE_MAX: usize = 1 << 30;

/// How the rows of a stream are read.
pub(crate) struct Reading {
    /// The name of the table.
    pub(crate) table: String,
    pub(crate) columns: Columns,
    /// Maximum size of a batch in bytes.
    pub(crate) batch_size: usize,
    /// Maximum size of a row in bytes.
    pub(crate) packet_size: usize,
}

/// Why a query was not read to its end.
enum Failed {
    /// The server or the driver reports it.
    Server(mysql_async::Error),
    /// The server sent what the driver does not expect.
    Invalid,
    /// Anything else: the statement may still be executed.
    Other(ConnectorError),
}

impl From<ConnectorError> for Failed {
    fn from(error: ConnectorError) -> Self {
        Self::Other(error)
    }
}

/// The batch that is being built.
struct Building<'a> {
    reading: &'a Reading,
    schema: SchemaRef,
    cells: Vec<Cells>,
    rows: usize,
    size: usize,
}

impl Reading {
    /// Reads the rows of a query into `out`.
    ///
    /// # Errors
    /// The query fails, a value is invalid, or the receiver has gone. If the session is still busy then, it cannot
    /// be used again.
    pub(crate) async fn read(
        &self,
        session: &mut Session,
        sql: &str,
        parameters: Vec<Value>,
        out: &mut Outlet,
    ) -> Result<()> {
        let server = session.server().name().to_owned();
        let mut building = Building::new(self);
        let receiving = self.receive(session.busy()?, sql, parameters, &mut building, out);
        match receiving.await {
            Ok(()) => session.idle(),
            Err(Failed::Other(error)) => return Err(error),
            Err(Failed::Invalid) => return Err(invalid(&server)),
            Err(Failed::Server(error)) => {
                // A server that reports an error has ended the statement.
                if !error.is_fatal() {
                    session.idle();
                }
                let act = format!("read {}", self.table);
                return Err(match is_too_large(&error) {
                    true => too_large(&act, self.packet_size),
                    false => failure(act, &server, error),
                });
            }
        }
        if building.rows > 0 {
            out.send(Rows::Records(building.take()?)).await?;
        }
        Ok(())
    }

    /// Reads all rows; those of the last batch are left in `building`.
    async fn receive(
        &self,
        conn: &mut Conn,
        sql: &str,
        parameters: Vec<Value>,
        building: &mut Building<'_>,
        out: &mut Outlet,
    ) -> Result<(), Failed> {
        let parameters = match parameters.is_empty() {
            true => Params::Empty,
            false => Params::Positional(parameters),
        };
        let context = out.context().clone();
        let mut cancelled = std::pin::pin!(context.cancelled());
        let asked = Instant::now();
        let asking = AssertUnwindSafe(conn.exec_stream::<Row, _, _>(sql, parameters));
        let rows = tokio::select! {
            rows = asking.catch_unwind() => rows.map_err(|_| Failed::Invalid)?,
            () = &mut cancelled => return Err(ConnectorError::Stopped.into()),
        };
        let mut rows = rows.map_err(Failed::Server)?;
        context.phases.add(Phase::Query, asked);
        let mut fetching = Instant::now();
        loop {
            let row = tokio::select! {
                biased;
                row = AssertUnwindSafe(rows.next()).catch_unwind() => row.map_err(|_| Failed::Invalid)?,
                () = &mut cancelled => return Err(ConnectorError::Stopped.into()),
            };
            let Some(row) = row else { break };
            let row = row.map_err(Failed::Server)?;
            if building.is_full(&row) {
                context.phases.add(Phase::Fetch, fetching);
                out.send(Rows::Records(building.take()?)).await?;
                if context.is_cancelled() {
                    return Err(ConnectorError::Stopped.into());
                }
                fetching = Instant::now();
            }
            building.push(&row)?;
        }
        context.phases.add(Phase::Fetch, fetching);
        Ok(())
    }

    /// Where a value is.
    fn place(&self, row: &Row, column: &str) -> String {
        let key = self.columns.key.iter().map(|(name, at)| match row.as_ref(*at) {
            Some(value) => format!("{name}={}", shown(Kind::Text, value)),
            None => format!("{name}=?"),
        });
        let key: Vec<String> = key.collect();
        match key.is_empty() {
            true => format!("{}, column {column:?}", self.table),
            false => format!("{}, row {}, column {column:?}", self.table, key.join(" ")),
        }
    }
}

impl<'a> Building<'a> {
    fn new(reading: &'a Reading) -> Self {
        let Columns { columns, kinds, .. } = &reading.columns;
        let cells =
            columns.iter().zip(kinds).map(|(column, kind)| Cells::new(column, *kind)).collect();
        Self { reading, schema: Arc::new(schema(columns)), cells, rows: 0, size: 0 }
    }

    /// Whether a row has to wait for the next batch.
    fn is_full(&self, row: &Row) -> bool {
        let limit = self.reading.batch_size.min(BATCH_SIZE_MAX);
        self.rows >= BATCH_ROWS_MAX
            || self.rows > 0 && self.size.saturating_add(self.row_size(row)) > limit
    }

    fn row_size(&self, row: &Row) -> usize {
        (0..self.cells.len()).filter_map(|at| row.as_ref(at)).map(size).sum()
    }

    fn push(&mut self, row: &Row) -> Result<()> {
        let Columns { columns, zero_dates, .. } = &self.reading.columns;
        self.size = self.size.saturating_add(self.row_size(row));
        self.rows += 1;
        for (at, (cells, column)) in self.cells.iter_mut().zip(columns).enumerate() {
            let value = row.as_ref(at).unwrap_or(&Value::NULL);
            let (found, way_out) = match cells.append(value) {
                Ok(()) => continue,
                Err(Refused::NoDate(_)) if *zero_dates == ZeroDates::Null => {
                    cells.null();
                    continue;
                }
                Err(Refused::NoDate(found)) => (found, "set `zero_dates: null` to read it as NULL"),
                Err(Refused::Invalid(found)) => (found, "specify another type in `types`"),
            };
            let place = self.reading.place(row, &column.name);
            return Err(ConnectorError::data(place, format!("{found}; {way_out}")));
        }
        Ok(())
    }

    fn take(&mut self) -> Result<RecordBatch> {
        let arrays = self.cells.iter_mut().map(Cells::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options);
        (self.rows, self.size) = (0, 0);
        batch.map_err(|error| ConnectorError::data(&*self.reading.table, error.to_string()))
    }
}
