//! Writing NDJSON: exact numbers, unchanged JSON, bytes as base64, times as RFC 3339.
//!
//! A column of JSON has `null` if its value is JSON's own null, and no key if it is NULL; all other
//! columns have `null` for NULL. Line ends between the tokens of JSON become spaces: a line is one
//! row.

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::types;
use forebay_sdk::values::write::{Cells, json_text};

use super::super::compress::Compress;
use super::super::format::{Encode, Format, Layout};
use super::super::settings::{Compression, NdjsonDestination};
use super::NdjsonFormat;

/// How NDJSON files are written.
#[derive(Debug)]
pub(in super::super) struct NdjsonLayout {
    compression: Compression,
}

struct NdjsonEncode {
    columns: Vec<Column>,
    /// The names as they appear in every line, with the colon.
    keys: Vec<Vec<u8>>,
    compress: Compress,
    text: Vec<u8>,
}

impl NdjsonLayout {
    pub(in super::super) fn new(settings: &NdjsonDestination) -> Self {
        Self { compression: settings.compression }
    }
}

impl Layout for NdjsonLayout {
    fn ending(&self) -> String {
        format!("ndjson{}", Compress::ending(self.compression))
    }

    fn columns_may_differ(&self) -> bool {
        true
    }

    fn encode(&self, columns: &[Column]) -> Result<Box<dyn Encode>, ConnectorError> {
        let key = |column: &Column| {
            let mut key = Vec::new();
            json_text(&column.name, &mut key);
            key.push(b':');
            key
        };
        Ok(Box::new(NdjsonEncode {
            keys: columns.iter().map(key).collect(),
            columns: columns.to_vec(),
            compress: Compress::new(self.compression)?,
            text: Vec::new(),
        }))
    }

    fn format(&self, _columns: &[Column]) -> Box<dyn Format> {
        Box::new(NdjsonFormat {
            compression: self.compression,
            given: Default::default(),
            sample_rows: 1,
            null_is_json: true,
        })
    }

    fn notes(&self, columns: &[Column]) -> Vec<String> {
        let note = |column: &Column| match &column.wire {
            Wire::Bytes => Some(format!("column {:?}: bytes are written as base64", column.name)),
            _ if types::is_json(column) => Some(format!(
                "column {:?}: line ends in JSON are written as spaces, and NULL as a missing key",
                column.name
            )),
            _ => None,
        };
        columns.iter().filter_map(note).collect()
    }
}

impl Encode for NdjsonEncode {
    fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        let cells = batch.columns().iter().zip(&self.columns);
        let cells = cells.map(|(array, column)| Cells::new(array.as_ref(), column));
        let cells: Vec<Cells<'_>> = cells.collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let mut mark = b'{';
            for (cells, key) in cells.iter().zip(&self.keys) {
                if cells.is_json() && cells.is_null(row) {
                    continue;
                }
                self.text.push(mark);
                mark = b',';
                self.text.extend_from_slice(key);
                cells.json(row, &mut self.text);
            }
            if mark == b'{' {
                self.text.push(mark);
            }
            self.text.extend_from_slice(b"}\n");
        }
        self.compress.write(&mut self.text, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        self.compress.finish(out)
    }
}
