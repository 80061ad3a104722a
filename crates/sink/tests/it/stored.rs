//! What a sink has committed, as tests read it back.

use forebay_sink::conformance::ReadRow;
use forebay_sink::{Position, StoredDocument};

/// The committed state of a namespace.
#[derive(Debug)]
pub(crate) struct Stored {
    /// The sink's position.
    pub(crate) position: Option<Position>,
    /// The rows by id; none if the namespace does not exist.
    pub(crate) rows: Vec<ReadRow>,
}

impl Stored {
    /// The documents of the rows that have one.
    pub(crate) fn documents(self) -> Vec<StoredDocument> {
        let document = |row: ReadRow| {
            let ReadRow { id, received_ms, document, .. } = row;
            document.map(|raw| StoredDocument { id, received_ms, raw })
        };
        self.rows.into_iter().filter_map(document).collect()
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.rows.iter().map(|row| row.id).collect()
    }
}
