//! The pipeline file: where rows are read, how they are transformed, and where they are written.
//!
//! One YAML file per pipeline. [`load()`] reads it, and [`json_schema`] describes it for editors.
//! Unknown fields are errors. Texts may contain names of environment variables (`${NAME}`) and of
//! files (`${file:/run/secrets/x}`); they are resolved while the file is read, and a [`Secret`] is
//! never printed.

mod load;
mod permissions;
mod section;
mod text;
mod within;

use std::num::{NonZeroU32, NonZeroU64};

use forebay_base::{ByteSize, HumanDuration};
use schemars::JsonSchema;
use serde::Deserialize;

pub use load::{LoadError, json_schema, load, load_with};
pub use permissions::{Env, Fs, Limits, Network, Permissions, Reach};
pub use section::{DestinationSection, SourceSection};
pub use text::{Resolve, Secret, Text};
pub use within::Within;

use crate::native::postgres::Settings as PostgresSettings;
use crate::transform::TransformSettings;

/// A pipeline file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PipelineFile {
    /// Version of this format: 1.
    pub version: Version,
    /// Name of the pipeline. It identifies its state and its ledger.
    pub pipeline: Name,
    /// Where rows are read from.
    pub source: SourceSection,
    /// Transforms of the rows, in order.
    #[serde(default)]
    pub transforms: Vec<TransformSettings>,
    /// Where rows are written to.
    pub destination: DestinationSection,
    /// Where runs are recorded.
    #[serde(default)]
    pub state: StateSettings,
    /// Limits on the resources of a run.
    #[serde(default)]
    pub resources: Resources,
}

impl PipelineFile {
    /// Recommended number of threads of a run on a machine with this many processors.
    ///
    /// If rows are only copied from one PostgreSQL to another, each unit keeps two server processes
    /// busy. If these use all processors, every further thread here only competes with them; one
    /// thread moves more rows than four processors of a server produce or consume.
    #[must_use]
    pub fn threads(&self, processors: usize) -> usize {
        let hands_on = self.source.connector.occupies_server()
            && self.destination.connector.occupies_server()
            && self.transforms.is_empty();
        let servers = self.resources.units_at_once(processors).saturating_mul(2);
        if hands_on && servers > processors { processors.div_ceil(4) } else { processors.max(1) }
    }
}

/// The version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "u32")]
pub struct Version;

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u64::deserialize(deserializer)? {
            1 => Ok(Self),
            other => Err(serde::de::Error::custom(format_args!(
                "this Forebay reads version 1, but the file has version {other}"
            ))),
        }
    }
}

/// A name of 1 to 128 letters, digits, `.`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, JsonSchema)]
#[schemars(with = "String")]
pub struct Name(String);

impl Name {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 128 || !name.bytes().all(fits) {
            return Err(serde::de::Error::custom(format_args!(
                "the name {name:?} is invalid; use 1 to 128 letters, digits, '.', '_' or '-'"
            )));
        }
        Ok(Self(name))
    }
}

/// How a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    /// All rows, in every run.
    #[default]
    FullRefresh,
    /// Rows that are new since the last run, by a cursor field.
    Incremental,
    /// Changes from the database's log. Not implemented yet.
    Cdc,
}

/// A stream to read.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamSettings {
    /// Name in the source: `schema.table`, a collection, or a pattern of files.
    pub name: String,
    /// Name in the destination. The default is the last part of `name`.
    #[serde(default)]
    pub into: Option<String>,
    /// Which rows are read.
    #[serde(default)]
    pub sync_mode: SyncMode,
    /// Column that increases with every change, for `incremental`.
    #[serde(default)]
    pub cursor_field: Option<String>,
    /// Column that distinguishes rows with the same cursor value, for `incremental`.
    #[serde(default)]
    pub tie_breaker_field: Option<String>,
    /// Column whose ranges are read in parallel.
    #[serde(default)]
    pub partition_key: Option<String>,
    /// Columns to read, in this order. An empty list reads all.
    #[serde(default)]
    pub columns: Vec<String>,
}

/// How rows are combined with existing rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteMode {
    /// Rows are appended.
    #[default]
    Append,
    /// Rows replace all existing rows, at once, when the load is complete.
    Replace,
    /// Rows replace existing rows with the same key.
    Upsert,
}

/// What to do with a row that the destination refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDataError {
    /// Fail the run and write nothing of the unit.
    #[default]
    Fail,
    /// Skip the row and count it.
    Skip,
    /// Store the row as a dead letter, with the reason and its origin.
    Dlq,
}

