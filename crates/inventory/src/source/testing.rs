//! Shared by the tests of sources: objects, files with them, and a sink that collects.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow::array::{
    ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;

use super::input::md5_hex;
use super::{BadRow, RowSink, Settings, Source, SourceError, Spec, Stopped, open};
use crate::object::{Batch, Classes, Object};

/// Collects objects and invalid rows.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) objects: Vec<(Vec<u8>, Object)>,
    pub(crate) bad: Vec<BadRow>,
    pub(crate) bytes: u64,
    /// Whether the first invalid row ends it.
    pub(crate) strict: bool,
}

impl RowSink for Kept {
    fn rows(&mut self, batch: &mut Batch) -> Result<(), Stopped> {
        assert!(!batch.is_empty());
        self.objects.extend(batch.iter().map(|(key, object)| (key.to_vec(), *object)));
        batch.clear();
        Ok(())
    }

    fn bad_row(&mut self, row: BadRow) -> Result<(), Stopped> {
        self.bad.push(row);
        if self.strict { Err(Stopped) } else { Ok(()) }
    }

    fn bytes(&mut self, more: u64) {
        self.bytes += more;
    }
}

/// A row as its writer knows it.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) key: String,
    pub(crate) size: Option<i64>,
    pub(crate) class: &'static str,
    pub(crate) modified_ms: i64,
    pub(crate) version: &'static str,
    pub(crate) latest: bool,
    pub(crate) marker: bool,
    pub(crate) tier: &'static str,
}

/// Rows of every kind.
pub(crate) fn rows(count: usize) -> Vec<Row> {
    let classes = ["STANDARD", "GLACIER", "INTELLIGENT_TIERING", "STANDARD_IA", "OWN CLASS"];
    let row = |i: usize| Row {
        key: format!("a b/c+{}/ü%{i}\"q\".bin", i % 7),
        size: (i % 11 != 10).then(|| i64::try_from(i * i).unwrap()),
        class: classes[i % classes.len()],
        modified_ms: 1_700_000_000_000 + i64::try_from(i).unwrap() * 86_400_000,
        version: ["", "v1", "null"][i % 3],
        latest: i % 4 != 3,
        marker: i % 11 == 10,
        tier: if i % classes.len() == 2 { ["ARCHIVE", "FREQUENT", ""][i % 3] } else { "" },
    };
    (0..count).map(row).collect()
}

/// Fields of an S3 Inventory with versions, as the CSV kind names them.
pub(crate) const FIELDS: &str = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size, \
    LastModifiedDate, StorageClass, IntelligentTieringAccessTier";

/// The contents of `spec`, and what was read of it.
pub(crate) fn read(spec: &str, settings: &Settings) -> Result<Kept, SourceError> {
    let source = open(&[spec.parse::<Spec>()?], settings)?;
    read_all(source.as_ref())
}

/// All parts of a source, objects in the order of their keys.
pub(crate) fn read_all(source: &dyn Source) -> Result<Kept, SourceError> {
    let mut kept = Kept::default();
    for part in source.parts()? {
        let (size, before) = (part.size(), kept.bytes);
        part.read(&mut kept)?;
        assert!(size.is_none_or(|size| size == kept.bytes - before), "progress adds up");
    }
    kept.objects.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.version.cmp(&b.1.version)));
    Ok(kept)
}

/// Settings of a separate build.
pub(crate) fn settings() -> Settings {
    Settings::new(Arc::new(Classes::new()))
}

/// The name of a class of these settings.
pub(crate) fn class(settings: &Settings, object: &Object) -> String {
    settings.classes.names()[usize::from(object.class.0)].clone()
}

