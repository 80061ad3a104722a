//! Events as columns.

use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use arrow::array::{
    ArrayRef, BinaryBuilder, FixedSizeBinaryBuilder, RecordBatch, StringBuilder,
    StringDictionaryBuilder, TimestampNanosecondBuilder, UInt64Builder,
};
use arrow::datatypes::{DataType, Field, Fields, Int32Type, Schema, SchemaRef, TimeUnit};
use forebay_events::TimeSource;
use forebay_events::merkle::HASH_SIZE;
use forebay_events::render;

use super::{Row, rebuild};

/// Dictionary-encoded columns; empty texts are null in those that are nullable.
const TAGS: [(&str, bool); 8] = [
    ("stream", false),
    ("type", true),
    ("severity", false),
    ("host", true),
    ("ip", true),
    ("collector", true),
    ("format", true),
    (TIME_SOURCE, true),
];
/// The column that exports of earlier versions do not have.
const TIME_SOURCE: &str = "time_source";

static SCHEMA: LazyLock<SchemaRef> = LazyLock::new(|| {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    let tag = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let hash = DataType::FixedSizeBinary(HASH_LENGTH);
    let mut fields = vec![
        Field::new("id", DataType::Utf8, false),
        Field::new("seq", DataType::UInt64, false),
        Field::new("timestamp", time, false),
    ];
    fields.extend(TAGS.map(|(name, nullable)| Field::new(name, tag.clone(), nullable)));
    fields.extend([
        Field::new("raw", DataType::Binary, false),
        Field::new("attributes", DataType::Utf8, true),
        Field::new("attributes_canonical", DataType::Binary, true),
        Field::new("leaf_hash", hash, false),
    ]);
    Arc::new(Schema::new(fields))
});

#[expect(clippy::cast_possible_truncation, reason = "it is 32")]
const HASH_LENGTH: i32 = HASH_SIZE as i32;

/// The columns of an export.
pub(crate) fn schema() -> SchemaRef {
    Arc::clone(&SCHEMA)
}

/// Whether these are the columns of an export, of this version or an earlier one.
pub(crate) fn is_schema(fields: &Fields) -> bool {
    let earlier = SCHEMA.fields().iter().filter(|field| field.name() != TIME_SOURCE);
    fields == SCHEMA.fields() || fields.iter().eq(earlier)
}

/// Rows collected by column.
pub(crate) struct Columns {
    rows: usize,
    size: usize,
    id: StringBuilder,
    seq: UInt64Builder,
    timestamp: TimestampNanosecondBuilder,
    tags: [StringDictionaryBuilder<Int32Type>; TAGS.len()],
    raw: BinaryBuilder,
    attributes: StringBuilder,
    attributes_canonical: BinaryBuilder,
    leaf_hash: FixedSizeBinaryBuilder,
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            rows: 0,
            size: 0,
            id: StringBuilder::new(),
            seq: UInt64Builder::new(),
            timestamp: TimestampNanosecondBuilder::new().with_timezone("UTC"),
            tags: std::array::from_fn(|_| StringDictionaryBuilder::new()),
            raw: BinaryBuilder::new(),
            attributes: StringBuilder::new(),
            attributes_canonical: BinaryBuilder::new(),
            leaf_hash: FixedSizeBinaryBuilder::new(HASH_LENGTH),
        }
    }
}

impl Columns {
    /// Returns the number of rows collected.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns their approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Adds a row.
    ///
    /// # Errors
    /// There are too many texts for one batch, or the row is not canonical.
    pub(crate) fn push(&mut self, row: &Row) -> anyhow::Result<()> {
        let leaf = row.record.leaf();
        let event = row.record.event();
        let canonical = rebuild::attributes_of(leaf, &event)?;
        let tags = &event.tags;
        let ip = tags.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let texts = [
            tags.stream,
            tags.kind,
            tags.severity.name(),
            tags.host,
            ip.as_str(),
            tags.collector,
            tags.format,
            match tags.time_source {
                TimeSource::Unknown => "",
                source => source.name(),
            },
        ];
        for (column, text) in self.tags.iter_mut().zip(texts) {
            if text.is_empty() {
                column.append_null();
            } else {
                column.append(text)?;
            }
        }
        self.id.append_value(event.id.to_string());
        self.seq.append_value(row.record.seq());
        self.timestamp.append_value(event.timestamp_ns);
        self.raw.append_value(event.raw);
        if event.attributes.is_empty() {
            self.attributes.append_null();
            self.attributes_canonical.append_null();
        } else {
            let json = render::event(&row.record);
            let text = json.get("attributes").context("attributes are missing")?.to_string();
            self.size += text.len();
            self.attributes.append_value(text);
            self.attributes_canonical.append_value(canonical);
        }
        self.leaf_hash.append_value(row.leaf_hash.as_bytes())?;
        self.rows += 1;
        self.size += leaf.len() + canonical.len();
        Ok(())
    }

    /// Returns the collected rows, and removes them.
    ///
    /// # Errors
    /// The columns do not fit the schema.
    pub(crate) fn take(&mut self) -> anyhow::Result<RecordBatch> {
        let Self {
            id, seq, timestamp, tags, raw, attributes, attributes_canonical, leaf_hash, ..
        } = self;
        let mut columns: Vec<ArrayRef> =
            vec![Arc::new(id.finish()), Arc::new(seq.finish()), Arc::new(timestamp.finish())];
        columns.extend(tags.iter_mut().map(|tag| Arc::new(tag.finish()) as ArrayRef));
        columns.push(Arc::new(raw.finish()));
        columns.push(Arc::new(attributes.finish()));
        columns.push(Arc::new(attributes_canonical.finish()));
        columns.push(Arc::new(leaf_hash.finish()));
        (self.rows, self.size) = (0, 0);
        Ok(RecordBatch::try_new(schema(), columns)?)
    }
}
