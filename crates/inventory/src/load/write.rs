//! Writes a generated inventory in S3's layout: data files in `data/`, their MD5s in
//! `manifest.json`, and its own in `manifest.checksum`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanBuilder, Int64Builder, RecordBatch, StringBuilder, TimestampMillisecondBuilder,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use md5::{Digest as _, Md5};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::{Load, MadeUp, mix};

/// Rows converted to columns at once.
const BATCH_ROWS: u64 = 1 << 16;
/// The listed bucket.
const BUCKET: &str = "made-up";
/// The date of the listing: 2025-01-01.
const LISTED_MS: u64 = 1_735_689_600_000;
const CSV_SCHEMA: &str = "Bucket, Key, Size, LastModifiedDate, ETag, StorageClass, \
    IsMultipartUploaded";
const PARQUET_SCHEMA: &str = "message s3.inventory {\n  required binary bucket (STRING);\n  \
    required binary key (STRING);\n  optional int64 size;\n  optional int64 last_modified_date \
    (TIMESTAMP(MILLIS,true));\n  optional binary e_tag (STRING);\n  optional binary storage_class \
    (STRING);\n  optional boolean is_multipart_uploaded;\n}\n";

/// The format of an inventory's data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Parquet, its pages compressed with Snappy.
    Parquet,
    /// CSV, compressed with gzip; keys are percent-encoded.
    Csv,
}

/// Options of a written inventory.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The format of its files.
    pub format: Format,
    /// Number of objects, starting at number 0.
    pub objects: u64,
    /// Number of data files; at least one is written.
    pub files: u64,
    /// Rows of a row group, if the format has them.
    pub group_rows: usize,
}

impl Layout {
    /// This many objects in a few Parquet files, in row groups of 500,000.
    #[must_use]
    pub fn parquet(objects: u64) -> Self {
        let files = objects.div_ceil(1_000_000).clamp(2, 64);
        Self { format: Format::Parquet, objects, files, group_rows: 500_000 }
    }

    /// This many objects in a few compressed CSV files.
    #[must_use]
    pub fn csv(objects: u64) -> Self {
        Self { format: Format::Csv, ..Self::parquet(objects) }
    }
}

/// A file of an inventory that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{act} {}", path.display())]
pub struct WriteError {
    act: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl WriteError {
    fn of(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { act, path: path.to_owned(), source }
    }
}

/// A written data file.
struct DataFile {
    name: String,
    size: u64,
    md5: String,
}

impl Load {
    /// Writes its first objects into `dir`, which is created; returns the path of the manifest.
    ///
    /// # Errors
    /// A file could not be written.
    pub fn write(&self, dir: &Path, layout: &Layout) -> Result<PathBuf, WriteError> {
        let data = dir.join("data");
        fs::create_dir_all(&data).map_err(WriteError::of("create", &data))?;
        let count = layout.files.max(1);
        let share = layout.objects.div_ceil(count).max(1);
        let mut files = Vec::new();
        for number in 0..count {
            let first = (number * share).min(layout.objects);
            let objects = first..(first + share).min(layout.objects);
            let (format, ending) = match layout.format {
                Format::Parquet => ("Parquet", "parquet"),
                Format::Csv => ("CSV", "csv.gz"),
            };
            let name = format!("{format}-{number:04}.{ending}");
            let path = data.join(&name);
            let failed = WriteError::of("write", &path);
            files.push(self.file(&path, name, objects, layout).map_err(failed)?);
        }
        let (format, schema) = match layout.format {
            Format::Parquet => ("Parquet", PARQUET_SCHEMA),
            Format::Csv => ("CSV", CSV_SCHEMA),
        };
        let described: Vec<_> = files
            .iter()
            .map(|file| {
                let key = format!("{BUCKET}/{}/data/{}", self.shape.name(), file.name);
                serde_json::json!({"key": key, "size": file.size, "MD5checksum": file.md5})
            })
            .collect();
        let manifest = serde_json::json!({
            "sourceBucket": BUCKET,
            "destinationBucket": "arn:aws:s3:::inventories",
            "version": "2016-11-30",
            "creationTimestamp": LISTED_MS.to_string(),
            "fileFormat": format,
            "fileSchema": schema,
            "files": described,
        });
        let manifest = format!("{manifest:#}");
        let path = dir.join("manifest.json");
        fs::write(&path, &manifest).map_err(WriteError::of("write", &path))?;
        let checksum = dir.join("manifest.checksum");
        let md5 = hex::encode(Md5::digest(&manifest)) + "\n";
        fs::write(&checksum, md5).map_err(WriteError::of("write", &checksum))?;
        Ok(path)
    }

