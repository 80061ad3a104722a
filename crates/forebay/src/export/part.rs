//! One file of an export while it is written.

use std::io::{BufWriter, Write};

use anyhow::Context as _;
use forebay_events::render;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::columns::{self, Columns};
use super::manifest::Entry;
use super::target::Staged;
use super::{FORMAT_VERSION, Format, Row, Signed};

/// Maximum number of rows of a row group.
const ROW_GROUP_ROWS_MAX: usize = 64 * 1024;
/// Maximum encoded size of a row group, which is the memory a part uses.
const ROW_GROUP_SIZE_MAX: usize = 64 << 20;
/// Number of rows collected before they are encoded.
const BATCH_ROWS_MAX: usize = 8 * 1024;
/// Number of bytes collected before they are encoded.
const BATCH_SIZE_MAX: usize = 8 << 20;
/// Number of bytes of lines collected before they are written.
const LINES_SIZE: usize = 256 * 1024;
const ZSTD_LEVEL: i32 = 3;

/// A part that accepts rows.
pub(crate) struct Part {
    directory: String,
    path: String,
    rows: u64,
    first_seq: u64,
    last_seq: u64,
    body: Body,
}

enum Body {
    Parquet(Box<Table>),
    Ndjson(BufWriter<Staged>),
}

/// Rows being written to a Parquet file.
struct Table {
    writer: ArrowWriter<Staged>,
    columns: Columns,
}

impl Part {
    /// Begins a part with the final name `path`.
    ///
    /// # Errors
    /// The temporary file cannot be written.
    pub(crate) fn begin(
        staged: Staged,
        directory: String,
        path: String,
        format: Format,
        signed: Option<&Signed>,
    ) -> anyhow::Result<Self> {
        let body = match format {
            Format::Ndjson => Body::Ndjson(BufWriter::with_capacity(LINES_SIZE, staged)),
            Format::Parquet => {
                let properties = properties(signed).context("zstd does not support this level")?;
                let writer = ArrowWriter::try_new(staged, columns::schema(), Some(properties))
                    .with_context(|| format!("cannot create {path}"))?;
                Body::Parquet(Box::new(Table { writer, columns: Columns::default() }))
            }
        };
        Ok(Self { directory, path, rows: 0, first_seq: u64::MAX, last_seq: 0, body })
    }

    /// Returns whether it may take one more row, of a directory.
    pub(crate) fn fits(&self, directory: &str, rows_max: u64) -> bool {
        self.rows < rows_max && self.directory == directory
    }

    /// Adds a row.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn push(&mut self, row: Row) -> anyhow::Result<()> {
        let seq = row.record.seq();
        match &mut self.body {
            Body::Parquet(table) => table.push(&row),
            Body::Ndjson(out) => push_line(out, &row),
        }
        .with_context(|| format!("cannot write {}", self.path))?;
        self.rows += 1;
        self.first_seq = self.first_seq.min(seq);
        self.last_seq = self.last_seq.max(seq);
        Ok(())
    }

    /// Completes the file; then it only has to be renamed.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn finish(self) -> anyhow::Result<(Staged, Entry)> {
        let Self { path, rows, first_seq, last_seq, body, .. } = self;
        let staged = match body {
            Body::Parquet(table) => table.finish(rows, first_seq, last_seq),
            Body::Ndjson(out) => {
                out.into_inner().map_err(|error| anyhow::Error::new(error.into_error()))
            }
        }
        .with_context(|| format!("cannot complete {path}"))?;
        let (bytes, sha256) = (staged.bytes(), staged.sha256());
        Ok((staged, Entry { path, rows, bytes, sha256, first_seq, last_seq }))
    }
}

impl Table {
    fn push(&mut self, row: &Row) -> anyhow::Result<()> {
        self.columns.push(row)?;
        if self.columns.rows() >= BATCH_ROWS_MAX || self.columns.size() >= BATCH_SIZE_MAX {
            self.writer.write(&self.columns.take()?)?;
        }
        Ok(())
    }

    fn finish(mut self, rows: u64, first_seq: u64, last_seq: u64) -> anyhow::Result<Staged> {
        if self.columns.rows() > 0 {
            self.writer.write(&self.columns.take()?)?;
        }
        let numbers = [("rows", rows), ("first_seq", first_seq), ("last_seq", last_seq)];
        for (name, number) in numbers {
            self.writer.append_key_value_metadata(entry(name, number.to_string()));
        }
        Ok(self.writer.into_inner()?)
    }
}

fn entry(name: &str, value: String) -> KeyValue {
    KeyValue::new(format!("forebay.{name}"), value)
}

fn properties(signed: Option<&Signed>) -> parquet::errors::Result<WriterProperties> {
    let mut metadata = vec![entry("format_version", FORMAT_VERSION.to_string())];
    if let Some(signed) = signed {
        metadata.push(entry("checkpoint", signed.checkpoint.clone()));
        metadata.push(entry("verifier_key", signed.verifier_key.clone()));
    }
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS_MAX))
        .set_max_row_group_bytes(Some(ROW_GROUP_SIZE_MAX))
        .set_created_by(concat!("forebay ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(metadata));
    // These are unique in each row: a dictionary of them would be useless.
    for name in ["id", "raw", "attributes", "attributes_canonical", "leaf_hash"] {
        properties = properties.set_column_dictionary_enabled(ColumnPath::from(name), false);
    }
    for name in ["raw", "attributes", "attributes_canonical", "leaf_hash"] {
        let none = EnabledStatistics::None;
        properties = properties.set_column_statistics_enabled(ColumnPath::from(name), none);
    }
    for name in ["seq", "timestamp"] {
        properties = properties
            .set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties.build())
}

fn push_line(out: &mut impl Write, row: &Row) -> anyhow::Result<()> {
    let mut json = render::event(&row.record);
    json["leaf_hash"] = row.leaf_hash.to_string().into();
    serde_json::to_writer(&mut *out, &json)?;
    Ok(out.write_all(b"\n")?)
}
