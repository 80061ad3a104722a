//! Shared by CSV and NDJSON: decompression, lines, type inference, and collecting rows into
//! batches.

#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::SchemaRef;
use flate2::read::MultiGzDecoder;
use forebay_pgcopy::column::schema;
use forebay_pgcopy::{Column, Wire};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::values::number::{is_changed_by_float, is_float, is_numeric, is_plain};
use forebay_sdk::values::read::{Builder, Wanted};
use forebay_sdk::values::{time, types};

use super::format::Reading;
use super::opened::Opened;
use super::settings::Compression;

/// Maximum size of a line or record in bytes.
pub(super) const LINE_SIZE_MAX: usize = 64 << 20;
/// Bytes decompressed at once.
const BUFFER_SIZE: usize = 256 << 10;
/// Maximum number of rows of a batch.
const BATCH_ROWS_MAX: usize = 64 << 10;
/// Overhead of a value in bytes, beside its text.
const VALUE_SIZE: usize = 8;

/// Reads the text of a file, decompressed.
pub(super) struct TextReader<'a> {
    file: &'a Opened,
    reader: BufReader<Box<dyn Read + Send>>,
    /// The current line, from 1.
    pub(super) line: u64,
}

impl<'a> TextReader<'a> {
    pub(super) fn new(file: &'a Opened, compression: Compression) -> Result<Self, ConnectorError> {
        let name = file.path.to_string_lossy().to_ascii_lowercase();
        let bytes = file.reader(0);
        let reader: Box<dyn Read + Send> = match compression {
            Compression::Gzip => Box::new(MultiGzDecoder::new(bytes)),
            Compression::Auto if name.ends_with(".gz") => Box::new(MultiGzDecoder::new(bytes)),
            Compression::Zstd => Box::new(zstd(file, bytes)?),
            Compression::Auto if name.ends_with(".zst") => Box::new(zstd(file, bytes)?),
            Compression::Auto | Compression::None => Box::new(bytes),
        };
        let reader = BufReader::with_capacity(BUFFER_SIZE, reader);
        let mut text = Self { file, reader, line: 0 };
        // A UTF-8 byte order mark at the beginning is not part of the text.
        if text.fill()?.starts_with(b"\xef\xbb\xbf") {
            text.reader.consume(3);
        }
        Ok(text)
    }

    /// The bytes read but not yet consumed; empty at the end.
    pub(super) fn fill(&mut self) -> Result<&[u8], ConnectorError> {
        loop {
            // Called twice: the first borrow would last too long.
            match self.reader.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(self.reader.buffer())
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }

    /// Reads a line into `line`, without its end. Returns `false` at the end of the file.
    pub(super) fn line(&mut self, line: &mut Vec<u8>) -> Result<bool, ConnectorError> {
        line.clear();
        self.line += 1;
        loop {
            let buffer = self.fill()?;
            if buffer.is_empty() {
                return Ok(!line.is_empty());
            }
            let end = memchr::memchr(b'\n', buffer);
            let taken = end.unwrap_or(buffer.len());
            line.extend_from_slice(buffer.get(..taken).unwrap_or_default());
            self.consume(taken + usize::from(end.is_some()));
            if line.len() > LINE_SIZE_MAX {
                return Err(self.found(format!("it is larger than {LINE_SIZE_MAX} bytes")));
            }
            if end.is_some() {
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(true);
            }
        }
    }

    /// An error of the current line.
    pub(super) fn found(&self, found: impl Into<String>) -> ConnectorError {
        place(self.file, self.line, found)
    }

    /// An error of an earlier line.
    pub(super) fn found_at(&self, line: u64, found: impl Into<String>) -> ConnectorError {
        place(self.file, line, found)
    }

    fn failed(&self, error: io::Error) -> ConnectorError {
        let is_of_text = matches!(
            error.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof
        );
        match is_of_text {
            true => self.found(format!("it cannot be decompressed: {error}")),
            false => self.file.failed(error),
        }
    }
}

/// An error of a line of a file.
fn place(file: &Opened, line: u64, found: impl Into<String>) -> ConnectorError {
    ConnectorError::data(format!("{} line {line}", file.path.display()), found)
}

fn zstd<R: Read>(
    file: &Opened,
    bytes: R,
) -> Result<zstd::Decoder<'static, BufReader<R>>, ConnectorError> {
    zstd::Decoder::new(bytes)
        .map_err(|error| ConnectorError::file("read", file.path.clone(), error))
}

/// Collects rows into batches of a stream's columns.
pub(super) struct Collecting {
    pub(super) builders: Vec<Builder>,
    /// The columns whose numbers must not lose digits: an inferred type of which no one decided that
    /// it may round.
    exact: Vec<bool>,
    schema: SchemaRef,
    rows: usize,
    size: usize,
    batch_size: usize,
}

impl Collecting {
    /// `given`: the columns whose types the settings have.
    pub(super) fn new(reading: &Reading<'_>, given: &BTreeMap<String, String>) -> Self {
        let is_exact =
            |column: &Column| column.wire == Wire::Float8 && !given.contains_key(&column.name);
        Self {
            builders: reading.columns.iter().map(Builder::new).collect(),
            exact: reading.columns.iter().map(is_exact).collect(),
            schema: Arc::new(schema(reading.columns)),
            rows: 0,
            size: 0,
            batch_size: reading.batch_size,
        }
    }