    fn file(
        &self,
        path: &Path,
        name: String,
        objects: std::ops::Range<u64>,
        layout: &Layout,
    ) -> io::Result<DataFile> {
        let file = Digested { file: File::create(path)?, size: 0, md5: Md5::new() };
        let out = BufWriter::with_capacity(1 << 18, file);
        let out = match layout.format {
            Format::Parquet => self.parquet(out, objects, layout.group_rows)?,
            Format::Csv => self.csv(out, objects)?,
        };
        let Digested { size, md5, .. } = out.into_inner()?;
        Ok(DataFile { name, size, md5: hex::encode(md5.finalize()) })
    }

    fn parquet<W: Write + Send>(
        &self,
        out: W,
        objects: std::ops::Range<u64>,
        group_rows: usize,
    ) -> io::Result<W> {
        let properties = WriterProperties::builder()
            .set_compression(parquet::basic::Compression::SNAPPY)
            .set_max_row_group_row_count(Some(group_rows))
            .build();
        let mut columns = Columns::default();
        let schema = columns.batch()?.schema();
        let mut writer = ArrowWriter::try_new(out, schema, Some(properties))?;
        let mut key = Vec::new();
        for i in objects.clone() {
            let made_up = self.object(i, &mut key);
            let text = std::str::from_utf8(&key).map_err(io::Error::other)?;
            columns.push(text, &made_up, &e_tag(i), i);
            if (i + 1 - objects.start).is_multiple_of(BATCH_ROWS) {
                writer.write(&columns.batch()?)?;
            }
        }
        writer.write(&columns.batch()?)?;
        Ok(writer.into_inner()?)
    }

    fn csv<W: Write>(&self, out: W, objects: std::ops::Range<u64>) -> io::Result<W> {
        let mut out = BufWriter::with_capacity(1 << 16, GzEncoder::new(out, Compression::new(6)));
        let (mut key, mut encoded) = (Vec::new(), String::new());
        for i in objects {
            let MadeUp { size, class, modified_ms } = self.object(i, &mut key);
            encode(&key, &mut encoded);
            let date = jiff::Timestamp::from_millisecond(modified_ms).map_err(io::Error::other)?;
            let date = date.strftime("%Y-%m-%dT%H:%M:%S.000Z");
            let multipart = is_multipart(i);
            writeln!(
                out,
                r#""{BUCKET}","{encoded}","{size}","{date}","{}","{class}","{multipart}""#,
                e_tag(i)
            )?;
        }
        out.into_inner()?.finish()
    }
}

/// The columns of some rows.
#[derive(Default)]
struct Columns {
    bucket: StringBuilder,
    key: StringBuilder,
    size: Int64Builder,
    modified: TimestampMillisecondBuilder,
    e_tag: StringBuilder,
    class: StringBuilder,
    multipart: BooleanBuilder,
}

impl Columns {
    fn push(&mut self, key: &str, made_up: &MadeUp, e_tag: &str, i: u64) {
        self.bucket.append_value(BUCKET);
        self.key.append_value(key);
        self.size.append_value(made_up.size.cast_signed());
        self.modified.append_value(made_up.modified_ms);
        self.e_tag.append_value(e_tag);
        self.class.append_value(made_up.class);
        self.multipart.append_value(is_multipart(i));
    }

    /// Takes the rows and leaves none.
    fn batch(&mut self) -> io::Result<RecordBatch> {
        let columns: [(&str, ArrayRef, bool); 7] = [
            ("bucket", Arc::new(self.bucket.finish()), false),
            ("key", Arc::new(self.key.finish()), false),
            ("size", Arc::new(self.size.finish()), true),
            ("last_modified_date", Arc::new(self.modified.finish().with_timezone("UTC")), true),
            ("e_tag", Arc::new(self.e_tag.finish()), true),
            ("storage_class", Arc::new(self.class.finish()), true),
            ("is_multipart_uploaded", Arc::new(self.multipart.finish()), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).map_err(io::Error::other)
    }
}

/// A file that computes its size and MD5.
struct Digested {
    file: File,
    size: u64,
    md5: Md5,
}

impl Write for Digested {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.md5.update(bytes.get(..written).unwrap_or_default());
        self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn e_tag(i: u64) -> String {
    format!("{:016x}{:016x}", mix(i ^ 0xE7A6), mix(i))
}

fn is_multipart(i: u64) -> bool {
    mix(i) & 15 == 0
}

/// Encodes a key as S3 does in CSV.
fn encode(key: &[u8], encoded: &mut String) {
    encoded.clear();
    for &byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_') {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push_str(&hex::encode_upper([byte]));
        }
    }
}