/// How rows are sent to a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadMethod {
    /// By binary COPY.
    #[default]
    Copy,
    /// By multi-row INSERT.
    Insert,
}

/// What to do when the source has a column that the destination lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NewColumn {
    /// Add the column.
    #[default]
    Add,
    /// Leave the column out.
    Ignore,
    /// Fail the run.
    Fail,
}

/// What to do when the destination has a column that the source lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RemovedColumn {
    /// Keep the column. New rows get its default.
    #[default]
    Ignore,
    /// Fail the run.
    Fail,
}

/// What to do when a column has another type than in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TypeChange {
    /// Fail the run.
    #[default]
    Fail,
    /// Change the column to the source's type, if its values can be cast.
    Alter,
}

/// What to do when a column is NOT NULL in the destination, but nullable in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NullabilityChange {
    /// Make the column nullable.
    #[default]
    Allow,
    /// Fail the run.
    Fail,
}

/// How the destination follows changes of the source's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SchemaEvolution {
    /// A column that only the source has.
    pub new_column: NewColumn,
    /// A column that only the destination has.
    pub removed_column: RemovedColumn,
    /// A column whose type differs.
    pub type_change: TypeChange,
    /// A column that is nullable only in the source.
    pub nullability_change: NullabilityChange,
}

/// Where and how one stream is written.
#[derive(Debug, Clone)]
pub struct TargetSettings {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the stream in the source.
    pub stream: String,
    /// Its name in the destination.
    pub into: String,
    /// How rows are combined with existing rows.
    pub write_mode: WriteMode,
    /// Key columns for `upsert`.
    pub primary_key: Vec<String>,
    /// What to do with refused rows.
    pub on_data_error: OnDataError,
    /// How the destination follows changes of the source's columns.
    pub schema_evolution: SchemaEvolution,
    /// How rows are sent.
    pub load_method: LoadMethod,
}

/// Where runs are recorded.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StateSettings {
    /// Where the records are kept.
    pub backend: StateBackend,
    /// Settings of the server, for `backend: postgres`.
    pub config: Option<PostgresSettings>,
}

/// Where runs are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateBackend {
    /// In the file `pipelines.sqlite` in the data directory.
    #[default]
    Sqlite,
    /// In the table `pipeline_runs` of a PostgreSQL, in its `ledger_schema`, to share it between
    /// machines.
    Postgres,
}

/// How batches are compressed while they wait between two stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: fast.
    Lz4,
    /// Zstandard: smaller.
    Zstd,
}

/// Limits on the resources of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Maximum size in bytes of all batches in transit together.
    #[schemars(with = "String")]
    pub max_memory: ByteSize,
    /// Size of a batch in bytes; larger if a single row is. The default is 256 KiB if rows pass
    /// through unchanged, and 1 MiB as Arrow.
    #[schemars(with = "Option<String>")]
    pub max_batch_bytes: Option<ByteSize>,
    /// Maximum number of batches that wait between two stages.
    pub max_inflight_batches: Option<NonZeroU32>,
    /// Whether and how batches are compressed while they wait.
    pub compression: Compression,
    /// Whether the number of parallel units and the parts of a table are chosen from the machine
    /// and the table if they are not set.
    pub autotune: bool,
    /// Number of units copied in parallel.
    pub parallelism: Option<NonZeroU32>,
    /// Size in bytes after which a unit is committed, if a stream can be divided.
    #[schemars(with = "String")]
    pub checkpoint_interval_bytes: ByteSize,
    /// Number of rows after which a unit is committed, if that is sooner and the source has an
    /// estimate of its rows.
    pub checkpoint_interval_rows: Option<NonZeroU64>,
    /// Seconds after which a unit is committed, if that is sooner. Converted to bytes at 64 MiB a
    /// second.
    pub checkpoint_interval_seconds: Option<NonZeroU32>,
    /// Number of times a unit is tried again after a failure that may be transient.
    pub max_retries: u32,
    /// Maximum delay before the first retry. It doubles before each further one, and each is
    /// shortened at random by up to half.
    #[schemars(with = "String")]
    pub retry_after: HumanDuration,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            max_memory: ByteSize(32 << 20),
            max_batch_bytes: None,
            max_inflight_batches: None,
            compression: Compression::None,
            autotune: true,
            parallelism: None,
            checkpoint_interval_bytes: ByteSize(256 << 20),
            checkpoint_interval_rows: None,
            checkpoint_interval_seconds: None,
            max_retries: 5,
            retry_after: HumanDuration(std::time::Duration::from_millis(200)),
        }
    }
}

