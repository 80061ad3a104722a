//! Writing CSV: fields are quoted if necessary, lines end with `\n`.

use arrow::array::RecordBatch;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::write::Cells;

use super::super::compress::Compress;
use super::super::format::{Encode, Format, Layout};
use super::super::settings::{Compression, CsvDestination};
use super::CsvFormat;

/// How CSV files are written.
#[derive(Debug)]
pub(in super::super) struct CsvLayout {
    compression: Compression,
    delimiter: u8,
    has_header: bool,
    null: String,
}

struct CsvEncode {
    columns: Vec<Column>,
    delimiter: u8,
    has_header: bool,
    null: String,
    compress: Compress,
    text: Vec<u8>,
    field: Vec<u8>,
    is_begun: bool,
}

impl CsvLayout {
    pub(in super::super) fn new(settings: &CsvDestination) -> Self {
        Self {
            compression: settings.compression,
            delimiter: settings.delimiter.0,
            has_header: settings.header,
            null: settings.null_text.clone(),
        }
    }
}

impl Layout for CsvLayout {
    fn ending(&self) -> String {
        format!("csv{}", Compress::ending(self.compression))
    }

    fn columns_may_differ(&self) -> bool {
        false
    }

    fn encode(&self, columns: &[Column]) -> Result<Box<dyn Encode>, ConnectorError> {
        // The text for NULL must differ from a quoted field and from what ends a field.
        let delimiter = self.delimiter;
        if self.null.bytes().any(|byte| byte == delimiter || b"\"\r\n".contains(&byte)) {
            return Err(ConnectorError::unsupported(
                format!("{:?} cannot represent NULL in CSV", self.null),
                "choose a text without delimiters, quotes and line ends",
            ));
        }
        Ok(Box::new(CsvEncode {
            columns: columns.to_vec(),
            delimiter,
            has_header: self.has_header,
            null: self.null.clone(),
            compress: Compress::new(self.compression)?,
            text: Vec::new(),
            field: Vec::new(),
            is_begun: false,
        }))
    }

    fn format(&self, columns: &[Column]) -> Box<dyn Format> {
        Box::new(CsvFormat {
            compression: self.compression,
            delimiter: self.delimiter,
            has_header: self.has_header,
            null: self.null.clone(),
            given: Default::default(),
            sample_rows: 1,
            names: columns.iter().map(|column| column.name.clone()).collect(),
        })
    }

    fn notes(&self, columns: &[Column]) -> Vec<String> {
        let is_changed = |column: &&Column| matches!(column.wire, Wire::Bytes | Wire::Array { .. });
        let notes = columns.iter().filter(is_changed).map(|Column { name, wire, .. }| match wire {
            Wire::Bytes => format!("column {name:?}: bytes are written as base64"),
            _ => format!("column {name:?}: arrays are written as JSON"),
        });
        notes.collect()
    }
}

impl CsvEncode {
    /// Appends a field that is not NULL.
    fn put(&mut self, bytes: &[u8]) {
        let delimiter = self.delimiter;
        let is_special = |byte: &u8| *byte == delimiter || matches!(byte, b'"' | b'\n' | b'\r');
        // Some readers would lose spaces at the ends, and texts equal to the one for NULL.
        let is_bare = bytes != self.null.as_bytes()
            && !bytes.iter().any(is_special)
            && !bytes.first().is_some_and(u8::is_ascii_whitespace)
            && !bytes.last().is_some_and(u8::is_ascii_whitespace);
        if is_bare {
            self.text.extend_from_slice(bytes);
            return;
        }
        self.text.push(b'"');
        for part in bytes.split_inclusive(|byte| *byte == b'"') {
            self.text.extend_from_slice(part);
            if part.ends_with(b"\"") {
                self.text.push(b'"');
            }
        }
        self.text.push(b'"');
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.is_begun, true) || !self.has_header {
            return;
        }
        for at in 0..self.columns.len() {
            if at > 0 {
                self.text.push(self.delimiter);
            }
            let name = self.columns.get(at).map(|column| column.name.clone()).unwrap_or_default();
            self.put(name.as_bytes());
        }
        self.text.push(b'\n');
    }
}

impl Encode for CsvEncode {
    fn write(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        self.begin();
        let cells = batch.columns().iter().zip(&self.columns);
        let cells = cells.map(|(array, column)| Cells::new(array.as_ref(), column));
        let cells: Vec<Cells<'_>> = cells.collect::<Result<_, _>>()?;
        let mut field = std::mem::take(&mut self.field);
        for row in 0..batch.num_rows() {
            for (at, cells) in cells.iter().enumerate() {
                if at > 0 {
                    self.text.push(self.delimiter);
                }
                if cells.is_null(row) {
                    self.text.extend_from_slice(self.null.as_bytes());
                    continue;
                }
                field.clear();
                cells.text(row, &mut field);
                self.put(&field);
            }
            self.text.push(b'\n');
        }
        self.field = field;
        self.compress.write(&mut self.text, out)
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectorError> {
        self.begin();
        self.compress.write(&mut self.text, out)?;
        self.compress.finish(out)
    }
}