/// Rows in S3's CSV form: without a header, every field quoted, keys encoded.
pub(crate) fn csv(rows: &[Row]) -> Vec<u8> {
    let mut text = String::new();
    for row in rows {
        let key: String = row.key.bytes().map(encoded).collect();
        let date = jiff::Timestamp::from_millisecond(row.modified_ms).unwrap();
        let size = row.size.map_or(String::new(), |size| size.to_string());
        let Row { version, latest, marker, class, tier, .. } = row;
        let date = date.strftime("%Y-%m-%dT%H:%M:%S.000Z");
        text += &format!(
            "\"bucket\",\"{key}\",\"{version}\",\"{latest}\",\"{marker}\",\"{size}\",\"{date}\",\"{class}\",\"{tier}\"\n"
        );
    }
    text.into_bytes()
}

fn encoded(byte: u8) -> String {
    match byte {
        b' ' => "+".to_owned(),
        b'/' | b'.' | b'-' | b'_' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    }
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Rows as the columns of S3's Parquet files.
pub(crate) fn columns(rows: &[Row]) -> Vec<(&'static str, ArrayRef)> {
    let text = |f: &dyn Fn(&Row) -> Option<&str>| {
        Arc::new(rows.iter().map(f).collect::<StringArray>()) as ArrayRef
    };
    let boolean = |f: &dyn Fn(&Row) -> bool| {
        Arc::new(rows.iter().map(|row| Some(f(row))).collect::<BooleanArray>()) as ArrayRef
    };
    let sizes: Int64Array = rows.iter().map(|row| row.size).collect();
    let dates: TimestampMillisecondArray = rows.iter().map(|row| Some(row.modified_ms)).collect();
    vec![
        ("bucket", text(&|_| Some("bucket"))),
        ("key", text(&|row| Some(&row.key))),
        ("version_id", text(&|row| Some(row.version).filter(|id| !id.is_empty()))),
        ("is_latest", boolean(&|row| row.latest)),
        ("is_delete_marker", boolean(&|row| row.marker)),
        ("size", Arc::new(sizes)),
        ("last_modified_date", Arc::new(dates.with_timezone("UTC"))),
        ("storage_class", text(&|row| Some(row.class))),
        ("intelligent_tiering_access_tier", text(&|row| Some(row.tier).filter(|t| !t.is_empty()))),
    ]
}

/// A Parquet file of some columns, in row groups of at most this many rows.
pub(crate) fn parquet(columns: Vec<(&'static str, ArrayRef)>, group_rows: usize) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_compression(parquet::basic::Compression::SNAPPY)
        .set_max_row_group_row_count(Some(group_rows))
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

/// Writes an inventory of these data files into `dir`, in S3's layout; returns the manifest's path.
pub(crate) fn inventory(
    dir: &Path,
    format: &str,
    schema: &str,
    files: &[(&str, Vec<u8>)],
) -> std::path::PathBuf {
    let data = dir.join("bucket/daily/data");
    let dated = dir.join("bucket/daily/2024-05-06T01-00Z");
    fs::create_dir_all(&data).unwrap();
    fs::create_dir_all(&dated).unwrap();
    let described: Vec<_> = files
        .iter()
        .map(|(name, content)| {
            fs::write(data.join(name), content).unwrap();
            let key = format!("bucket/daily/data/{name}");
            serde_json::json!({"key": key, "size": content.len(), "MD5checksum": md5_hex(content)})
        })
        .collect();
    let manifest = serde_json::json!({
        "sourceBucket": "bucket",
        "destinationBucket": "arn:aws:s3:::archive",
        "version": "2016-11-30",
        "creationTimestamp": "1714957200000",
        "fileFormat": format,
        "fileSchema": schema,
        "files": described,
    });
    let manifest = serde_json::to_vec(&manifest).unwrap();
    fs::write(dated.join("manifest.json"), &manifest).unwrap();
    fs::write(dated.join("manifest.checksum"), md5_hex(&manifest) + "\n").unwrap();
    dated.join("manifest.json")
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    text
}

/// A connection of `tokio` in the form that `hyper` requires.
pub(crate) struct Io(pub(crate) TcpStream);

impl hyper::rt::Read for Io {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = [0; 16 << 10];
        let room = buffer.remaining().min(bytes.len());
        let mut read = ReadBuf::new(&mut bytes[..room]);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut read))?;
        buffer.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Io {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