impl Resources {
    /// Number of units copied in parallel on a machine with this many processors.
    #[must_use]
    pub fn units_at_once(&self, processors: usize) -> usize {
        let by_itself = if self.autotune { processors } else { 1 };
        let said = self.parallelism.map(|said| usize::try_from(said.get()).unwrap_or(usize::MAX));
        said.unwrap_or(by_itself).max(1)
    }
}

/// Bytes a second used to convert time.
const RATE: u64 = 64 << 20;

impl Resources {
    /// Maximum size in bytes of a unit, as far as known before a stream is open.
    pub(crate) fn unit_size(&self) -> u64 {
        let bytes = self.checkpoint_interval_bytes.0;
        let seconds = self.checkpoint_interval_seconds;
        seconds.map_or(bytes, |seconds| bytes.min(RATE.saturating_mul(seconds.get().into())))
    }

    /// The same for a stream with an estimated number of rows and bytes.
    pub(crate) fn unit_size_of(&self, rows: u64, bytes: u64) -> u64 {
        let by_rows = self.checkpoint_interval_rows.map(|each| {
            let size = u128::from(each.get()) * u128::from(bytes) / u128::from(rows.max(1));
            u64::try_from(size).unwrap_or(u64::MAX).max(1)
        });
        by_rows.map_or(u64::MAX, |size| size).min(self.unit_size())
    }
}

/// Suffixes of files that do not describe their contents.
const ENDINGS: [&str; 9] =
    ["parquet", "csv", "tsv", "ndjson", "jsonl", "json", "gz", "gzip", "zst"];

impl StreamSettings {
    /// Name in the destination: `into`, or the last part of `name`. For `sales/orders-*.csv.gz`
    /// that is `orders`, for `sales/*.csv` it is `sales`, for `public.orders` it is `orders`.
    #[must_use]
    pub fn target(&self) -> &str {
        if let Some(into) = &self.into {
            return into;
        }
        let mut path = self.name.as_str();
        while let Some((before, ending)) = path.rsplit_once('.')
            && ENDINGS.contains(&ending)
        {
            path = before;
        }
        let is_file = path.len() < self.name.len() || self.name.contains(['/', '*']);
        if !is_file {
            return path.rsplit('.').next().unwrap_or(path);
        }
        let mut named = path.rsplit('/').filter_map(|part| {
            let literal = part.split(['*', '?', '[', '{']).next().unwrap_or_default();
            let literal = literal.trim_end_matches(['-', '_', '.']);
            (!literal.is_empty()).then_some(literal)
        });
        named.next().unwrap_or(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_end_after_bytes_rows_or_seconds_whichever_is_first() {
        let said = |yaml: &str| serde_saphyr::from_str::<Resources>(yaml).unwrap();
        let bytes = said("checkpoint_interval_bytes: 100MiB");
        assert_eq!(bytes.unit_size_of(1_000, 1_000_000), 100 << 20);
        let rows = said("{checkpoint_interval_bytes: 100MiB, checkpoint_interval_rows: 50}");
        assert_eq!(rows.unit_size_of(1_000, 1_000_000), 50_000);
        assert_eq!(rows.unit_size_of(0, 0), 1);
        assert_eq!(rows.unit_size_of(1, u64::MAX), 100 << 20);
        let seconds = said("{checkpoint_interval_bytes: 100MiB, checkpoint_interval_seconds: 1}");
        assert_eq!(seconds.unit_size(), 64 << 20);
        assert!(serde_saphyr::from_str::<Resources>("checkpoint_interval_rows: 0").is_err());
    }

    #[test]
    fn a_stream_goes_into_what_its_name_is_about() {
        for (name, target) in [
            ("orders", "orders"),
            ("public.orders", "orders"),
            ("orders.csv", "orders"),
            ("sales/orders-*.csv.gz", "orders"),
            ("sales/*.parquet", "sales"),
            ("*.csv", "*.csv"),
            ("sales/2026/", "2026"),
        ] {
            let stream: StreamSettings =
                serde_json::from_value(serde_json::json!({ "name": name })).unwrap();
            assert_eq!(stream.target(), target, "{name}");
        }
    }
}
