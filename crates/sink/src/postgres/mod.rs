//! Tables and documents in a PostgreSQL.

pub mod connect;
mod settings;

use crate::error::{OpenError, SinkError};
use crate::schema::{Field, TableSchema};
use crate::sink::{
    Document, DocumentSink, Position, Records, RowSink, RowWriter, Sink, TableSink, Written,
};

pub use settings::{PoolSettings, ServerSettings, Settings, Tls};

/// Writes tables and documents into a PostgreSQL.
#[derive(Debug)]
pub struct PostgresSink {
    position: Option<Position>,
}

impl PostgresSink {
    /// Opens the sink at a server, making it where it is not there.
    ///
    /// # Errors
    /// [`OpenError::Server`].
    pub fn open(settings: &Settings) -> Result<PostgresSink, OpenError> {
        connect::Server::new(&settings.server)?;
        tracing::debug!(?settings, "open a sink");
        Ok(PostgresSink { position: None })
    }
}

impl Sink for PostgresSink {
    fn position(&self) -> Option<Position> {
        self.position
    }

    fn commit(&mut self, _: Position) -> Result<(), SinkError> {
        Err(SinkError::RolledBack)
    }

    fn roll_back(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<Option<Position>, SinkError> {
        Ok(self.position)
    }
}

impl DocumentSink for PostgresSink {
    fn write_documents(
        &mut self,
        _: Position,
        _: &str,
        _: &[Document<'_>],
    ) -> Result<Written, SinkError> {
        Err(SinkError::RolledBack)
    }

    fn last_id(&mut self, _: &str) -> Result<Option<u64>, SinkError> {
        Err(SinkError::RolledBack)
    }
}

impl RowSink for PostgresSink {
    fn row_writer<'s>(
        &'s mut self,
        _: Position,
        _: &str,
        _: &[Field<'_>],
    ) -> Result<Box<dyn RowWriter + 's>, SinkError> {
        Err(SinkError::RolledBack)
    }

    fn columns(&mut self, _: &str) -> Result<Option<&TableSchema>, SinkError> {
        Err(SinkError::RolledBack)
    }
}

impl TableSink for PostgresSink {
    fn write_records(
        &mut self,
        _: Position,
        _: &str,
        _: &Records<'_>,
    ) -> Result<Written, SinkError> {
        Err(SinkError::RolledBack)
    }
}
