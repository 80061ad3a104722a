//! Tables and documents in a MongoDB.

mod settings;

use crate::error::{OpenError, SinkError};
use crate::schema::{Field, TableSchema};
use crate::sink::{Document, DocumentSink, Position, RowSink, RowWriter, Sink, Written};

pub use settings::Settings;

/// Writes tables and documents into a MongoDB.
#[derive(Debug)]
pub struct MongoSink {
    position: Option<Position>,
}

impl MongoSink {
    /// Opens the sink at a server, making it where it is not there.
    ///
    /// # Errors
    /// [`OpenError::Server`].
    pub fn open(settings: &Settings) -> Result<MongoSink, OpenError> {
        tracing::debug!(?settings, "open a sink");
        Ok(MongoSink { position: None })
    }
}

impl Sink for MongoSink {
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

impl DocumentSink for MongoSink {
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

impl RowSink for MongoSink {
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
