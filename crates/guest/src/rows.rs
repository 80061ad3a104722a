//! Rows of a batch, as they cross between host and component.

use bytes::Bytes;
use forebay_sdk::component::{Column, ContentHash, PartReader, PartWriter};
use forebay_sdk::{ConnectorError, Rows};

use crate::wit::{destination, types};

/// Writes the rows of one stream.
pub struct Writer(PartWriter);

impl Writer {
    /// A stream of these columns.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self(PartWriter::new(columns))
    }

    /// The next rows.
    ///
    /// # Errors
    /// They have not the columns of the stream.
    pub fn rows(&mut self, rows: Rows) -> Result<types::Rows, ConnectorError> {
        Ok(match rows {
            // Without a copy, where nothing else has them.
            Rows::Tuples(tuples, _) => types::Rows::Tuples(tuples.into()),
            Rows::Records(records) => types::Rows::Records(self.0.part(&records)?),
        })
    }
}

/// Reads the rows of one stream.
pub struct Reader(PartReader);

impl Reader {
    /// A stream of these columns.
    #[must_use]
    pub fn new(columns: &[Column]) -> Self {
        Self(PartReader::new(columns))
    }

    /// The next rows; `None` if there are none.
    ///
    /// * `content`: their content hash. The host has checked tuples while it computed it.
    ///
    /// # Errors
    /// They are not of the stream.
    pub fn rows(
        &mut self,
        rows: types::Rows,
        content: ContentHash,
    ) -> Result<Option<Rows>, ConnectorError> {
        match rows {
            types::Rows::Tuples(tuples) => Ok(Some(Rows::Tuples(Bytes::from(tuples), content))),
            types::Rows::Records(part) => Ok(self.0.records(part)?.map(Rows::Records)),
        }
    }
}

/// A content hash of the host.
///
/// # Errors
/// Its sum is not a number.
pub fn content(of: &destination::ContentHash) -> Result<ContentHash, ConnectorError> {
    let sum = u128::from_str_radix(&of.sum, 16)
        .map_err(|error| ConnectorError::data("the content hash of a batch", error.to_string()))?;
    Ok(ContentHash { rows: of.rows, sum })
}
