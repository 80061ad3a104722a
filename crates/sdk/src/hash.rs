//! The content hash of batches, for destinations that do not store them as tuples.

use arrow::array::RecordBatch;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, ContentHash, Encoder};

use crate::error::ConnectorError;

/// Computes the content hash of batches of one stream.
pub struct Hasher {
    encoder: Encoder,
    content: ContentHash,
}

impl Hasher {
    /// Creates a hasher without rows.
    ///
    /// # Errors
    /// A column has no form in binary COPY.
    pub fn new(columns: &[Column]) -> Result<Self, ConnectorError> {
        let encoder = Encoder::new(&schema(columns), columns).map_err(|error| {
            ConnectorError::Refused { act: "hash rows".into(), source: error.into() }
        })?;
        Ok(Self { encoder, content: ContentHash::default() })
    }

    /// Adds the rows of a batch.
    ///
    /// # Errors
    /// A value has no form in binary COPY.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), ConnectorError> {
        let hash = self.encoder.hash(batch);
        let hash = hash.map_err(|error| ConnectorError::Refused {
            act: "hash rows".into(),
            source: error.into(),
        })?;
        self.content.merge(hash);
        Ok(())
    }

    /// Adds rows whose hash is known.
    pub fn add_hashed(&mut self, hash: ContentHash) {
        self.content.merge(hash);
    }

    /// The hash of what was added since it was last taken.
    pub fn take(&mut self) -> ContentHash {
        std::mem::take(&mut self.content)
    }

    /// The hash of everything that was added.
    pub fn content(&self) -> ContentHash {
        self.content
    }
}
