//! Some row groups of a file, read by one thread.

use super::Piece;
use super::decode::Decoder;
use crate::source::{Part, RowSink, SourceError};

/// Consecutive row groups of one file.
pub(super) struct RowGroups {
    piece: Piece,
    name: String,
}

impl RowGroups {
    pub(super) fn new(piece: Piece) -> Self {
        let (first, last) = (piece.first_row + 1, piece.first_row.saturating_add(piece.rows));
        let name = format!("{} rows {first} to {last}", piece.file.name);
        Self { piece, name }
    }
}

impl Part for RowGroups {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Option<u64> {
        Some(self.piece.size)
    }

    fn read(self: Box<Self>, sink: &mut dyn RowSink) -> Result<(), SourceError> {
        let Piece { file, groups, first_row, rows, size } = self.piece;
        let mut reading = file.read(groups.collect())?;
        let mut decoder = Decoder::new(&file, first_row);
        let (mut read, mut reported) = (0_u64, 0_u64);
        while let Some(batch) = file.guarded("read", || reading.batches.next().transpose())? {
            decoder.decode(&reading.layout, &batch, sink)?;
            read = read.saturating_add(batch.num_rows() as u64);
            // The reader does not report its progress: rows are assumed to be equally large.
            let so_far = u128::from(size) * u128::from(read.min(rows)) / u128::from(rows.max(1));
            let so_far = u64::try_from(so_far).unwrap_or(size);
            sink.bytes(so_far.saturating_sub(reported));
            reported = reported.max(so_far);
        }
        sink.bytes(size.saturating_sub(reported));
        if read != rows {
            return Err(SourceError::Differs {
                file: self.name,
                what: "number of rows",
                expected: rows.to_string(),
                found: read.to_string(),
            });
        }
        Ok(())
    }
}
