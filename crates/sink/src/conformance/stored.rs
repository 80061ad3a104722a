//! What a sink has committed, as tests read it back.

use super::ReadRow;
use crate::sink::{Position, StoredDocument};

/// The committed state of a namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// The sink's position.
    pub position: Option<Position>,
    /// The rows by id; none if the namespace does not exist.
    pub rows: Vec<ReadRow>,
}

impl Stored {
    /// The documents of the rows that have one.
    #[must_use]
    pub fn documents(self) -> Vec<StoredDocument> {
        let document = |row: ReadRow| {
            let ReadRow { id, received_ms, document, .. } = row;
            document.map(|raw| StoredDocument { id, received_ms, raw })
        };
        self.rows.into_iter().filter_map(document).collect()
    }

    /// The ids of the rows.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.id).collect()
    }
}
