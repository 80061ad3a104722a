//! The content hash of batches, for destinations that keep them otherwise than as tuples.

use arrow::array::RecordBatch;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, ContentHash, Encoder};

use crate::error::ConnectorError;

/// Adds up the content hash of batches of one stream.
pub(crate) struct Hasher {
    encoder: Encoder,
    content: ContentHash,
}

impl Hasher {
    /// A hasher of no rows yet.
    ///
    /// # Errors
    /// When a column has no form in binary COPY.
    pub(crate) fn new(columns: &[Column]) -> Result<Self, ConnectorError> {
        let encoder = Encoder::new(&schema(columns), columns).map_err(|error| {
            ConnectorError::Refused { act: "hash rows".into(), source: error.into() }
        })?;
        Ok(Self { encoder, content: ContentHash::default() })
    }

    /// Adds the rows of a batch.
    ///
    /// # Errors
    /// When a value has no form in binary COPY.
    pub(crate) fn add(&mut self, batch: &RecordBatch) -> Result<(), ConnectorError> {
        let hash = self.encoder.hash(batch);
        let hash = hash.map_err(|error| ConnectorError::Refused {
            act: "hash rows".into(),
            source: error.into(),
        })?;
        self.content.merge(hash);
        Ok(())
    }

    /// Adds rows whose hash is known.
    pub(crate) fn add_hashed(&mut self, hash: ContentHash) {
        self.content.merge(hash);
    }

    /// What was added.
    pub(crate) fn content(&self) -> ContentHash {
        self.content
    }
}