    /// Appends a text to a column.
    pub(super) fn text(&mut self, at: usize, text: &str) -> Result<(), Wanted> {
        self.check(at, text)?;
        self.builders.get_mut(at).map_or(Ok(()), |builder| builder.text(text))
    }

    /// Appends the JSON of a value to a column.
    pub(super) fn json(&mut self, at: usize, json: &str) -> Result<(), Wanted> {
        self.check(at, json.trim_matches('"'))?;
        self.builders.get_mut(at).map_or(Ok(()), |builder| builder.json(json))
    }

    /// Refuses a number that would become another one.
    fn check(&self, at: usize, text: &str) -> Result<(), Wanted> {
        match self.exact.get(at).is_some_and(|is_exact| *is_exact) && is_changed_by_float(text) {
            true => {
                let shown: String = text.chars().take(60).collect();
                Err(format!("{shown:?} would lose digits as double precision"))
            }
            false => Ok(()),
        }
    }

    /// Counts a row of `bytes` bytes. Returns whether the batch is full.
    pub(super) fn row(&mut self, bytes: usize) -> bool {
        self.rows += 1;
        self.size += bytes + self.builders.len() * VALUE_SIZE;
        self.size >= self.batch_size || self.rows >= BATCH_ROWS_MAX
    }

    /// Takes the collected rows.
    pub(super) fn take(&mut self, file: &Opened) -> Result<RecordBatch, ConnectorError> {
        let arrays = self.builders.iter_mut().map(Builder::finish).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.size) = (0, 0);
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options).map_err(
            |error| ConnectorError::data(file.path.display().to_string(), error.to_string()),
        )
    }
}

/// The types that all values of a column may have.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    any: bool,
    not: u8,
}

/// The inferred types, narrowest first, each with its own bit.
const BOOL: u8 = 1;
const INT: u8 = 2;
const NUMERIC: u8 = 4;
const FLOAT: u8 = 8;
const DATE: u8 = 16;
const TIMESTAMP: u8 = 32;
const TIMESTAMPTZ: u8 = 64;
/// Numbers with exponents, of which a double would lose digits.
const WIDE: u8 = 128;

impl Seen {
    /// Examines a value.
    pub(super) fn look(&mut self, text: &str) {
        self.any = true;
        let mut rule_out = |bit: u8, fits: &dyn Fn() -> bool| {
            if self.not & bit == 0 && !fits() {
                self.not |= bit;
            }
        };
        rule_out(BOOL, &|| matches!(text, "true" | "false" | "True" | "False" | "TRUE" | "FALSE"));
        rule_out(INT, &|| is_plain(text, false) && text.parse::<i64>().is_ok());
        rule_out(NUMERIC, &|| is_plain(text, true));
        rule_out(FLOAT, &|| is_float(text));
        rule_out(WIDE, &|| is_numeric(text));
        rule_out(DATE, &|| time::read_date(text).is_some());
        rule_out(TIMESTAMP, &|| time::read_timestamp(text, false).is_some());
        rule_out(TIMESTAMPTZ, &|| time::read_timestamp(text, true).is_some());
    }

    /// The name of the type that all of them have.
    pub(super) fn type_name(self) -> &'static str {
        let names = [
            (BOOL, "boolean"),
            (INT, "bigint"),
            (NUMERIC, "numeric"),
            (FLOAT, "double precision"),
            (WIDE, "numeric"),
            (DATE, "date"),
            (TIMESTAMP, "timestamp"),
            (TIMESTAMPTZ, "timestamptz"),
        ];
        let fits = names.iter().find(|(bit, _)| self.any && self.not & bit == 0);
        fits.map_or("text", |(_, name)| name)
    }
}

/// The columns of these names and types, except where types are given.
pub(super) fn typed(
    found: Vec<(String, &'static str)>,
    given: &BTreeMap<String, String>,
) -> Result<Vec<Column>, ConnectorError> {
    let column = |(name, type_name): (String, &str)| {
        let type_name = given.get(&name).map_or(type_name, String::as_str);
        types::column(&name, type_name).ok_or_else(|| {
            ConnectorError::unsupported(
                format!("column {name:?} cannot be given the type {type_name:?}"),
                "name a type of PostgreSQL such as bigint, numeric(10,2), timestamptz or text[]",
            )
        })
    };
    found.into_iter().map(column).collect()
}

/// Checks that every given type belongs to an existing column.
pub(super) fn check_given(
    columns: &[Column],
    given: &BTreeMap<String, String>,
    file: &Opened,
) -> Result<(), ConnectorError> {
    let unknown = given.keys().find(|name| !columns.iter().any(|it| it.name == **name));
    match unknown {
        Some(name) => {
            let found = format!("it has no column {name:?}, although `columns` gives it a type");
            Err(ConnectorError::data(file.path.display().to_string(), found))
        }
        None => Ok(()),
    }
}
